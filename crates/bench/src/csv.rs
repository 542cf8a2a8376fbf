//! CSV files (RFC 4180): what this crate writes and reads again, and what `bench/ports/run.py` writes.
//!
//! Fields have no line breaks; those with a comma or a quotation mark are quoted. A line with another number of fields than
//! the header is refused, never filled up.

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// A header and lines of as many fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Csv {
    /// What the columns are called.
    pub header: Vec<String>,
    /// The lines.
    pub lines: Vec<Vec<String>>,
}

/// The fields of one line.
fn fields(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut quoted, mut chars) = (false, line.chars().peekable());
    while let Some(c) = chars.next() {
        let last = all.last_mut().expect("there is one from the start");
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                last.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(String::new()),
            c => last.push(c),
        }
    }
    all
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_string() }
}

impl Csv {
    /// Without lines.
    pub fn new(header: &[&str]) -> Csv {
        Csv { header: header.iter().map(ToString::to_string).collect(), lines: Vec::new() }
    }

    /// From text.
    pub fn parse(text: &str) -> Result<Csv> {
        let mut lines = text.lines().filter(|l| !l.is_empty()).map(fields);
        let header = lines.next().context("there is no header")?;
        let lines: Vec<Vec<String>> = lines.collect();
        if let Some(i) = lines.iter().position(|l| l.len() != header.len()) {
            anyhow::bail!("line {} has {} fields, the header {}", i + 2, lines[i].len(), header.len());
        }
        Ok(Csv { header, lines })
    }

    /// From a file.
    pub fn read(path: &Path) -> Result<Csv> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Csv::parse(&text).with_context(|| path.display().to_string())
    }

    /// Into a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let line = |l: &Vec<String>| l.iter().map(|f| quoted(f)).collect::<Vec<_>>().join(",") + "\n";
        let text: String = std::iter::once(&self.header).chain(&self.lines).map(line).collect();
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Where a column is.
    pub fn column(&self, name: &str) -> Result<usize> {
        let at = self.header.iter().position(|h| h == name);
        at.with_context(|| format!("there is no column `{name}`, only {}", self.header.join(", ")))
    }

    /// Adds a line.
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
    fn fields_with_commas_and_quotation_marks_come_back() {
        let mut csv = Csv::new(&["row", "value"]);
        csv.push(vec!["l2, \"1k\" stations".to_string(), String::new()]).expect("two fields");
        let path = std::env::temp_dir().join(format!("sluice-bench-csv-{}", std::process::id()));
        csv.write(&path).expect("below the temporary folder");
        assert_eq!(Csv::read(&path).expect("it was written"), csv);
        std::fs::remove_file(path).expect("it was written");
    }

    #[test]
    fn a_line_with_too_few_fields_is_told_by_its_number() {
        let error = Csv::parse("a,b\r\n1,2\r\n3\r\n").expect_err("one is missing").to_string();
        assert_eq!(error, "line 3 has 1 fields, the header 2");
    }
}
