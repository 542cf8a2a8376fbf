//! The part that all commands that read P4 share: `-I`, `-D`, compiling, printing diagnostics.

use crate::compiler::Compiler;
use crate::compiler::protocol::Wants;
use anyhow::{Context, Result, bail};
use control::forwarding::Refusal;
use datapath::{CodeOptions, Without};
use frontend::{Compiled, Input, Options, Until, Warnings, explain};
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
    /// Leave optimisations out, by name (`--help` lists them).
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', alias = "no-pass", long_help = without_help())]
    pub without: Vec<String>,
    /// How the packets of a batch go through machine code: one after the other (`rtc`), many up to each table with a key
    /// (`staged`), or many up to each table that caches do not hold (`auto`).
    #[arg(long, value_name = "rtc|staged|auto", default_value = "auto")]
    pub strategy: jit::Strategy,
    /// Follow bmv2 where it differs from P4: fields of invalid headers keep their values, and what docs/bmv2.md lists. bmv2's JSON
    /// always does.
    #[arg(long)]
    pub bmv2: bool,
    /// The port of v1model and of bmv2's JSON that means drop, if it is another than 511.
    #[arg(long, value_name = "PORT", hide = true)]
    pub drop_port: Option<u64>,
    /// Do not report a warning, by its code.
    #[arg(short = 'W', value_name = "no-CODE", value_parser = parse_silent)]
    pub silent: Vec<String>,
    /// Take a warning for an error, by its code; or all, with `warnings`.
    #[arg(long = "deny", value_name = "CODE|warnings", value_parser = parse_denied)]
    pub denied: Vec<String>,
}

/// Returns the long help of `--without`: all optimisations that it can switch off.
fn without_help() -> String {
    let mut text = "Leave optimisations out, by name; the program does the same, slower:\n".to_string();
    for o in datapath::optimisations() {
        text += &format!("\n  {:<16} {}", o.name, o.about);
    }
    text + "\n  all              none of these"
}

/// Parses `no-W0503` into the warning's code.
fn parse_silent(text: &str) -> Result<String, String> {
    known_warning(text.strip_prefix("no-").ok_or("it is written no-CODE, as no-W0503")?)
}

fn parse_denied(text: &str) -> Result<String, String> {
    if text == ALL_WARNINGS { Ok(text.into()) } else { known_warning(text) }
}

const ALL_WARNINGS: &str = "warnings";

fn known_warning(code: &str) -> Result<String, String> {
    match explain::entry(code) {
        Some(entry) if entry.code.starts_with('W') => Ok(entry.code.into()),
        Some(entry) => Err(format!("{} is an error; warnings have codes with W", entry.code)),
        None => {
            let near = explain::similar(code).map_or(String::new(), |c| format!("; did you mean {c}?"));
            Err(format!("there is no warning {code}{near}"))
        }
    }
}

/// Parses `NAME[=VALUE]`; the default value is 1.
///
/// # Errors
/// If the name is no identifier.
pub fn parse_define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    let ok = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if ok { Ok((name.to_string(), value.to_string())) } else { Err(format!("`{name}` is not a macro's name")) }
}

/// Whether messages are coloured: on a terminal, unless `NO_COLOR` is set and not empty or `CLICOLOR` is `0`; also
/// elsewhere if `CLICOLOR_FORCE` is set and neither empty nor `0`.
fn use_colour(variable: impl Fn(&str) -> Option<String>, terminal: bool) -> bool {
    let set = |name: &str| variable(name).is_some_and(|v| !v.is_empty());
    match variable("CLICOLOR_FORCE") {
        _ if set("NO_COLOR") => false,
        Some(force) if force != "0" && !force.is_empty() => true,
        _ => terminal && variable("CLICOLOR").as_deref() != Some("0"),
    }
}

/// Whether messages on stderr are coloured.
pub fn colours_stderr() -> bool {
    use_colour(|name| std::env::var(name).ok(), std::io::stderr().is_terminal())
}

impl CompileArgs {
    /// Returns the optimisations that are switched off.
    ///
    /// # Errors
    /// If there is no optimisation of a given name.
    pub fn without(&self) -> Result<Without> {
        if self.without.iter().any(|name| name == "all") {
            return Ok(Without::all());
        }
        Without::new(&self.without).map_err(|message| {
            let names: Vec<&str> = datapath::optimisations().into_iter().map(|o| o.name).collect();
            let unknown = self.without.iter().find(|name| !names.contains(&name.as_str()));
            let near = unknown.map_or(String::new(), |name| crate::show::near(name, &names));
            anyhow::anyhow!("{message}{near}")
        })
    }

    /// Returns the options of the code generator.
    ///
    /// # Errors
    /// As [`CompileArgs::without()`].
    pub fn code(&self) -> Result<CodeOptions> {
        let mut code = self.without()?.code();
        code.jit.strategy = self.strategy;
        Ok(code)
    }

