//! A generated program with its script.

use super::finding::{Counts, Depth, Finding, Kind, guard, no_passes, plain};
use super::{engines, script};
use crate::generate::Dice;
use frontend::{Input, Until};
use ir::Program;
use std::sync::Arc;

/// A program with a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// P4 source.
    pub source: String,
    /// Lines of an STF script: set-up first, then packets.
    pub script: Vec<String>,
}

impl Case {
    /// Generates a program of a size with a matching script. The script is empty if the program does not compile.
    pub fn generate(seed: u64, size: u32, packets: usize) -> Case {
        let generated = p4gen::program(seed, size);
        let mut case = Case { source: generated.source, script: generated.setup };
        if let Ok(raw) = case.raw() {
            script::extend(&mut case.script, &raw, &mut Dice::new(seed), packets);
        }
        case
    }

    /// Compares with another source under the same script.
    ///
    /// # Errors
    /// The first difference or failure.
    pub fn compare_with(&self, other: &Case, counts: &mut Counts) -> Result<(), Finding> {
        let (raw, written) = (self.raw()?, other.raw()?);
        engines::compare_raw(&self.script, &raw, &written, counts)
    }

    /// Compiles to raw IR.
    fn raw(&self) -> Result<Arc<Program>, Finding> {
        let input = Input::Text { name: "generated.p4", text: &self.source };
        let options = frontend::Options { opt: no_passes(), ..Default::default() };
        let compiled =
            guard("compiler", || frontend::compile(input, &options, Until::Ir).expect("a text needs no file"))?;
        // An edited source may compile without fitting a switch: a header without its padding has no wire format.
        if compiled.failed() || !compiled.unloadable.is_empty() {
            let is_error = |d: &&base::Diagnostic| base::diag::has_errors(std::slice::from_ref(*d));
            let first = compiled.diagnostics.iter().chain(&compiled.unloadable).find(is_error);
            let place = first.map_or(String::new(), |d| format!("{} {}", d.code, plain(&d.message)));
            let what = first.map_or(String::new(), |d| d.render(&compiled.sources, false));
            return Err(Finding { kind: Kind::Refused, place, what });
        }
        match compiled.raw {
            Some(raw) => Ok(Arc::new(raw)),
            None => Err(Finding { kind: Kind::Refused, place: "no main".into(), what: "there is no `main`".into() }),
        }
    }

    /// Compiles the program and compares the engines.
    ///
    /// # Errors
    /// The first difference or failure.
    pub fn check(&self, depth: Depth, counts: &mut Counts) -> Result<(), Finding> {
        let raw = self.raw()?;
        let problems = guard("verifier", || ir::verify(&raw))?;
        if let Some(first) = problems.first() {
            return Err(Finding { kind: Kind::IllFormed, place: "raw IR".into(), what: first.message.clone() });
        }
        let text = ir::print::print(&raw);
        let again =
            guard("IR reader", || ir::parse::parse(&text, base::span::FileId(0)))?.map_err(|problems| Finding {
                kind: Kind::RoundTrip,
                place: plain(&problems[0].message),
                what: format!("printed IR is refused: {}", problems[0].message),
            })?;
        if ir::print::print(&again) != text {
            let printed = ir::print::print(&again);
            let line = text.lines().zip(printed.lines()).find(|(a, b)| a != b);
            let what = format!("printed IR reads as another program: {line:?}");
            return Err(Finding { kind: Kind::RoundTrip, place: "printed IR".into(), what });
        }
        if depth == Depth::Compile {
            return Ok(());
        }
        engines::compare(&self.script, &raw, again, depth, counts)
    }
}
