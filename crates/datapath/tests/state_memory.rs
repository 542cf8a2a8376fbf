//! Limits on the memory of programs' state. A process of its own with one test, since the limits are per process.

mod common;

use abi::StateError;
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use datapath::memory::{limit_cells, limit_entries};
use datapath::{EngineKind, Pipeline};
use std::sync::Arc;

const MB: u64 = 1 << 20;
const STATIONS: TableId = TableId(0);

/// A pipeline with a table and a register of `cells` 64-bit cells.
fn loaded(cells: u64) -> Result<Arc<Pipeline>, String> {
    let declared = format!(
        "extern cells register size {cells} width 64 initial 64w0
action nothing ()
table stations {{
  key h.a: 32 exact
  action nothing
  default 0 ()
  size 1000000
}}
"
    );
    let apply = "b0:\n  %h0, %a0, %e0, %d0 = apply stations (h.a)\n  drop unknown\n";
    let program = common::matching(&[("a", 32)], 1, &declared, apply);
    datapath::load(program, EngineKind::Machine, 1).map(Arc::new).map_err(|error| error.to_string())
}

fn add(pipeline: &Pipeline, number: u32) -> Result<(), StateError> {
    let action = EntryAction::Call(ActionCall { action: 0, args: vec![] });
    let key = vec![KeyMatch::Exact(Bits::new(32, number.into()))];
    pipeline.state().insert(STATIONS, &TableEntry { key, priority: 0, action, idle_timeout_ns: 0 })
}

#[test]
fn cells_are_bounded_for_all_programs_together_and_entries_by_what_the_process_has() {
    limit_cells(10 * MB);
    let refused = loaded(2 * MB).err().expect("16 MB of cells");
    assert!(refused.contains("`cells`") && refused.contains("may take 10 MB"), "{refused}");
    let first = loaded(MB).expect("8 MB of cells");
    assert!(loaded(MB).is_err(), "a second program of 8 MB beside the first");
    drop(first);
    let pipeline = loaded(MB).expect("the first one's cells are free again");

    // Every process uses more than one byte, so new entries are refused; existing ones are kept.
    add(&pipeline, 0).expect("there is no bound yet");
    limit_entries(1);
    let refused: Vec<_> = (1..=2000).filter_map(|number| add(&pipeline, number).err()).collect();
    assert!(refused.len() >= 976, "{} of 2,000 are refused: all since the process was first measured", refused.len());
    assert!(refused.iter().all(|error| *error == StateError::NoMemory(1)), "{refused:?}");
    assert_eq!(pipeline.state().len(STATIONS), 2001 - refused.len() as u64);
    limit_entries(1 << 40);
    (10_000..12_000).for_each(|number| add(&pipeline, number).expect("far below the bound"));
}
