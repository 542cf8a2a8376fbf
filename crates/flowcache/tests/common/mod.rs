//! A program on the interpreter and on the tracer, and what must hold of a path: rewritings run bit by bit here.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod steps;

use base::Bits;
use base::entry::{ActionCall, EntryAction};
use flowcache::path::{Pattern, Rewrite};
use flowcache::run::Prepared;
use flowcache::trace::{Decision, Fate, Run, Tables, Traced, Tracer, Untraceable};
use interp::{Interp, SeededHost};
use ir::{EntryKind, EntryPoint, Intrinsic, Program, ReplicationPoint, StageId, TableId};
use random::Random;
use std::sync::Arc;

/// How often a test does what it does: `SLUICE_ROUNDS`, or a number for the test suite.
pub fn rounds(default: u64) -> u64 {
    std::env::var("SLUICE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(default)
}

/// A step of a flow processor.
#[derive(Clone, Debug)]
pub enum Command {
    /// Leaves out the next so many unless these bits of the record are so.
    Unless {
        word: u32,
        mask: u64,
        value: u64,
        skip: usize,
    },
    Write {
        word: u32,
        mask: u64,
        value: u64,
    },
    Copy {
        from: Vec<(u32, u32, u32)>,
        to: Vec<(u32, u32, u32)>,
    },
    Act {
        action: u32,
        args: Vec<u128>,
    },
    Save(Vec<u32>),
    Restore,
    Drop,
}

/// What a flow processor does.
#[derive(Clone, Debug)]
pub struct Script {
    pub commands: Vec<Command>,
    pub is_modified: bool,
}

/// What becomes of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Sent(u32, Vec<u8>),
    Dropped,
    /// The interpreter has given it up.
    Lost,
}

pub const PORT: u32 = 5;
pub const EGRESS_PORT: u32 = 0x123;

/// A program.
pub struct Subject {
    pub interp: Interp,
    pub tracer: Tracer,
    pub program: Arc<Program>,
    actions: Option<(StageId, TableId)>,
}

impl Subject {
    /// With an entry of its own for the header actions, if it has some.
    pub fn new(program: Program) -> Subject {
        let tracer = Tracer::new(Arc::new(program.clone()));
        let mut program = program;
        let actions = program.openflow.as_ref().and_then(|openflow| openflow.actions);
        if let Some((actions, _)) = actions {
            let hand_over = program.stages.iter().position(|stage| stage.name == "hand_over").expect("it has one");
            let stages = vec![actions, StageId::from_index(hand_over)];
            program.entries.push(EntryPoint { kind: EntryKind::Deparse, stages });
        }
        let program = Arc::new(program);
        Subject { interp: Interp::new(program.clone()), tracer, program, actions }
    }

    /// What the interpreter's parser hands over, with the record first, or what becomes of the frame without a decision.
    pub fn parsed(&self, frame: &[u8], host: &mut SeededHost) -> Result<(Vec<u64>, interp::Outcome), Outcome> {
        let interp = &self.interp;
        let mut record = vec![0; interp.layout().words()];
        for (which, slot) in &self.program.intrinsics {
            let value = match which {
                Intrinsic::PacketLength => frame.len() as u64,
                Intrinsic::IngressPort => PORT.into(),
                _ => 0,
            };
            interp.layout().set_word(&mut record, *slot, value);
        }
        let parsed = interp.run(EntryKind::Ingress, frame, 0, &mut record, host, None);
        match parsed.fate {
            interp::Fate::Drop(_) => Err(Outcome::Dropped),
            interp::Fate::Send(port) => Err(Outcome::Sent(port as u32, parsed.packet)),
            interp::Fate::Replicate(ReplicationPoint::IngressEnd) => Ok((record, parsed)),
            interp::Fate::Multicast(_)
            | interp::Fate::Replicate(_)
            | interp::Fate::Again { .. }
            | interp::Fate::Endless
            | interp::Fate::NoRoom => Err(Outcome::Lost),
        }
    }

