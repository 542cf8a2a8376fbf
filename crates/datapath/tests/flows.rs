//! Programs whose packets a flow processor decides about: which frames are sent, in which order, modified or not, and
//! which come back.

use abi::flows::{Arrival, FlowProcessor, FlowTables, Frame, Output, Outputs};
use base::ids::SlotId;
use datapath::engine::{KEPT_UNITS, OWN_STEPS, UNIT_STEPS, WORK_MAX};
use datapath::{CodeOptions, EngineKind, Local, Sent, load, load_bridge};
use ir::{EntryKind, Fate, FieldWidth, Intrinsic, Op, Operand, Program, ReplicationPoint, SlotKind, StageKind};
use std::sync::{Arc, Mutex};

/// A program with a header of two bytes, `how` and `mark`; egress increments the mark and sends.
fn program() -> (Program, SlotId, SlotId) {
    let mut b = ir::Builder::new("flows");
    let header = b.header("h", &[("how", FieldWidth::Fixed(8)), ("mark", FieldWidth::Fixed(8))]);
    let to = b.slot("to", 32, SlotKind::Metadata);
    b.intrinsic(Intrinsic::EgressPort, to);
    let fields: Vec<SlotId> = b.program().headers[header.index()].fields.iter().map(|field| field.slot).collect();
    let parser = b.begin_stage("parse", StageKind::Parser);
    let (has, short) = (b.block("has"), b.block("short"));
    let enough = b.temp(1);
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, 16) });
    b.branch(enough, has, short);
    b.switch_to(has);
    b.emit(Op::Extract { header, varbit_bits: None });
    b.jump(short);
    b.switch_to(short);
    b.fate(Fate::Replicate(ReplicationPoint::IngressEnd));
    b.end_stage();
    let commit = b.begin_stage("commit", StageKind::Control);
    let next = b.bin(ir::BinOp::Add, fields[1], Operand::new_const(8, 1));
    b.mov(fields[1], next);
    b.next_stage();
    b.end_stage();
    let deparser = b.begin_stage("deparse", StageKind::Deparser);
    b.emit(Op::Emit { header });
    b.next_stage();
    b.end_stage();
    let send = b.begin_stage("send", StageKind::Control);
    b.fate(Fate::Send(to.into()));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser]);
    b.entry(EntryKind::Egress, &[commit, deparser, send]);
    let valid = b.program().headers[header.index()].valid;
    let kept: Vec<SlotId> = fields.iter().copied().chain([valid]).collect();
    b.program_mut().field_lists.push((0, kept));
    b.program_mut().openflow = Some(ir::OpenFlow::default());
    (b.finish(), fields[0], fields[1])
}

/// Tokens and frames.
type Captured = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// The request in a packet's first byte.
struct Asked {
    how: usize,
    mark: usize,
    captured: Captured,
}

/// The mark of frames that cost much work, and the steps that they cost.
const GREEDY: u8 = 98;
const GREEDY_STEPS: u32 = OWN_STEPS + 192 * UNIT_STEPS;

struct Tables {
    how: usize,
    mark: usize,
    captured: Captured,
}

impl FlowTables for Tables {
    fn processor(&self, _worker: usize) -> Box<dyn FlowProcessor> {
        Box::new(Asked { how: self.how, mark: self.mark, captured: Arc::clone(&self.captured) })
    }
}

