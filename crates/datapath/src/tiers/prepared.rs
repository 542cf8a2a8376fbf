//! Programs for tables as they are, optimised and analysed: kept for the next time, because a table that has grown or changed most
//! often still says the same about the program as before.

use ir::Program;
use jit::Analysis;
use opt::Assumed;
use std::sync::{Arc, Mutex, PoisonError};

/// As many are kept: one for each step in which code is made.
const KEPT: usize = 2;
/// Blocks of those that are kept: about a kilobyte each. Code for larger programs takes long for other reasons.
const KEPT_BLOCKS_MAX: usize = 8192;

/// A program of which all is known that its tables' entries are not needed for one by one.
pub(super) struct Prepared {
    /// What it was made from.
    base: Arc<Program>,
    known: Vec<Option<Assumed>>,
    options: jit::Options,
    pub(super) program: Arc<Program>,
    pub(super) analysis: Analysis,
}

/// Those that were used last, the latest first.
#[derive(Default)]
pub(super) struct Preparations(Mutex<Vec<Arc<Prepared>>>);

impl Preparations {
    /// The program `base` for tables of which so much is `known`; the passes are always the same.
    pub(super) fn get(
        &self,
        base: &Arc<Program>,
        known: Vec<Option<Assumed>>,
        options: &jit::Options,
        passes: &opt::Options,
    ) -> Result<Arc<Prepared>, jit::Error> {
        // Nothing is put in before it is complete.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |p: &Arc<Prepared>| Arc::ptr_eq(&p.base, base) && p.known == known && p.options == *options;
        let found = kept.iter().position(is_it).map(|at| kept.remove(at));
        let prepared = match found {
            Some(prepared) => prepared,
            None => {
                let program = match known.iter().any(Option::is_some) {
                    true => Arc::new(opt::assume(base, &known, passes)),
                    false => Arc::clone(base),
                };
                let analysis = Analysis::new(&program, options)?;
                let (base, options) = (Arc::clone(base), options.clone());
                Arc::new(Prepared { base, known, options, program, analysis })
            }
        };
        if prepared.analysis.blocks() <= KEPT_BLOCKS_MAX {
            kept.truncate(KEPT - 1);
            kept.insert(0, Arc::clone(&prepared));
        }
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Arc<Program> {
        let text = "program \"test\"\ndrops end\nslot port: 9 metadata\nslot %h: 1 temp\nslot %a: 32 temp\nslot %e: 64 temp\n\
                    slot %d: 64 temp\naction drop ()\nintrinsic ingress_port = port\ntable t {\n  key port: 9 exact\n  \
                    action drop\n  default 0 ()\n  size 8\n}\nentry ingress (s)\nstage control s {\nb0:\n  \
                    %h, %a, %e, %d = apply t (port)\n  drop \"end\"\n}\n";
        Arc::new(ir::parse(text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}")))
    }

    fn get(from: &Preparations, base: &Arc<Program>, hit: Option<bool>, passes: &opt::Options) -> Arc<Prepared> {
        let known = vec![hit.map(|hit| Assumed { hit: Some(hit), ..Assumed::default() })];
        from.get(base, known, &jit::Options::default(), passes).expect("it can be analysed")
    }

    #[test]
    fn what_is_known_decides_and_the_latest_are_kept() {
        let (base, other) = (program(), program());
        let preparations = Preparations::default();
        let get = |base: &Arc<Program>, hit: Option<bool>| get(&preparations, base, hit, &opt::Options::default());
        let first = get(&base, None);
        assert!(Arc::ptr_eq(&first.program, &base), "nothing is known");
        assert!(Arc::ptr_eq(&first, &get(&base, None)));
        let missing = get(&base, Some(false));
        assert!(!Arc::ptr_eq(&missing, &get(&base, Some(true))), "something else is known");
        assert!(!Arc::ptr_eq(&first, &get(&base, None)), "it was forgotten");
        assert!(!Arc::ptr_eq(&get(&base, None), &get(&other, None)), "another program");
    }

    #[test]
    fn passes_that_are_left_out_do_not_run_again() {
        let base = program();
        let instructions = |passes: &opt::Options| {
            let prepared = get(&Preparations::default(), &base, Some(false), passes);
            prepared.program.stages[0].blocks[0].insts.len()
        };
        let without = opt::Options { disabled: ["dead_code".to_string()].into(), ..opt::Options::default() };
        assert_eq!((instructions(&opt::Options::default()), instructions(&without)), (1, 2));
    }
}
