//! Large programs: compile time stays linear, and the code is correct.

mod common;

use base::Bits;
use common::random::Random;
use common::{Both, options};
use ir::builder::{Builder, FieldWidth};
use ir::{BinOp, EntryKind, Fate, Op, Operand, Program, ReplicationPoint, SlotId, StageKind};
use std::time::{Duration, Instant};

/// A parser of `headers` headers in a row, then `diamonds` conditions and switches with arithmetic in their cases,
/// which all join.
fn large(headers: usize, diamonds: usize) -> Program {
    let mut random = Random::new(9);
    let mut b = Builder::new("large");
    let short = b.drop_reason("short");
    let mut ids = Vec::new();
    let mut fields: Vec<SlotId> = Vec::new();
    for h in 0..headers {
        let widths = [("a", 8), ("b", 16), ("c", 32), ("d", 48)].map(|(n, w)| (n, FieldWidth::Fixed(w)));
        let id = b.header(format!("h{h}"), &widths);
        fields.extend(b.program().headers[id.index()].fields.iter().map(|f| f.slot));
        ids.push(id);
    }
    let mut locals: Vec<SlotId> = (0..100).map(|i| b.metadata(format!("m{i}"), [8, 16, 32, 48, 64][i % 5])).collect();
    let parser = b.begin_stage("parser", StageKind::Parser);
    let (accept, reject) = (b.block("accept"), b.block("reject"));
    for &header in &ids {
        let enough = b.temp(1);
        b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, 104) });
        let go_on = b.block("");
        b.branch(enough, go_on, if header.0 == 0 { reject } else { accept });
        b.switch_to(go_on);
        b.emit(Op::Extract { header, varbit_bits: None });
    }
    b.jump(accept);
    b.switch_to(reject);
    b.fate(Fate::Drop(short));
    b.switch_to(accept);
    b.next_stage();
    b.end_stage();
    let control = b.begin_stage("control", StageKind::Control);
    for _ in 0..diamonds {
        let on = *random.pick(&locals);
        let width = b.program().width(on);
        let arms = 2 + random.below(5);
        let end = b.block("");
        let from = b.current();
        let mut cases = Vec::new();
        for arm in 0..arms {
            let to = b.block("");
            b.switch_to(to);
            for _ in 0..4 {
                let dst = *random.pick(&locals);
                let width = b.program().width(dst);
                let a =
                    b.resize_u(width, if random.chance(30) { *random.pick(&fields) } else { *random.pick(&locals) });
                let op = *random.pick(&[BinOp::Add, BinOp::Xor, BinOp::Sub, BinOp::Or]);
                b.emit(Op::Bin { op, dst, a, b: dst.into() });
            }
            if random.chance(10) {
                let field = *random.pick(&fields);
                let valid = match b.program().slots[field.index()].kind {
                    ir::SlotKind::Field(h) => b.program().headers[h.index()].valid,
                    _ => unreachable!("fields are fields"),
                };
                let (then, out) = (b.block(""), b.block(""));
                b.branch(valid, then, out);
                b.switch_to(then);
                let value = b.resize_u(b.program().width(field), *random.pick(&locals));
                b.mov(field, value);
                b.jump(out);
                b.switch_to(out);
            }
            b.jump(end);
            cases.push((Bits::new(width, arm.into()), to));
        }
        b.switch_to(from);
        b.switch(on, cases, end);
        b.switch_to(end);
    }
    b.next_stage();
    b.end_stage();
    let deparser = b.begin_stage("deparser", StageKind::Deparser);
    ids.iter().for_each(|&header| b.emit(Op::Emit { header }));
    b.fate(Fate::Replicate(ReplicationPoint::DeparseEnd));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, control, deparser]);
    locals.truncate(100);
    b.program_mut().field_lists.push((0, locals));
    b.finish()
}

#[test]
fn large_programs() {
    let sizes: &[(usize, usize)] =
        if std::env::var_os("JIT_LARGE").is_some() { &[(10, 300), (30, 1000), (30, 2000)] } else { &[(10, 100)] };
    let both_efforts = sizes.iter().flat_map(|&size| [(size, jit::THOROUGH_INSTRUCTIONS_MAX), (size, 0)]);
    for ((headers, diamonds), thorough_instructions_max) in both_efforts {
        let program = large(headers, diamonds);
        let insts: usize = program.stages.iter().flat_map(|s| &s.blocks).map(|b| b.insts.len() + 1).sum();
        let start = Instant::now();
        let both = Both::with_options(program, &jit::Options { verify: false, thorough_instructions_max, ..options() });
        let timing = both.pipeline.timing();
        println!("{insts} instructions: {:?}; {timing:?}, {} bytes", start.elapsed(), both.pipeline.code_size());
        // Far above the actual time, far below anything quadratic.
        assert!(timing.total() < Duration::from_millis(50 * insts as u64), "{insts} instructions: {timing:?}");
        let mut random = Random::new(10);
        let packets: Vec<Vec<u8>> = (0..10).map(|i| random.bytes(i * 13 + 9)).collect();
        both.check(&packets);
    }
}
