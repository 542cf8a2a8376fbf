//! Ternary tables against the interpreter: up to 127 rules as part of compiled code, and larger ones searched only if
//! a prefilter passes. Keys of odd widths, overlapping rules, rules for everything, changes in between, and
//! prefilters that stay in use while rules change.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use common::Engines;
use datapath::Specialise;
use random::Random;
use std::fmt::Write;
use std::sync::Arc;

/// A program that looks a frame's first fields up in a table, which gives one of two egress ports or drops the frame.
fn program(fields: &[(u32, &str)]) -> Arc<ir::Program> {
    let names: Vec<String> = (0..fields.len()).map(|i| format!("f{i}")).collect();
    let mut keys = String::new();
    for (name, (width, kind)) in names.iter().zip(fields) {
        writeln!(keys, "  key h.{name}: {width} {kind}").expect("a string");
    }
    let tables = format!(
        "action forward (port: 9)
action other (port: 9)
action unknown ()
table acl {{
{keys}  action forward
  action other
  action unknown
  default 2 ()
  size 4096
}}
"
    );
    let data: Vec<String> = names.iter().map(|name| format!("h.{name}")).collect();
    let control = format!(
        "b0:
  %h0, %a0, %e0, %d0 = apply acl ({})
  switch %a0, 32w0 -> b1, 32w1 -> b2, default -> b3
b1:
  out = param acl, 0, 0, %d0
  send out
b2:
  out = param acl, 1, 0, %d0
  send out
b3:
  drop unknown
",
        data.join(", ")
    );
    let header: Vec<(&str, u32)> =
        names.iter().map(String::as_str).zip(fields.iter().map(|(width, _)| *width)).collect();
    common::matching(&header, 1, &tables, &control)
}

const ACL: TableId = TableId(0);

/// A value that is likely to equal others: few bits, at either end.
fn value(random: &mut Random, width: u32) -> Bits {
    let low = Bits::new(width, u128::from(random.below(3)));
    match random.below(3) {
        0 => low,
        1 => low.shl(u64::from(width.saturating_sub(2))),
        _ => Bits::new(width, u128::from(random.next_u64() & 0x0101_0101_0101_0101)),
    }
}

fn key(random: &mut Random, (width, kind): (u32, &str)) -> KeyMatch {
    let any = random.below(2) == 0;
    match kind {
        "exact" => KeyMatch::Exact(value(random, width)),
        "optional" => KeyMatch::Optional((!any).then(|| value(random, width))),
        "lpm" => {
            let prefix_len = random.below(u64::from(width) + 1) as u32;
            let mask = Bits::ones(width).shl(u64::from(width - prefix_len));
            KeyMatch::Lpm { value: value(random, width).and(&mask), prefix_len }
        }
        _ => {
            let mask = if any { Bits::zero(width) } else { Bits::new(width, random.next_u64().into()) };
            KeyMatch::Ternary { value: value(random, width).and(&mask), mask }
        }
    }
}

fn frame(random: &mut Random, fields: &[(u32, &str)]) -> Vec<u8> {
    let bits: u32 = fields.iter().map(|(width, _)| width).sum();
    let mut all = Bits::zero(bits.next_multiple_of(8));
    for (width, _) in fields {
        let next = value(random, *width).resize_u(all.width());
        all = all.shl(u64::from(*width)).or(&next);
    }
    all.to_bytes_be().to_vec()
}

