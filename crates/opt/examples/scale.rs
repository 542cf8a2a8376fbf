//! Times every pass on programs of growing size: the passes must stay near linear.
//!
//! `cargo run --release -p opt --example scale`

use base::Bits;
use ir::{
    Action, BinOp, Builder, EntryKind, Fate, FieldWidth, Intrinsic, Key, Op, Program, StageKind, Table, TableAction,
};

/// A chain of `n` headers, each with a parser state, a table that rewrites it behind a validity check, and an emit.
fn program(n: usize) -> Program {
    let mut b = Builder::new(format!("{n} headers"));
    b.drop_reason("end");
    let port = b.metadata("port", 9);
    b.intrinsic(Intrinsic::IngressPort, port);
    let names: Vec<String> = (0..20).map(|i| format!("f{i}")).collect();
    let fields: Vec<(&str, FieldWidth)> = names.iter().map(|f| (f.as_str(), FieldWidth::Fixed(16))).collect();
    let headers: Vec<_> = (0..n).map(|i| b.header(format!("h{i}"), &fields)).collect();

    let parser = b.begin_stage("parser", StageKind::Parser);
    let accept = b.block("accept");
    for header in &headers {
        let there = b.temp(1);
        b.emit(Op::HasBits { dst: there, bits: ir::Operand::new_const(32, 320) });
        let (take, next) = (b.block("take"), b.block("next"));
        b.branch(there, take, accept);
        b.switch_to(take);
        b.emit(Op::Extract { header: *header, varbit_bits: None });
        let kind = b.program().headers[header.index()].fields[0].slot;
        b.switch(kind, vec![(Bits::new(16, 1), next), (Bits::new(16, 2), accept)], next);
        b.switch_to(next);
    }
    b.jump(accept);
    b.switch_to(accept);
    b.next_stage();
    b.end_stage();

    let control = b.begin_stage("control", StageKind::Control);
    for (i, header) in headers.iter().enumerate() {
        let header = b.program().headers[header.index()].clone();
        let actions: Vec<TableAction> = (0..4)
            .map(|j| {
                let params = vec![("p".to_string(), 16)];
                let action = b.action(Action { name: format!("t{i}.a{j}"), params });
                TableAction { action, default_only: false, table_only: false }
            })
            .collect();
        let table = b.table(Table {
            name: format!("t{i}"),
            span: base::Span::NONE,
            keys: vec![Key { name: "k".into(), width: 16, kind: base::entry::MatchKind::Exact }],
            actions,
            default_action: base::entry::ActionCall { action: 0, args: vec![Bits::zero(16)] },
            const_default: false,
            entries: Vec::new(),
            const_entries: false,
            size: 1024,
            implementation: None,
            direct: Vec::new(),
            idle_timeout: false,
            value_set: false,
            dynamic: None,
        });
        let (apply, after) = (b.block("apply"), b.block("after"));
        b.branch(header.valid, apply, after);
        b.switch_to(apply);
        let [hit, action, entry, data] = [1, 32, 64, 64].map(|w| b.temp(w));
        let keys = vec![header.fields[1].slot.into()];
        b.emit(Op::Apply { table, keys, selector: Vec::new(), hit, action, entry, data });
        let bodies: Vec<_> = (0..4).map(|_| b.block("action")).collect();
        let cases = bodies.iter().enumerate().map(|(j, to)| (Bits::new(32, j as u128), *to)).collect();
        b.switch(action, cases, after);
        for (j, body) in bodies.into_iter().enumerate() {
            b.switch_to(body);
            let param = b.temp(16);
            b.emit(Op::ActionParam { dst: param, table, action: j as u32, param: 0, data });
            let (write, join) = (b.block(""), b.block(""));
            b.branch(header.valid, write, join);
            b.switch_to(write);
            for field in &header.fields[2..8] {
                let copy = b.temp(16);
                b.mov(copy, field.slot);
                let sum = b.bin(BinOp::Add, copy, param);
                b.mov(field.slot, sum);
            }
            b.jump(join);
            b.switch_to(join);
            b.jump(after);
        }
        b.switch_to(after);
    }
    b.next_stage();
    b.end_stage();

    let deparser = b.begin_stage("deparser", StageKind::Deparser);
    headers.iter().for_each(|header| b.emit(Op::Emit { header: *header }));
    b.fate(Fate::Send(port.into()));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, control, deparser]);
    b.finish()
}

fn main() {
    for n in [25, 100, 400] {
        let mut program = program(n);
        println!("{}: {} slots", program.name, program.slots.len());
        let start = std::time::Instant::now();
        assert!(ir::verify(&program).is_empty());
        println!("verify {:.1?}", start.elapsed());
        println!("{}", opt::optimise(&mut program, &opt::Options { verify: false, ..opt::Options::default() }));
    }
}