    /// What the interpreter makes of a frame.
    pub fn run(&self, frame: &[u8], script: &Script) -> Outcome {
        let (interp, host) = (&self.interp, &mut SeededHost::new(1));
        let (mut record, parsed) = match self.parsed(frame, host) {
            Ok(parsed) => parsed,
            Err(outcome) => return outcome,
        };
        let (mut at, mut saved) = (0, Vec::new());
        while let Some(command) = script.commands.get(at) {
            at += 1;
            match command {
                Command::Unless { word, mask, value, skip } => {
                    at += if record[*word as usize] & mask == *value & mask { 0 } else { *skip };
                }
                Command::Write { word, mask, value } => {
                    let mask = mask & self.bits_of(*word);
                    let old = &mut record[*word as usize];
                    *old = *old & !mask | value & mask;
                }
                Command::Copy { from, to } => {
                    let low = |width: u32| if width == 64 { u64::MAX } else { (1 << width) - 1 };
                    let bits: Vec<bool> = (from.iter())
                        .flat_map(|(word, shift, width)| {
                            let value = record[*word as usize] >> shift & low(*width);
                            (0..*width).map(move |i| value >> i & 1 == 1)
                        })
                        .collect();
                    let places =
                        to.iter().flat_map(|(word, shift, width)| (0..*width).map(move |i| (*word, shift + i)));
                    for ((word, at), bit) in places.zip(bits) {
                        if self.bits_of(word) >> at & 1 == 1 {
                            let word = &mut record[word as usize];
                            *word = *word & !(1 << at) | u64::from(bit) << at;
                        }
                    }
                }
                Command::Act { action, args } => {
                    let (_, table) = self.actions.expect("it has header actions");
                    let of = self.program.tables[table.index()].actions[*action as usize].action;
                    let params = self.program.actions[of.index()].params.iter().zip(args);
                    let args = params.map(|((_, width), arg)| Bits::new(*width, *arg)).collect();
                    let call = ActionCall { action: *action, args };
                    interp.state().load_table(table, Vec::new(), EntryAction::Call(call));
                    interp.run(EntryKind::Deparse, &parsed.packet, parsed.consumed, &mut record, host, None);
                }
                Command::Save(words) => saved = words.iter().map(|word| (*word, record[*word as usize])).collect(),
                Command::Restore => saved.iter().for_each(|(word, value)| record[*word as usize] = *value),
                Command::Drop => return Outcome::Dropped,
            }
        }
        if !script.is_modified {
            return Outcome::Sent(EGRESS_PORT, frame.to_vec());
        }
        if let Some(slot) = self.program.intrinsic(Intrinsic::EgressPort) {
            interp.layout().set_word(&mut record, slot, EGRESS_PORT.into());
        }
        let sent = interp.run(EntryKind::Egress, &parsed.packet, parsed.consumed, &mut record, host, None);
        match sent.fate {
            interp::Fate::Drop(_) => Outcome::Dropped,
            interp::Fate::Send(port) => Outcome::Sent(port as u32, sent.packet),
            interp::Fate::Multicast(_)
            | interp::Fate::Replicate(_)
            | interp::Fate::Again { .. }
            | interp::Fate::Endless
            | interp::Fate::NoRoom => Outcome::Lost,
        }
    }

    /// The bits of a word that belong to its slot.
    pub fn bits_of(&self, word: u32) -> u64 {
        let mut at = 0;
        for slot in &self.program.slots {
            let words = slot.width.div_ceil(64);
            if word < at + words {
                let width = (slot.width - 64 * (word - at)).min(64);
                return u64::MAX >> (64 - width);
            }
            at += words;
        }
        0
    }

    pub fn trace(
        &self,
        frame: &[u8],
        script: &Script,
        tables: Option<&mut dyn Tables>,
    ) -> Result<Traced<()>, Untraceable> {
        self.tracer.trace_with(frame, PORT, tables, &mut |run| self.decide(run, script))
    }

