//! A program on the interpreter and on the tracer, and what must hold of a path: rewritings run bit by bit here.

#![allow(dead_code, reason = "each test file uses its part")]

use base::Bits;
use base::entry::{ActionCall, EntryAction};
use flowcache::path::{Pattern, Rewrite, Source, Step};
use flowcache::run::Prepared;
use flowcache::trace::{Decision, Fate, Run, Tables, Traced, Tracer, Untraceable};
use interp::{Interp, SeededHost};
use ir::{BinOp, EntryKind, EntryPoint, Intrinsic, Program, ReplicationPoint, StageId, TableId};
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

    /// What the interpreter makes of a frame.
    pub fn run(&self, frame: &[u8], script: &Script) -> Outcome {
        let (interp, host) = (&self.interp, &mut SeededHost::new(1));
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
            interp::Fate::Drop(_) => return Outcome::Dropped,
            interp::Fate::Send(port) => return Outcome::Sent(port as u32, parsed.packet),
            interp::Fate::Replicate(ReplicationPoint::IngressEnd) => {}
            interp::Fate::Replicate(_) | interp::Fate::Endless | interp::Fate::NoRoom => return Outcome::Lost,
        }
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
            interp::Fate::Replicate(_) | interp::Fate::Endless | interp::Fate::NoRoom => Outcome::Lost,
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
        self.tracer.trace(frame, PORT, tables, &mut |run| self.decide(run, script))
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
            let mut other = frame.to_vec();
            for _ in 0..1 + random.below(40) {
                if other.is_empty() {
                    break;
                }
                let reach = if random.one_in(2) { other.len() } else { other.len().min(80) };
                let at = random.index(reach);
                let free = !path.pattern.mask.get(at).copied().unwrap_or(0);
                other[at] ^= free & random.next_u64() as u8 & random.next_u64() as u8;
            }
            if random.one_in(2) {
                let (low, high) = (path.pattern.shortest, path.pattern.longest.min(frame.len() as u32 + 64));
                let len = random.range(low, high.max(low)) as usize;
                other.resize_with(len, || random.next_u64() as u8);
            }
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
            Fate::Send(port) => Outcome::Sent(port, apply(&path.rewrite, frame).expect("it fits")),
        };
        assert!(
            got == expected,
            "of {frame:02x?}\nbecomes {got:02x?}\nand not {expected:02x?}\nscript {script:?}\npath {path:?}\n{}",
            ir::print(&self.program)
        );
        if let Outcome::Sent(_, bytes) = expected {
            let prepared = Prepared::new(&path.rewrite).expect("rewritings are well-formed");
            let mut buffer = vec![0xaa; 1024];
            buffer.extend_from_slice(frame);
            let (offset, len) = prepared.run(&mut buffer, 1024, frame.len()).expect("there is room");
            assert_eq!(buffer[offset..offset + len], bytes, "{path:?}");
        }
    }
}

/// Whether a frame is one of a pattern's.
pub fn matches(pattern: &Pattern, frame: &[u8]) -> bool {
    let is_byte = |i: usize| frame.get(i).copied().unwrap_or(0) & pattern.mask[i] == pattern.value[i];
    (0..pattern.mask.len()).all(is_byte) && (pattern.shortest..=pattern.longest).contains(&(frame.len() as u32))
}

/// Runs a rewriting bit by bit. `None` if the frame would be too long.
pub fn apply(rewrite: &Rewrite, frame: &[u8]) -> Option<Vec<u8>> {
    let bit = |at: usize| frame.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    let (replaced, head_len) = (usize::from(rewrite.replaced), usize::from(rewrite.head));
    let mut head: Vec<Option<bool>> = vec![None; head_len * 8];
    if replaced == head_len {
        (0..head_len * 8).for_each(|at| head[at] = Some(bit(at)));
    }
    let mut registers = [None; 256];
    for step in &rewrite.steps {
        let get = |source: &Source| match source {
            Source::Register(register) => registers[*register as usize].expect("it was computed before"),
            Source::Const(value) => *value,
        };
        let set = match step {
            Step::Load { to, bit: from, width } => {
                let bits = (0..usize::from(*width)).map(|i| bit(usize::from(*from) + i));
                Some((*to, bits.fold(0, |all, bit| all << 1 | u64::from(bit))))
            }
            Step::Binary { op, to, a, b, width } => {
                let a = Bits::new((*width).into(), get(a).into());
                assert_eq!(a.to_u64(), Some(a.to_u128().unwrap_or(0) as u64));
                let b = if op.is_shift() {
                    Bits::new(64, get(b).into())
                } else {
                    Bits::new((*width).into(), get(b).into())
                };
                Some((*to, BinOp::apply(*op, &a, &b).to_u64().expect("at most 64 bits")))
            }
            Step::Unary { op, to, a, width } => {
                Some((*to, op.apply(&Bits::new((*width).into(), get(a).into())).to_u64().expect("at most 64 bits")))
            }
            Step::Select { to, cond, then, other } => Some((*to, if get(cond) != 0 { get(then) } else { get(other) })),
            Step::Sum { to, words, values, constant } => {
                let of_words = words.iter().map(|word| {
                    assert!(word.at % 2 == 0);
                    let bits = (0..64).map(|i| bit(usize::from(word.at) * 8 + i));
                    bits.fold(0, |all, bit| all << 1 | u64::from(bit)) & word.mask
                });
                let all = of_words.chain(values.iter().map(get)).chain([(*constant).into()]);
                let mut sum: u64 = all.flat_map(|v| (0..4).map(move |i| v >> (16 * i) & 0xffff)).sum();
                while sum > 0xffff {
                    sum = (sum >> 16) + (sum & 0xffff);
                }
                Some((*to, sum))
            }
            Step::Store { bit, width, value } => {
                let value = get(value);
                assert!(*width == 64 || value >> width == 0, "a value of {width} bits");
                for i in 0..usize::from(*width) {
                    head[usize::from(*bit) + i] = Some(value >> (usize::from(*width) - 1 - i) & 1 == 1);
                }
                None
            }
            Step::Bytes { at, bytes } => {
                let bits = bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1 == 1));
                bits.enumerate().for_each(|(i, bit)| head[usize::from(*at) * 8 + i] = Some(bit));
                None
            }
            Step::Copy { from, to, len } => {
                for i in 0..usize::from(*len) * 8 {
                    head[usize::from(*to) * 8 + i] = Some(bit(usize::from(*from) * 8 + i));
                }
                None
            }
        };
        if let Some((to, value)) = set {
            registers[to as usize] = Some(value);
        }
    }
    let bits: Vec<bool> = head.into_iter().map(|bit| bit.expect("every bit is written")).collect();
    let mut all: Vec<u8> =
        bits.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | u8::from(*bit))).collect();
    all.extend_from_slice(&frame[replaced..]);
    (all.len() <= rewrite.max_len as usize).then_some(all)
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
