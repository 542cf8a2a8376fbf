//! A file of `bench/results/`: where the figures come from, and the figures.
//!
//! Lines `# KEY: VALUE` at the top tell the origin, [`REQUIRED`] at least; the rest is CSV (RFC 4180) with a header. Numbers
//! stay text, so a page shows them with the digits that were written down.

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;

/// What each file must say about itself.
pub const REQUIRED: [&str; 5] = ["what", "machine", "build", "date", "command"];

/// One file.
#[derive(Debug)]
pub struct Sheet {
    name: String,
    heads: Vec<(String, String)>,
    columns: csv::StringRecord,
    rows: Vec<csv::StringRecord>,
}

/// A line of a file.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    sheet: &'a Sheet,
    fields: &'a csv::StringRecord,
}

impl Sheet {
    /// Reads `FOLDER/NAME.csv`.
    ///
    /// # Errors
    /// The file is missing, says too little about itself, or has a line with another number of fields than the header.
    pub fn read(folder: &Path, name: &str) -> Result<Sheet> {
        let path = folder.join(format!("{name}.csv"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Sheet::parse(name, &text).with_context(|| path.display().to_string())
    }

    fn parse(name: &str, text: &str) -> Result<Sheet> {
        let mut heads = Vec::new();
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            let (key, value) = line[1..].split_once(": ").with_context(|| format!("`{line}` is not `# KEY: VALUE`"))?;
            heads.push((key.trim().to_string(), value.trim().to_string()));
        }
        let known = |key: &str| heads.iter().any(|(k, _)| k == key);
        if let Some(key) = REQUIRED.into_iter().find(|key| !known(key)) {
            bail!("there is no line `# {key}: ...`");
        }
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let columns = reader.headers()?.clone();
        let rows = reader.records().collect::<Result<Vec<_>, _>>()?;
        ensure!(!rows.is_empty(), "there is no figure in it");
        Ok(Sheet { name: name.to_string(), heads, columns, rows })
    }

    /// The first value of a line at the top.
    fn head(&self, key: &str) -> &str {
        self.heads.iter().find(|(k, _)| k == key).map_or("", |(_, value)| value)
    }

    /// Processor, build and day, for people.
    pub fn origin(&self) -> String {
        let machine = self.head("machine").split(':').next().unwrap_or_default();
        format!("{machine}, build {}, {}", self.head("build"), self.head("date"))
    }

    /// All lines.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|fields| Row { sheet: self, fields })
    }
}

impl<'a> Row<'a> {
    /// A field.
    ///
    /// # Errors
    /// The file has no such column.
    pub fn text(&self, column: &str) -> Result<&'a str> {
        let at = self.sheet.columns.iter().position(|c| c == column);
        let at = at.with_context(|| format!("bench/results/{}.csv has no column `{column}`", self.sheet.name))?;
        Ok(&self.fields[at])
    }

    /// A field as a number; nothing if it is empty.
    ///
    /// # Errors
    /// The file has no such column, or the field holds something else.
    pub fn number(&self, column: &str) -> Result<Option<f64>> {
        match self.text(column)? {
            "" => Ok(None),
            text => {
                let context = || format!("bench/results/{}.csv, {column}: `{text}` is no number", self.sheet.name);
                text.parse().map(Some).with_context(context)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: &str = "# what: a test\n# machine: Z80: slow\n# build: 1\n# date: 1976\n# command: run\n";

    #[test]
    fn fields_are_found_by_their_column() {
        let sheet = Sheet::parse("x", &format!("{HEADS}a,b\n\"1, 2\",3.10\n4,\n")).expect("it is whole");
        let rows: Vec<Row<'_>> = sheet.rows().collect();
        assert_eq!(rows[0].text("a").expect("it is there"), "1, 2");
        assert_eq!(rows[0].number("b").expect("it is a number"), Some(3.1));
        assert_eq!(rows[1].number("b").expect("it is empty"), None);
        assert!(rows[0].number("a").is_err() && rows[0].text("c").is_err());
        assert_eq!(sheet.origin(), "Z80, build 1, 1976");
    }

    #[test]
    fn a_file_without_its_origin_or_with_a_short_line_is_refused() {
        let refused = |text: &str| format!("{:#}", Sheet::parse("x", text).expect_err("it is not whole"));
        assert_eq!(refused("# what: a test\na\n1\n"), "there is no line `# machine: ...`");
        assert!(refused(&format!("{HEADS}a,b\n1\n")).contains("found record with 1 fields"));
        assert_eq!(refused(&format!("{HEADS}a,b\n")), "there is no figure in it");
    }
}