    /// Returns the options of the front end.
    ///
    /// # Errors
    /// As [`CompileArgs::without()`].
    pub fn options(&self) -> Result<Options> {
        Ok(Options {
            include_dirs: self.include_dirs.clone(),
            defines: self.defines.clone(),
            warnings: Warnings {
                silent: self.silent.clone(),
                denied: self.denied.iter().filter(|d| *d != ALL_WARNINGS).cloned().collect(),
                deny_all: self.denied.iter().any(|d| d == ALL_WARNINGS),
            },
            opt: self.without()?.passes(),
            bmv2: self.bmv2,
            drop_port: self.drop_port,
        })
    }

    /// Compiles a file without printing diagnostics.
    ///
    /// # Errors
    /// If the options are wrong or the file cannot be read. Diagnostics are part of the result, not errors.
    pub fn compile_quietly(&self, path: &Path, until: Until) -> Result<Compiled> {
        frontend::compile(Input::File(path), &self.options()?, until)
            .with_context(|| format!("cannot read {}", path.display()))
    }

    /// Compiles a file and prints its diagnostics on stderr.
    ///
    /// # Errors
    /// As [`CompileArgs::compile_quietly`].
    pub fn compile(&self, path: &Path, until: Until) -> Result<Compiled> {
        let compiled = self.compile_quietly(path, until)?;
        let colour = colours_stderr();
        eprint!("{}", compiled.render(colour));
        if let Some(first) = compiled.diagnostics.iter().find(|d| d.severity == base::Severity::Error) {
            eprintln!("`sluice explain {}` says more about the first error", first.code);
        }
        Ok(compiled)
    }

    /// Compiles a program in a child process and prints its diagnostics. Returns the program as one self-contained
    /// text, which the switch stores; `None` if it was refused, which has been printed.
    ///
    /// # Errors
    /// If `path` is `-`, the file cannot be read, or the child cannot be run.
    pub fn compile_apart(&self, path: &Path, compiler: &Compiler) -> Result<Option<Vec<u8>>> {
        if path == Path::new("-") {
            bail!("a switch's program is a file: a controller reads it back");
        }
        let colour = colours_stderr();
        let wants = Wants { self_contained: true, colour, ..Wants::default() };
        let output = match compiler.compile_file(path, &self.options()?, wants) {
            Ok(output) => output,
            Err(Refusal::Limit(why)) => {
                eprintln!("sluice: {}: {why}", path.display());
                return Ok(None);
            }
            Err(refusal) => bail!("{}", refusal.message()),
        };
        eprint!("{}", output.messages);
        if let Some(code) = &output.first_error {
            eprintln!("`sluice explain {code}` says more about the first error");
        }
        if output.failed {
            return Ok(None);
        }
        if output.p4info.is_none() {
            eprintln!("{}", no_main(path));
            return Ok(None);
        }
        if let Some(text) = output.unloadable {
            eprint!("{text}");
            return Ok(None);
        }
        Ok(output.self_contained)
    }

    /// Compiles a whole program to IR; `None` if it was refused, which has been printed.
    ///
    /// # Errors
    /// As [`CompileArgs::compile_quietly`].
    pub fn compile_program(&self, path: &Path) -> Result<Option<Compiled>> {
        let compiled = self.compile(path, Until::Ir)?;
        if compiled.failed() {
            return Ok(None);
        }
        if compiled.raw.is_none() {
            eprintln!("{}", no_main(path));
            return Ok(None);
        }
        if let Some(text) = compiled.render_unloadable(colours_stderr()) {
            eprint!("{text}");
            return Ok(None);
        }
        Ok(Some(compiled))
    }
}

fn no_main(path: &Path) -> String {
    format!("sluice: {} has no `main`, so there is nothing to run", path.display())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_the_terminal_and_the_environment() {
        let with = |vars: &'static [(&str, &str)], terminal| {
            use_colour(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()), terminal)
        };
        assert!(with(&[], true) && !with(&[], false));
        assert!(!with(&[("NO_COLOR", "1")], true) && with(&[("NO_COLOR", "")], true));
        assert!(!with(&[("CLICOLOR", "0")], true) && with(&[("CLICOLOR", "1")], true));
        assert!(with(&[("CLICOLOR_FORCE", "1")], false) && !with(&[("CLICOLOR_FORCE", "0")], false));
        assert!(!with(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true));
    }

    #[test]
    fn an_unknown_optimisation_is_told_with_one_like_it() {
        let args = CompileArgs { without: vec!["joined_table".to_string()], ..CompileArgs::default() };
        let message = args.without().unwrap_err().to_string();
        assert!(message.starts_with("there is no optimisation `joined_table`"), "{message}");
        assert!(message.ends_with("(did you mean `joined_tables`?)"), "{message}");
    }

    #[test]
    fn warnings_are_named_by_their_codes() {
        assert_eq!(parse_silent("no-w0503").as_deref(), Ok("W0503"));
        assert_eq!(parse_denied("warnings").as_deref(), Ok("warnings"));
        assert!(parse_silent("W0503").unwrap_err().contains("no-CODE"));
        assert!(parse_silent("no-E0301").unwrap_err().contains("is an error"));
        assert!(parse_denied("W9503").unwrap_err().contains("did you mean"));
    }
}
