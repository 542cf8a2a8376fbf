//! What every command that reads P4 shares: `-I`, `-D`, compiling, printing diagnostics.

use anyhow::{Context, Result};
use frontend::{Compiled, Input, Options, Until};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// The compiler's options, as compilers have them.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct CompileArgs {
    /// Look for included files here too.
    #[arg(short = 'I', value_name = "DIR")]
    pub include_dirs: Vec<String>,
    /// Define a preprocessor macro (1 without a value).
    #[arg(short = 'D', value_name = "NAME[=VALUE]", value_parser = parse_define)]
    pub defines: Vec<(String, String)>,
    /// Switch an optimisation pass off, by its name.
    #[arg(long = "no-pass", value_name = "PASS")]
    pub disabled_passes: Vec<String>,
}

fn parse_define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    let ok = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if ok { Ok((name.to_string(), value.to_string())) } else { Err(format!("`{name}` is not a macro's name")) }
}

impl CompileArgs {
    /// For the frontend.
    pub fn options(&self) -> Result<Options> {
        for pass in &self.disabled_passes {
            let names: Vec<&str> = opt::pass_names().collect();
            anyhow::ensure!(
                names.contains(&pass.as_str()),
                "there is no pass `{pass}`; there are: {}",
                names.join(", ")
            );
        }
        Ok(Options {
            include_dirs: self.include_dirs.clone(),
            defines: self.defines.clone(),
            opt: opt::Options { disabled: self.disabled_passes.iter().cloned().collect(), ..opt::Options::default() },
        })
    }

    /// Compiles a file and prints nothing.
    pub fn compile_quietly(&self, path: &Path, until: Until) -> Result<Compiled> {
        frontend::compile(Input::File(path), &self.options()?, until)
            .with_context(|| format!("cannot read {}", path.display()))
    }

    /// Compiles a file and prints what there is to say about it on stderr.
    pub fn compile(&self, path: &Path, until: Until) -> Result<Compiled> {
        let compiled = self.compile_quietly(path, until)?;
        eprint!("{}", compiled.render(std::io::stderr().is_terminal()));
        Ok(compiled)
    }

    /// Compiles a whole program to IR; `None` when it was refused (and said so).
    pub fn compile_program(&self, path: &Path) -> Result<Option<Compiled>> {
        let compiled = self.compile(path, Until::Ir)?;
        if compiled.failed() {
            return Ok(None);
        }
        if compiled.raw.is_none() {
            eprintln!("sluice: {} has no `main`, so there is nothing to run", path.display());
            return Ok(None);
        }
        Ok(Some(compiled))
    }
}

/// A P4 file with its options.
#[derive(clap::Args, Clone, Debug)]
pub struct ProgramArgs {
    /// The P4 program.
    #[arg(value_name = "X.p4")]
    pub program: PathBuf,
    #[command(flatten)]
    pub compile: CompileArgs,
}
