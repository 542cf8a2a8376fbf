//! What bounds the work for one packet is the same on every engine: steps in loops, emitted headers, room in the packet's buffer.

mod common;

use common::Engines;
use datapath::Specialise;
use datapath::replication::Replica;
use std::fmt::Write;
use std::sync::Arc;

fn program(text: &str) -> Arc<ir::Program> {
    Arc::new(ir::parse(text, base::FileId(0)).unwrap_or_else(|d| panic!("{text}\n{d:#?}")))
}

/// Whatever has been counted, by drop reason.
fn drops(engines: &Engines, what: &str) {
    engines.agree(what, |pipeline| {
        let drops = pipeline.drops(0).read(pipeline.program());
        drops.into_iter().filter(|(_, packets)| *packets > 0).collect::<Vec<_>>()
    });
}

/// Goes round as often as the frame's first 32 bits say, counts the rounds, and leaves by port 5. A round does `body` besides.
fn rounds(slots: &str, body: &str) -> Arc<ir::Program> {
    charged(&format!(
        r#"program "rounds"
drops short
slot n: 32 metadata
slot i: 32 metadata
slot j: 32 metadata
{slots}slot %more: 1 temp
slot %ok: 1 temp
extern seen counter size 1 unit packets
entry ingress (p, c)
stage parser p {{
b0:
  %ok = has_bits 32w32
  branch %ok, b1, b2
b1:
  n = lookahead 0
  next
b2:
  drop short
}}
stage control c {{
b0:
  i = mov 32w0
  jump b1
b1:
  %more = ult i, n
  branch %more, b2, b3
b2:
  i = add i, 32w1
  count seen, 32w0
{body}  jump b1
b3:
  send 32w5
}}
"#
    ))
}

/// A program whose loops are charged, as the front end does it.
fn charged(text: &str) -> Arc<ir::Program> {
    let mut program = ir::parse(text, base::FileId(0)).unwrap_or_else(|d| panic!("{text}\n{d:#?}"));
    ir::cost::charge_loops(&mut program);
    assert_eq!(ir::verify(&program), [], "{text}");
    Arc::new(program)
}

/// What the loops of a program are charged with, in order of stages and blocks.
fn charges(program: &ir::Program) -> Vec<u64> {
    let insts = program.stages.iter().flat_map(|stage| &stage.blocks).flat_map(|block| &block.insts);
    insts.filter_map(|inst| if let ir::Op::Charge { steps } = inst.op { Some(steps.into()) } else { None }).collect()
}

/// Checks that a packet with a number is sent as long as `cost` of it is within the limit, on every engine, and not behind that. `last`
/// is the last such number. The cells of all counters and the drops agree.
fn is_cut_at(program: &Arc<ir::Program>, cost: impl Fn(u64) -> u64, frame: impl Fn(u32) -> Vec<u8>) -> u32 {
    let mut last = 0;
    while cost(last + 1) <= ir::STEPS_MAX {
        last += 1;
    }
    let last = last as u32;
    let mut engines = Engines::new(program);
    for mode in [None, Some(Specialise::Contents)] {
        mode.into_iter().for_each(|mode| engines.recompile(mode));
        for (number, is_sent) in [(0, true), (last, true), (last + 1, false), (u32::MAX >> 4, false)] {
            let (what, frame) = (format!("{number}, {mode:?}, {}", program.name), frame(number));
            assert_eq!(!engines.check(&frame, &what).is_empty(), is_sent, "{what}");
        }
    }
    drops(&engines, &program.name);
    engines.agree("rounds", |pipeline| pipeline.state().counter(base::ids::ExternId(0), 0).expect("a cell").packets);
    last
}

/// Rounds and what they cost, of the programs below.
const BODIES: [(&str, &str, &str); 7] = [
    ("counting", "", ""),
    ("a lookup's worth of hashing", "slot h: 32 metadata\n", "  h = hash crc32 base 32w0 max 32w1000 data (i, n)\n"),
    ("wide sums", "slot a: 8192 metadata\n", "  a = add a, a\n"),
    ("wide products", "slot a: 16384 metadata\n", "  a = not a\n  a = mul a, a\n"),
    ("wide quotients", "slot a: 4096 metadata\nslot b: 4096 metadata\n", "  b = not a\n  a = div b, 4096w12345\n"),
    ("wide shifts", "slot a: 4096 metadata\n", "  a = not a\n  a = shl a, i\n"),
    ("wide hashes", "slot a: 8192 metadata\nslot h: 16 metadata\n", "  h = hash csum16 base 16w0 data (a, i)\n"),
];

