//! Tests for what the comparison with the oracle cannot see: workers' cells, publication, reuse of indices, limits.
#![allow(unsafe_code)]

use super::{FastState, FastWorker, LoadError};
use abi::{EntryHeader, PipelineState, StateError, WorkerCtx};
use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, GroupMember, KeyMatch, MatchKind, MeterConfig, TableEntry};
use base::ids::{ActionId, ExternId, TableId};
use ir::{Action, CounterUnit, Extern, ExternKind, Key, Program, Table, TableAction};
use std::sync::Arc;

const DIRECT: TableId = TableId(0);
const SELECTED: TableId = TableId(1);
const COUNTER: ExternId = ExternId(0);
const DIRECT_COUNTER: ExternId = ExternId(1);
const DIRECT_METER: ExternId = ExternId(2);
const SELECTOR: ExternId = ExternId(3);
const REGISTER: ExternId = ExternId(4);

fn call(value: u128) -> ActionCall {
    ActionCall { action: 1, args: vec![Bits::new(32, value)] }
}

fn table(name: &str, size: u64, implementation: Option<ExternId>, direct: &[ExternId]) -> Table {
    Table {
        name: name.to_string(),
        span: base::Span::default(),
        keys: vec![Key { name: "k".to_string(), width: 32, kind: MatchKind::Exact }],
        actions: actions(),
        default_action: ActionCall { action: 0, args: vec![] },
        const_default: false,
        entries: vec![],
        const_entries: false,
        size,
        implementation,
        direct: direct.to_vec(),
        idle_timeout: true,
        value_set: false,
        dynamic: None,
    }
}

fn actions() -> Vec<TableAction> {
    (0..2).map(|i| TableAction { action: ActionId(i), default_only: false, table_only: false }).collect()
}

fn program() -> Program {
    let ext = |name: &str, kind| Extern { name: name.to_string(), span: base::Span::default(), kind };
    let counter = |size, direct| ExternKind::Counter { size, unit: CounterUnit::Both, direct };
    Program {
        name: "test".to_string(),
        actions: vec![
            Action { name: "nop".to_string(), params: vec![] },
            Action { name: "set".to_string(), params: vec![("v".to_string(), 32)] },
        ],
        tables: vec![
            table("direct", 4, None, &[DIRECT_COUNTER, DIRECT_METER]),
            table("selected", 64, Some(SELECTOR), &[]),
        ],
        externs: vec![
            ext("counter", counter(10, None)),
            ext("direct_counter", counter(4, Some(DIRECT))),
            ext("direct_meter", ExternKind::Meter { size: 4, unit: CounterUnit::Packets, direct: Some(DIRECT) }),
            ext(
                "selector",
                ExternKind::ActionSelector {
                    size: 100,
                    actions: actions(),
                    algorithm: ir::HashAlgorithm::Identity,
                    hash_width: 16,
                    empty: None,
                },
            ),
            ext("register", ExternKind::Register { size: 3, width: 100, initial: Bits::new(100, 1 << 99 | 7) }),
        ],
        ..Program::default()
    }
}

fn state(workers: usize) -> Arc<FastState> {
    Arc::new(FastState::new(Arc::new(program()), workers).expect("the program fits"))
}

fn key(value: u128) -> Vec<KeyMatch> {
    vec![KeyMatch::Exact(Bits::new(32, value))]
}

fn entry(value: u128, action: EntryAction) -> TableEntry {
    TableEntry { key: key(value), priority: 0, action, idle_timeout_ns: 0 }
}

/// Looks a value up in a table as compiled code does.
fn look(worker: &FastWorker, table: TableId, value: u64) -> *const EntryHeader {
    let binding = &worker.state().bindings().tables[table.index()];
    let key = value.to_le_bytes();
    // SAFETY: the worker is online and the key has the table's layout.
    unsafe { (binding.lookup)(binding.handle, key.as_ptr()) }
}

/// The index of an entry of [`DIRECT`].
fn index(worker: &FastWorker, entry: *const EntryHeader) -> u32 {
    let at = worker.state().bindings().tables[DIRECT.index()].entry.index.expect("entries have indices");
    // SAFETY: the entry is live, and the binding says where its index is.
    unsafe { entry.byte_offset(at as isize).cast::<u32>().read_unaligned() }
}

