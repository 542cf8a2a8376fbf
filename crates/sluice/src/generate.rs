//! `sluice generate`: manual pages and shell completions, for packages.
//!
//! Both are derived from the description that parses the command line, so they cannot disagree with it. The command is
//! hidden from `--help`: users of a package find its results where `man` and the shell look. Tests:
//! `generate/tests.rs`.

use anyhow::{Context, Result};
use clap::{Command, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `generate`.
#[derive(clap::Args)]
pub struct Args {
    /// What to make.
    #[arg(value_name = "WHAT")]
    what: What,
    /// The folder for the files; it is made if it is missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Manual pages: sluice.1 and one for each subcommand.
    Man,
    /// Completion files for bash, zsh and fish.
    Completions,
}

/// Runs `sluice generate`: writes the files.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn main(args: &Args, command: Command) -> Result<ExitCode> {
    fs::create_dir_all(&args.folder).with_context(|| format!("cannot make {}", args.folder.display()))?;
    match args.what {
        What::Man => manual_pages(command, &args.folder),
        What::Completions => completions(&args.folder),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn manual_pages(command: Command, folder: &Path) -> Result<()> {
    clap_mangen::generate_to(command.disable_help_subcommand(true), folder)
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))
}

/// Writes files that register the command itself as the completer, so that names of the running switch complete too.
fn completions(folder: &Path) -> Result<()> {
    let shells = clap_complete::env::Shells::builtins();
    for (shell, file) in [("bash", "sluice.bash"), ("zsh", "_sluice"), ("fish", "sluice.fish")] {
        let completer = shells.completer(shell).with_context(|| format!("no completions for {shell}"))?;
        let mut text = Vec::new();
        completer.write_registration("COMPLETE", "sluice", "sluice", "sluice", &mut text)?;
        let path = folder.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