impl FlowProcessor for Asked {
    fn process(&mut self, batch: &mut [Arrival<'_>], _now_us: u64, outputs: &mut dyn Outputs) {
        for (packet, arrival) in batch.iter_mut().enumerate() {
            let plain = Output { packet, max_len: u32::MAX, is_modified: false, is_last: true };
            let changed = Output { is_modified: true, ..plain };
            let Arrival { record, port, start, .. } = arrival;
            match (record[self.how], *start) {
                (_, start @ 1..) => {
                    record[self.mark] = start;
                    outputs.send(changed, record, 9, 0);
                }
                (0, _) => outputs.end(packet, true),
                (1, _) => outputs.send(plain, record, *port + 1, 0),
                (2, _) => {
                    outputs.send(Output { is_last: false, ..plain }, record, 1, 0);
                    record[self.mark] = 40;
                    outputs.send(Output { is_last: false, ..changed }, record, 2, 0);
                    record[self.mark] = 50;
                    outputs.send(Output { max_len: 3, ..changed }, record, 3, 0);
                }
                (3, _) => outputs.capture(changed, record, 77),
                (4, _) => {
                    outputs.again(Output { is_last: false, ..changed }, record, 5, false);
                    outputs.end(packet, false);
                }
                (_, _) => outputs.again(plain, record, 6, true),
            }
        }
    }

    fn capture(&mut self, token: u64, frame: &[u8]) {
        self.captured.lock().expect("no test panics with it").push((token, frame.to_vec()));
    }

    fn rewrite(&mut self, start: u64, frame: &mut Frame<'_>, steps: &mut u32) -> Option<()> {
        assert_eq!(start, 6);
        if frame.buffer[frame.offset + 1] == GREEDY {
            let can_pay = *steps >= GREEDY_STEPS;
            *steps = steps.saturating_sub(GREEDY_STEPS) * u32::from(can_pay);
            return can_pay.then_some(());
        }
        if frame.buffer[frame.offset + 1] == 99 {
            return None;
        }
        // Two bytes more in front.
        frame.offset -= 2;
        frame.len += 2;
        frame.buffer[frame.offset..frame.offset + 2].copy_from_slice(&[200, 7]);
        Some(())
    }

    fn idle(&mut self, _now_us: u64) {}
}

fn sent(port: u32, bytes: &[u8]) -> Sent {
    Sent { port, bytes: bytes.to_vec() }
}

#[test]
fn packets_go_where_the_processor_says() {
    let (program, how, mark) = program();
    let layout = ir::layout::RecordLayout::new(&program);
    let program = Arc::new(program);
    assert!(load(Arc::clone(&program), EngineKind::Machine, 1).is_err(), "nobody decides");
    for engine in [EngineKind::Interpreter, EngineKind::Machine, EngineKind::Staged] {
        let captured = Captured::default();
        let (how, mark) = (layout.offset(how), layout.offset(mark));
        let tables = Tables { how, mark, captured: Arc::clone(&captured) };
        let options = CodeOptions::default();
        let pipeline = load_bridge(Arc::clone(&program), engine, 1, &options, Arc::new(tables)).expect("it is small");
        let pipeline = Arc::new(pipeline);
        let mut local = Local::new(Arc::clone(&pipeline));
        let mut run = |frames: &[&[u8]]| local.receive_batch(4, frames).expect("they are short");
        assert_eq!(run(&[&[0, 1, 2]]), [], "{engine:?}");
        assert_eq!(run(&[&[1, 1, 2]]), [sent(5, &[1, 1, 2])]);
        assert_eq!(run(&[&[2, 1, 8, 9]]), [sent(1, &[2, 1, 8, 9]), sent(2, &[2, 41, 8, 9]), sent(3, &[2, 51, 8])]);
        assert_eq!(run(&[&[3, 1, 8]]), []);
        assert_eq!(*captured.lock().expect("no test panics with it"), [(77, vec![3, 2, 8])]);
        assert_eq!(run(&[&[4, 1, 8]]), [sent(9, &[4, 6, 8])]);
        assert_eq!(run(&[&[5, 1, 8]]), [sent(9, &[200, 7, 5, 1, 8])]);
        assert_eq!(run(&[&[5, 99, 8]]), []);
        // Order within a burst; a frame too short for the header, which then reads as zeros.
        let burst = run(&[&[1, 0], &[2, 0], &[9], &[4, 0], &[1, 5]]);
        let first: Vec<(u32, u8)> = burst.iter().map(|s| (s.port, s.bytes[0])).collect();
        assert_eq!(first, [(5, 1), (1, 2), (2, 2), (3, 2), (5, 1), (9, 4)]);
        assert_eq!(local.receive_at(4, 12, &[0, 1, 2]).expect("it is short"), [sent(9, &[0, 13, 2])]);
        let drops = pipeline.drops(0).read(pipeline.program());
        let dropped = drops.iter().find(|(name, _)| name == "flow tables").expect("it is a reason").1;
        assert_eq!(dropped, 3);
    }
}

/// The finding: a pass cost one unit, however much work was done on the frame's bytes.
#[test]
fn work_on_frames_bytes_is_paid_from_the_bursts_budget_and_leaves_some_for_others() {
    let (program, how, mark) = program();
    let layout = ir::layout::RecordLayout::new(&program);
    let program = Arc::new(program);
    for engine in [EngineKind::Interpreter, EngineKind::Machine] {
        let (how, mark) = (layout.offset(how), layout.offset(mark));
        let tables = Tables { how, mark, captured: Captured::default() };
        let options = CodeOptions::default();
        let pipeline = load_bridge(Arc::clone(&program), engine, 1, &options, Arc::new(tables)).expect("it is small");
        let pipeline = Arc::new(pipeline);
        let mut local = Local::new(Arc::clone(&pipeline));
        let greedy: &[u8] = &[5, GREEDY, 8];
        let mut burst = vec![greedy; 63];
        burst.push(&[5, 1, 8]);
        let out = local.receive_batch(4, &burst).expect("they are short");
        let done = out.iter().filter(|sent| sent.bytes[0] == 5).count();
        // Each costs 192 units, and one for its pass.
        let most = WORK_MAX as usize / 193;
        let least = (WORK_MAX - 64 * KEPT_UNITS) as usize / 193;
        assert!((least..=most).contains(&done), "{engine:?}: {done} of {least} to {most}");
        assert_eq!(out.last(), Some(&sent(9, &[200, 7, 5, 1, 8])), "the last one has its work done");
        let drops = pipeline.drops(0).read(pipeline.program());
        let dropped = drops.iter().find(|(name, _)| name == "flow work limit").expect("it is a reason").1;
        assert_eq!(dropped as usize, 63 - done);
        assert_eq!(local.receive_batch(4, &[greedy]).expect("it is short").len(), 1, "the next burst has its own");
    }
}
