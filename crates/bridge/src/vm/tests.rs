use super::*;
use crate::testing::program;
use base::entry::ActionCall;
use ir::layout::words_of;
use ir::{Action, Builder, EntryKind, Fate, OpenFlow, SlotId, StageKind, Table, TableAction};
use random::Random;

const WIDTHS: [u32; 10] = [1, 7, 8, 16, 33, 48, 64, 65, 128, 200];

fn bits(random: &mut Random, width: u32) -> Bits {
    let bytes: Vec<u8> = (0..width.div_ceil(8)).map(|_| random.next_u64() as u8).collect();
    match random.below(4) {
        0 => Bits::new(width, u128::from(random.below(3))),
        1 => Bits::ones(width),
        _ => Bits::from_bytes_be(width, &bytes),
    }
}

/// A random operation on slots of these widths, and its destination.
fn random_op(random: &mut Random, slots: &[SlotId]) -> Op {
    let width_of = |slot: SlotId| WIDTHS[slot.index() % WIDTHS.len()];
    let of_width = |random: &mut Random, width: u32| -> Operand {
        let fitting: Vec<SlotId> = slots.iter().copied().filter(|slot| width_of(*slot) == width).collect();
        if fitting.is_empty() || random.one_in(4) {
            Operand::Const(bits(random, width))
        } else {
            Operand::Slot(*random.pick(&fitting))
        }
    };
    let dst = *random.pick(slots);
    let width = width_of(dst);
    let any_width = *random.pick(&WIDTHS);
    match random.below(9) {
        0 => Op::Mov { dst, src: of_width(random, width) },
        1 | 2 => {
            use BinOp::*;
            let op = *random
                .pick(&[Add, Sub, Mul, Div, Mod, And, Or, Xor, Shl, Lshr, Ashr, SatAddU, SatSubU, SatAddS, SatSubS]);
            let b = if op.is_shift() { any_width } else { width };
            Op::Bin { op, dst, a: of_width(random, width), b: of_width(random, b) }
        }
        3 => {
            use BinOp::*;
            let op = *random.pick(&[Eq, Ne, Ult, Ule, Slt, Sle]);
            let dst = slots.iter().copied().find(|slot| width_of(*slot) == 1).unwrap();
            Op::Bin { op, dst, a: of_width(random, any_width), b: of_width(random, any_width) }
        }
        4 => Op::Un { op: *random.pick(&[UnOp::Not, UnOp::Neg]), dst, a: of_width(random, width) },
        5 => {
            let smaller: Vec<u32> = WIDTHS.into_iter().filter(|w| *w <= width).collect();
            let larger: Vec<u32> = WIDTHS.into_iter().filter(|w| *w >= width).collect();
            let (kind, from) = match random.below(3) {
                0 => (CastKind::Zext, *random.pick(&smaller)),
                1 => (CastKind::Sext, *random.pick(&smaller)),
                _ => (CastKind::Trunc, *random.pick(&larger)),
            };
            Op::Cast { kind, dst, a: of_width(random, from) }
        }
        6 => {
            Op::Select { dst, cond: of_width(random, 1), then: of_width(random, width), other: of_width(random, width) }
        }
        7 => {
            let (from, hi) = if any_width > width { (any_width, width - 1) } else { (width, width - 1) };
            let lo = random.range(0, from - width);
            Op::Slice { dst, a: of_width(random, from), hi: lo + hi, lo }
        }
        _ => {
            let inner = if any_width <= width { any_width } else { 1 };
            let lo = random.range(0, width - inner);
            Op::SetSlice { dst, hi: lo + inner - 1, lo, a: of_width(random, inner) }
        }
    }
}

fn program_of(emit: impl FnOnce(&mut Builder, &[SlotId])) -> Program {
    let mut b = Builder::new("t");
    let slots: Vec<SlotId> = (0..30).map(|i| b.metadata(format!("s{i}"), WIDTHS[i % WIDTHS.len()])).collect();
    let action = b.action(Action { name: "A.it".to_string(), params: vec![("x".to_string(), 16)] });
    let table = b.table(Table {
        name: "A.t".to_string(),
        span: base::Span::NONE,
        keys: Vec::new(),
        actions: vec![TableAction { action, default_only: false, table_only: false }],
        default_action: ActionCall { action: 0, args: vec![Bits::zero(16)] },
        const_default: false,
        entries: Vec::new(),
        const_entries: false,
        size: 1,
        implementation: None,
        direct: Vec::new(),
        idle_timeout: false,
        value_set: false,
        dynamic: None,
    });
    let stage = b.begin_stage("A", StageKind::Control);
    let (hit, action, entry, data) = (b.temp(1), b.temp(32), b.temp(64), b.temp(64));
    b.emit(Op::Apply { table, keys: Vec::new(), selector: Vec::new(), hit, action, entry, data });
    let body = b.block("it");
    b.switch(action, vec![(Bits::new(32, 0), body)], body);
    b.switch_to(body);
    b.emit(Op::ActionParam { dst: slots[3], table, action: 0, param: 0, data });
    emit(&mut b, &slots);
    b.next_stage();
    b.end_stage();
    let end = b.begin_stage("end", StageKind::Control);
    let drop = b.drop_reason("end");
    b.fate(Fate::Drop(drop));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[end]);
    let mut program = b.finish();
    program.openflow = Some(OpenFlow { actions: Some((stage, table)), ..OpenFlow::default() });
    program
}

