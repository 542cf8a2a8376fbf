//! Paths of programs that are nothing but expressions over a header's fields: some decide, the others are what is sent.
//! `SLUICE_ROUNDS` runs more of them.

mod common;

use base::Bits;
use common::{Outcome, Script, Subject, rounds};
use ir::{
    BinOp, BlockId, Builder, CastKind, EntryKind, Fate, FieldWidth, HashAlgorithm, Intrinsic, Op, Operand, Program,
    SlotId, StageKind, UnOp,
};
use random::Random;

/// Fields of the header, in bits.
const FIELDS: [u32; 10] = [8, 8, 16, 16, 4, 12, 32, 48, 72, 8];

struct Maker<'a> {
    b: Builder,
    values: Vec<(SlotId, u32)>,
    random: &'a mut Random,
}

impl Maker<'_> {
    fn constant(&mut self, width: u32) -> Bits {
        match self.random.below(4) {
            0 => Bits::new(width, self.random.below(4).into()),
            1 => Bits::ones(width),
            2 => Bits::ones(width).lshr(self.random.below(u64::from(width))),
            _ => Bits::from_bytes_be(width, &self.random.next_u128().to_be_bytes()),
        }
    }

    /// Something of a width, mostly no constant.
    fn operand(&mut self, width: u32) -> Operand {
        if self.random.one_in(5) {
            return self.constant(width).into();
        }
        let (slot, have) = *self.random.pick(&self.values);
        match have.cmp(&width) {
            std::cmp::Ordering::Equal => slot.into(),
            std::cmp::Ordering::Less => {
                let kind = if self.random.one_in(3) { CastKind::Sext } else { CastKind::Zext };
                self.b.cast(kind, width, slot).into()
            }
            std::cmp::Ordering::Greater => {
                let lo = self.random.range(0, have - width);
                self.b.slice(slot, lo + width - 1, lo).into()
            }
        }
    }

    fn keep(&mut self, operand: impl Into<Operand>) {
        if let Operand::Slot(slot) = operand.into() {
            let width = self.b.program().width(slot);
            self.values.push((slot, width));
        }
    }

    fn operation(&mut self) {
        use BinOp::*;
        let width = *self.random.pick(&[1, 4, 8, 8, 12, 16, 16, 32, 48, 64, 72]);
        let [a, b] = [0; 2].map(|_| self.operand(width));
        match self.random.below(12) {
            0..=2 => {
                let op = *self.random.pick(&[And, Or, Xor]);
                let result = self.b.bin(op, a, b);
                self.keep(result);
            }
            3..=5 => {
                let op = *self.random.pick(&[Add, Sub, Sub, Mul, Div, Mod, SatAddU, SatSubU, SatAddS, SatSubS]);
                let result = self.b.bin(op, a, b);
                self.keep(result);
            }
            6 | 7 => {
                let op = *self.random.pick(&[Eq, Ne, Ult, Ule, Slt, Sle]);
                let result = self.b.bin(op, a, b);
                self.keep(result);
            }
            8 => {
                let amount = if self.random.one_in(2) {
                    Bits::new(8, self.random.below(20).into()).into()
                } else {
                    self.operand(4)
                };
                let op = *self.random.pick(&[Shl, Lshr, Ashr]);
                let result = self.b.bin(op, a, amount);
                self.keep(result);
            }
            9 => {
                let op = *self.random.pick(&[UnOp::Not, UnOp::Neg]);
                let result = self.b.un(op, a);
                self.keep(result);
            }
            10 => {
                let cond = self.operand(1);
                let result = self.b.select(cond, a, b);
                self.keep(result);
            }
            _ => {
                let dst = self.b.temp(16);
                let mut data = vec![a, b];
                for _ in 0..self.random.below(3) {
                    let width = *self.random.pick(&[8, 16, 16, 32, 12]);
                    data.push(self.operand(width));
                }
                let algorithm = HashAlgorithm::Csum16;
                let base = Bits::zero(16).into();
                self.b.emit(Op::Hash { algorithm, dst, base, max: None, data, varbits: Vec::new(), payload: false });
                self.keep(dst);
            }
        }
    }

    /// A checksum as RFC 1624 updates it: of the sums of fields before and after some of them have changed.
    fn updated_checksum(&mut self) {
        let sum = |m: &mut Self, data: Vec<Operand>| {
            let dst = m.b.temp(16);
            let (algorithm, base) = (HashAlgorithm::Csum16, Bits::zero(16).into());
            m.b.emit(Op::Hash { algorithm, dst, base, max: None, data, varbits: Vec::new(), payload: false });
            dst
        };
        let old: Vec<Operand> = [8, 8, 16, 32].map(|width| self.operand(width)).into();
        let mut new = old.clone();
        let small = self.random.below(3).into();
        new[0] = self.b.bin(*self.random.pick(&[BinOp::Sub, BinOp::Add]), new[0].clone(), Bits::new(8, small)).into();
        if self.random.one_in(3) {
            new[3] = self.operand(32);
        }
        let (old, new) = (sum(self, old), sum(self, new));
        let [old, new] = [old, new].map(|sum| self.b.un(UnOp::Not, sum));
        let checksum = self.operand(16);
        let data = [checksum.clone(), old.into()].map(|value| Operand::from(self.b.un(UnOp::Not, value)));
        let data = data.into_iter().chain([new.into()]).collect();
        let changed = sum(self, data);
        let is_same = self.b.bin(BinOp::Eq, old, new);
        let result = self.b.select(is_same, checksum, changed);
        self.keep(result);
    }
}

