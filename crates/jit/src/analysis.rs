//! Analysis of a program before code generation, independent of its tables' contents, so that all specialised code of
//! the program shares it.

use crate::flow::{Flow, ProgramFacts};
use crate::{Error, Options, SLOT_WIDTH_MAX, timed};
use ir::{EntryKind, EntryPoint, Program};
use std::time::Duration;

/// The analysis of a program for certain options ([`crate::compile_analysed`]).
pub struct Analysis {
    pub(crate) facts: ProgramFacts,
    /// By entry point.
    pub(crate) entries: Vec<EntryPaths>,
    /// The time that it took.
    pub(crate) took: Duration,
}

/// The control-flow graphs of an entry point.
pub(crate) struct EntryPaths {
    pub all: Known,
    /// With copies for hot paths, if there are any.
    pub hot: Option<Known>,
}

/// The dataflow facts of an entry point.
pub(crate) struct Known {
    /// The facts for this entry point, if they differ from the program's.
    facts: Option<ProgramFacts>,
    flow: Flow,
}

impl Known {
    fn new(program: &Program, facts: &ProgramFacts, entry: &EntryPoint, options: &Options, hot: usize) -> Known {
        let flow = Flow::new(program, facts, entry, options, hot);
        let loaded = flow.loaded_often(program, facts, options.loads_per_field_max);
        if loaded.is_empty() {
            return Known { facts: None, flow };
        }
        let facts = facts.with_loaded(&loaded);
        let flow = Flow::new(program, &facts, entry, options, hot);
        Known { facts: Some(facts), flow }
    }

    /// The facts for this entry point, given the program's, and the flow.
    pub fn about<'a>(&'a self, program: &'a ProgramFacts) -> (&'a ProgramFacts, &'a Flow) {
        (self.facts.as_ref().unwrap_or(program), &self.flow)
    }
}

impl Analysis {
    /// Analyses a verified program.
    ///
    /// # Errors
    /// [`Error::Limit`] if a value is too wide; [`Error::Unsupported`] if a header's layout is not supported.
    pub fn new(program: &Program, options: &Options) -> Result<Analysis, Error> {
        check_widths(program)?;
        let mut took = Duration::ZERO;
        let (facts, entries) = timed(&mut took, || {
            let facts = ProgramFacts::new(program, options)?;
            let paths = |entry: &EntryPoint| EntryPaths {
                all: Known::new(program, &facts, entry, options, 0),
                hot: (entry.kind == EntryKind::Ingress && options.has_hot_paths())
                    .then(|| Known::new(program, &facts, entry, options, options.hot_paths)),
            };
            let entries = program.entries.iter().map(paths).collect();
            Ok::<_, Error>((facts, entries))
        })?;
        Ok(Analysis { facts, entries, took })
    }

    /// Number of blocks in all graphs, copies included; memory grows with it.
    pub fn blocks(&self) -> usize {
        let paths = self.entries.iter().flat_map(|entry| [Some(&entry.all), entry.hot.as_ref()]);
        paths.flatten().map(|known| known.flow.graph.nodes.len()).sum()
    }
}

fn check_widths(program: &Program) -> Result<(), Error> {
    match program.slots.iter().find(|s| s.width > SLOT_WIDTH_MAX) {
        None => Ok(()),
        Some(slot) => Err(Error::Limit {
            what: format!("bits of `{}`", slot.name),
            found: slot.width.into(),
            max: SLOT_WIDTH_MAX.into(),
        }),
    }
}
