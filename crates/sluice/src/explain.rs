//! `sluice explain CODE`: what a diagnostic's code means, with a wrong and a right program. Without a code, the list of all.

use anyhow::Result;
use frontend::explain;
use std::process::ExitCode;

/// Arguments of `explain`.
#[derive(clap::Args)]
pub struct Args {
    /// As `E0301`, upper or lower case; all are listed without.
    codes: Vec<String>,
}

/// Runs it.
pub fn main(args: &Args) -> Result<ExitCode> {
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