/// The group of an entry of [`SELECTED`].
fn group(worker: &FastWorker, entry: *const EntryHeader) -> *const std::ffi::c_void {
    let at = worker.state().bindings().tables[SELECTED.index()].entry.group.expect("entries have groups");
    // SAFETY: the entry is live, and the binding says where its group is.
    unsafe { entry.byte_offset(at as isize).cast::<*const std::ffi::c_void>().read_unaligned() }
}

fn argument(entry: *const EntryHeader) -> u64 {
    // SAFETY: the entry is live and runs action 1, whose only parameter follows the byte of its number.
    unsafe { entry.byte_add(1).cast::<u32>().read_unaligned().into() }
}

/// Counts a packet as compiled code does.
fn count(worker: &FastWorker, counter: ExternId, index: usize, bytes: u64) {
    // SAFETY: the index is in the array.
    unsafe {
        let cell = (*(*worker.ctx()).counters.add(counter.index())).add(index);
        (*cell)[0] += 1;
        (*cell)[1] += bytes;
    }
}

fn meter(worker: &FastWorker, index: u64) -> u32 {
    // SAFETY: the context is the worker's.
    unsafe { (crate::calls::CALLS.meter)(worker.ctx(), DIRECT_METER.0, index, 100, 0) }
}

#[test]
fn counters_are_summed_over_workers_and_can_be_set_while_they_count() {
    let state = state(2);
    let workers = [state.worker(0).expect("free"), state.worker(1).expect("free")];
    count(&workers[0], COUNTER, 3, 100);
    count(&workers[1], COUNTER, 3, 50);
    assert_eq!(state.counter(COUNTER, 3), Ok(CounterValue { packets: 2, bytes: 150 }));
    state.counter_set(COUNTER, 3, CounterValue { packets: 10, bytes: 0 }).expect("in range");
    count(&workers[1], COUNTER, 3, 7);
    assert_eq!(state.counter(COUNTER, 3), Ok(CounterValue { packets: 11, bytes: 7 }));
    assert_eq!(state.counter(COUNTER, 10), Err(StateError::NotFound));
    assert_eq!(state.counter(DIRECT_COUNTER, 0), Err(StateError::WrongKind));
}

#[test]
fn a_direct_cell_starts_at_zero_for_each_entry_and_late_counts_go_nowhere() {
    let state = state(1);
    let mut worker = state.worker(0).expect("free");
    state.insert(DIRECT, &entry(1, EntryAction::Call(call(1)))).expect("room");
    worker.begin(0);
    // SAFETY: the entry is live until the worker is quiescent.
    let old = index(&worker, look(&worker, DIRECT, 1));
    state
        .direct_meter_set(
            DIRECT_METER,
            &key(1),
            0,
            Some(MeterConfig { cir: 0, cburst: 0, pir: 0, pburst: 0, eburst: 0 }),
        )
        .expect("there");
    assert_eq!(meter(&worker, old.into()), 2);
    // The worker has matched the entry; meanwhile another one replaces it.
    state.delete(DIRECT, &key(1), 0).expect("there");
    state.insert(DIRECT, &entry(2, EntryAction::Call(call(2)))).expect("room");
    count(&worker, DIRECT_COUNTER, old as usize, 60);
    assert_eq!(state.direct_counter(DIRECT_COUNTER, &key(2), 0), Ok(CounterValue::default()));
    // After its quiescent point the index is reused, with cleared cells.
    worker.quiescent();
    worker.idle();
    state.collect();
    let mut indices = Vec::new();
    for round in 0..50 {
        let values = [1, 2, 3].map(|i| 1000 + 10 * round + i);
        for value in values {
            state.insert(DIRECT, &entry(value, EntryAction::Call(call(1)))).expect("room");
            assert_eq!(state.direct_counter(DIRECT_COUNTER, &key(value), 0), Ok(CounterValue::default()));
            assert_eq!(state.direct_meter(DIRECT_METER, &key(value), 0), Ok(None));
            worker.begin(0);
            // SAFETY: as above.
            let index = index(&worker, look(&worker, DIRECT, value as u64));
            indices.push(index);
            count(&worker, DIRECT_COUNTER, index as usize, 1);
            worker.idle();
        }
        values.iter().for_each(|value| state.delete(DIRECT, &key(*value), 0).expect("there"));
        state.collect();
    }
    assert!(indices.contains(&old), "index {old} came back");
}