#[test]
fn rules_in_the_code_are_those_of_the_table() {
    let shapes: [&[(u32, &str)]; 5] = [
        &[(32, "ternary"), (32, "ternary"), (8, "ternary"), (16, "ternary"), (16, "ternary")],
        &[(5, "ternary"), (3, "exact"), (12, "optional"), (20, "lpm")],
        &[(100, "ternary"), (28, "ternary")],
        &[(8, "ternary")],
        &[(48, "lpm"), (16, "optional")],
    ];
    for (seed, fields) in shapes.into_iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let mut engines = Engines::new(&program(fields));
        let mut there: Vec<TableEntry> = Vec::new();
        for (round, wanted) in [1, 4, 17, 62, 63, 64, 65, 100, 127, 128, 140, 500, 127, 63, 20].into_iter().enumerate()
        {
            while there.len() > wanted {
                let old = there.swap_remove(random.below(there.len() as u64) as usize);
                engines.each(|state| state.delete(ACL, &old.key, old.priority).expect("it is there"));
            }
            let mut tries = 0;
            while there.len() < wanted && tries < 2000 {
                tries += 1;
                let key: Vec<KeyMatch> = fields.iter().map(|f| key(&mut random, *f)).collect();
                let action = random.below(3) as u32;
                let args = (action < 2).then(|| Bits::new(9, u128::from(1 + random.below(200)))).into_iter().collect();
                let action = EntryAction::Call(ActionCall { action, args });
                let priority = 1 + random.below(50) as i32;
                if !there.iter().any(|e| e.key == key && e.priority == priority) {
                    let new = TableEntry { key, priority, action, idle_timeout_ns: 0 };
                    engines.each(|state| state.insert(ACL, &new).expect("there is room"));
                    there.push(new);
                }
            }
            engines.recompile(Specialise::Contents);
            for _ in 0..60 {
                let frame = frame(&mut random, fields);
                engines.check(&frame, &format!("{fields:?}, round {round}, {} rules", there.len()));
            }
        }
    }
}

/// Rules about hosts and networks of 10.0.0.0/10, and packets from inside and outside: prefilter and table agree,
/// before and after the rules outgrow bit vectors, and while some are added and removed.
#[test]
fn rules_about_one_network_are_those_of_the_table_however_many_there_are() {
    let fields = [(32, "ternary"), (16, "ternary")];
    let mut random = Random::new(9);
    let mut engines = Engines::new(&program(&fields));
    let mut there: Vec<TableEntry> = Vec::new();
    let near = |random: &mut Random| Bits::new(32, u128::from(10 << 24 | random.below(1 << 22)));
    for wanted in [5usize, 200, 1024, 1025, 1800, 900] {
        while there.len() > wanted {
            let old = there.swap_remove(random.below(there.len() as u64) as usize);
            engines.each(|state| state.delete(ACL, &old.key, old.priority).expect("it is there"));
        }
        while there.len() < wanted {
            let mask = Bits::ones(32).shl([0, 0, 8, 16][random.below(4) as usize]);
            let source = KeyMatch::Ternary { value: near(&mut random).and(&mask), mask };
            let port = Bits::new(16, u128::from(random.below(1 << 16)));
            let port = KeyMatch::Ternary { value: port, mask: Bits::ones(16) };
            let args = vec![Bits::new(9, u128::from(1 + random.below(200)))];
            let action = EntryAction::Call(ActionCall { action: random.below(2) as u32, args });
            let priority = 1 + there.len() as i32;
            let new = TableEntry { key: vec![source, port], priority, action, idle_timeout_ns: 0 };
            engines.each(|state| state.insert(ACL, &new).expect("there is room"));
            there.push(new);
        }
        engines.recompile(Specialise::Contents);
        for i in 0..120 {
            let mut source = near(&mut random);
            let mut port = Bits::new(16, u128::from(random.below(1 << 16)));
            if i % 3 == 0 {
                // A packet that a rule matches.
                let rule = &there[random.below(there.len() as u64) as usize];
                let [KeyMatch::Ternary { value: from, mask }, KeyMatch::Ternary { value: to, .. }] = &rule.key[..]
                else {
                    unreachable!("two ternary keys")
                };
                source = source.and(&mask.not()).or(from);
                port = to.clone();
            } else if i % 3 == 1 {
                source = Bits::new(32, u128::from(random.below(1 << 32)));
            }
            let frame = source.resize_u(48).shl(16).or(&port.resize_u(48)).to_bytes_be();
            engines.check(&frame, &format!("{wanted} rules, packet {i}"));
        }
    }
}

