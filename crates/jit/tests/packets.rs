//! Parsing and deparsing: random programs on random packets, and named cases of edit mode (deparsing in place).
//!
//! A random program has a few headers of random layout (varbits among them), a parser that goes through them in any
//! order and may loop, a control that modifies, adds and removes headers, and a deparser that emits them in any order,
//! straight or with branches. All programs keep the IR's rule that fields of invalid headers are zero.

mod common;

use base::Bits;
use common::random::Random;
use common::{Both, parse, verified};
use interp::Fate as Done;
use ir::builder::{Builder, FieldWidth};
use ir::layout::RecordLayout;
use ir::{BinOp, EntryKind, Fate, HashAlgorithm, HeaderId, Intrinsic, Op, Operand, Program};
use ir::{ReplicationPoint, SlotId, StageId, StageKind};
use jit::Optimisation;

const FIELD_WIDTHS: [u32; 24] =
    [1, 2, 3, 4, 5, 8, 8, 8, 9, 12, 13, 16, 16, 20, 24, 32, 32, 48, 56, 64, 65, 100, 128, 200];

struct Generator {
    random: Random,
    b: Builder,
    headers: Vec<HeaderId>,
    metadata: Vec<SlotId>,
    short: u32,
    /// Many varbits, at any bit offset and of any width, and deparsers that loop.
    odd: bool,
}

impl Generator {
    fn header(&mut self, number: usize) {
        let mut fields = Vec::new();
        let mut bits = 0u32;
        let count = 1 + self.random.below(7);
        let varbit_at =
            if self.random.chance(if self.odd { 60 } else { 20 }) { self.random.below(count) } else { count };
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
        for i in 0..count {
            let may_begin = self.odd || bits.is_multiple_of(8);
            if i >= varbit_at && may_begin && !fields.iter().any(|f| matches!(f, FieldWidth::Varbit(_))) {
                let widths: &[u32] = if self.odd { &[8, 13, 40, 65, 127, 320] } else { &[8, 40, 64, 120, 320] };
                fields.push(FieldWidth::Varbit(*self.random.pick(widths)));
                continue;
            }
            let width = *self.random.pick(&FIELD_WIDTHS);
            bits += width;
            fields.push(FieldWidth::Fixed(width));
        }
        if !bits.is_multiple_of(8) {
            fields.push(FieldWidth::Fixed(8 - bits % 8));
        }
        let fields: Vec<(&str, FieldWidth)> = names.into_iter().zip(fields).collect();
        let header = self.b.header(format!("h{number}"), &fields);
        self.headers.push(header);
    }

    fn fixed_bits(&self, header: HeaderId) -> u32 {
        let p = self.b.program();
        p.headers[header.index()].fields.iter().filter(|f| f.varbit_length.is_none()).map(|f| p.width(f.slot)).sum()
    }

    /// The fields that are not varbits.
    fn fields(&self, header: HeaderId) -> Vec<SlotId> {
        let fields = &self.b.program().headers[header.index()].fields;
        fields.iter().filter(|f| f.varbit_length.is_none()).map(|f| f.slot).collect()
    }

    fn varbit(&self, header: HeaderId) -> Option<(SlotId, SlotId)> {
        let fields = &self.b.program().headers[header.index()].fields;
        fields.iter().find_map(|f| f.varbit_length.map(|l| (f.slot, l)))
    }

    /// An operand of a few bits that the program may read anywhere, and its width.
    fn small(&mut self) -> (Operand, u32) {
        let slot = if self.random.chance(70) {
            let header = *self.random.pick(&self.headers);
            let fields = self.fields(header);
            if fields.is_empty() { self.metadata[0] } else { *self.random.pick(&fields) }
        } else {
            *self.random.pick(&self.metadata)
        };
        let width = self.b.program().width(slot);
        let bits = width.min(1 + self.random.below(3) as u32);
        let lo = self.random.below(u64::from(width - bits) + 1) as u32;
        (self.b.slice(slot, lo + bits - 1, lo).into(), bits)
    }

    fn flag(&mut self) -> Operand {
        let (value, bits) = self.small();
        let same = Bits::new(bits, self.random.below(8).into());
        self.b.bin(BinOp::Eq, value, same).into()
    }