/// The interpreter counted blocks and compiled code rounds, so a loop of 10^9 rounds was cut at different counts. And all rounds counted
/// alike, whatever they did: two packets that multiplied 16,384 bits 131,072 times held a worker for 20 s.
#[test]
fn a_loop_is_cut_after_the_same_number_of_steps() {
    for (what, slots, body) in BODIES {
        let program = rounds(slots, body);
        let [charge] = charges(&program)[..] else { panic!("one loop has a charge: {what}") };
        // The loop's head is entered once more than there are rounds.
        let last = is_cut_at(&program, |rounds| (rounds + 1) * charge, |rounds| rounds.to_be_bytes().to_vec());
        match what {
            "counting" => assert!(last > 40_000, "{last} rounds of {what}"),
            // A product takes some 20 us.
            "wide products" => assert!((4..20).contains(&last), "{last} rounds of {what}"),
            _ => assert!((20..40_000).contains(&last), "{last} rounds of {what}"),
        }
    }
}

/// Inner loops are charged at their own heads, so that they may be long or short.
#[test]
fn nested_loops_are_cut_alike() {
    let program = charged(
        r#"program "nested"
drops short
slot n: 16 metadata
slot m: 16 metadata
slot both: 32 metadata
slot i: 16 metadata
slot j: 16 metadata
slot a: 2048 metadata
slot %more: 1 temp
slot %ok: 1 temp
extern seen counter size 1 unit packets
entry ingress (p, c)
stage parser p {
b0:
  %ok = has_bits 32w32
  branch %ok, b1, b2
b1:
  both = lookahead 0
  n = slice both, 31, 16
  m = slice both, 15, 0
  next
b2:
  drop short
}
stage control c {
b0:
  i = mov 16w0
  jump b1
b1:
  %more = ult i, n
  branch %more, b2, b5
b2:
  i = add i, 16w1
  j = mov 16w0
  a = not a
  a = mul a, a
  jump b3
b3:
  %more = ult j, m
  branch %more, b4, b1
b4:
  j = add j, 16w1
  count seen, 32w0
  jump b3
b5:
  send 32w5
}
"#,
    );
    let [outer, inner] = charges(&program)[..] else { panic!("two loops have charges") };
    assert!(outer > 20 * inner, "{outer} and {inner}");
    let frame = |n: u32, m: u32| (n << 16 | m).to_be_bytes().to_vec();
    let cost = |n: u64, m: u64| (n + 1) * outer + n * (m + 1) * inner;
    for m in [0, 1, 9, 300] {
        let last = is_cut_at(&program, |n| cost(n, m), |n| frame(n.min(0xffff), m as u32));
        assert!(last > 1, "{last} rounds around {m}");
    }
    is_cut_at(&program, |m| cost(1, m), |m| frame(1, m.min(0xffff)));
}

/// A parser that looks at one byte after the other until one is 0; what it hashes makes a round dear.
#[test]
fn loops_of_parsers_are_cut_alike() {
    let program = charged(
        r#"program "bytes"
drops short
slot b: 8 metadata
slot a: 4096 metadata
slot h: 32 metadata
slot %ok: 1 temp
extern seen counter size 1 unit packets
entry ingress (p, c)
stage parser p {
b0:
  jump b1
b1:
  %ok = has_bits 32w8
  branch %ok, b2, b4
b2:
  b = lookahead 0
  advance 32w8
  a = not a
  a = add a, a
  h = hash xxh64 base h data (a, h)
  switch b, 8w0 -> b3, default -> b1
b3:
  next
b4:
  drop short
}
stage control c {
b0:
  count seen, 32w0
  send 32w5
}
"#,
    );
    let [charge] = charges(&program)[..] else { panic!("one loop has a charge") };
    let frame = |bytes: u32| [vec![1; bytes.min(9000) as usize], vec![0]].concat();
    is_cut_at(&program, |bytes| (bytes + 1) * charge, frame);
}