    fn decide(&self, run: &mut Run<'_>, script: &Script) -> Result<Decision<()>, Untraceable> {
        let mut at = 0;
        while let Some(command) = script.commands.get(at) {
            at += 1;
            match command {
                Command::Unless { word, mask, value, skip } => {
                    at += if run.consult(*word, *mask) == value & mask { 0 } else { *skip };
                }
                Command::Write { word, mask, value } => run.write(*word, *mask, *value),
                Command::Copy { from, to } => run.copy(from, to),
                Command::Act { action, args } => {
                    let (stage, table) = self.actions.expect("it has header actions");
                    run.run_action(stage, table, *action, args)?;
                }
                Command::Save(words) => run.save(words),
                Command::Restore => run.restore(),
                Command::Drop => return Ok(Decision::Drop(())),
            }
        }
        Ok(Decision::Send { egress_port: EGRESS_PORT, max_len: u32::MAX, is_modified: script.is_modified, value: () })
    }

    /// Holds a path to what the interpreter does with the frame, and with others that have the same bits under the mask. How many
    /// others there were.
    pub fn check(&self, frame: &[u8], script: &Script, path: &Traced<()>, random: &mut Random, others: u32) -> u32 {
        assert!(matches(&path.pattern, frame), "the frame is not in its pattern");
        self.compare(frame, script, path);
        let mut seen = 0;
        for _ in 0..others {
            let other = other(&path.pattern, frame, random);
            if matches(&path.pattern, &other) {
                seen += 1;
                self.compare(&other, script, path);
            }
        }
        seen
    }

    fn compare(&self, frame: &[u8], script: &Script, path: &Traced<()>) {
        let expected = self.run(frame, script);
        let got = match path.fate {
            Fate::Drop(_) => Outcome::Dropped,
            Fate::Send(port) => Outcome::Sent(port, rewritten(&path.rewrite, frame)),
        };
        assert!(
            got == expected,
            "of {frame:02x?}\nbecomes {got:02x?}\nand not {expected:02x?}\nscript {script:?}\npath {path:?}\n{}",
            ir::print(&self.program)
        );
    }
}

/// A frame with the same bits under the mask, and often other bits and another length.
pub fn other(pattern: &Pattern, frame: &[u8], random: &mut Random) -> Vec<u8> {
    let mut other = frame.to_vec();
    for _ in 0..1 + random.below(40) {
        if other.is_empty() {
            break;
        }
        let reach = if random.one_in(2) { other.len() } else { other.len().min(80) };
        let at = random.index(reach);
        let free = !pattern.mask.get(at).copied().unwrap_or(0);
        other[at] ^= free & random.next_u64() as u8 & random.next_u64() as u8;
    }
    if random.one_in(2) {
        let (low, high) = (pattern.shortest, pattern.longest.min(frame.len() as u32 + 64));
        let len = random.range(low, high.max(low)) as usize;
        other.resize_with(len, || random.next_u64() as u8);
    }
    other
}

/// Frames of few different bytes, so that decisions agree.
pub fn few_bytes(random: &mut Random, max: u32) -> Vec<u8> {
    let longest = if random.one_in(8) { 6 * max } else { max };
    let len = random.range(0, longest);
    (0..len)
        .map(|_| if random.one_in(2) { random.next_u64() as u8 } else { *random.pick(&[0, 1, 2, 3, 0xff]) })
        .collect()
}

/// Leaves out of a program what no path can have, unless it `keeps` that.
pub fn left_out(program: &mut Program, keeps: bool) {
    use ir::Op;
    if keeps {
        return;
    }
    for block in program.stages.iter_mut().flat_map(|stage| &mut stage.blocks) {
        for inst in &mut block.insts {
            let dst = match &inst.op {
                Op::Digest { .. } | Op::Log { .. } | Op::Assert { .. } | Op::RegisterWrite { .. } => None,
                Op::RegisterRead { dst, .. } | Op::Random { dst, .. } => Some(*dst),
                Op::Meter { dst, .. } | Op::MeterDirect { dst, .. } => Some(*dst),
                Op::Hash { dst, payload: true, .. } => Some(*dst),
                Op::Hash { dst, algorithm: ir::HashAlgorithm::Random, .. } => Some(*dst),
                _ => continue,
            };
            inst.op = match dst {
                Some(dst) => Op::Mov { dst, src: Bits::zero(program.slots[dst.index()].width).into() },
                None => Op::Mark(ir::Mark::Block("left out".to_string())),
            };
        }
    }
}