    fn parser(&mut self) -> StageId {
        let stage = self.b.begin_stage("parser", StageKind::Parser);
        let count = self.headers.len();
        let mut states: Vec<_> = (0..count).map(|_| self.b.block("")).collect();
        let (accept, short) = (self.b.block("accept"), self.b.block("short"));
        states.push(accept);
        let first = if self.random.chance(80) { 0 } else { self.random.below(count as u64) as usize };
        self.b.jump(states[first]);
        for i in 0..count {
            let header = self.headers[i];
            self.b.switch_to(states[i]);
            let mut bits = self.fixed_bits(header);
            let skip = if self.random.chance(10) { 8 * self.random.below(4) as u32 } else { 0 };
            bits += skip;
            let varbit = self.varbit(header);
            let var_bits = varbit.map(|(slot, _)| {
                let most = self.b.program().width(slot) / 8;
                let (amount, _) = self.small();
                let amount = self.b.resize_u(32, amount);
                let amount = self.b.bin(BinOp::Mod, amount, Operand::new_const(32, u128::from(most) + 1));
                self.b.bin(BinOp::Mul, amount, Operand::new_const(32, 8))
            });
            // Both checks, so that the verifier sees the constant one.
            let enough = self.b.temp(1);
            self.b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, bits.into()) });
            let mut go_on = self.b.block("");
            let otherwise = if self.random.chance(30) { accept } else { short };
            self.b.branch(enough, go_on, otherwise);
            self.b.switch_to(go_on);
            if let Some(var_bits) = var_bits {
                let all = self.b.bin(BinOp::Add, var_bits, Operand::new_const(32, bits.into()));
                let enough = self.b.temp(1);
                self.b.emit(Op::HasBits { dst: enough, bits: all.into() });
                go_on = self.b.block("");
                self.b.branch(enough, go_on, otherwise);
                self.b.switch_to(go_on);
            }
            if self.random.chance(20) && bits > 0 {
                let width = 1 + self.random.below(u64::from(bits.min(150))) as u32;
                let offset = self.random.below(u64::from(bits - width) + 1) as u32;
                let dst = self.b.metadata("ahead", width);
                self.b.emit(Op::Lookahead { dst, offset });
                self.metadata.push(dst);
            }
            if skip > 0 {
                self.b.emit(Op::Advance { bits: Operand::new_const(32, skip.into()) });
            }
            self.b.emit(Op::Extract { header, varbit_bits: var_bits.map(Operand::from) });
            if self.random.chance(20) {
                let dst = self.b.metadata("consumed", 32);
                self.b.emit(Op::Consumed { dst });
                self.metadata.push(dst);
            }
            // Forwards, or rarely anywhere; a header of no bytes must not loop.
            let forwards = self.fixed_bits(header) == 0 || self.random.chance(85);
            let target = |t: &mut Self| {
                let from = if forwards { i + 1 } else { 0 };
                states[from + t.random.below((states.len() - from) as u64) as usize]
            };
            let (on, width) = self.small();
            let mut cases: Vec<_> = Vec::new();
            for v in 0..self.random.below(1 << width) {
                let to = target(self);
                cases.push((Bits::new(width, v.into()), to));
            }
            let default = target(self);
            self.b.switch(on, cases, default);
        }
        self.b.switch_to(short);
        self.b.fate(Fate::Drop(self.short));
        self.b.switch_to(accept);
        self.b.next_stage();
        self.b.end_stage();
        stage
    }

    /// Emits `body` in a block that runs only if the header is valid.
    fn if_valid(&mut self, header: HeaderId, body: impl FnOnce(&mut Self)) {
        let valid = self.b.program().headers[header.index()].valid;
        let (then, end) = (self.b.block(""), self.b.block(""));
        self.b.branch(valid, then, end);
        self.b.switch_to(then);
        body(self);
        self.b.jump(end);
        self.b.switch_to(end);
    }

    fn some_value(&mut self, width: u32) -> Operand {
        let header = *self.random.pick(&self.headers);
        match self.random.below(3) {
            0 => self.random.bits(width).into(),
            1 => {
                let slot = *self.random.pick(&self.metadata);
                self.b.resize_u(width, slot)
            }
            _ => match self.fields(header).first() {
                Some(&slot) => self.b.resize_u(width, slot),
                None => Bits::ones(width).into(),
            },
        }
    }

    fn modify(&mut self, header: HeaderId) {
        let fields = self.fields(header);
        for _ in 0..1 + self.random.below(2) {
            let Some(&slot) = fields.get(self.random.below(fields.len().max(1) as u64) as usize) else { return };
            let width = self.b.program().width(slot);
            let value = self.some_value(width);
            match self.random.below(4) {
                0 => self.b.mov(slot, value),
                1 => {
                    let lo = self.random.below(width.into()) as u32;
                    let value = self.b.resize_u(1, value);
                    self.b.emit(Op::SetSlice { dst: slot, hi: lo, lo, a: value });
                }
                2 => self.b.emit(Op::Bin { op: BinOp::Xor, dst: slot, a: slot.into(), b: value }),
                _ => self.b.emit(Op::Bin { op: BinOp::Add, dst: slot, a: slot.into(), b: value }),
            }
        }
    }

    fn hash(&mut self) {
        let mut data: Vec<Operand> = Vec::new();
        let mut varbits = Vec::new();
        for _ in 0..1 + self.random.below(8) {
            let header = *self.random.pick(&self.headers);
            match self.varbit(header) {
                Some((slot, length)) if self.random.chance(30) => {
                    varbits.push((data.len() as u32, length));
                    data.push(slot.into());
                }
                _ => data.extend(self.fields(header).into_iter().map(Operand::from)),
            }
        }
        let algorithm = *self.random.pick(&[
            HashAlgorithm::Csum16,
            HashAlgorithm::Csum16,
            HashAlgorithm::Crc32,
            HashAlgorithm::Crc16,
            HashAlgorithm::Identity,
            HashAlgorithm::Xor16,
        ]);
        let width = *self.random.pick(&[8, 16, 32, 64, 70, 140]);
        let dst = self.b.metadata("hash", width);
        let base = self.some_value(width);
        let max = self.random.chance(50).then(|| {
            let width = *self.random.pick(&[8, 32, 64, 80]);
            self.some_value(width)
        });
        let payload = self.random.chance(20);
        self.b.emit(Op::Hash { algorithm, dst, base, max, data, varbits, payload });
        self.metadata.push(dst);
    }

    fn control(&mut self, name: &str, replicate: Option<ReplicationPoint>) -> StageId {
        let stage = self.b.begin_stage(name, StageKind::Control);
        let steps = self.random.below(6);
        for _ in 0..steps {
            let header = *self.random.pick(&self.headers);
            let (then, end) = (self.b.block(""), self.b.block(""));
            let flag = self.flag();
            self.b.branch(flag, then, end);
            self.b.switch_to(then);
            match self.random.below(10) {
                0..=4 => self.if_valid(header, |t| t.modify(header)),
                5 => {
                    self.b.emit(Op::SetValid { header });
                    self.modify(header);
                }
                6 => self.b.emit(Op::SetInvalid { header }),
                7 => self.hash(),
                8 => {
                    if let Some((slot, length)) = self.varbit(header) {
                        let bytes = self.random.below(u64::from(self.b.program().width(slot)) / 8 + 1);
                        let value = self.random.bits(8 * bytes as u32).resize_u(self.b.program().width(slot));
                        self.if_valid(header, |t| {
                            t.b.set(length, 8 * u128::from(bytes));
                            t.b.mov(slot, value);
                        });
                    }
                }
                _ => {
                    // Validity by assignment, with the fields cleared as the IR requires.
                    let valid = self.b.program().headers[header.index()].valid;
                    self.b.emit(Op::SetInvalid { header });
                    let flag = self.flag();
                    self.b.mov(valid, flag);
                }
            }
            self.b.jump(end);
            self.b.switch_to(end);
        }
        if let Some(point) = replicate {
            let (yes, no) = (self.b.block(""), self.b.block(""));
            let flag = self.flag();
            self.b.branch(flag, yes, no);
            self.b.switch_to(yes);
            self.b.fate(Fate::Replicate(point));
            self.b.switch_to(no);
        }
        self.b.next_stage();
        self.b.end_stage();
        stage
    }

    fn deparser(&mut self) -> StageId {
        let stage = self.b.begin_stage("deparser", StageKind::Deparser);
        let mut order = self.headers.clone();
        if self.random.chance(30) {
            for i in 0..order.len() {
                let j = self.random.below(order.len() as u64) as usize;
                order.swap(i, j);
            }
        }
        if self.random.chance(15) {
            order.pop();
        }
        let branches = self.random.chance(15);
        if self.random.chance(15) {
            let bytes = self.some_value(16);
            self.b.emit(Op::Truncate { bytes });
        }
        // The following is inside a loop or after one.
        let mut rounds = None;
        if self.odd && self.random.chance(40) {
            let (count, body) = (self.b.local("round", 8), self.b.block(""));
            self.b.set(count, 0);
            self.b.jump(body);
            self.b.switch_to(body);
            let next = self.b.bin(BinOp::Add, count, Operand::new_const(8, 1));
            self.b.mov(count, next);
            let more = self.b.bin(BinOp::Ult, count, Operand::new_const(8, 1 + u128::from(self.random.below(3))));
            if self.random.chance(70) {
                rounds = Some((more, body));
            } else {
                let end = self.b.block("");
                self.b.branch(more, body, end);
                self.b.switch_to(end);
            }
        }
        for header in order {
            if branches && self.random.chance(50) {
                let (then, end) = (self.b.block(""), self.b.block(""));
                let flag = self.flag();
                self.b.branch(flag, then, end);
                self.b.switch_to(then);
                self.b.emit(Op::Emit { header });
                self.b.jump(end);
                self.b.switch_to(end);
            } else {
                self.b.emit(Op::Emit { header });
            }
        }
        if let Some((more, body)) = rounds {
            let end = self.b.block("");
            self.b.branch(more, body, end);
            self.b.switch_to(end);
        }
        self.b.next_stage();
        self.b.end_stage();
        stage
    }

    fn end(&mut self) -> StageId {
        let stage = self.b.begin_stage("end", StageKind::Control);
        let (send, replicate) = (self.b.block(""), self.b.block(""));
        let flag = self.flag();
        self.b.branch(flag, replicate, send);
        self.b.switch_to(send);
        let port = self.some_value(16);
        self.b.fate(Fate::Send(port));
        self.b.switch_to(replicate);
        self.b.fate(Fate::Replicate(ReplicationPoint::DeparseEnd));
        self.b.end_stage();
        stage
    }
}

