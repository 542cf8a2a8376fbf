//! Programs whose packets read and write registers, on several workers at once: each packet's accesses are one atomic
//! step (`ir::atomicity`). Each program keeps an invariant whatever the order of packets; a lost update breaks it,
//! and so does a packet that sees only some of another packet's writes.

mod common;

use base::Bits;
use base::ids::ExternId;
use datapath::{EngineKind, Local, Pipeline};
use ir::atomicity::LOCKED_CELLS_MIN;
use ir::{Acquire, Acquisitions, Atomicity, Sharing};
use std::sync::{Arc, Barrier};

const WORKERS: usize = 3;
const CELLS: u64 = LOCKED_CELLS_MIN;
/// Number of cells that packets use: few, so that they collide.
const USED: u64 = 4;
const BATCH: usize = 32;
const FULL: u64 = 1 << 30;

/// Batches per worker: enough for packets to collide.
fn batches(engine: EngineKind) -> usize {
    match engine {
        EngineKind::Interpreter => 400,
        EngineKind::MirInterpreter => 1000,
        _ => 20_000,
    }
}

/// Total number of packets.
fn all(engine: EngineKind) -> u64 {
    (WORKERS * batches(engine) * BATCH) as u64
}

const P: ExternId = ExternId(0);
const Q: ExternId = ExternId(1);

/// A program over frames with two bytes that select cells and one that selects a path.
fn program(control: &str) -> Arc<ir::Program> {
    let slots =
        "slot x: 32 temp\nslot y: 48 temp\nslot x48: 48 temp\nslot z: 32 temp\nslot w: 32 temp\nslot c: 1 temp\n";
    let registers = format!(
        "{slots}extern p register size {CELLS} width 32 initial 32w{FULL}\n\
         extern q register size {CELLS} width 48 initial 48w{FULL}\n"
    );
    common::matching(&[("i", 8), ("j", 8), ("path", 8)], 0, &registers, control)
}

/// Moves one unit from a cell of `p` to a cell of `q`.
const MOVE: &str = "\
b0:
  x = read p, h.i
  y = read q, h.j
  x = sub x, 32w1
  y = add y, 48w1
  write p, h.i, x
  write q, h.j, y
  send port
";

/// Both registers count the same packets.
const PAIR: &str = "\
b0:
  x = read p, h.i
  y = read q, h.i
  x48 = zext x
  c = eq x48, y
  branch c, b1, b2
b1:
  x = add x, 32w1
  y = add y, 48w1
  write q, h.i, y
  write p, h.i, x
  send port
b2:
  drop denied
";

/// As `MOVE`, accessing the registers in either order.
const EITHER_WAY: &str = "\
b0:
  c = eq h.path, 8w0
  branch c, b1, b2
b1:
  x = read p, h.i
  x = sub x, 32w1
  write p, h.i, x
  y = read q, h.j
  y = add y, 48w1
  write q, h.j, y
  send port
b2:
  y = read q, h.j
  y = sub y, 48w1
  write q, h.j, y
  x = read p, h.i
  x = add x, 32w1
  write p, h.i, x
  send port
";

/// Moves one unit between cells of the same register, after accesses out of range.
const WITHIN: &str = "\
b0:
  x = read p, 32w9999
  write p, 32w9999, x
  x = read p, h.i
  x = sub x, 32w1
  write p, h.i, x
  z = read p, h.j
  z = add z, 32w1
  write p, h.j, z
  send port
";

/// As `MOVE`, with each index computed where it is used.
const TWICE: &str = "\
b0:
  w = zext h.i
  w = add w, 32w3
  x = read p, w
  y = read q, h.j
  c = eq h.path, 8w0
  branch c, b1, b2
b1:
  z = mov 32w7
  jump b2
b2:
  x = sub x, 32w1
  y = add y, 48w1
  z = zext h.i
  z = add z, 32w3
  write p, z, x
  z = zext h.j
  write q, z, y
  send port