/// Code with a prefilter stays in use while rules are added, changed and removed, and agrees with the interpreter,
/// also once the prefilter passes nearly everything.
#[test]
fn a_prefilter_stays_right_and_in_use_while_rules_change() {
    let fields = [(32, "ternary"), (16, "ternary")];
    let mut random = Random::new(11);
    let mut engines = Engines::new(&program(&fields));
    let mut there: Vec<TableEntry> = Vec::new();
    let new = |random: &mut Random, about: u64, priority: i32| {
        let mask = Bits::ones(32).shl([0, 8, 16, 20][random.below(4) as usize]);
        let from = Bits::new(32, u128::from(about << 24 | random.below(1 << 24))).and(&mask);
        let to = Bits::new(16, u128::from(random.below(1 << 16)));
        let to_mask = if random.below(8) == 0 { Bits::zero(16) } else { Bits::ones(16) };
        let key =
            vec![KeyMatch::Ternary { value: from, mask }, KeyMatch::Ternary { value: to.and(&to_mask), mask: to_mask }];
        let args = vec![Bits::new(9, u128::from(1 + random.below(200)))];
        let action = EntryAction::Call(ActionCall { action: random.below(2) as u32, args });
        TableEntry { key, priority, action, idle_timeout_ns: 0 }
    };
    for priority in 1..=100 {
        let rule = new(&mut random, 10, priority);
        engines.each(|state| state.insert(ACL, &rule).expect("there is room"));
        there.push(rule);
    }
    engines.recompile(Specialise::Constants);
    let first = engines.pipeline("compiled again").code_info().expect("machine code");
    assert_eq!(first.prefilters, 1);
    for number in 0..1500 {
        let at = random.below(there.len() as u64) as usize;
        match number % 3 {
            0 => {
                // At first about the same network, later about any.
                let about = if number < 600 { 10 } else { random.below(256) };
                let rule = new(&mut random, about, 101 + number);
                engines.each(|state| state.insert(ACL, &rule).expect("there is room"));
                there.push(rule);
            }
            1 => {
                let old = there.swap_remove(at);
                engines.each(|state| state.delete(ACL, &old.key, old.priority).expect("it is there"));
            }
            _ => {
                let changed = new(&mut random, 10, 0).action;
                there[at].action = changed;
                engines.each(|state| state.modify(ACL, &there[at]).expect("it is there"));
            }
        }
        for i in 0..3 {
            let mut source = Bits::new(32, u128::from(random.below(1 << 32)));
            let mut port = Bits::new(16, u128::from(random.below(1 << 16)));
            let about = if i == 0 { there.last() } else { there.get(at) };
            if let Some(TableEntry { key, .. }) = about.filter(|_| i < 2)
                && let [KeyMatch::Ternary { value: from, mask }, KeyMatch::Ternary { value: to, mask: to_mask }] =
                    &key[..]
            {
                source = source.and(&mask.not()).or(from);
                port = port.and(&to_mask.not()).or(to);
            }
            let frame = source.resize_u(48).shl(16).or(&port.resize_u(48)).to_bytes_be();
            engines.check(&frame, &format!("change {number}, packet {i}"));
        }
    }
    let info = engines.pipeline("compiled again").code_info().expect("machine code");
    assert!(info.specialised && info.compiled == first.compiled, "no change of a rule has ended it: {info:?}");
}

/// Rules about arbitrary networks make a prefilter of rules about one network ineffective; the recompilation thread
/// replaces it once they are gone.
#[test]
fn a_worn_prefilter_is_replaced() {
    let pipeline = datapath::load(program(&[(32, "ternary")]), datapath::EngineKind::Machine, 1).expect("it loads");
    let rule = |value: u64, priority: i32| {
        let key = vec![KeyMatch::Ternary { value: Bits::new(32, value.into()), mask: Bits::ones(32) }];
        let action = EntryAction::Call(ActionCall { action: 0, args: vec![Bits::new(9, 7)] });
        TableEntry { key, priority, action, idle_timeout_ns: 0 }
    };
    let state = pipeline.state();
    (0..100).for_each(|i| state.insert(ACL, &rule(10 << 24 | i, 1)).expect("there is room"));
    // Constants only, which survive changes of entries, so that nothing but the prefilter triggers recompilation.
    pipeline.specialise(Specialise::Constants);
    let info = || pipeline.code_info().expect("machine code");
    // Full-effort code follows quick code at once.
    common::wait_for("code with a prefilter", || info().prefilters == 1 && info().compiled % 2 == 0);
    let before = info().compiled;
    let mut random = Random::new(31);
    let about_anything: Vec<TableEntry> = (0..3000).map(|_| rule(random.below(1 << 32), 2)).collect();
    for rule in &about_anything {
        // Some are duplicates.
        let _ = state.insert(ACL, rule);
        let _ = state.delete(ACL, &rule.key, rule.priority);
    }
    common::wait_for("code with another prefilter", || info().compiled > before && info().prefilters == 1);
}

