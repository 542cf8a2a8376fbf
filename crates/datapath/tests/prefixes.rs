//! Longest prefix match in compiled code against the interpreter, while prefixes of every length are added, changed
//! and removed; in generic and recompiled code, run to completion and staged; and beyond the size that DIR tables
//! hold.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use common::Engines;
use datapath::Specialise;
use random::Random;
use std::sync::Arc;

/// A program that looks a frame's first bits up in a table of prefixes, which gives the egress port or drops the
/// frame.
fn program(width: u32, size: u64) -> Arc<ir::Program> {
    let fields = [("k", width), ("rest", 32 - width)];
    let tables = format!(
        "action forward (port: 9)
action unknown ()
table route {{
  key h.k: {width} lpm
  action forward
  action unknown
  default 1 ()
  size {size}
}}
"
    );
    let control = "b0:
  %h0, %a0, %e0, %d0 = apply route (h.k)
  switch %a0, 32w0 -> b1, default -> b2
b1:
  out = param route, 0, 0, %d0
  send out
b2:
  drop unknown
";
    common::matching(&fields[..if width < 32 { 2 } else { 1 }], 1, &tables, control)
}

const ROUTE: TableId = TableId(0);

fn route(width: u32, value: u32, prefix_len: u32, port: u32) -> TableEntry {
    let key = vec![KeyMatch::Lpm { value: Bits::new(width, value.into()), prefix_len }];
    let action = EntryAction::Call(ActionCall { action: 0, args: vec![Bits::new(9, port.into())] });
    TableEntry { key, priority: 0, action, idle_timeout_ns: 0 }
}

/// A prefix that overlaps others: its octets come from few values, and it has at least `least` bits.
fn prefix(random: &mut Random, width: u32, least: u32) -> (u32, u32) {
    let len = least + random.below(u64::from(width + 1 - least)) as u32;
    let value = address(random, least);
    let kept = u32::MAX.checked_shl(32 - len).unwrap_or(0);
    ((value & kept) >> (32 - width), len)
}

/// A 32-bit, left-aligned address; from fewer values where prefixes are long, so that many fall into one block.
fn address(random: &mut Random, least: u32) -> u32 {
    let values = if least > 0 { 2 } else { 6 };
    let octet = |random: &mut Random| [0, 1, 10, 127, 128, 255][random.below(values) as usize];
    u32::from_be_bytes([octet(random), octet(random), octet(random), random.next_u64() as u8])
}

#[test]
fn every_change_of_prefixes_is_what_all_code_sees() {
    for (seed, width, least) in [(1, 32, 0), (2, 32, 0), (3, 24, 0), (4, 17, 0), (5, 9, 0), (6, 32, 22)] {
        let mut random = Random::new(seed);
        let mut engines = Engines::new(&program(width, 1024));
        let mut there: Vec<(u32, u32)> = Vec::new();
        for step in 0..500u32 {
            if step % 50 == 0 {
                // Not with contents: a few entries would be compared one by one.
                engines.recompile(Specialise::Constants);
            }
            let new = prefix(&mut random, width, least);
            let port = 1 + step % 200;
            match random.below(3) {
                0 if !there.is_empty() => {
                    let (value, len) = there.swap_remove(random.below(there.len() as u64) as usize);
                    let key = route(width, value, len, 0).key;
                    engines.each(|state| state.delete(ROUTE, &key, 0).expect("it is there"));
                }
                1 if !there.is_empty() => {
                    let (value, len) = there[random.below(there.len() as u64) as usize];
                    let entry = route(width, value, len, port);
                    engines.each(|state| state.modify(ROUTE, &entry).expect("it is there"));
                }
                _ if !there.contains(&new) => {
                    there.push(new);
                    let entry = route(width, new.0, new.1, port);
                    engines.each(|state| state.insert(ROUTE, &entry).expect("there is room"));
                }
                _ => {}
            }
            for _ in 0..6 {
                let address = address(&mut random, least);
                engines.check(&address.to_be_bytes(), &format!("seed {seed}, width {width}, step {step}"));
            }
            if let Some((value, _)) = there.get(random.below(1 + there.len() as u64) as usize) {
                engines
                    .check(&(value << (32 - width)).to_be_bytes(), &format!("seed {seed}, width {width}, step {step}"));
            }
        }
    }
}