/// Whether a frame is one of a pattern's.
pub fn matches(pattern: &Pattern, frame: &[u8]) -> bool {
    let is_byte = |i: usize| frame.get(i).copied().unwrap_or(0) & pattern.mask[i] == pattern.value[i];
    (0..pattern.mask.len()).all(is_byte) && (pattern.shortest..=pattern.longest).contains(&(frame.len() as u32))
}

/// What a rewriting makes of a frame, bit by bit and as the cache runs it.
pub fn rewritten(rewrite: &Rewrite, frame: &[u8]) -> Vec<u8> {
    let bytes = steps::apply(rewrite, frame).expect("it is not too long");
    let prepared = Prepared::new(rewrite).unwrap_or_else(|why| panic!("{why}: {rewrite:?}"));
    let mut buffer = vec![0xaa; 1024];
    buffer.extend_from_slice(frame);
    let (offset, len) = prepared.run(&mut buffer, 1024, frame.len()).expect("there is room");
    assert_eq!(buffer[offset..offset + len], bytes, "{rewrite:?}");
    bytes
}

/// A script of random commands.
pub fn script(subject: &Subject, random: &mut Random) -> Script {
    let words = subject.tracer.layout().words() as u32;
    let slots: Vec<u32> = (0..words).collect();
    let mask = |random: &mut Random| match random.below(3) {
        0 => u64::MAX,
        1 => random.next_u64(),
        _ => u64::MAX >> random.below(64) << random.below(64),
    };
    let commands = (0..random.below(6)).map(|_| {
        let word = *random.pick(&slots);
        match random.below(8) {
            0 => Command::Unless { word, mask: mask(random), value: 0, skip: 1 + random.index(2) },
            1 | 2 => Command::Write { word, mask: mask(random), value: random.next_u64() },
            3 | 4 => {
                let mut piece = || {
                    let word = *random.pick(&slots);
                    let shift = random.range(0, 63);
                    (word, shift, random.range(1, 64 - shift))
                };
                Command::Copy { from: vec![piece(), piece()], to: vec![piece(), piece()] }
            }
            5 => Command::Save((0..4).map(|_| *random.pick(&slots)).collect()),
            6 => Command::Restore,
            _ if random.one_in(8) => Command::Drop,
            _ => Command::Restore,
        }
    });
    Script { commands: commands.collect(), is_modified: !random.one_in(8) }
}

/// A P4 program as lowered, and optimised.
pub fn compile(text: &str) -> [Program; 2] {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(32 << 20);
        let compiling = thread.spawn_scoped(scope, || compile_here(text)).expect("there are threads");
        compiling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn compile_here(text: &str) -> [Program; 2] {
    let mut loader = syntax::MemoryLoader::default();
    for name in sema::EMBEDDED {
        loader.embedded.insert(name.to_string(), sema::embedded(name).expect("it is listed").into());
    }
    let mut sources = base::SourceMap::new();
    let input = syntax::SourceInput { name: "test.p4".into(), text: text.into() };
    let parsed = syntax::parse_program(input, &syntax::Options::default(), &loader, &mut sources);
    let checked = sema::check(&parsed.program, &sources);
    let typed = checked.program.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    let lowered = lower::lower(&typed, "test");
    let program = lowered.program.unwrap_or_else(|| panic!("{:?}", lowered.diagnostics));
    let mut optimised = program.clone();
    opt::optimise(&mut optimised, &opt::Options::default());
    [program, optimised]
}

// Frames, from the inside out.

fn be(value: u64, bytes: usize) -> Vec<u8> {
    value.to_be_bytes()[8 - bytes..].to_vec()
}

fn some(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next_u64() as u8).collect()
}

