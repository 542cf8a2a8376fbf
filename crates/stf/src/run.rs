//! Runs a script on one pipeline and checks its output.
//!
//! Frames that leave are kept in order per port. At the end the frames of each port are compared with that port's
//! `expect` lines, one by one; a port with a bare `expect PORT` may send anything. Checks of the state
//! (`check_counter`, `expect_register`, `expect_digest`, `no_packet`) are evaluated where they stand in the script.
//!
//! A script does not tell which packet an expected frame comes from. A missing frame is therefore explained by what
//! became of the packets before its `expect` line, back to the previous group of `expect` lines.

use crate::script::{Command, CounterCell, Line, Pattern};
use crate::setup::{Setup, Target, find_extern, value_of};
use base::Bits;
use base::entry::{CounterValue, KeyMatch};
use base::ids::ExternId;
use datapath::Local;
use ir::ExternKind;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// The result of a script.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Number of checks that passed.
    pub passed: usize,
    /// Checks that failed: line number (0 for the end of the script) and message.
    pub failures: Vec<(usize, String)>,
    /// The output of `*_read` and `*_get` commands.
    pub output: Vec<String>,
    /// All frames that left, in order: `(port, frame)`.
    pub sent: Vec<(u32, Vec<u8>)>,
    /// All counters and registers at the end, to compare engines.
    pub state: BTreeMap<String, Vec<String>>,
    /// What became of each `packet` of the script, in order.
    pub fates: Vec<PacketFate>,
    /// Expected frames that did not leave.
    pub missing: Vec<Missing>,
}

/// What became of a packet of a script.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketFate {
    /// The line of its `packet` command.
    pub line: usize,
    /// The ingress port.
    pub port: u32,
    /// The ports where it and its copies left.
    pub sent: Vec<u32>,
    /// The reasons for which it or its copies were dropped.
    pub drops: Vec<String>,
}

/// An expected frame that did not leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The index of the failure that reports it.
    failure: usize,
    /// The port where it should have left.
    port: u32,
    /// The packets that it may have been expected from, as indices in `fates`.
    packets: Range<usize>,
}

/// An `expect` line.
struct Expected {
    line: usize,
    /// `None` for any number of any frames.
    frame: Option<Pattern>,
    /// The packets before it, as an index in the list of groups.
    group: usize,
}

/// Limit on the packets that are listed for one missing frame; a script may have thousands.
const TOLD_MAX: usize = 4;

/// Runs all lines; explains missing frames and reads the state at the end.
pub fn run_script(lines: &[Line], local: &mut Local) -> Outcome {
    let mut outcome = run_watched(lines, local, &mut || {});
    outcome.explain(&[]);
    outcome.state = dump_state(local);
    outcome
}