#[test]
fn modifying_an_entry_keeps_its_counts_and_its_idle_time() {
    let state = state(1);
    let worker = state.worker(0).expect("free");
    state.set_time(1_000);
    state.insert(DIRECT, &entry(1, EntryAction::Call(call(1)))).expect("room");
    count(&worker, DIRECT_COUNTER, index(&worker, look(&worker, DIRECT, 1)) as usize, 9);
    state.set_time(5_000);
    state.modify(DIRECT, &entry(1, EntryAction::Call(call(2)))).expect("there");
    assert_eq!(argument(look(&worker, DIRECT, 1)), 2);
    assert_eq!(state.direct_counter(DIRECT_COUNTER, &key(1), 0), Ok(CounterValue { packets: 1, bytes: 9 }));
    assert_eq!(state.entry(DIRECT, &key(1), 0).expect("there").idle_ns, Some(4_000_000));
}

#[test]
fn idle_entries_are_those_past_their_timeout() {
    let state = state(1);
    let mut patient = entry(1, EntryAction::Call(call(1)));
    patient.idle_timeout_ns = 3_000_000;
    let mut hasty = entry(2, EntryAction::Call(call(1)));
    hasty.idle_timeout_ns = 2_000_000;
    state.insert(DIRECT, &patient).expect("room");
    state.insert(DIRECT, &hasty).expect("room");
    state.insert(DIRECT, &entry(3, EntryAction::Call(call(1)))).expect("room");
    let mut worker = state.worker(0).expect("free");
    worker.begin(2_500);
    assert_eq!(state.idle_entries(), [(DIRECT, hasty)]);
}

#[test]
fn members_reach_packets_through_entries_and_groups() {
    let state = state(1);
    let mut worker = state.worker(0).expect("free");
    worker.begin(0);
    state.member_insert(SELECTOR, 7, &call(70), 0).expect("room");
    state.member_insert(SELECTOR, 8, &call(80), 0).expect("room");
    let member = |member, weight, watch_port| GroupMember { member, weight, watch_port };
    state.group_insert(SELECTOR, 1, &[member(7, 1, None), member(8, 2, Some(5))], 0).expect("room");
    state.insert(SELECTED, &entry(1, EntryAction::Member(7))).expect("room");
    state.insert(SELECTED, &entry(2, EntryAction::Group(1))).expect("room");
    let select = state.bindings().tables[SELECTED.index()].select.expect("the table has a selector");
    // SAFETY: the entry has a group; the worker is online.
    let chosen = |worker: &FastWorker, hash| unsafe { select(group(worker, look(worker, SELECTED, 2)), hash) };
    assert_eq!(argument(look(&worker, SELECTED, 1)), 70);
    assert_eq!([0, 1, 2, 3].map(|h| argument(chosen(&worker, h))), [70, 80, 80, 70]);
    state.member_modify(SELECTOR, 7, &call(71)).expect("there");
    assert_eq!(argument(look(&worker, SELECTED, 1)), 71);
    assert_eq!(argument(chosen(&worker, 0)), 71);
    state.port_state(5, false);
    assert_eq!([0, 1, 2].map(|h| argument(chosen(&worker, h))), [71; 3]);
    state.port_state(5, true);
    state.group_modify(SELECTOR, 1, &[member(8, 1, None)]).expect("there");
    assert_eq!(argument(chosen(&worker, 9)), 80);
    state.group_modify(SELECTOR, 1, &[]).expect("there");
    assert!(chosen(&worker, 9).is_null());
    // SAFETY: the default entry is live.
    let default = |state: &FastState| unsafe {
        let handle = state.bindings().tables[SELECTED.index()].handle;
        argument((*handle).default_entry.load(std::sync::atomic::Ordering::Acquire))
    };
    state.set_default(SELECTED, Some(&EntryAction::Member(7))).expect("the member is there");
    state.member_modify(SELECTOR, 7, &call(72)).expect("there");
    assert_eq!(default(&state), 72);
    // A group as default action falls back to the program's own default action.
    let own = state.program().tables[SELECTED.index()].default_action.action;
    state.set_default(SELECTED, Some(&EntryAction::Group(1))).expect("the group is there");
    // SAFETY: the default entry is live.
    let (action, group) = unsafe {
        let handle = state.bindings().tables[SELECTED.index()].handle;
        let entry = (*handle).default_entry.load(std::sync::atomic::Ordering::Acquire);
        (u32::from(entry.cast::<u8>().read()), group(&worker, entry))
    };
    assert_eq!((action, group.is_null()), (own, false));
    assert_eq!(state.group_delete(SELECTOR, 1), Err(StateError::InUse));
}