/// Exact keys of more than two words, which do not fit into buckets, have a hash of their own in the code.
#[test]
fn wide_keys_in_the_code_are_those_of_the_table() {
    let shapes: [&[(u32, &str)]; 4] = [
        &[(128, "exact"), (32, "exact")],
        &[(128, "exact"), (128, "exact")],
        &[(32, "exact"), (128, "exact"), (128, "exact")],
        &[(13, "exact"), (100, "exact"), (119, "exact"), (200, "exact")],
    ];
    for (seed, fields) in shapes.into_iter().enumerate() {
        let mut random = Random::new(20 + seed as u64);
        let mut engines = Engines::new(&program(fields));
        let mut there: Vec<TableEntry> = Vec::new();
        // From few entries, which are compared one by one, to many.
        for wanted in [1, 3, 4, 9, 40, 300, 33] {
            while there.len() > wanted {
                let old = there.swap_remove(random.below(there.len() as u64) as usize);
                engines.each(|state| state.delete(ACL, &old.key, 0).expect("it is there"));
            }
            while there.len() < wanted {
                // Some differ only in the last bits.
                let width = |width: u32| Bits::new(width, u128::from(random.below(1 << 12))).shl(u64::from(width / 3));
                let mut key: Vec<Bits> = fields.iter().map(|(bits, _)| *bits).map(width).collect();
                if let (true, Some(other)) = (random.below(2) == 0, there.first()) {
                    let last = key.pop().expect("there are fields");
                    key = other.key[..key.len()].iter().map(value_of).chain([last]).collect();
                }
                let key: Vec<KeyMatch> = key.into_iter().map(KeyMatch::Exact).collect();
                let args = vec![Bits::new(9, u128::from(1 + random.below(200)))];
                let action = EntryAction::Call(ActionCall { action: random.below(2) as u32, args });
                if !there.iter().any(|e| e.key == key) {
                    let new = TableEntry { key, priority: 0, action, idle_timeout_ns: 0 };
                    engines.each(|state| state.insert(ACL, &new).expect("there is room"));
                    there.push(new);
                }
            }
            engines.recompile(Specialise::Contents);
            for i in 0..90 {
                let of = &there[random.below(there.len() as u64) as usize].key;
                let mut key: Vec<Bits> = of.iter().map(value_of).collect();
                if i % 3 == 0 {
                    // Flip one bit.
                    let field = random.below(key.len() as u64) as usize;
                    let bit = random.below(u64::from(key[field].width()));
                    key[field] = key[field].xor(&Bits::new(key[field].width(), 1).shl(bit));
                }
                let bits: u32 = fields.iter().map(|(width, _)| width).sum();
                let whole = bits.next_multiple_of(8);
                let frame = key
                    .iter()
                    .fold(Bits::zero(whole), |all, field| all.shl(u64::from(field.width())).or(&field.resize_u(whole)));
                let frame = frame.to_bytes_be();
                assert!(i % 3 == 0 || !engines.sent(&frame).is_empty(), "an entry is about it");
                engines.check(&frame, &format!("{fields:?}, {wanted} entries, packet {i}"));
            }
        }
    }
}

fn value_of(key: &KeyMatch) -> Bits {
    match key {
        KeyMatch::Exact(value) => value.clone(),
        other => panic!("{other:?} is not exact"),
    }
}
