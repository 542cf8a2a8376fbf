//! Programs reduced to the entry point for packets from ports.
//!
//! Code that must be compiled quickly contains no functions for the replication engine's packets; those of other code
//! of the same program run instead. They read records that this code writes, so that a packet that is handed over needs
//! every slot that they may read. [`ingress_only`] states this as an additional field list, which all passes and the
//! code generator keep at all replication points.
//!
//! Needs: a well-formed program. Guarantees: tables, externs and slots are those of the program, so that both can share
//! state and records.
//!
//! Tests: below; `crates/datapath/tests/copies.rs`; random programs in crate `difftest`.

use crate::passes::{Options, optimise};
use ir::{EntryKind, Program, SlotId};

/// The program with entry `Ingress` only, optimised again with the passes of `options`, for use beside code whose other
/// entries read the slots `recorded` of records. `None` if there is no other entry, or if the passes changed the slots.
pub fn ingress_only(program: &Program, recorded: &[SlotId], options: &Options) -> Option<Program> {
    if program.entries.iter().all(|entry| entry.kind == EntryKind::Ingress) {
        return None;
    }
    let mut reduced = program.clone();
    reduced.entries.retain(|entry| entry.kind == EntryKind::Ingress);
    let number = (0..).find(|n| !program.field_lists.iter().any(|(taken, _)| taken == n)).expect("not all are taken");
    reduced.field_lists.push((number, recorded.to_vec()));
    // The requirements of the removed entries no longer apply.
    optimise(&mut reduced, &crate::assume::keeping(options));
    (reduced.slots == program.slots).then_some(reduced)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = r#"program "test"
drops end
slot port: 9 metadata
slot kept: 16 metadata
slot lost: 16 metadata
slot out: 9 metadata
intrinsic ingress_port = port
entry ingress (s, e)
entry egress (e)
stage control s {
b0:
  kept = zext port
  lost = mov 16w7
  switch port, 9w0 -> b1, default -> b2
b1:
  replicate ingress_end
b2:
  next
}
stage control e {
b0:
  out = trunc kept
  send out
}
"#;

    #[test]
    fn slots_in_records_are_still_assigned() {
        let program = ir::parse(PROGRAM, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"));
        let slot = |name: &str| program.slots.iter().position(|s| s.name == name).map(SlotId::from_index).unwrap();
        for (recorded, kept, lost) in [(vec![slot("lost")], 1, 1), (vec![], 1, 0)] {
            let reduced = ingress_only(&program, &recorded, &Options::default()).expect("there are two entries");
            assert!(ir::verify(&reduced).is_empty());
            assert_eq!((&reduced.slots, reduced.entries.len()), (&program.slots, 1));
            let text = ir::print::print_stage(&reduced, ir::StageId::from_index(0));
            let count = |what: &str| text.matches(what).count();
            assert_eq!((count("kept = "), count("lost = ")), (kept, lost), "{text}");
        }
        let reduced = ingress_only(&program, &[], &Options::default()).expect("there are two entries");
        assert_eq!(ingress_only(&reduced, &[], &Options::default()), None, "nothing is left to leave out");
    }
}
