//! Which paths out of the parser get code of their own.
//!
//! Where the paths out of a parser join, it is forgotten which headers a packet has: fields' places become pointers, every
//! header that is written back is a branch, and the frame's new layout is computed. For a few paths that is worth copying
//! all that follows, lookups included ([`crate::paths`] copies none otherwise). Nothing says which ways packets will take;
//! but a program is written for the traffic that it looks into deepest, so these paths are taken to be hot: those that know
//! all about validity and have the header that is declared last, then those with most headers.
//!
//! Tests: `tests/packets.rs`; crate `difftest`.

use crate::paths::Path;
use base::Bits;
use ir::Program;

/// As many paths are hot.
pub const HOT_PATHS: usize = 2;

/// Marks up to `most` of the paths out of a parser as hot, from 1.
pub(crate) fn choose(program: &Program, paths: &mut [Path], most: usize) {
    // (last valid header, valid headers), and the paths that have exactly them
    let mut ranked: Vec<((usize, usize), usize)> = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let is_valid = |h: &ir::Header| path.known.get(&h.valid).map(Bits::is_true);
        let Some(valid) = program.headers.iter().map(is_valid).collect::<Option<Vec<bool>>>() else { continue };
        let error = program.intrinsic(ir::Intrinsic::ParserError);
        if error.is_some_and(|e| path.known.get(&e).is_some_and(|v| !v.is_zero())) {
            continue;
        }
        let Some(last) = valid.iter().rposition(|v| *v) else { continue };
        ranked.push(((last, valid.iter().filter(|v| **v).count()), i));
    }
    ranked.sort_by(|a, b| b.cmp(a));
    let mut number = 0;
    for (_, path) in ranked {
        if paths[path].hot == 0 && number < most {
            number += 1;
            let known = paths[path].known.clone();
            paths.iter_mut().filter(|w| w.known == known).for_each(|w| w.hot = number);
        }
    }
}