/// Runs all lines and calls `after_packet` after each packet. Does not explain missing frames ([`Outcome::explain`]),
/// and does not read counters and registers, of which the program may have too many ([`dump_state`]).
pub fn run_watched(lines: &[Line], local: &mut Local, after_packet: &mut dyn FnMut()) -> Outcome {
    let mut outcome = Outcome::default();
    let mut setup = Setup::new();
    let mut expected: BTreeMap<u32, Vec<Expected>> = BTreeMap::new();
    // Groups of packets without an `expect` between them.
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut group_ends = true;
    let mut digests: std::collections::VecDeque<abi::state::DigestMessage> = Default::default();
    let mut logs: std::collections::VecDeque<String> = Default::default();
    let mut last = 0;
    for line in lines {
        let pipeline = local.pipeline().clone();
        let program = pipeline.program().clone();
        let replication = local.replication().clone();
        let target = Target { program: &program, state: pipeline.state().as_ref(), replication: &replication };
        let n = line.number;
        match &line.command {
            Command::Packet { port, frame } => {
                let before = pipeline.drops(0).read(&program);
                let mut fate = PacketFate { line: n, port: *port, ..PacketFate::default() };
                match local.receive(*port, frame) {
                    Some(sent) => {
                        last = sent.len();
                        fate.sent = sent.iter().map(|s| s.port).collect();
                        outcome.sent.extend(sent.into_iter().map(|s| (s.port, s.bytes)));
                    }
                    None => outcome.failures.push((n, format!("a frame of {} bytes is too long", frame.len()))),
                }
                let after = pipeline.drops(0).read(&program);
                let new = before.iter().zip(after).filter(|((_, before), (_, now))| now > before);
                fate.drops = new.map(|(_, (reason, _))| reason).collect();
                let at = outcome.fates.len();
                match groups.last_mut().filter(|_| !group_ends) {
                    Some(group) => group.end = at + 1,
                    None => groups.push(at..at + 1),
                }
                group_ends = false;
                outcome.fates.push(fate);
                after_packet();
            }
            Command::Expect { port, frame } => {
                group_ends = true;
                let group = groups.len().saturating_sub(1);
                expected.entry(*port).or_default().push(Expected { line: n, frame: frame.clone(), group });
            }
            Command::NoPacket => {
                outcome.check(n, last == 0, || format!("the last packet caused {last} frame{}", plural(last)))
            }
            Command::Wait { microseconds } => local.advance_us(*microseconds),
            Command::CheckCounter { name, cell, check } => match find_extern(&program, name) {
                Err(message) => outcome.failures.push((n, message)),
                Ok((ext, e)) => match setup.counter_value(pipeline.state().as_ref(), ext, e, cell) {
                    Err(message) => outcome.failures.push((n, message)),
                    Ok(value) => {
                        let (holds, text) = judge(value, check.as_ref());
                        let cell = match cell {
                            CounterCell::Index(index) => index.to_string(),
                            CounterCell::Handle(handle) => format!("${handle}"),
                        };
                        outcome.check(n, holds, || format!("{}({cell}) {text}", e.name));
                    }
                },
            },
            Command::ExpectRegister { name, index, value } => {
                let found = find_extern(&program, name).and_then(|(ext, e)| {
                    let ExternKind::Register { width, .. } = e.kind else {
                        return Err(format!("`{}` is not a register", e.name));
                    };
                    let have = pipeline.state().register(ext, *index).map_err(|err| format!("{err:?}"))?;
                    Ok((have, value_of(value, width)?))
                });
                match found {
                    Ok((have, want)) => {
                        outcome.check(n, have == want, || format!("{name}[{index}] is {have:#}, not {want:#}"))
                    }
                    Err(message) => outcome.failures.push((n, message)),
                }
            }
            Command::ExpectDigest { name, values } => {
                digests.extend(pipeline.take_digests());
                match check_digest(&program, name, values, digests.pop_front()) {
                    Ok(()) => outcome.passed += 1,
                    Err(message) => outcome.failures.push((n, message)),
                }
            }
            Command::ExpectLog { text } => {
                logs.extend(pipeline.take_logs());
                let line = logs.pop_front();
                outcome.check(n, line.as_deref() == Some(text), || format!("the log has {line:?}, not {text:?}"));
            }
            Command::CheckDrops { reason, comparison, value } => {
                let drops = pipeline.drops(0).read(&program);
                match drops.iter().find(|(name, _)| name == reason) {
                    Some((_, have)) => outcome.check(n, compare(*have, comparison, *value), || {
                        format!("{have} packets were dropped for `{reason}`, expected {comparison} {value}")
                    }),
                    None => {
                        let names: Vec<&str> = drops.iter().map(|(name, _)| name.as_str()).collect();
                        let message = format!("there is no drop reason `{reason}`; there are: {}", names.join(", "));
                        outcome.failures.push((n, message));
                    }
                }
            }
            other => match setup.apply(other, target) {
                Ok(Some(text)) if text.is_empty() => {}
                Ok(Some(text)) => outcome.output.push(text),
                Ok(None) => outcome.failures.push((n, "this command cannot be run".to_string())),
                Err(message) => outcome.failures.push((n, message)),
            },
        }
    }
    compare_frames(&mut outcome, &expected, &groups);
    outcome
}

impl Outcome {
    /// Extends the messages about missing frames by what became of the packets before; `places` are the source lines
    /// that decided each packet's fate, as far as they are known.
    pub fn explain(&mut self, places: &[Option<String>]) {
        for Missing { failure, port, packets } in std::mem::take(&mut self.missing) {
            let Some((_, message)) = self.failures.get_mut(failure) else { continue };
            let all = self.fates.get(packets.clone()).unwrap_or_default();
            // Packets that left there were compared with other lines.
            let others: Vec<_> = packets.zip(all).filter(|(_, fate)| !fate.sent.contains(&port)).collect();
            for (at, fate) in others.iter().take(TOLD_MAX) {
                let place = places.get(*at).and_then(Option::as_deref);
                let place = place.map_or(String::new(), |place| format!("\n    {place}"));
                *message += &format!("\n  {fate}{place}");
            }
            if others.len() > TOLD_MAX {
                *message += &format!("\n  and {} packets more did not leave there", others.len() - TOLD_MAX);
            }
        }
    }

    fn check(&mut self, line: usize, holds: bool, message: impl FnOnce() -> String) {
        if holds { self.passed += 1 } else { self.failures.push((line, message())) }
    }
}