";

/// As `TWICE`, but for some packets the second index differs.
const OTHERWISE: &str = "\
b0:
  w = zext h.i
  x = read p, w
  c = eq h.path, 8w0
  branch c, b1, b2
b1:
  w = add w, 32w1
  jump b2
b2:
  write p, w, x
  send port
";

/// A different cell in each iteration of a loop, by the same operations.
const ROUNDS: &str = "\
b0:
  z = mov 32w0
  jump b1
b1:
  c = ult z, 32w3
  branch c, b2, b3
b2:
  x = read p, z
  write p, z, x
  z = add z, 32w1
  jump b1
b3:
  send port
";

/// A cell that only some packets access before one that all access.
const PERHAPS: &str = "\
b0:
  c = eq h.path, 8w0
  branch c, b1, b2
b1:
  x = read p, h.i
  x = add x, 32w1
  write p, h.i, x
  jump b2
b2:
  x = read p, h.i
  y = read q, h.j
  x = sub x, 32w1
  y = add y, 48w1
  write p, h.i, x
  write q, h.j, y
  branch c, b3, b4
b3:
  y = sub y, 48w1
  write q, h.j, y
  send port
b4:
  send port
";

/// As `PAIR`; some packets reset both to 0 and read values that they do not use.
fn reset() -> String {
    let pair = PAIR.replace("b2:", "b4:").replace("b1:", "b3:").replace("b1, b2", "b3, b4").replace("b0:", "b2:");
    format!(
        "\
b0:
  c = eq h.path, 8w0
  branch c, b1, b2
b1:
  z = read p, h.i
  write p, h.i, 32w0
  write q, h.i, 48w0
  send port
{pair}"
    )
}

/// Packets that a cell lets through before it is full.
const ROOM: u64 = 4000;

/// A packet is sent, and counted, while its cell has room; then packets only read.
fn limited() -> String {
    format!(
        "\
b0:
  x = read p, h.i
  c = ult x, 32w{}
  branch c, b1, b2
b1:
  x = add x, 32w1
  write p, h.i, x
  send port
b2:
  drop \"denied\"
",
        FULL + ROOM
    )
}

fn sums(pipeline: &Pipeline) -> [u64; 2] {
    let sum = |register| {
        let cell = |i| pipeline.state().register(register, i).expect("a cell").to_u64().expect("64 bits at most");
        (0..CELLS).map(cell).fold(0, u64::wrapping_add)
    };
    [sum(P), sum(Q)]
}

/// Runs random packets on all workers concurrently; returns the pipeline and the number of packets sent.
fn play(program: &Arc<ir::Program>, engine: EngineKind) -> (Arc<Pipeline>, u64) {
    let pipeline = Arc::new(datapath::load(Arc::clone(program), engine, WORKERS).expect("it loads"));
    let start = Barrier::new(WORKERS);
    let sent = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (pipeline, start) = (Arc::clone(&pipeline), &start);
                scope.spawn(move || {
                    let mut local = Local::of_worker(pipeline, worker);
                    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(worker as u64 + 1);
                    let mut sent = 0;
                    start.wait();
                    for _ in 0..batches(engine) {
                        let mut frames = [[0; 3]; BATCH];
                        for byte in frames.as_flattened_mut() {
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            *byte = (random % USED) as u8;
                        }
                        let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
                        sent += local.receive_batch(1, &frames).expect("short frames").len() as u64;
                    }
                    sent
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends well")).sum()
    });
    (pipeline, sent)
}

const ENGINES: [EngineKind; 5] =
    [EngineKind::Machine, EngineKind::Staged, EngineKind::Interpreter, EngineKind::Mir, EngineKind::MirInterpreter];