fn transport(random: &mut Random, protocol: u8) -> Vec<u8> {
    let mut all = some(random, 4);
    match protocol {
        6 => all.extend(some(random, 16)),
        17 => {
            all.extend(some(random, 2));
            all.extend(if random.one_in(3) { vec![0, 0] } else { some(random, 2) });
        }
        1 => all[0] = 8,
        58 => {
            all[0] = *random.pick(&[128, 135, 136]);
            all[1] = u8::from(random.one_in(5));
            all.extend(some(random, 20));
            if random.one_in(3) {
                all.extend([14, 1, 0, 0, 0, 0, 0, 0]);
            }
            all.extend([*random.pick(&[1, 2]), 1]);
            all.extend(some(random, 6));
        }
        _ => {}
    }
    all
}

fn ip(random: &mut Random) -> (u64, Vec<u8>) {
    let protocol = *random.pick(&[6, 6, 17, 17, 1, 58, 132, 89]);
    let ttl = *random.pick(&[0, 1, 2, 64, 64, 63, 255]);
    let mut all = Vec::new();
    if random.one_in(2) {
        let options = if random.one_in(4) { random.range(0, 3) } else { 0 };
        all.push(0x45 + options as u8);
        all.extend(some(random, 5));
        all.extend(*random.pick(&[[0, 0], [0x40, 0], [0x20, 0], [0, 7]]));
        all.extend([ttl, protocol]);
        all.extend(some(random, 10 + 4 * options as usize));
        all.extend(transport(random, protocol));
        return (0x0800, all);
    }
    let extensions = if random.one_in(3) { 1 + random.below(2) } else { 0 };
    all.extend([0x60, 0, 1, 2, 0, 40]);
    let kinds: Vec<u8> = (0..extensions).map(|_| *random.pick(&[0, 43, 44, 51, 60])).chain([protocol]).collect();
    all.extend([kinds[0], ttl]);
    all.extend(some(random, 32));
    for pair in kinds.windows(2) {
        let mut option = some(random, 8);
        option[..4].copy_from_slice(&[pair[1], u8::from(pair[0] == 51), 0, random.below(2) as u8]);
        if pair[0] == 51 {
            option.extend(some(random, 4));
        }
        all.extend(option);
    }
    all.extend(transport(random, protocol));
    (0x86dd, all)
}

/// A frame of protocols that there are, with mistakes.
pub fn packet(random: &mut Random) -> Vec<u8> {
    let mut all = some(random, 12);
    for _ in 0..*random.pick(&[0, 0, 0, 1, 1, 2, 3]) {
        all.extend(be(*random.pick(&[0x8100, 0x8100, 0x88a8]), 2));
        all.extend(some(random, 2));
    }
    let (kind, payload) = match random.below(10) {
        0 => (0x0806, some(random, 28)),
        1 => (*random.pick(&[0, 20, 0x5ff]), some(random, 20)),
        2 => {
            let (kind, payload) = ip(random);
            (60, [vec![0xaa, 0xaa, 3, 0, 0, 0], be(kind, 2), payload].concat())
        }
        3 | 4 => {
            let labels = 1 + random.index(3);
            let label = |i: usize, random: &mut Random| {
                let mut label = some(random, 4);
                label[2] = label[2] & !1 | u8::from(i + 1 == labels);
                label
            };
            let labels: Vec<u8> = (0..labels).flat_map(|i| label(i, random)).collect();
            (0x8847, [labels, ip(random).1].concat())
        }
        _ => ip(random),
    };
    all.extend(be(kind, 2));
    all.extend(payload);
    all.extend(some(random, 24));
    if random.one_in(10) {
        all.truncate(random.index(all.len()));
    }
    all
}

/// A TCP segment over IPv4.
pub fn tcp(ttl: u8) -> Vec<u8> {
    let mut random = Random::new(7);
    let mut all = some(&mut random, 12);
    all.extend([8, 0, 0x45, 0, 0, 60, 1, 2, 0x40, 0, ttl, 6, 0x12, 0x34, 10, 0, 0, 1, 10, 0, 0, 2]);
    all.extend(some(&mut random, 60));
    all
}
