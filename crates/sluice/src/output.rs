//! What commands print: text for people or, with `--json`, one JSON object (one a line where something goes on).
//!
//! The fields of the objects are an interface, documented in docs/json.md: they are added to, never renamed.
//!
//! Names of roles, programs and tables are chosen by controllers, so what is printed is not trusted with the terminal: the
//! macros of `main.rs` pass all output through [`visible`], and tables their cells through [`word`], so that no name can
//! make a row of its own.

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
            // Within a string of JSON this means the character, too.
            c => _ = write!(out, "\\u{:04x}", u32::from(c)),
        }
    }
    out.into()
}

/// Text of several lines, with control characters in escaped form.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Text within a line, with control characters in escaped form.
pub fn word(text: &str) -> String {
    escaped(text, |_| false).into_owned()
}

/// A table in the style of all commands: columns apart, no lines, the full width of its content.
pub struct Rows(Table);

impl Rows {
    /// Without rows.
    pub fn new(header: &[&str]) -> Rows {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(header.iter().copied());
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Rows(table)
    }

    /// Numbers stand right, from column `from` on.
    pub fn align_right(&mut self, from: usize) {
        for column in self.0.column_iter_mut().skip(from) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }

    /// A row of cells of one line each.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells.into_iter().map(|cell| word(&cell)));
    }

    /// A row of cells of several lines.
    pub fn add_row_of_lines(&mut self, cells: impl IntoIterator<Item = Vec<String>>) {
        let cell = |lines: Vec<String>| lines.iter().map(|line| word(line)).collect::<Vec<_>>().join("\n");
        self.0.add_row(cells.into_iter().map(cell));
    }

    /// How many rows there are.
    pub fn row_count(&self) -> usize {
        self.0.row_count()
    }

    /// As text, without blanks at the ends of lines.
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
    /// Prints one answer.
    pub fn print(self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        match self.json {
            true => println!("{:#}", json()),
            false => {
                let text = text();
                print!("{text}{}", if text.is_empty() || text.ends_with('\n') { "" } else { "\n" });
            }
        }
    }

    /// Prints one of many that follow one another.
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
        // Lines are kept where there are several, nothing else is.
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