#[test]
fn nothing_is_lost_between_two_registers() {
    for control in [MOVE, TWICE, EITHER_WAY] {
        for engine in ENGINES {
            let (pipeline, sent) = play(&program(control), engine);
            assert_eq!(sent, all(engine), "{engine:?}");
            let [p, q] = sums(&pipeline);
            assert_eq!(p + q, 2 * CELLS * FULL, "{engine:?}");
        }
    }
}

#[test]
fn nobody_sees_half_of_what_a_packet_does() {
    for engine in ENGINES {
        let (pipeline, sent) = play(&program(PAIR), engine);
        assert_eq!(sent, all(engine), "{engine:?}: the others have seen cells that differ");
        assert_eq!(sums(&pipeline), [CELLS * FULL + all(engine); 2], "{engine:?}");
    }
}

#[test]
fn a_lock_is_held_for_a_cell_that_is_read_in_vain() {
    for engine in ENGINES {
        let (pipeline, sent) = play(&program(&reset()), engine);
        assert_eq!(sent, all(engine), "{engine:?}: some have seen cells that differ");
        let [p, q] = sums(&pipeline);
        assert_eq!(p, q, "{engine:?}");
    }
}

#[test]
fn packets_that_only_read_a_cell_lock_nothing_and_lose_nothing() {
    let program = program(&limited());
    let made = opt::peeks(&program, &opt::Options::default()).expect("the half that is dropped only reads");
    assert!(ir::print::print(&made).contains("peek p"));
    assert!(ENGINES.iter().all(|engine| all(*engine) > 2 * USED * ROOM), "cells become full");
    for engine in ENGINES {
        let (pipeline, sent) = play(&program, engine);
        let cells = (0..USED).map(|i| pipeline.state().register(P, i).expect("a cell").to_u64().expect("32 bits"));
        assert_eq!(cells.collect::<Vec<u64>>(), [FULL + ROOM; USED as usize], "{engine:?}");
        assert_eq!(sent, USED * ROOM, "{engine:?}: each packet that is sent was counted");
    }
}

#[test]
fn nothing_is_lost_within_a_register() {
    for engine in ENGINES {
        let (pipeline, sent) = play(&program(WITHIN), engine);
        assert_eq!(sent, all(engine), "{engine:?}");
        assert_eq!(sums(&pipeline)[0], CELLS * FULL, "{engine:?}");
    }
}

#[test]
fn a_lock_that_may_be_held_is_taken_once() {
    for engine in ENGINES {
        let (pipeline, sent) = play(&program(PERHAPS), engine);
        assert_eq!(sent, all(engine), "{engine:?}");
        // Packets on the long path leave the sums unchanged; the others move one unit.
        let [p, q] = sums(&pipeline);
        assert_eq!(p + q, 2 * CELLS * FULL, "{engine:?}");
        assert!(q > CELLS * FULL, "{engine:?}: some packets take the short way");
    }
}

#[test]
fn code_for_the_tables_as_they_are_locks_too() {
    let program = program(MOVE);
    let pipeline = Arc::new(datapath::load(Arc::clone(&program), EngineKind::Machine, 2).expect("it loads"));
    pipeline.recompile(datapath::Specialise::default()).expect("it compiles");
    std::thread::scope(|scope| {
        for worker in [0, 1] {
            let pipeline = Arc::clone(&pipeline);
            scope.spawn(move || {
                let mut local = Local::of_worker(pipeline, worker);
                (0..2000).for_each(|_| _ = local.receive_batch(1, &[&[1, 2, 0][..]; 32]));
            });
        }
    });
    let [p, q] = sums(&pipeline);
    assert_eq!([p, q], [CELLS * FULL - 2 * 2000 * 32, CELLS * FULL + 2 * 2000 * 32]);
}

