//! `sluice explain CODE`: explains a diagnostic's code, with a wrong and a right program. Without a code, lists all
//! codes.

use crate::complete;
use anyhow::Result;
use clap_complete::ArgValueCompleter;
use frontend::explain;
use std::process::ExitCode;

/// Digits of a code.
const CODE_DIGITS: usize = 4;

/// Arguments of `explain`.
#[derive(clap::Args)]
pub struct Args {
    /// As `E0301`, `e301` or its number alone; all are listed without.
    #[arg(add = ArgValueCompleter::new(complete::codes))]
    codes: Vec<String>,
    #[command(flatten)]
    output: crate::output::JsonArgs,
}

/// Runs `sluice explain`. Never `Err`: an unknown code is exit code 1.
pub fn main(args: &Args) -> Result<ExitCode> {
    let found: Vec<Vec<&explain::Entry>> = args.codes.iter().map(|code| entries(code)).collect();
    let code = ExitCode::from(u8::from(found.iter().any(Vec::is_empty)));
    for (wanted, _) in args.codes.iter().zip(&found).filter(|(_, found)| found.is_empty()) {
        let near = explain::similar(wanted).map_or(String::new(), |c| format!("; did you mean {c}?"));
        eprintln!("sluice: there is no diagnostic {wanted}{near} (`sluice explain` lists all)");
    }
    let all: Vec<&explain::Entry> = match args.codes.is_empty() {
        true => explain::entries().iter().collect(),
        false => found.into_iter().flatten().collect(),
    };
    if args.output.json {
        let object = |entry: &&explain::Entry| serde_json::json!({ "code": entry.code, "title": entry.title, "group": entry.group, "text": entry.render() });
        let objects: Vec<_> = all.iter().map(object).collect();
        args.output.print(|| serde_json::json!({ "codes": objects }), String::new);
        return Ok(code);
    }
    if args.codes.is_empty() {
        let mut group = "";
        for entry in all {
            if entry.group != group {
                println!("{}{}", if group.is_empty() { "" } else { "\n" }, entry.group);
                group = entry.group;
            }
            println!("  {}  {}", entry.code, entry.title);
        }
        return Ok(code);
    }
    for (i, entry) in all.into_iter().enumerate() {
        if i > 0 {
            println!();
        }
        print!("{}", entry.render());
    }
    Ok(code)
}

/// Returns the entries that a word selects: one by its code, with or without leading zeros, or those with this number.
/// A code may be pasted from a message: `error[E0301]`.
fn entries(word: &str) -> Vec<&'static explain::Entry> {
    let word = word.split_once('[').map_or(word, |(_, rest)| rest).trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let (kind, digits) = match word.split_at_checked(1) {
        Some((kind @ ("E" | "e" | "W" | "w"), digits)) => (Some(kind), digits),
        _ => (None, word),
    };
    if digits.len() > CODE_DIGITS || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return vec![];
    }
    let number = format!("{digits:0>CODE_DIGITS$}");
    let means = |entry: &&explain::Entry| {
        let (of, digits) = entry.code.split_at(1);
        digits == number && kind.is_none_or(|kind| kind.eq_ignore_ascii_case(of))
    };
    explain::entries().iter().filter(means).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_by_its_number_alone() {
        let codes = |word| entries(word).iter().map(|entry| entry.code).collect::<Vec<_>>();
        for word in ["E0305", "e0305", "E305", "305", "0305", "error[E0305]", "[E0305]:"] {
            assert_eq!(codes(word), ["E0305"], "{word}");
        }
        // An error and a warning share a number.
        let both = explain::entries()
            .iter()
            .find(|e| e.code.starts_with('W') && !entries(&format!("E{}", &e.code[1..])).is_empty());
        let number = both.expect("a number of two codes").code[1..].trim_start_matches('0');
        assert_eq!(codes(number), [format!("E{number:0>4}"), format!("W{number:0>4}")]);
        for word in ["", "E", "x305", "00305", "9999", "E0305x", "é"] {
            assert_eq!(codes(word), Vec::<&str>::new(), "{word}");
        }
    }
}