impl fmt::Display for PacketFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the packet of line {} (port {}) ", self.line, self.port)?;
        let drops = self.drops.join(", ");
        match self.sent.as_slice() {
            [] if self.drops.is_empty() => write!(f, "did not leave: no copy was made"),
            [] => write!(f, "was dropped: {drops}"),
            ports => {
                let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
                write!(f, "left by port {}", ports.join(", "))?;
                if self.drops.is_empty() { Ok(()) } else { write!(f, "; copies were dropped: {drops}") }
            }
        }
    }
}

fn compare_frames(outcome: &mut Outcome, expected: &BTreeMap<u32, Vec<Expected>>, groups: &[Range<usize>]) {
    let mut by_port: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
    for (port, frame) in &outcome.sent {
        by_port.entry(*port).or_default().push(frame.clone());
    }
    for (port, patterns) in expected {
        let frames = by_port.remove(port).unwrap_or_default();
        if patterns.iter().any(|expected| expected.frame.is_none()) {
            outcome.passed += patterns.len();
            continue;
        }
        let mut frames = frames.into_iter();
        for Expected { line, frame: pattern, group } in patterns {
            let Some(pattern) = pattern else { continue };
            match frames.next() {
                Some(frame) => outcome.check(*line, pattern.matches(&frame), || {
                    let head = format!("port {port}: expected ");
                    let at = pattern.first_difference(&frame).unwrap_or_default();
                    format!(
                        "{head}{pattern}\n{:>width$}{}\n{:>caret$} {}",
                        "but got ",
                        hex(&frame),
                        "^",
                        place(at),
                        width = head.len(),
                        caret = head.len() + at + 1
                    )
                }),
                None => {
                    if let Some(packets) = groups.get(*group) {
                        let (failure, packets) = (outcome.failures.len(), packets.clone());
                        outcome.missing.push(Missing { failure, port: *port, packets });
                    }
                    outcome.failures.push((*line, format!("port {port}: expected {pattern}, but nothing was sent")))
                }
            }
        }
        for frame in frames {
            outcome.failures.push((0, format!("port {port}: a frame that nothing expects: {}", hex(&frame))));
        }
    }
    let rest: Vec<String> = by_port
        .iter()
        .flat_map(|(port, frames)| {
            frames.iter().map(move |f| format!("port {port}: a frame that nothing expects: {}", hex(f)))
        })
        .collect();
    if rest.is_empty() {
        outcome.passed += 1;
    }
    outcome.failures.extend(rest.into_iter().map(|r| (0, r)));
}