fn generate(seed: u64, odd: bool) -> Program {
    let mut random = Random::new(seed);
    let count = 1 + random.below(5) as usize;
    let b = Builder::new("random");
    let mut g = Generator { random, b, headers: Vec::new(), metadata: Vec::new(), short: 0, odd };
    g.short = g.b.drop_reason("short");
    for (which, name, width) in [
        (Intrinsic::IngressPort, "port", 9),
        (Intrinsic::PacketLength, "length", 32),
        (Intrinsic::EgressTimestamp, "at", 48),
    ] {
        let slot = g.b.metadata(name, width);
        g.b.intrinsic(which, slot);
        g.metadata.push(slot);
    }
    for i in 0..count {
        g.header(i);
    }
    let parser = g.parser();
    let control = g.control("ingress", Some(ReplicationPoint::IngressEnd));
    let egress = g.control("egress", Some(ReplicationPoint::EgressEnd));
    let deparser = g.deparser();
    let end = g.end();
    g.b.entry(EntryKind::Ingress, &[parser, control, egress, deparser, end]);
    g.b.entry(EntryKind::Reingress, &[parser, control, egress, deparser, end]);
    g.b.entry(EntryKind::Egress, &[egress, deparser, end]);
    g.b.entry(EntryKind::Deparse, &[deparser, end]);
    if g.random.chance(60) {
        // All slots are compared; otherwise the compiler may omit what only deparsing needs.
        let all = (0..g.b.program().slots.len()).map(SlotId::from_index);
        let all = all.filter(|s| g.b.program().slots[s.index()].kind != ir::SlotKind::Temp).collect();
        g.b.program_mut().field_lists.push((0, all));
    }
    verified(g.b.finish())
}