/// Parses, computes and decides, writes, sends.
fn program(random: &mut Random) -> Program {
    let mut b = Builder::new("expressions");
    b.drop_reason("short");
    let port = b.metadata("port", 9);
    b.intrinsic(Intrinsic::EgressSpec, port);
    let names: Vec<String> = (0..FIELDS.len()).map(|i| format!("f{i}")).collect();
    let fields: Vec<(&str, FieldWidth)> =
        names.iter().map(String::as_str).zip(FIELDS).map(|(name, width)| (name, FieldWidth::Fixed(width))).collect();
    let header = b.header("h", &fields);
    let slots: Vec<SlotId> = b.program().headers[header.index()].fields.iter().map(|field| field.slot).collect();

    let parser = b.begin_stage("parser", StageKind::Parser);
    let there = b.temp(1);
    let total: u32 = FIELDS.iter().sum();
    b.emit(Op::HasBits { dst: there, bits: Operand::new_const(32, total.into()) });
    let [go, stop]: [BlockId; 2] = ["", "short"].map(|label| b.block(label));
    b.branch(there, go, stop);
    b.switch_to(stop);
    b.fate(Fate::Drop(0));
    b.switch_to(go);
    b.emit(Op::Extract { header, varbit_bits: None });
    b.next_stage();
    b.end_stage();

    let control = b.begin_stage("control", StageKind::Control);
    let mut m = Maker { b, values: slots.iter().copied().zip(FIELDS).collect(), random };
    let decisions = m.random.below(3);
    for _ in 0..=decisions {
        for _ in 0..m.random.range(1, 6) {
            m.operation();
        }
        if m.random.one_in(3) {
            m.updated_checksum();
        }
        // One of the last values decides; on one side something is written.
        let cond = match m.values.iter().rev().take(4).find(|(_, width)| *width == 1) {
            Some((slot, _)) => Operand::from(*slot),
            None => m.operand(1),
        };
        let [then, after]: [BlockId; 2] = [(); 2].map(|()| m.b.block(""));
        m.b.branch(cond, then, after);
        m.b.switch_to(then);
        m.b.mov(port, Bits::new(9, u128::from(m.random.below(500))));
        m.b.jump(after);
        m.b.switch_to(after);
    }
    for (slot, width) in slots.iter().copied().zip(FIELDS) {
        if m.random.one_in(3) {
            let value = match m.values.iter().rev().take(8).find(|(_, have)| *have == width) {
                Some((slot, _)) => Operand::from(*slot),
                None => m.operand(width),
            };
            m.b.mov(slot, value);
        }
    }
    let mut b = m.b;
    b.next_stage();
    b.end_stage();

    let deparser = b.begin_stage("deparser", StageKind::Deparser);
    b.emit(Op::Emit { header });
    b.fate(Fate::Send(port.into()));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, control, deparser]);
    b.finish()
}

#[test]
fn paths_of_expressions_do_what_they_do() {
    let script = Script { commands: Vec::new(), is_modified: true };
    let (mut others, mut computed, mut narrow) = (0, 0, 0);
    for seed in 0..rounds(400) {
        let mut random = Random::stream(seed, 31);
        let subject = Subject::new(program(&mut random));
        for _ in 0..4 {
            let frame = common::few_bytes(&mut random, 60);
            let path = subject.trace(&frame, &script, None).expect("all can be traced");
            computed += path.rewrite.steps.len();
            narrow += u32::from(path.pattern.mask.len() > 20);
            if let Outcome::Sent(..) = subject.run(&frame, &script) {
                others += subject.check(&frame, &script, &path, &mut random, 24);
            }
        }
    }
    println!("{others} other frames, {computed} steps, {narrow} paths that far bits decide");
    assert!(others > 5000 && computed > 1000, "{others} {computed}");
}
