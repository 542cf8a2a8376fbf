//! The output of commands: text or, with `--json`, one JSON object (one per line for a stream).
//!
//! The fields of the objects are a stable interface, documented in docs/json.md: fields may be added, never renamed.
//!
//! Controllers choose the names of roles, programs and tables, so output must not reach the terminal unescaped: the
//! macros of `main.rs` pass all of it through [`visible`], and tables pass cells through [`word`], so that a name
//! cannot forge a row.

use base::visible::steers;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;

fn escaped(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(|c| steers(c) && !keeps(c)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !steers(c) || keeps(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // JSON strings have the same escape.
            c => _ = write!(out, "\\u{:04x}", u32::from(c)),
        }
    }
    out.into()
}

/// Escapes control characters in text of several lines; newlines and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes control characters in text within a line.
pub fn word(text: &str) -> String {
    escaped(text, |_| false).into_owned()
}

/// A table in the style of all commands: no borders, columns separated by blanks, as wide as its content.
pub struct Rows(Table);

impl Rows {
    /// Returns a table without rows.
    pub fn new(header: &[&str]) -> Rows {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(header.iter().copied());
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Rows(table)
    }

    /// Right-aligns the columns from `from` on.
    pub fn align_right(&mut self, from: usize) {
        for column in self.0.column_iter_mut().skip(from) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }

    /// Adds a row whose cells have one line each.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells.into_iter().map(|cell| word(&cell)));
    }

    /// Adds a row whose cells may have several lines.
    pub fn add_row_of_lines(&mut self, cells: impl IntoIterator<Item = Vec<String>>) {
        let cell = |lines: Vec<String>| lines.iter().map(|line| word(line)).collect::<Vec<_>>().join("\n");
        self.0.add_row(cells.into_iter().map(cell));
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.0.row_count()
    }

    /// Returns the table as text, without trailing blanks.
    pub fn trim_fmt(&self) -> String {
        self.0.trim_fmt()
    }
}

/// `--json`.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct JsonArgs {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
}

impl JsonArgs {
    /// Prints a command's whole output: an indented object, or text.
    pub fn print(self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        match self.json {
            true => println!("{:#}", json()),
            false => {
                let text = text();
                print!("{text}{}", if text.is_empty() || text.ends_with('\n') { "" } else { "\n" });
            }
        }
    }

    /// Prints one item of a stream: an object on one line, or text.
    pub fn print_line(self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        match self.json {
            true => println!("{}", json()),
            false => println!("{}", text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_escape_sequences_and_newlines_does_not_steer_the_terminal_or_make_a_row() {
        let name = "a\u{1b}[2J\n2  up\r\u{9b}1m\u{202e}";
        let mut rows = Rows::new(&["name", "state"]);
        rows.add_row([name.to_string(), "down".to_string()]);
        rows.add_row_of_lines([vec!["x\ny".to_string(), "z".to_string()], vec![]]);
        let shown = r"a\u001b[2J\n2  up\r\u009b1m\u202e";
        assert_eq!(word(name), shown);
        let text = rows.trim_fmt();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[1], format!("{shown}  down"), "{text}");
        assert_eq!(lines[2..], [r"x\ny", "z"], "{text}");
        // Newlines and tabs stay; other control characters are escaped.
        assert_eq!(visible("one\n\ttwo\u{1b}[31m"), "one\n\ttwo\\u001b[31m");
        assert_eq!(visible("router.p4: größer"), "router.p4: größer");
    }

    #[test]
    fn json_with_control_characters_in_strings_stays_the_same_json() {
        let value = serde_json::json!({ "name": "a\u{1b}\u{85}\u{7f}\u{202e}\nb\t\"\\" });
        for text in [format!("{value}"), format!("{value:#}")] {
            assert_eq!(serde_json::from_str::<Value>(&visible(&text)).unwrap(), value);
        }
    }
}