#[test]
fn registers_keep_their_cells_when_they_are_locked_in_another_way() {
    let old = program(MOVE);
    for control in [MOVE, PAIR, EITHER_WAY, WITHIN] {
        let new = program(control);
        let before = datapath::load(Arc::clone(&old), EngineKind::Machine, 2).expect("it loads");
        before.state().register_set(P, 3, &Bits::new(32, 7)).expect("a cell");
        let keep = datapath::Keep { externs: vec![(P, P), (Q, Q)], ..datapath::Keep::default() };
        let options = datapath::CodeOptions::default();
        let after =
            datapath::load_keeping(new, EngineKind::Machine, 2, &options, Some((&before, &keep))).expect("it loads");
        let is_alike = [MOVE, PAIR].contains(&control);
        assert_eq!(after.takes_registers(&before, &keep), !is_alike, "shared if the locks are the same");
        after.take_registers(&before, &keep);
        assert_eq!(after.state().register(P, 3).expect("a cell"), Bits::new(32, 7));
        assert_eq!(after.state().register(Q, 0).expect("a cell"), Bits::new(48, FULL.into()));
    }
}

#[test]
fn cells_are_locked_where_that_needs_no_second_lock_of_a_register_and_has_an_order() {
    let of = |program: &ir::Program| {
        let atomicity = Atomicity::new(program);
        let sharing: Vec<Sharing> = atomicity.registers().map(|(_, sharing)| sharing.clone()).collect();
        (sharing, atomicity.takes_turns(), [atomicity.rank(P), atomicity.rank(Q)])
    };
    let locked = |rank| Sharing::Locked { rank };
    for control in [MOVE, PAIR, TWICE, PERHAPS] {
        assert_eq!(of(&program(control)), (vec![locked(0), locked(1)], false, [Some(0), Some(1)]));
    }
    let either = vec![Sharing::Order(vec![Q]), Sharing::Order(vec![P])];
    assert_eq!(of(&program(EITHER_WAY)), (either, true, [None; 2]));
    assert_eq!(of(&program(WITHIN)), (vec![Sharing::SeveralCells, Sharing::OnlyRead], true, [None; 2]));
    for control in [OTHERWISE, ROUNDS] {
        assert_eq!(of(&program(control)).0, [Sharing::SeveralCells, Sharing::OnlyRead]);
    }
    let mut small = (*program(MOVE)).clone();
    let ir::ExternKind::Register { size, .. } = &mut small.externs[0].kind else { unreachable!("it is one") };
    *size = LOCKED_CELLS_MIN - 1;
    assert_eq!(of(&small), (vec![Sharing::FewCells, locked(1)], true, [None; 2]));
}

#[test]
fn an_order_that_is_not_the_programs_is_refused() {
    let program = program(MOVE);
    let rank = |register: ExternId| Some(1 - register.0);
    let wrong = Acquisitions::new(&program, &program.entries[0], &rank);
    assert_eq!(wrong, Err(Q));
    let right = Acquisitions::new(&program, &program.entries[0], &|register| Some(register.0)).expect("the order");
    let block = base::ids::BlockId(0);
    let acquires: Vec<Option<Acquire>> = (0..7).map(|inst| right.at(1, block, inst)).collect();
    let (first, held) = (Some(Acquire::Always), Some(Acquire::Held));
    assert_eq!(acquires, [first, first, None, None, held, held, None]);
}

/// Counts in a cell of `q` under its lock, then moves one unit from a cell of `p`, which is one instruction.
const STEP: &str = "\
b0:
  y = read q, h.j
  c = ult y, 48w1
  branch c, b2, b1
b1:
  y = add y, 48w1
  write q, h.j, y
  jump b2
b2:
  x = read p, h.i
  z = sub x, 32w1
  write p, h.i, z
  send port
";

/// As `PAIR`, of which the second register's update is one instruction: packets see that of the first one before it.
const PAIR_WITH_STEP: &str = "\
b0:
  y = read q, h.i
  y = add y, 48w1
  write q, h.i, y
  x = read p, h.i
  z = add x, 32w1
  write p, h.i, z
  x48 = zext z
  c = eq x48, y
  branch c, b1, b2
b1:
  send port
b2:
  drop \"denied\"
";

