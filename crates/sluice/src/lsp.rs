//! `sluice lsp`: the language server of crate `lsp` on standard input and output.

use crate::compile::parse_define;
use anyhow::{Result, anyhow};
use std::process::ExitCode;

/// Arguments of `lsp`.
#[derive(clap::Args)]
pub struct Args {
    /// Look for included files here too; relative to the editor's workspace.
    #[arg(short = 'I', value_name = "DIR")]
    include_dirs: Vec<String>,
    /// Define a preprocessor macro (1 without a value).
    #[arg(short = 'D', value_name = "NAME[=VALUE]", value_parser = parse_define)]
    defines: Vec<(String, String)>,
    /// Taken and ignored: editors pass it to every server.
    #[arg(long, hide = true)]
    stdio: bool,
}

/// Runs `sluice lsp`: serves until the editor ends the session.
///
/// # Errors
/// If standard input or output fails.
pub fn main(args: &Args) -> Result<ExitCode> {
    let settings = ::lsp::Settings { include_dirs: args.include_dirs.clone(), defines: args.defines.clone() };
    ::lsp::serve_stdio(settings).map_err(|error| anyhow!("the editor's session ended: {error}"))?;
    Ok(ExitCode::SUCCESS)
}