#[test]
fn registers_start_at_their_initial_value() {
    let state = state(1);
    assert_eq!(state.register(REGISTER, 2), Ok(Bits::new(100, 1 << 99 | 7)));
    state.register_set(REGISTER, 2, &Bits::ones(100)).expect("in range");
    assert_eq!(state.register(REGISTER, 2), Ok(Bits::ones(100)));
    assert_eq!(state.register(REGISTER, 1), Ok(Bits::new(100, 1 << 99 | 7)));
    assert_eq!(state.register(REGISTER, 3), Err(StateError::NotFound));
    let abi::ExternBinding::Register { cells, size: 3, width: 100, .. } = state.bindings().externs[REGISTER.index()]
    else {
        panic!("a register's binding");
    };
    // SAFETY: cell 2 has words 4 and 5.
    assert_eq!(unsafe { [cells.add(4).read(), cells.add(5).read()] }, [u64::MAX, (1 << 36) - 1]);
}

/// A register's footprint estimate is right wherever its cells are used, and ignores small changes.
#[test]
fn registers_tell_what_packets_use_of_them() {
    use super::cells::Registers;
    const CELLS: u64 = 1 << 19;
    for initial in [0, 77] {
        let register = Registers::new(CELLS, 64, &Bits::new(64, initial), false).expect("there is memory");
        let seen = || {
            register.look();
            register.footprint_bytes()
        };
        assert_eq!(seen(), 0, "initially {initial}");
        let set = |every: usize, plus: &dyn Fn(u64) -> u64| {
            (0..CELLS).step_by(every).for_each(|cell| assert!(register.set(cell + plus(cell), &Bits::new(64, 1))));
        };
        // Every eighth line, spread over the array: half a megabyte of four.
        set(64, &|cell| cell / 64 % 8);
        let used = seen();
        assert!((300_000..800_000).contains(&used), "{used}");
        assert!((0..20).all(|_| seen() == used));
        set(8, &|_| 0);
        assert!((0..20).any(|_| seen() > 3_000_000), "{}", register.footprint_bytes());
        assert!((0..CELLS).all(|cell| register.set(cell, &Bits::new(64, initial))));
        assert_eq!(seen(), 0);
    }
    // Small arrays are sampled completely, and only existing lines.
    let register = Registers::new(3, 100, &Bits::new(100, 5), false).expect("there is memory");
    register.look();
    assert!(register.set(1, &Bits::new(100, 6)));
    register.look();
    assert_eq!(register.footprint_bytes(), 64);
    Registers::new(0, 8, &Bits::new(8, 0), false).expect("nothing").look();
}

#[test]
fn a_worker_number_is_taken_once_at_a_time() {
    let state = state(2);
    let worker = state.worker(0);
    assert!(worker.is_some());
    assert!(state.worker(0).is_none() && state.worker(2).is_none());
    drop(worker);
    let worker = state.worker(0).expect("it is free again");
    // SAFETY: the context lives as long as the worker.
    let WorkerCtx { worker: number, counters, .. } = unsafe { &*worker.ctx() };
    // SAFETY: there is one base per extern.
    assert!(*number == 0 && unsafe { !(**counters).is_null() && (*counters.add(4)).is_null() });
}

#[test]
fn programs_that_do_not_fit_are_refused_by_name() {
    let mut large = program();
    large.externs[0].kind = ExternKind::Counter { size: u64::MAX, unit: CounterUnit::Both, direct: None };
    let error = FastState::new(Arc::new(large), 1).expect_err("too large");
    assert_eq!(error, LoadError::Memory { name: "counter".to_string(), cells: u64::MAX, limit: None });
    let mut wrong = program();
    wrong.tables[0].entries = vec![entry(1, EntryAction::Call(ActionCall { action: 9, args: vec![] }))];
    let error = FastState::new(Arc::new(wrong), 1).expect_err("there is no action 9");
    assert_eq!(error.to_string(), "table `direct`: the program's entry 0 is refused: WrongKind");
}
