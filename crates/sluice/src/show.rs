//! The compiler's intermediate and final forms of a program, for `sluice check --ir-after`, `--state`, `--stages`,
//! `--emit`, `--clif` and `--asm`.
//!
//! All of it goes to stdout, after any other requested output. Comments in listings name the part of the program
//! (table, action, parser state, stage) and quote the source line.

use anyhow::{Result, bail, ensure};
use base::{SourceMap, Span};
use ir::atomicity::LOCKED_CELLS_MIN;
use ir::{Atomicity, ExternId, Op, Program, Sharing};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// Arguments of `check` about what is shown.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ShowArgs {
    /// Print the IR after each run of a pass that changed it, or of all passes with `all`.
    #[arg(long, value_name = "PASS|all")]
    pub ir_after: Option<String>,
    /// Print how packets of several workers are kept apart at each register, and why.
    #[arg(long)]
    pub state: bool,
    /// Print which phase of staged code each table and action belongs to, with empty tables: best with `--strategy staged`.
    /// `sluice stats` tells it of running code.
    #[arg(long)]
    pub stages: bool,
    /// Print each entry in Cranelift's form, with the program's parts and lines as comments.
    #[arg(long)]
    pub clif: bool,
    /// Print each entry's machine code, with the program's parts and lines as comments.
    #[arg(long)]
    pub asm: bool,
    /// Print another form of the program.
    #[arg(long, value_enum)]
    pub emit: Option<Emit>,
}

/// `--emit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Emit {
    /// Machine-level IR behind its passes, for empty tables; addresses are those of this run.
    Mir,
    /// Machine-level IR as lowered, before any pass.
    RawMir,
}

/// Returns a suggestion for a misspelt name: ` (did you mean …?)`, or nothing.
pub fn near(name: &str, names: &[&str]) -> String {
    let meant = base::spelling::similar(name, names.iter().copied());
    meant.map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)"))
}

impl ShowArgs {
    /// Checks the name of `--ir-after`.
    ///
    /// # Errors
    /// If there is no such pass, or it is switched off.
    pub fn validate(&self, options: &opt::Options) -> Result<()> {
        let Some(pass) = self.ir_after.as_deref().filter(|p| *p != "all") else { return Ok(()) };
        let names: Vec<&str> = opt::pass_names().collect();
        if names.contains(&pass) {
            ensure!(!options.disabled.contains(pass), "--without switches `{pass}` off, so there is no IR after it");
            return Ok(());
        }
        if datapath::optimisations().iter().any(|o| o.name == pass) {
            bail!(
                "`{pass}` belongs to code generation and leaves no IR behind; --clif and --asm print code, and with \
                 --without {pass} the code without it"
            );
        }
        let near = near(pass, &names);
        bail!("there is no pass `{pass}`{near}; there are: {}, all", names.join(", "));
    }

    /// Optimises the raw IR once more and prints it after the requested passes.
    pub fn show_passes(&self, raw: &Program, options: &opt::Options) {
        let Some(wanted) = &self.ir_after else { return };
        let mut program = raw.clone();
        let mut before = ir::print::print(raw);
        opt::optimise_watched(&mut program, options, &mut |pass, run, program| {
            let after = ir::print::print(program);
            if (wanted == "all" || wanted == pass) && after != before {
                println!("// after {pass}, run {run}\n{after}");
            }
            before = after;
        });
    }

    /// Prints the requested forms of the code: machine-level IR, stages, Cranelift IR, machine code.
    ///
    /// # Errors
    /// If the code generator refuses the program.
    pub fn show_code(&self, program: &Arc<Program>, options: &jit::Options, sources: &SourceMap) -> Result<()> {
        if let Some(emit) = self.emit {
            print!("{}", datapath::mir_text(program, emit == Emit::Mir)?);
        }
        if !self.stages && !self.clif && !self.asm {
            return Ok(());
        }
        let source = |span: Span| line_of(sources, span);
        for listing in datapath::listing(program, options)? {
            if self.stages {
                print!("; entry {}: {}", listing.kind.name(), stages_text(program, &listing.stages));
            }
            if self.clif {
                println!("; entry {}: Cranelift\n{}", listing.kind.name(), listing.clif(&source));
            }
            if self.asm {
                println!(
                    "; entry {}: {} bytes of machine code\n{}",
                    listing.kind.name(),
                    listing.code.len(),
                    listing.asm(&source)
                );
            }
        }
        Ok(())
    }
}

