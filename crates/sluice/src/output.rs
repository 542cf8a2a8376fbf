//! What commands print: text for people or, with `--json`, one JSON object (one a line where something goes on).
//!
//! The fields of the objects are an interface, documented in docs/json.md: they are added to, never renamed.

use serde_json::Value;

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