#[test]
fn operations_have_the_irs_meaning_and_known_dependences() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut ops = Vec::new();
        let program = program_of(|b, slots| {
            for _ in 0..12 {
                let op = random_op(&mut random, slots);
                ops.push(op.clone());
                b.emit(op);
            }
        });
        let vm = Vm::new(&program).unwrap();
        let layout = RecordLayout::new(&program);
        let fill = |random: &mut Random, slots: usize| {
            let mut record = vec![0; layout.words()];
            for (i, width) in WIDTHS.iter().cycle().take(slots).enumerate() {
                layout.set(&mut record, SlotId::from_index(i), &bits(random, *width));
            }
            record
        };
        let first = fill(&mut random, 30);
        let mut expected = first.clone();
        layout.set(&mut expected, SlotId(3), &Bits::new(16, 0xabcd));
        for op in &ops {
            let dst = decode::destination(op).unwrap();
            let value = op.evaluate(program.width(dst), |operand| {
                Some(match operand {
                    Operand::Slot(slot) => layout.get(&expected, *slot),
                    Operand::Const(bits) => bits.clone(),
                })
            });
            layout.set(&mut expected, dst, &value.unwrap());
        }
        let mut got = first.clone();
        vm.run(0, &[0xffff_abcd], &mut got);
        let metadata: u32 = (0..30).map(|i| words_of(WIDTHS[i % WIDTHS.len()])).sum();
        assert_eq!(got[..metadata as usize], expected[..metadata as usize], "seed {seed}: {ops:?}");

        let written = &vm.dependences(0).written;
        for word in 0..metadata as usize {
            let of = written.iter().find(|(other, _)| *other as usize == word);
            assert!(of.is_some() || got[word] == first[word], "seed {seed}: word {word} is written");
            // Changing anything else does not change the word's new value.
            let Some((_, sources)) = of else { continue };
            let mut other = fill(&mut random, 30);
            for (source, mask) in sources {
                let at = &mut other[*source as usize];
                *at = *at & !mask | first[*source as usize] & mask;
            }
            vm.run(0, &[0xffff_abcd], &mut other);
            assert_eq!(other[word], got[word], "seed {seed}: word {word} depends on more than {sources:?}");
        }
    }
}

#[test]
fn branches_are_dependences() {
    let program = program();
    let (vm, layout) = (Vm::new(&program).unwrap(), RecordLayout::new(&program));
    let word = |name: &str| {
        let slot = program.slots.iter().position(|slot| slot.name == name).expect(name);
        layout.offset(SlotId::from_index(slot)) as u32
    };
    let on = |action: &str, name: &str| -> Option<Vec<u32>> {
        let of = vm.dependences(vm.action(action).unwrap()).written.iter().find(|(at, _)| *at == word(name))?;
        Some(of.1.iter().map(|(word, _)| *word).collect())
    };
    let mut ttl = vec![word("ip.ttl"), word("ip.$valid")];
    ttl.sort_unstable();
    assert_eq!(on("dec_nw_ttl", "ip.ttl"), Some(ttl));
    assert!(on("dec_nw_ttl", "ttl_exceeded").unwrap().contains(&word("ip.ttl")));
    assert_eq!(on("push_vlan", "vlan.present"), Some(Vec::new()), "a constant on all ways");
    assert_eq!(on("push_vlan", "ip.ttl"), None);
    assert_eq!(on("push_mpls", "reparse"), Some(Vec::new()));
    let mut vid = vec![word("vlan.vid"), word("vlan.$valid")];
    vid.sort_unstable();
    assert_eq!(on("pop_vlan", "vlan.vid"), Some(vid), "it stays without a tag");

    let mut record = vec![0; layout.words()];
    record[word("ip.$valid") as usize] = 1;
    record[word("ip.ttl") as usize] = 2;
    let dec = vm.action("dec_nw_ttl").unwrap();
    vm.run(dec, &[], &mut record);
    assert_eq!((record[word("ip.ttl") as usize], record[word("ttl_exceeded") as usize]), (1, 0));
    vm.run(dec, &[], &mut record);
    assert_eq!((record[word("ip.ttl") as usize], record[word("ttl_exceeded") as usize]), (1, 1));
    vm.run(vm.action("push_vlan").unwrap(), &[0x8100], &mut record);
    assert_eq!((record[word("vlan.$valid") as usize], record[word("eth.type") as usize]), (1, 0x8100));
}

#[test]
fn what_header_actions_cannot_do_is_refused_by_name() {
    let program = program_of(|b, slots| {
        b.emit(Op::Random { dst: slots[2], low: Operand::Const(Bits::zero(8)), high: Operand::Const(Bits::ones(8)) });
    });
    let why = Vm::new(&program).unwrap_err();
    assert!(why.contains("`it` takes a random number"), "{why}");
}
