//! A cache of specialised programs with their analyses. They are reused because a table that has grown or changed
//! usually implies the same assumptions about the program as before.

use ir::Program;
use jit::Analysis;
use opt::Assumed;
use std::sync::{Arc, Mutex, PoisonError};

/// Programs kept: one for each compilation step (quick, full).
const KEPT: usize = 2;
/// Basic blocks above which a program is not kept; a block takes about a kilobyte. Compiling larger programs is slow
/// for other reasons.
const KEPT_BLOCKS_MAX: usize = 8192;

/// A program specialised by what its tables' entries have in common, with its analysis.
pub(super) struct Prepared {
    /// The program it was derived from.
    base: Arc<Program>,
    known: Vec<Option<Assumed>>,
    options: jit::Options,
    pub(super) program: Arc<Program>,
    pub(super) analysis: Analysis,
}

/// The most recently used ones, latest first.
#[derive(Default)]
pub(super) struct Preparations(Mutex<Vec<Arc<Prepared>>>);

impl Preparations {
    /// The program `base` specialised by the assumptions `known`, one per table. All calls must pass the same
    /// `passes`.
    pub(super) fn get(
        &self,
        base: &Arc<Program>,
        known: Vec<Option<Assumed>>,
        options: &jit::Options,
        passes: &opt::Options,
    ) -> Result<Arc<Prepared>, jit::Error> {
        // A poisoned lock is harmless: nothing is inserted before it is complete.
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