/// A record in which headers are valid at random, and fields of invalid ones are zero.
fn random_record(program: &Program, random: &mut Random) -> Vec<u64> {
    let layout = RecordLayout::new(program);
    let mut record = vec![0; layout.words()];
    for header in &program.headers {
        if random.chance(40) {
            continue;
        }
        layout.set_word(&mut record, header.valid, 1);
        for field in &header.fields {
            let width = program.width(field.slot);
            let bits = match field.varbit_length {
                Some(length) => {
                    let bits = 8 * random.below(u64::from(width / 8) + 1);
                    layout.set_word(&mut record, length, bits);
                    bits as u32
                }
                None => width,
            };
            let value = random.bits(bits).resize_u(width);
            layout.set(&mut record, field.slot, &value);
        }
    }
    for (_, slot) in &program.intrinsics {
        let value = random.bits(program.width(*slot));
        layout.set(&mut record, *slot, &value);
    }
    record
}

/// Does what the replication engine does before a packet is parsed again.
fn clear_all_but_kept(program: &Program, record: &mut [u64]) {
    let layout = RecordLayout::new(program);
    let kept: Vec<SlotId> = program
        .intrinsics
        .iter()
        .map(|(_, s)| *s)
        .chain(program.field_lists.iter().flat_map(|(_, s)| s.clone()))
        .collect();
    for slot in (0..program.slots.len()).map(SlotId::from_index).filter(|s| !kept.contains(s)) {
        layout.set(record, slot, &Bits::zero(program.width(slot)));
    }
}

fn check_seed(seed: u64, odd: bool) -> usize {
    let mut options = common::options();
    if seed.is_multiple_of(3) {
        options.carried_headers_max = 0;
    }
    // Every other program runs without one of code generation's optimisations, or with a single one.
    if seed.is_multiple_of(2) {
        let all = Optimisation::ALL;
        let one = all[seed as usize / 4 % all.len()];
        options.without = match seed % 4 {
            0 => [one].into_iter().collect(),
            _ => all.into_iter().filter(|o| *o != one).collect(),
        };
    }
    // Where slots live must not change the result.
    options.memory_slots = match seed % 5 {
        1 => jit::MemorySlots::EveryOther,
        2 => jit::MemorySlots::Never,
        _ => options.memory_slots,
    };
    let both = Both::with_options(generate(seed, odd), &options);
    let mut random = Random::new(seed ^ 0xdead_beef);
    let mut packets: Vec<Vec<u8>> = Vec::new();
    for _ in 0..24 {
        let len = random.below(120) as usize;
        // Few distinct values, so that cases are hit.
        let few = random.chance(50);
        packets.push(random.bytes(len).into_iter().map(|b| if few { b & 0x11 } else { b }).collect());
    }
    let mut ends = both.check(&packets).iter().filter(|o| !matches!(o.fate, Done::Drop(_))).count();
    for kind in [EntryKind::Reingress, EntryKind::Egress, EntryKind::Deparse] {
        for packet in packets.iter().take(8) {
            let mut record = random_record(&both.program, &mut random);
            if kind == EntryKind::Reingress {
                clear_all_but_kept(&both.program, &mut record);
            }
            let out = both.check_entry(kind, std::slice::from_ref(packet), &|r| r.copy_from_slice(&record));
            ends += usize::from(!matches!(out[0].fate, Done::Drop(_)));
        }
    }
    ends
}