/// The byte of a frame that contains a hexadecimal digit.
fn place(digit: usize) -> String {
    format!("byte {}", digit / 2)
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn compare(have: u64, comparison: &str, value: u64) -> bool {
    match comparison {
        "==" => have == value,
        "!=" => have != value,
        "<" => have < value,
        "<=" => have <= value,
        ">" => have > value,
        _ => have >= value,
    }
}

fn judge(value: CounterValue, check: Option<&crate::script::CounterCheck>) -> (bool, String) {
    let Some(check) = check else {
        return (true, String::new());
    };
    let (have, unit) = if check.packets { (value.packets, "packets") } else { (value.bytes, "bytes") };
    (
        compare(have, &check.comparison, check.value),
        format!("has {have} {unit}, expected {} {}", check.comparison, check.value),
    )
}

fn check_digest(
    program: &ir::Program,
    name: &str,
    values: &[String],
    message: Option<abi::state::DigestMessage>,
) -> Result<(), String> {
    let (ext, e) = find_extern(program, name)?;
    let ExternKind::Digest { fields } = &e.kind else {
        return Err(format!("`{}` is not a digest", e.name));
    };
    let message = message.ok_or(format!("no digest message `{}` was sent", e.name))?;
    if message.digest != ext {
        return Err(format!("a message of another digest came, `{}`", program.externs[message.digest.index()].name));
    }
    if values.len() != fields.len() {
        return Err(format!("`{}` has {} fields, not {}", e.name, fields.len(), values.len()));
    }
    for ((have, (field, width)), want) in message.fields.iter().zip(fields).zip(values) {
        if want != "*" && *have != value_of(want, *width)? {
            return Err(format!("field `{field}` of `{}` is {have:#}, not {want}", e.name));
        }
    }
    Ok(())
}

/// Counters, meters' per-colour counts and registers, to compare engines. Cells of arrays that have their initial value
/// are left out.
pub fn dump_state(local: &Local) -> BTreeMap<String, Vec<String>> {
    let pipeline = local.pipeline();
    let mut all = BTreeMap::new();
    for (i, e) in pipeline.program().externs.iter().enumerate() {
        let id = ExternId::from_index(i);
        let state = pipeline.state();
        // The entries of a table, to be sorted below, because engines return them in different orders. The empty key is
        // the default entry's.
        let keys = |table| -> Vec<(Vec<KeyMatch>, i32)> {
            let entries = state.entries(table).into_iter().map(|e| (e.entry.key, e.entry.priority));
            entries.chain([(Vec::new(), 0)]).collect()
        };
        // Most cells of large arrays are zero: no text is made for them.
        let colours = |counts: [CounterValue; 3]| {
            let text = |v: CounterValue| format!("{} packets {} bytes", v.packets, v.bytes);
            (counts != [CounterValue::default(); 3]).then(|| counts.map(text).join(", "))
        };
        let cells: Vec<String> = match &e.kind {
            ExternKind::Counter { size, direct: None, .. } => (0..*size)
                .filter_map(|i| Some((i, state.counter(id, i).ok()?)))
                .filter(|(_, v)| *v != CounterValue::default())
                .map(|(i, v)| format!("{i}: {} packets, {} bytes", v.packets, v.bytes))
                .collect(),
            ExternKind::Counter { direct: Some(table), .. } => {
                let cell = |(key, priority): (Vec<KeyMatch>, i32)| {
                    let v = state.direct_counter(id, &key, priority).ok()?;
                    Some(format!("{key:?} {priority}: {} packets, {} bytes", v.packets, v.bytes))
                };
                let mut cells: Vec<String> = keys(*table).into_iter().filter_map(cell).collect();
                cells.sort_unstable();
                cells
            }
            ExternKind::Meter { size, direct: None, .. } => {
                (0..*size).filter_map(|i| Some(format!("{i}: {}", colours(state.meter_counts(id, i).ok()?)?))).collect()
            }
            ExternKind::Meter { direct: Some(table), .. } => {
                let cell = |(key, priority): (Vec<KeyMatch>, i32)| {
                    let counts = colours(state.direct_meter_counts(id, &key, priority).ok()?)?;
                    Some(format!("{key:?} {priority}: {counts}"))
                };
                let mut cells: Vec<String> = keys(*table).into_iter().filter_map(cell).collect();
                cells.sort_unstable();
                cells
            }
            ExternKind::Register { size, initial, .. } => (0..*size)
                .filter_map(|i| Some((i, state.register(id, i).ok()?)))
                .filter(|(_, v): &(u64, Bits)| v != initial)
                .map(|(i, v)| format!("{i}: {v:#}"))
                .collect(),
            _ => continue,
        };
        all.insert(e.name.clone(), cells);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_points_at_the_first_wrong_byte() {
        let Ok(lines) = crate::parse("expect 2 00ff10$") else { panic!("a right line") };
        let Command::Expect { port, frame } = &lines[0].command else { panic!("an expectation") };
        let expected = BTreeMap::from([(*port, vec![Expected { line: 1, frame: frame.clone(), group: 0 }])]);
        let mut outcome = Outcome { sent: vec![(2, vec![0, 0xff, 0x1f])], ..Outcome::default() };
        compare_frames(&mut outcome, &expected, &[]);
        let message = "port 2: expected 00ff10$\n         but got 00ff1f\n                      ^ byte 2";
        assert_eq!(outcome.failures, [(1, message.to_string())]);
    }

    #[test]
    fn what_did_not_come_is_explained_by_what_became_of_the_packets_before() {
        let fate = |line, sent: &[u32], drops: &[&str]| PacketFate {
            line,
            port: 1,
            sent: sent.to_vec(),
            drops: drops.iter().map(ToString::to_string).collect(),
        };
        let fates = vec![
            fate(1, &[], &["parser reject"]),
            fate(3, &[], &["ingress drop"]),
            fate(4, &[3, 4], &["no such port"]),
            fate(5, &[2], &[]),
            fate(6, &[], &[]),
        ];
        let failures = vec![(7, "nothing".to_string())];
        let missing = vec![Missing { failure: 0, port: 2, packets: 1..5 }];
        let mut outcome = Outcome { fates, failures, missing, ..Outcome::default() };
        outcome.explain(&[None, Some("x.p4:7: mark_to_drop(s);".to_string())]);
        let expected = "nothing
  the packet of line 3 (port 1) was dropped: ingress drop
    x.p4:7: mark_to_drop(s);
  the packet of line 4 (port 1) left by port 3, 4; copies were dropped: no such port
  the packet of line 6 (port 1) did not leave: no copy was made";
        assert_eq!(outcome.failures, [(7, expected.to_string())]);
    }
}
