//! Longest prefix match in compiled code against the interpreter, while prefixes of every length come, change and go; in generic
//! code and in code that was compiled again, run to completion and staged; and beyond what is kept spread out.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use common::Engines;
use datapath::Specialise;
use std::sync::Arc;
use tables::workload::Random;

/// A frame's first bits are looked up in a table of prefixes, which says the port it leaves by, or drops it.
fn program(width: u32, size: u64) -> Arc<ir::Program> {
    let rest = 32 - width;
    let (slot, field) =
        if rest > 0 { (format!("slot h.rest: {rest} field h\n"), "  rest = h.rest\n") } else { (String::new(), "") };
    let text = format!(
        r#"program "routes"
drops short, unknown
slot port: 9 metadata
slot out: 9 metadata
slot h.k: {width} field h
{slot}slot h.$valid: 1 valid h
slot %ok: 1 temp
slot %h: 1 temp
slot %a: 32 temp
slot %e: 64 temp
slot %d: 64 temp
header h valid h.$valid {{
  k = h.k
{field}}}
action forward (port: 9)
action unknown ()
table route {{
  key h.k: {width} lpm
  action forward
  action unknown
  default 1 ()
  size {size}
}}
intrinsic ingress_port = port
entry ingress (p, c)
stage parser p {{
b0:
  %ok = has_bits 32w32
  branch %ok, b1, b2
b1:
  extract h
  next
b2:
  drop short
}}
stage control c {{
b0:
  %h, %a, %e, %d = apply route (h.k)
  switch %a, 32w0 -> b1, default -> b2
b1:
  out = param route, 0, 0, %d
  send out
b2:
  drop unknown
}}
"#
    );
    Arc::new(ir::parse(&text, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}")))
}

const ROUTE: TableId = TableId(0);

fn route(width: u32, value: u32, prefix_len: u32, port: u32) -> TableEntry {
    let key = vec![KeyMatch::Lpm { value: Bits::new(width, value.into()), prefix_len }];
    let action = EntryAction::Call(ActionCall { action: 0, args: vec![Bits::new(9, port.into())] });
    TableEntry { key, priority: 0, action, idle_timeout_ns: 0 }
}

/// A prefix that meets others: its bits come from few values at each octet.
fn prefix(random: &mut Random, width: u32) -> (u32, u32) {
    let len = random.below(u64::from(width) + 1) as u32;
    let value = address(random);
    let kept = u32::MAX.checked_shl(32 - len).unwrap_or(0);
    ((value & kept) >> (32 - width), len)
}

/// 32 bits, left-aligned.
fn address(random: &mut Random) -> u32 {
    let octet = |random: &mut Random| [0, 1, 10, 127, 128, 255][random.below(6) as usize];
    u32::from_be_bytes([octet(random), octet(random), octet(random), random.next() as u8])
}

#[test]
fn every_change_of_prefixes_is_what_all_code_sees() {
    for (seed, width) in [(1, 32), (2, 32), (3, 24), (4, 17), (5, 9)] {
        let mut random = Random(seed);
        let mut engines = Engines::new(&program(width, 1024));
        let mut there: Vec<(u32, u32)> = Vec::new();
        for step in 0..500u32 {
            if step % 50 == 0 {
                // Not the contents: they would be compared one by one while they are few.
                engines.recompile(Specialise::Constants);
            }
            let new = prefix(&mut random, width);
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
                let address = address(&mut random);
                engines.check(&address.to_be_bytes(), &format!("seed {seed}, width {width}, step {step}"));
            }
            if let Some((value, _)) = there.get(random.below(1 + there.len() as u64) as usize) {
                engines
                    .check(&(value << (32 - width)).to_be_bytes(), &format!("seed {seed}, width {width}, step {step}"));
            }
        }
    }
}