#[test]
fn random_programs() {
    check_seeds(false);
}

#[test]
fn random_programs_with_odd_varbits_and_deparsers_that_loop() {
    check_seeds(true);
}

fn check_seeds(odd: bool) {
    let seeds = std::env::var("JIT_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(150);
    let first = std::env::var("JIT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut ends = 0;
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(|| check_seed(seed, odd));
        match result {
            Ok(n) => ends += n,
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(ends > 5 * seeds as usize, "most packets were dropped: {ends} of {seeds} programs' lived");
}

/// An outer and an inner header, a tunnel header that may be inserted between them, and the control's code.
fn tunnel(control: &str, order: &str) -> String {
    format!(
        r#"program "tunnel"
drops short
slot o.dst: 48 field o
slot o.src: 48 field o
slot o.type: 16 field o
slot o.$valid: 1 valid o
slot t.label: 20 field t
slot t.flags: 4 field t
slot t.$valid: 1 valid t
slot i.tag: 4 field i
slot i.small: 12 field i
slot i.ttl: 8 field i
slot i.sum: 16 field i
slot i.addr: 128 field i
slot i.$valid: 1 valid i
slot sum: 16 metadata
slot %ok: 1 temp
header o valid o.$valid {{
  dst = o.dst
  src = o.src
  type = o.type
}}
header t valid t.$valid {{
  label = t.label
  flags = t.flags
}}
header i valid i.$valid {{
  tag = i.tag
  small = i.small
  ttl = i.ttl
  sum = i.sum
  addr = i.addr
}}
field_list 0 (sum)
entry ingress (P, C, D)
stage parser P {{
b0:
  %ok = has_bits 32w112
  branch %ok, b1, b5
b1:
  extract o
  switch o.type, 16w1 -> b2, 16w2 -> b3, default -> b4
b2:
  %ok = has_bits 32w24
  branch %ok, b6, b5
b3:
  %ok = has_bits 32w168
  branch %ok, b7, b5
b4:
  next
b5:
  drop short
b6:
  extract t
  jump b3
b7:
  extract i
  next
}}
stage control C {{
b0:
  sum = hash csum16 base 16w0 data (i.tag, i.small, i.ttl, i.addr, o.dst, o.src, o.type, i.sum)
{control}
b2:
  next
}}
stage deparser D {{
b0:
{order}
  replicate deparse_end
}}
"#
    )
}

fn tunnel_packets() -> Vec<Vec<u8>> {
    let mut random = Random::new(77);
    (0..60)
        .map(|i| {
            let len = [13, 14, 30, 35, 38, 60][i % 6];
            let mut packet = random.bytes(len);
            if len > 13 {
                packet[12..14].copy_from_slice(&[0, (i / 6 % 3) as u8]);
            }
            packet
        })
        .collect()
}

const IN_ORDER: &str = "  emit o\n  emit t\n  emit i\n";

/// The number of loads from and stores to packets in a program's code, before Cranelift's optimisations, with some of
/// code generation's optimisations switched off.
fn packet_accesses(text: &str, without: &[Optimisation]) -> (usize, usize) {
    // Copies of blocks by path state would be counted too.
    let without = without.iter().copied().chain([Optimisation::SplitPaths]).collect();
    let options = jit::Options { keep_text: true, without, ..common::options() };
    let both = Both::with_options(parse(text), &options);
    both.check(&tunnel_packets());
    let clif = both.pipeline.clif(EntryKind::Ingress).expect("the text was kept");
    let region = clif.lines().find(|l| l.contains("\"packet\"")).expect("a region for packets");
    let region = region.trim().split(' ').next().expect("its name");
    let count = |word: &str| clif.lines().filter(|l| l.contains(word) && l.contains(region)).count();
    (count("load"), count("store"))
}

/// The number of stores to packets in a program's code with all optimisations.
fn packet_stores(text: &str) -> usize {
    packet_accesses(text, &[]).1
}

#[test]
fn known_values_of_a_packet_are_not_tested_again() {
    let control = "  gone = eq i.$valid, 1w0\n  branch i.$valid, b1, b2\nb1:\n  i.ttl = sub i.ttl, 8w1\n  jump b2";
    let end = "stage control E {\nb0:\n  branch gone, b1, b2\nb1:\n  drop short\nb2:\n  next\n}\nstage deparser D";
    let text = tunnel(control, IN_ORDER).replacen("stage deparser D", end, 1).replacen("(P, C, D)", "(P, C, E, D)", 1);
    let text = text.replacen("header o", "slot gone: 1 metadata\nheader o", 1);
    let branches = |without: jit::Without| {
        let options = jit::Options { keep_text: true, without, ..common::options() };
        let both = Both::with_options(parse(&text), &options);
        let outcomes = both.check(&tunnel_packets());
        assert!(outcomes.iter().any(|o| matches!(o.fate, Done::Replicate(_))));
        let clif = both.pipeline.clif(EntryKind::Ingress).expect("the text was kept");
        clif.lines().filter(|l| l.contains("brif")).count()
    };
    let (split, joined) =
        (branches([].into_iter().collect()), branches([Optimisation::SplitPaths].into_iter().collect()));
    assert!(split < joined, "{split} and {joined}");
}

const IDLE: &str = "  jump b1\nb1:\n  jump b2";

#[test]
fn an_unchanged_packet_is_not_written() {
    assert_eq!(packet_stores(&tunnel(IDLE, IN_ORDER)), 0);
}

#[test]
fn without_edit_mode_an_unchanged_packet_is_written() {
    assert!(packet_accesses(&tunnel(IDLE, IN_ORDER), &[Optimisation::EditMode]).1 > 0);
}

#[test]
fn without_lazy_fields_all_fields_are_loaded() {
    let (lazy, all) = (&[][..], &[Optimisation::LazyFields][..]);
    let loads = |without| packet_accesses(&tunnel(IDLE, IN_ORDER), without).0;
    assert!(loads(all) > loads(lazy), "{} and {}", loads(all), loads(lazy));
}

#[test]
fn one_changed_field_is_one_store() {
    assert_eq!(
        packet_stores(&tunnel("  branch i.$valid, b1, b2\nb1:\n  i.ttl = sub i.ttl, 8w1\n  jump b2", IN_ORDER)),
        1
    );
}

#[test]
fn neighbouring_changed_fields_are_joined() {
    // 48 + 48 + 16 bits in stores of 8, 4 and 2 bytes; separately in 4 + 2, 4 + 2 and 2.
    let swap = "  o.src = mov o.dst\n  o.dst = add o.dst, 48w1\n  o.type = mov 16w7\n  jump b2";
    let swap = tunnel(&format!("  branch o.$valid, b1, b2\nb1:\n{swap}"), IN_ORDER);
    assert_eq!(packet_stores(&swap), 3);
    assert_eq!(packet_accesses(&swap, &[Optimisation::WideStores]).1, 5);
}

/// A program with a stack of `elements` headers, of which the first is removed.
fn popped(elements: usize) -> String {
    let mut text = "program \"stack\"\ndrops short\nslot port: 9 metadata\nslot %ok: 1 temp\n".to_string();
    for i in 0..elements {
        text += &format!("slot s{i}.a: 8 field s{i}\nslot s{i}.b: 8 field s{i}\nslot s{i}.$valid: 1 valid s{i}\n");
    }
    for i in 0..elements {
        text += &format!("header s{i} valid s{i}.$valid {{\n  a = s{i}.a\n  b = s{i}.b\n}}\n");
    }
    text += "entry ingress (P, C, D)\nstage parser P {\nb0:\n  jump b3\nb1:\n  next\nb2:\n  drop short\n";
    for i in 0..elements {
        let (here, taken) = (3 + 2 * i, 4 + 2 * i);
        let next = if i + 1 == elements { 1 } else { taken + 1 };
        text += &format!("b{here}:\n  %ok = has_bits 32w16\n  branch %ok, b{taken}, b2\n");
        text += &format!("b{taken}:\n  extract s{i}\n  switch s{i}.b, 8w0 -> b{next}, default -> b1\n");
    }
    text += "}\nstage control C {\nb0:\n";
    for (to, from) in (0..elements).zip(1..elements) {
        for part in ["$valid", "a", "b"] {
            text += &format!("  s{to}.{part} = mov s{from}.{part}\n");
        }
    }
    text += &format!("  set_invalid s{}\n  next\n}}\nstage deparser D {{\nb0:\n", elements - 1);
    (0..elements).for_each(|i| text += &format!("  emit s{i}\n"));
    text + "  send 9w1\n}\n"
}

#[test]
fn unread_fields_of_a_stack_are_not_moved() {
    let mut random = Random::new(5);
    let packets: Vec<Vec<u8>> = (0..64)
        .map(|i| {
            let mut packet = random.bytes(i % 17);
            // Up to seven elements.
            packet.iter_mut().take(2 * (i / 8)).skip(1).step_by(2).for_each(|byte| *byte = 0);
            packet
        })
        .collect();
    let stores = |without: &[Optimisation]| {
        let without = without.iter().copied().collect();
        let memory_slots = jit::MemorySlots::EveryOther;
        let options = jit::Options { keep_text: true, without, memory_slots, ..common::options() };
        let both = Both::with_options(parse(&popped(6)), &options);
        both.check(&packets);
        let clif = both.pipeline.clif(EntryKind::Ingress).expect("the text was kept");
        let region = clif.lines().find(|l| l.contains("\"stack\"")).expect("a region for the frame");
        let region = region.trim().split(' ').next().expect("its name").to_string();
        clif.lines().filter(|l| l.contains("store") && l.contains(&region)).count()
    };
    let (without, with) = (stores(&[Optimisation::DeadFields]), stores(&[]));
    assert!(2 * with < without, "{with} stores, {without} without");
}

#[test]
fn headers_are_pushed_popped_and_moved() {
    let push =
        "  branch o.$valid, b1, b2\nb1:\n  set_valid t\n  t.label = mov 20w0xabcde\n  o.type = mov 16w1\n  jump b2";
    let pop = "  branch t.$valid, b1, b2\nb1:\n  set_invalid t\n  o.type = mov 16w2\n  jump b2";
    let pop_all = "  set_invalid o\n  set_invalid t\n  jump b1\nb1:\n  jump b2";
    for control in [push, pop, pop_all, "  jump b1\nb1:\n  jump b2"] {
        for order in [IN_ORDER, "  emit i\n  emit o\n  emit t\n", "  emit o\n  emit i\n", "  emit t\n  emit i\n"] {
            let outcomes = Both::new(parse(&tunnel(control, order))).check(&tunnel_packets());
            assert!(outcomes.iter().any(|o| matches!(o.fate, Done::Replicate(_))));
        }
    }
}

#[test]
fn a_clean_field_beside_a_dirty_one_was_read_from_an_overwritten_header() {
    assert!(check_seed(20_597, false) > 0);
}

/// A deparser that emits a header of 32 bytes `rounds` times in a loop.
fn emits_in_a_loop(rounds: u32) -> String {
    format!(
        r#"program "loop"
drops short
slot h.a: 256 field h
slot h.$valid: 1 valid h
slot n: 32 metadata
slot more: 1 metadata
header h valid h.$valid {{
  a = h.a
}}
field_list 0 (n)
entry ingress (P, D)
stage parser P {{
b0:
  more = has_bits 32w256
  branch more, b1, b2
b1:
  extract h
  next
b2:
  drop short
}}
stage deparser D {{
b0:
  n = mov 32w0
  jump b1
b1:
  charge 5
  emit h
  n = add n, 32w1
  more = ult n, 32w{rounds}
  branch more, b1, b2
b2:
  replicate deparse_end
}}
"#
    )
}

#[test]
fn headers_emitted_in_a_loop() {
    let packets = [vec![7; 32], (0..60).collect::<Vec<u8>>()];
    for rounds in [1, 2, 4] {
        let outcomes = Both::new(parse(&emits_in_a_loop(rounds))).check(&packets);
        assert!(outcomes.iter().all(|o| matches!(o.fate, Done::Replicate(_))));
        assert_eq!(outcomes[1].packet.len(), 32 * rounds as usize + 28);
    }
}

/// A parser of `count` headers of `width` bits, which are emitted again.
fn long_headers(count: usize, width: u32) -> Program {
    let mut b = Builder::new("long");
    let short = b.drop_reason("short");
    let fields = [("a", FieldWidth::Fixed(width)), ("b", FieldWidth::Fixed(16))];
    let headers: Vec<HeaderId> = (0..count).map(|i| b.header(format!("h{i}"), &fields)).collect();
    let parser = b.begin_stage("parser", StageKind::Parser);
    let (extract, drop) = (b.block(""), b.block(""));
    let enough = b.temp(1);
    b.emit(Op::HasBits { dst: enough, bits: Operand::new_const(32, u128::from(width + 16)) });
    b.branch(enough, extract, drop);
    b.switch_to(drop);
    b.fate(Fate::Drop(short));
    b.switch_to(extract);
    b.emit(Op::Extract { header: headers[0], varbit_bits: None });
    b.next_stage();
    b.end_stage();
    let control = b.begin_stage("control", StageKind::Control);
    let field = |b: &Builder, h: HeaderId, i: usize| b.program().headers[h.index()].fields[i].slot;
    let (first, tag) = (field(&b, headers[0], 0), field(&b, headers[0], 1));
    let sum = b.bin(BinOp::Add, first, Operand::Const(Bits::ones(width)));
    let shifted = b.bin(BinOp::Shl, sum, tag);
    for &header in &headers[1..] {
        let (valid, end) = (b.block(""), b.block(""));
        let odd = b.slice(tag, 0, 0);
        b.branch(odd, valid, end);
        b.switch_to(valid);
        b.emit(Op::SetValid { header });
        let to = field(&b, header, 0);
        b.mov(to, shifted);
        b.jump(end);
        b.switch_to(end);
    }
    b.next_stage();
    b.end_stage();
    let deparser = b.begin_stage("deparser", StageKind::Deparser);
    headers.iter().for_each(|&header| b.emit(Op::Emit { header }));
    b.fate(Fate::Replicate(ReplicationPoint::DeparseEnd));
    b.end_stage();
    b.entry(EntryKind::Ingress, &[parser, control, deparser]);
    verified(b.finish())
}

#[test]
fn values_of_very_many_bits() {
    let mut random = Random::new(8);
    // No longer than a packet buffer can hold.
    for (width, bytes) in [(8200, 1027), (10_000, 1252)] {
        let packet = random.bytes(bytes + 5);
        let outcomes = Both::new(long_headers(1, width)).check(&[packet]);
        assert!(matches!(outcomes[0].fate, Done::Replicate(_)));
    }
}

#[test]
fn more_headers_than_fit_into_a_packet() {
    // 400 headers of 50 bytes: more than the buffer holds, but a packet without them needs no room for them.
    let both = Both::new(long_headers(400, 384));
    let mut packet = Random::new(9).bytes(60);
    packet[49] = 2;
    let outcomes = both.check(&[packet.clone()]);
    assert!(matches!(outcomes[0].fate, Done::Replicate(_)));
}

#[test]
fn packets_without_room_for_their_headers_are_dropped() {
    let mut packet = Random::new(9).bytes(60);
    packet[49] = 3;
    let outcomes = Both::new(long_headers(400, 384)).check(&[packet]);
    assert_eq!(outcomes[0].fate, Done::NoRoom);
}

/// Selects by several fields of a header: fields close to one another are one comparison, others are not.
#[test]
fn neighbouring_fields_are_compared_together() {
    // Width and value of each field. `z` separates the fields after it from the others; `y` leaves room before them.
    const FIELDS: [(&str, u32, u128); 9] = [
        ("y", 16, 0),
        ("a", 4, 4),
        ("b", 4, 5),
        ("c", 8, 0),
        ("d", 3, 0),
        ("e", 13, 0x123),
        ("f", 16, 0xabcd),
        ("z", 64, 0),
        ("g", 8, 6),
    ];
    let field = |name: &str| *FIELDS.iter().find(|f| f.0 == name).expect("a field");
    let text = |names: &[&str], last: &[u128]| {
        let mut text = String::from("program \"near\"\ndrops found\nslot port: 9 metadata\nslot h.$valid: 1 valid h\n");
        FIELDS.iter().for_each(|(name, width, _)| text += &format!("slot h.{name}: {width} field h\n"));
        text += "slot %ok: 1 temp\n";
        let (mut code, mut key, mut width, mut value) = (String::new(), "h.".to_string() + names[0], 0, 0);
        for (i, name) in names.iter().enumerate() {
            let (_, bits, wanted) = field(name);
            (width, value) = (width + bits, value << bits | wanted);
            if i > 0 {
                text += &format!("slot %{i}: {width} temp\n");
                code += &format!("  %{i} = concat {key}, h.{name}\n");
                key = format!("%{i}");
            }
        }
        text += "header h valid h.$valid {\n";
        FIELDS.iter().for_each(|(name, ..)| text += &format!("  {name} = h.{name}\n"));
        let cases = last.iter().map(|differs| format!("{width}w{} -> b1, ", value ^ differs)).collect::<String>();
        text + "}\nintrinsic ingress_port = port\nentry ingress (P, C)\nstage parser P {\nb0:\n  %ok = has_bits 32w136\n  \
                branch %ok, b1, b2\nb1:\n  extract h\n  next\nb2:\n  send port\n}\nstage control C {\nb0:\n"
            + &format!("{code}  switch {key}, {cases}default -> b2\nb1:\n  drop found\nb2:\n  send port\n}}\n")
    };
    let mut random = Random::new(23);
    let packets: Vec<Vec<u8>> = (0..400)
        .map(|i| {
            let mut all = random.bytes(17);
            let mut at = 0;
            for (_, width, value) in FIELDS {
                for bit in (0..width).filter(|_| width < 64) {
                    let set = (value >> (width - 1 - bit) & 1) as u8;
                    let (byte, down) = ((at + bit) / 8, 7 - (at + bit) % 8);
                    all[byte as usize] = all[byte as usize] & !(1 << down) | set << down;
                }
                at += width;
            }
            // One bit is flipped, or none; some packets are too short.
            if i % 4 > 0 {
                let bit = random.below(136) as usize;
                all[bit / 8] ^= 1 << (bit % 8);
            }
            all.truncate(if i % 16 == 15 { 16 } else { 17 });
            all
        })
        .collect();
    // Fields; the XOR of the last one's expected value with its value, by case; the number of loads.
    let selects: [(&[&str], &[u128], usize); 7] = [
        (&["b", "e"], &[0], 1),
        (&["e", "b"], &[0], 1),
        (&["b", "e", "f"], &[0], 1),
        (&["f", "e", "b"], &[0, 1], 2),
        (&["b", "e", "f"], &[0, 2, 5], 2),
        (&["b", "g"], &[0], 2),
        (&["b", "g", "e"], &[0], 3),
    ];
    for (names, last, loads) in selects {
        let text = text(names, last);
        assert_eq!(packet_accesses(&text, &[]).0, loads, "{names:?}\n{text}");
        let outcomes = Both::new(parse(&text)).check(&packets);
        let found = outcomes.iter().filter(|o| matches!(o.fate, Done::Drop(_))).count();
        assert!((100..400).contains(&found), "{found} of {names:?}");
    }
}