/// Describes how workers share the registers of a program.
pub fn state_text(program: &Program) -> String {
    let shared = opt::for_several_workers(program, &opt::Options::default());
    let program = shared.as_ref().unwrap_or(program);
    let atomicity = Atomicity::new(program);
    let name = |register: &ExternId| program.externs[register.index()].name.as_str();
    let blocks = program.stages.iter().flat_map(|stage| &stage.blocks);
    let peeked: Vec<ExternId> = (blocks.flat_map(|block| &block.insts))
        .filter_map(|inst| match inst.op {
            Op::RegisterRead { register, peek: true, .. } => Some(register),
            _ => None,
        })
        .collect();
    let mut out = String::new();
    for (register, sharing) in atomicity.registers() {
        let text = match sharing {
            Sharing::OnlyRead => "packets do not write to it, nothing is locked".to_string(),
            Sharing::OnlyWritten => "packets do not read it, nothing is locked".to_string(),
            Sharing::Stepped => {
                "a packet changes one cell by one instruction, and comes to no other afterwards: nothing is locked"
                    .to_string()
            }
            Sharing::Locked { .. } if peeked.contains(&register) => {
                "a packet comes to one cell, which it can lock, and does not if it only reads it".to_string()
            }
            Sharing::Locked { .. } => "a packet comes to one cell, which it can lock".to_string(),
            Sharing::FewCells => format!("fewer than {LOCKED_CELLS_MIN} cells need turns"),
            Sharing::SeveralCells => "a packet that may come to several cells needs turns".to_string(),
            Sharing::Order(others) => {
                let others: Vec<&str> = others.iter().map(name).collect();
                format!("packets that come to it before and behind {} need turns", others.join(", "))
            }
        };
        let _ = writeln!(out, "register {}: {text}", name(&register));
    }
    out.push_str(match (out.is_empty(), atomicity.takes_turns()) {
        (true, _) => "the program has no registers: workers share no state that packets read and write\n",
        (false, true) => "workers take turns, a batch each\n",
        (false, false) => "workers run at the same time\n",
    });
    out
}

/// Describes the phases of an entry point, and the tables that end no phase.
fn stages_text(program: &Program, stages: &jit::Stages) -> String {
    let name = |table: &ir::TableId| program.tables[table.index()].name.as_str();
    let mut out = match stages.phases.len() {
        1 => "runs to completion\n".to_string(),
        count => format!("staged in {count} phases\n"),
    };
    for (i, phase) in stages.phases.iter().enumerate() {
        let begins = phase.waits_for.as_ref().map_or("when a packet comes".to_string(), |table| {
            let begun: Vec<&str> = phase.begun_with.iter().map(name).collect();
            let with = if begun.is_empty() { String::new() } else { format!(", and has begun {}", begun.join(", ")) };
            format!("when a packet has waited for {}{with}; {} bytes are kept of it", name(table), phase.row_bytes)
        });
        let _ = writeln!(out, "phase {i}: {begins}");
        phase.runs.iter().for_each(|part| _ = writeln!(out, "    {part}"));
    }
    if !stages.not_staged.is_empty() {
        let _ = writeln!(out, "looked up where a packet comes to it:");
    }
    for (table, why) in &stages.not_staged {
        let why = match why {
            jit::NotStaged::NotSelected(bytes) => format!("{bytes} bytes, which the strategy does not wait for"),
            jit::NotStaged::NotPossible => "packets cannot wait there".to_string(),
        };
        let _ = writeln!(out, "    {}: {why}", name(table));
    }
    out
}

/// Returns a source line: `router.p4:112: hdr.ipv4.ttl = hdr.ipv4.ttl - 1;`.
fn line_of(sources: &SourceMap, span: Span) -> Option<String> {
    let (file, line, _) = sources.locate(span)?;
    let text = sources.get(span.file)?.text.lines().nth(line as usize - 1)?.trim();
    // Embedded files have names such as `<p4lib/x.p4>`.
    let file = file.trim_matches(['<', '>']);
    let name = Path::new(file).file_name().map_or(file.into(), |n| n.to_string_lossy());
    Some(format!("{name}:{line}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pass: &str, disabled: &[&str]) -> Option<String> {
        let disabled = disabled.iter().map(ToString::to_string).collect();
        let args = ShowArgs { ir_after: Some(pass.to_string()), ..ShowArgs::default() };
        args.validate(&opt::Options { disabled, ..opt::Options::default() }).err().map(|e| e.to_string())
    }

    #[test]
    fn passes_that_leave_no_ir_say_why() {
        assert_eq!(refusal("const_prop", &[]), None);
        assert_eq!(refusal("all", &["const_prop"]), None);
        let off = refusal("const_prop", &["const_prop"]).expect("it does not run");
        assert_eq!(off, "--without switches `const_prop` off, so there is no IR after it");
        for name in ["joined_tables", "specialise_actions"] {
            let code = refusal(name, &[]).expect("it is no pass");
            assert!(code.starts_with(&format!("`{name}` belongs to code generation")), "{code}");
            assert!(code.contains("--clif and --asm") && code.contains(&format!("--without {name}")), "{code}");
        }
        let unknown = refusal("const_porp", &[]).expect("there is none");
        assert!(
            unknown.starts_with("there is no pass `const_porp` (did you mean `const_prop`?); there are: "),
            "{unknown}"
        );
        assert!(refusal("x", &[]).expect("there is none").starts_with("there is no pass `x`; there are: "));
    }
}
