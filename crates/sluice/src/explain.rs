//! `sluice explain CODE`: what a diagnostic's code means, with a wrong and a right program. Without a code, the list of all.

use crate::complete;
use anyhow::Result;
use clap_complete::ArgValueCompleter;
use frontend::explain;
use std::process::ExitCode;

/// Arguments of `explain`.
#[derive(clap::Args)]
pub struct Args {
    /// As `E0301`, upper or lower case; all are listed without.
    #[arg(add = ArgValueCompleter::new(complete::codes))]
    codes: Vec<String>,
    #[command(flatten)]
    output: crate::output::JsonArgs,
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
    if args.output.json {
        let wanted = |entry: &&explain::Entry| {
            args.codes.is_empty() || args.codes.iter().any(|c| c.eq_ignore_ascii_case(entry.code))
        };
        let object = |entry: &explain::Entry| serde_json::json!({ "code": entry.code, "title": entry.title, "group": entry.group, "text": entry.render() });
        let found: Vec<_> = explain::entries().iter().filter(wanted).map(object).collect();
        let all = args.codes.is_empty() || found.len() == args.codes.len();
        args.output.print(|| serde_json::json!({ "codes": found }), String::new);
        return Ok(ExitCode::from(u8::from(!all)));
    }
    if args.codes.is_empty() {
        let mut group = "";
        for entry in explain::entries() {
            if entry.group != group {
                println!("{}{}", if group.is_empty() { "" } else { "\n" }, entry.group);
                group = entry.group;
            }
            println!("  {}  {}", entry.code, entry.title);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    for (i, wanted) in args.codes.iter().enumerate() {
        if i > 0 {
            println!();
        }
        match explain::entry(wanted) {
            Some(entry) => print!("{}", entry.render()),
            None => {
                let near = explain::similar(wanted).map_or(String::new(), |c| format!("; did you mean {c}?"));
                eprintln!("sluice: there is no diagnostic {wanted}{near} (`sluice explain` lists all)");
                code = ExitCode::from(1);
            }
        }
    }
    Ok(code)
}
