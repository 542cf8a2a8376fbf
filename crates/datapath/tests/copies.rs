//! Packets that the replication engine takes from one entry of the program to another, while code is compiled for the tables as
//! they are: whichever code writes a packet's record and whichever reads it, what comes out is the same.
//!
//! Random programs that clone, resubmit and recirculate are in `difftest`.

mod common;

use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use common::Engines;
use datapath::Specialise;
use datapath::replication::Replica;
use std::sync::Arc;

/// The first byte is looked up; all that is found goes to a group of ports with a label, which the copies carry in their second
/// byte. Once all entries agree in it, only what the copies' own way in reads of the record has it.
const PROGRAM: &str = r#"program "copies"
drops unknown
slot port: 9 metadata
slot spec: 9 metadata
slot group: 16 metadata
slot rid: 16 metadata
slot label: 8 metadata
slot h.k: 8 field h
slot h.label: 8 field h
slot h.$valid: 1 valid h
slot %ok: 1 temp
slot %h: 1 temp
slot %a: 32 temp
slot %e: 64 temp
slot %d: 64 temp
slot %r: 8 temp
slot %out: 32 temp
header h valid h.$valid {
  k = h.k
  label = h.label
}
action mark (label: 8)
action unknown ()
table t {
  key h.k: 8 exact
  action mark
  action unknown
  default 1 ()
  size 64
}
intrinsic egress_spec = spec
intrinsic multicast_group = group
intrinsic egress_rid = rid
intrinsic egress_port = port
entry ingress (p, c, e, d)
entry egress (e, d)
stage parser p {
b0:
  %ok = has_bits 32w16
  branch %ok, b1, b2
b1:
  extract h
  next
b2:
  drop unknown
}
stage control c {
b0:
  %h, %a, %e, %d = apply t (h.k)
  switch %a, 32w0 -> b1, default -> b2
b1:
  label = param t, 0, 0, %d
  group = mov 16w1
  replicate ingress_end
b2:
  spec = mov 9w7
  next
}
stage control e {
b0:
  %r = trunc rid
  h.label = add label, %r
  next
}
stage deparser d {
b0:
  emit h
  %out = zext port
  send %out
}
"#;

fn entry(key: u128, label: u128) -> TableEntry {
    let key = vec![KeyMatch::Exact(Bits::new(8, key))];
    let action = EntryAction::Call(ActionCall { action: 0, args: vec![Bits::new(8, label)] });
    TableEntry { key, priority: 0, action, idle_timeout_ns: 0 }
}

#[test]
fn copies_carry_what_the_code_of_their_ingress_knew() {
    let program = ir::parse(PROGRAM, base::FileId(0)).unwrap_or_else(|d| panic!("{d:#?}"));
    let mut engines = Engines::new(&Arc::new(program));
    engines.replicate(|replication| {
        let replicas = [(2, 10), (3, 20)].map(|(port, instance)| Replica { port, instance });
        replication.group_insert(1, replicas.to_vec()).expect("a new group");
    });
    let check = |engines: &mut Engines, what: &str| {
        for key in 0..8 {
            engines.check(&[key, 0xff], what);
        }
    };
    check(&mut engines, "no entries");
    for (key, label) in [(1, 40), (2, 40), (3, 50), (4, 60)] {
        engines.each(|state| state.insert(TableId(0), &entry(key, label)).expect("room"));
        check(&mut engines, "code of before");
        for mode in [Specialise::Constants, Specialise::Contents] {
            engines.recompile(mode);
            check(&mut engines, "code for this");
        }
    }
    let sent = engines.sent(&[2, 0xff]);
    let seen: Vec<(u32, u8)> = sent.iter().map(|sent| (sent.port, sent.bytes[1])).collect();
    assert_eq!(seen, [(2, 50), (3, 60)], "the label and the copy's number");
}
