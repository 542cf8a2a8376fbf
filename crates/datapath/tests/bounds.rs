//! What bounds the work for one packet is the same on every engine: rounds of loops, emitted headers, room in the packet's buffer.

mod common;

use common::Engines;
use datapath::Specialise;
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

/// Goes round as often as the frame's first 32 bits say, counts the rounds, and leaves by port 5.
const ROUNDS: &str = r#"program "rounds"
drops short
slot n: 32 metadata
slot i: 32 metadata
slot %more: 1 temp
slot %ok: 1 temp
extern seen counter size 1 unit packets
entry ingress (p, c)
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
  i = mov 32w0
  jump b1
b1:
  %more = ult i, n
  branch %more, b2, b3
b2:
  i = add i, 32w1
  count seen, 32w0
  jump b1
b3:
  send 32w5
}
"#;

/// The interpreter counted blocks and compiled code rounds, so a loop of 10^9 rounds was cut at different counts.
#[test]
fn a_loop_is_cut_after_the_same_number_of_rounds() {
    let mut engines = Engines::new(&program(ROUNDS));
    let limit = ir::LOOP_ROUNDS_MAX as u32;
    for mode in [None, Some(Specialise::Contents)] {
        mode.into_iter().for_each(|mode| engines.recompile(mode));
        // The loop's head is entered once more than there are rounds.
        for (rounds, is_sent) in [(0, true), (1000, true), (limit - 1, true), (limit, false), (1_000_000_000, false)] {
            let frame = rounds.to_be_bytes();
            let what = format!("{rounds} rounds, {mode:?}");
            engines.check(&frame, &what);
            assert_eq!(!engines.sent(&frame).is_empty(), is_sent, "{what}");
        }
    }
}

/// What a packet has counted until its loop is cut stays, and is the same.
#[test]
fn a_loop_that_is_cut_has_counted_the_same() {
    let mut engines = Engines::new(&program(ROUNDS));
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