/// Copies are made before they run; those that are left when loops have spent what a burst may are dropped. One packet of which each
/// of 4,096 copies went round for a millisecond held a worker for seconds.
#[test]
fn copies_that_loop_have_so_much_together() {
    const COPIES: u64 = 200;
    let program = charged(
        r#"program "copies"
drops short
slot port: 9 metadata
slot group: 16 metadata
slot n: 32 metadata
slot i: 32 metadata
slot a: 2048 metadata
slot %more: 1 temp
slot %ok: 1 temp
slot %out: 32 temp
extern seen counter size 1 unit packets
intrinsic multicast_group = group
intrinsic egress_port = port
entry ingress (p, c)
entry egress (e)
stage parser p {
b0:
  %ok = has_bits 32w32
  branch %ok, b1, b2
b1:
  n = lookahead 0
  next
b2:
  drop short
}
stage control c {
b0:
  group = mov 16w1
  replicate ingress_end
}
stage control e {
b0:
  i = mov 32w0
  jump b1
b1:
  %more = ult i, n
  branch %more, b2, b3
b2:
  i = add i, 32w1
  a = not a
  a = mul a, a
  count seen, 32w0
  jump b1
b3:
  %out = zext port
  send %out
}
"#,
    );
    let [charge] = charges(&program)[..] else { panic!("one loop has a charge") };
    let mut engines = Engines::new(&program);
    engines.replicate(|replication| {
        let replicas = (0..COPIES as u32).map(|i| Replica { port: i, instance: 0 }).collect();
        replication.group_insert(1, replicas).expect("a new group");
    });
    let mut some_are_cut = false;
    for mode in [None, Some(Specialise::Contents)] {
        mode.into_iter().for_each(|mode| engines.recompile(mode));
        for rounds in [0u32, 1, 3, 10, 20, 100, 400] {
            let frame = rounds.to_be_bytes();
            let what = format!("{rounds} rounds of each copy, {mode:?}");
            let all = engines.check(&frame, &what);
            let each = (charge * u64::from(rounds + 1)).saturating_sub(ir::cost::FREE_STEPS);
            let (mut left, mut sent) = (3 * ir::STEPS_MAX, 0);
            while left > 0 && sent < COPIES {
                let together = (COPIES - sent).min(64);
                (left, sent) = (left.saturating_sub(together * each), sent + together);
            }
            assert_eq!(all.len() as u64, sent, "{what}");
            some_are_cut |= sent < COPIES;
        }
    }
    assert!(some_are_cut);
    drops(&engines, "copies");
    engines.agree("rounds", |pipeline| pipeline.state().counter(base::ids::ExternId(0), 0).expect("a cell").packets);
}

/// What a packet has counted until its loop is cut stays, and is the same.
#[test]
fn a_loop_that_is_cut_has_counted_the_same() {
    let mut engines = Engines::new(&rounds("", ""));
    engines.check(&1_000_000_000u32.to_be_bytes(), "a long loop");
    drops(&engines, "a long loop");
    engines.agree("rounds", |pipeline| pipeline.state().counter(base::ids::ExternId(0), 0).expect("a cell").packets);
}

/// As many new headers of `bytes` bytes as the frame's first byte says, in front of the frame, which is then cut to 100 bytes if
/// `cuts`; it leaves by port 5.
fn grows(headers: usize, bytes: usize, cuts: bool) -> Arc<ir::Program> {
    let [mut slots, mut declared, mut control, mut deparser] = [(); 4].map(|()| String::new());
    for i in 0..headers {
        writeln!(slots, "slot h{i}.f: {} field h{i}\nslot h{i}.$valid: 1 valid h{i}", 8 * bytes).expect("a string");
        writeln!(declared, "header h{i} valid h{i}.$valid {{\n  f = h{i}.f\n}}").expect("a string");
        let (at, next) = (2 * i, 2 * i + 2);
        writeln!(control, "b{at}:\n  %more = ult 8w{i}, n\n  branch %more, b{}, b{next}", at + 1).expect("a string");
        writeln!(
            control,
            "b{}:\n  h{i}.$valid = mov 1w1\n  h{i}.f = mov {}w{}\n  jump b{next}",
            at + 1,
            8 * bytes,
            i + 1
        )
        .expect("a string");
        writeln!(deparser, "  emit h{i}").expect("a string");
    }
    let cut = if cuts { "  truncate 32w100\n" } else { "" };
    program(&format!(
        r#"program "grows"
drops short
slot n: 8 metadata
slot %more: 1 temp
slot %ok: 1 temp
{slots}{declared}entry ingress (p, c, d)
stage parser p {{
b0:
  %ok = has_bits 32w8
  branch %ok, b1, b2
b1:
  n = lookahead 0
  next
b2:
  drop short
}}
stage control c {{
{control}b{}:
  next
}}
stage deparser d {{
b0:
{deparser}{cut}  send 32w5
}}
"#,
        2 * headers
    ))
}

/// The interpreter emitted without end, and cut frames before it asked whether they fit.
#[test]
fn headers_before_large_frames_have_room_on_all_engines_or_on_none() {
    for cuts in [false, true] {
        // 20 headers of 1,000 bytes: up to 16 are within what may be emitted.
        let mut engines = Engines::new(&grows(20, 1000, cuts));
        let mut seen = [false; 2];
        for mode in [None, Some(Specialise::Contents)] {
            mode.into_iter().for_each(|mode| engines.recompile(mode));
            for (new, frame) in
                [0, 1, 2, 16, 17, 20].into_iter().flat_map(|n| [60, 1500, 9000, 48_000, 65_000].map(|f| (n, f)))
            {
                let mut bytes = vec![0x5a; frame];
                bytes[0] = new;
                let what = format!("{new} headers before {frame} bytes, cut: {cuts}, {mode:?}");
                engines.check(&bytes, &what);
                seen[usize::from(engines.sent(&bytes).is_empty())] = true;
            }
        }
        assert_eq!(seen, [true; 2], "some are sent and some are not");
    }
}