/// The program with as few cells of `p` as one instruction may change without turns.
fn with_few_cells(control: &str) -> Arc<ir::Program> {
    let mut program = (*program(control)).clone();
    let ir::ExternKind::Register { size, .. } = &mut program.externs[P.index()].kind else { unreachable!("it is one") };
    *size = USED;
    Arc::new(program)
}

#[test]
fn one_instruction_changes_a_cell_without_a_lock_behind_locks_that_are_held_until_then() {
    for control in [STEP, PAIR_WITH_STEP] {
        let made = opt::for_several_workers(&with_few_cells(control), &opt::Options::default()).expect("p is updated");
        let atomicity = Atomicity::new(&made);
        assert!(atomicity.is_stepped(P) && !atomicity.takes_turns(), "{}", ir::print::print(&made));
        assert_eq!([atomicity.rank(P), atomicity.rank(Q)], [None, Some(0)]);
        assert!(Atomicity::new(&with_few_cells(control)).takes_turns(), "without updates there are too few cells");
    }
    for engine in ENGINES {
        let (pipeline, sent) = play(&with_few_cells(STEP), engine);
        assert_eq!(sent, all(engine), "{engine:?}");
        let cell = |register, i| pipeline.state().register(register, i).expect("a cell").to_u64().expect("48 bits");
        let moved: u64 = (0..USED).map(|i| FULL - cell(P, i)).sum();
        let counted: u64 = (0..CELLS).map(|i| cell(Q, i) - FULL).sum();
        assert_eq!([moved, counted], [all(engine); 2], "{engine:?}");
        let (pipeline, sent) = play(&with_few_cells(PAIR_WITH_STEP), engine);
        assert_eq!(sent, all(engine), "{engine:?}: the others have seen another packet's step first");
        let cells = (0..USED).map(|i| pipeline.state().register(P, i).expect("a cell").to_u64().expect("32 bits"));
        assert_eq!(cells.map(|cell| cell - FULL).sum::<u64>(), all(engine), "{engine:?}");
    }
}

#[test]
fn locks_are_released_after_the_last_access_once_none_is_acquired_any_more() {
    let program = program(MOVE);
    let locks = Acquisitions::new(&program, &program.entries[0], &|register| Some(register.0)).expect("the order");
    let block = base::ids::BlockId(0);
    // read p, read q, sub, add, write p, write q
    let released: Vec<&[ExternId]> = (0..6).map(|inst| locks.released_after(1, block, inst)).collect();
    assert_eq!(released, [&[][..], &[], &[], &[], &[P], &[Q]]);
}

/// Counts, and stores in another register, which packets only write, what it has counted to.
const COUNT_AND_COPY: &str = "\
b0:
  x = read p, h.i
  z = add x, 32w1
  write p, h.i, z
  y = zext z
  write q, h.j, y
  send port
";

#[test]
fn a_cell_is_locked_until_the_packet_has_written_a_register_that_packets_only_write() {
    let made = opt::for_several_workers(&program(COUNT_AND_COPY), &opt::Options::default());
    let made = made.unwrap_or_else(|| (*program(COUNT_AND_COPY)).clone());
    let atomicity = Atomicity::new(&made);
    assert_eq!([atomicity.rank(P), atomicity.rank(Q)], [Some(0), None], "{}", ir::print::print(&made));
    let locks = Acquisitions::new(&made, &made.entries[0], &|register| atomicity.rank(register)).expect("the order");
    let code = &made.stages[made.entries[0].stages[1].index()].blocks[0].insts;
    let writes = |inst: &ir::Inst| matches!(inst.op, ir::Op::RegisterWrite { register: Q, .. });
    let last = code.iter().position(writes).expect("q is written");
    let block = base::ids::BlockId(0);
    for inst in 0..code.len() {
        let released: &[ExternId] = if inst == last { &[P] } else { &[] };
        assert_eq!(locks.released_after(1, block, inst), released, "{inst}");
    }
}
