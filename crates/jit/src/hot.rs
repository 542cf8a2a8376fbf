//! Chooses the hot paths: which paths out of the parser get code of their own.
//!
//! Where the paths out of a parser join, it is no longer known which headers a packet has: fields are accessed through
//! pointers, every header that is written back is a branch, and the frame's new layout is computed at run time. For a
//! few paths it is worth duplicating all that follows, lookups included ([`crate::paths`] copies none otherwise). No
//! counts of the traffic are available; but a program is usually written for the traffic that it examines most deeply,
//! so these paths are assumed to be hot: those on which all validity is known and that have the header that is declared
//! last, then those with the most headers.
//!
//! Tests: `tests/packets.rs`; crate `difftest`.

use crate::paths::Path;
use base::Bits;
use ir::Program;

/// Default for the number of hot paths.
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
