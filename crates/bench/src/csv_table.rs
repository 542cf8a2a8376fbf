//! CSV files (RFC 4180): those that this crate writes and reads, and those of `bench/ports/run.py`.
//!
//! A line with another number of fields than the header is refused, never padded.

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// A header and lines with the same number of fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CsvTable {
    /// The columns' names.
    pub header: Vec<String>,
    /// The lines.
    pub lines: Vec<Vec<String>>,
}

impl CsvTable {
    /// A sheet without lines.
    pub fn new(header: &[&str]) -> CsvTable {
        CsvTable { header: header.iter().map(ToString::to_string).collect(), lines: Vec::new() }
    }

    /// Parses text.
    ///
    /// # Errors
    /// If it is no CSV or a line has another number of fields.
    pub fn parse(text: &str) -> Result<CsvTable> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
        let fields = |record: &csv::StringRecord| record.iter().map(str::to_string).collect::<Vec<_>>();
        let header = fields(reader.headers()?);
        ensure!(!header.is_empty(), "there is no header");
        let mut csv_table = CsvTable { header, lines: Vec::new() };
        for (i, record) in reader.records().enumerate() {
            csv_table.push(fields(&record?)).with_context(|| format!("record {}", i + 1))?;
        }
        Ok(csv_table)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, and as [`CsvTable::parse`].
    pub fn read(path: &Path) -> Result<CsvTable> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        CsvTable::parse(&text).with_context(|| path.display().to_string())
    }

    /// Writes a file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let write = || -> Result<()> {
            let mut writer = csv::Writer::from_path(path)?;
            std::iter::once(&self.header).chain(&self.lines).try_for_each(|line| writer.write_record(line))?;
            Ok(writer.flush()?)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// The index of a column.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn column(&self, name: &str) -> Result<usize> {
        let at = self.header.iter().position(|h| h == name);
        at.with_context(|| format!("there is no column `{name}`, only {}", self.header.join(", ")))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If it has another number of fields than the header.
    pub fn push(&mut self, line: Vec<String>) -> Result<()> {
        ensure!(line.len() == self.header.len(), "{line:?} are not the columns {:?}", self.header);
        self.lines.push(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_and_quotation_marks_round_trip() {
        let mut csv = CsvTable::new(&["row", "value"]);
        csv.push(vec!["l2, \"1k\" stations".to_string(), String::new()]).expect("two fields");
        let path = std::env::temp_dir().join(format!("sluice-bench-csv-{}", std::process::id()));
        csv.write(&path).expect("below the temporary folder");
        assert_eq!(CsvTable::read(&path).expect("it was written"), csv);
        std::fs::remove_file(path).expect("it was written");
    }

    #[test]
    fn an_incomplete_line_is_reported_by_number() {
        let error = CsvTable::parse("a,b\r\n1,2\r\n3\r\n").expect_err("one is missing");
        assert_eq!(format!("{error:#}"), "record 2: [\"3\"] are not the columns [\"a\", \"b\"]");
    }
}
