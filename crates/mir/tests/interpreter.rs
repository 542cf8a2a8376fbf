//! The interpreter's memory accesses, control flow and faults.

use mir::{Fault, FunctionId, Memory, NoHost, Region, Regions, parse, verify};

const AT: u64 = 0x1000;

/// Runs the last function of a text on 16 bytes of each of three regions. Returns its result and the bytes of the
/// frame.
fn run(text: &str, args: &[u128]) -> (Result<Option<u128>, Fault>, Vec<u8>) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(verify(&module), []);
    let mut memory = Memory::default();
    for (i, region) in [Region::Frame, Region::Record, Region::Entry].into_iter().enumerate() {
        memory.add(AT + 0x100 * i as u64, region, (1..=16).collect());
    }
    let last = FunctionId(module.functions.len() as u32 - 1);
    let result = mir::run(&module, last, args, &mut memory, &mut NoHost, 1000);
    (result, memory.bytes(AT).expect("a piece").to_vec())
}

/// A function with one block.
fn block(body: &str) -> String {
    format!("function @f -> i64 any {{\n  slot s0 8 align 8\nb0(v0: i64):\n{body}\n}}\n")
}

#[test]
fn widths_and_byte_orders() {
    let loaded = |access: &str| run(&block(&format!("  v1 = load.i64 {access} v0+2\n  return v1")), &[AT.into()]).0;
    assert_eq!(loaded("le1 frame"), Ok(Some(0x03)));
    assert_eq!(loaded("be2 frame"), Ok(Some(0x0304)));
    assert_eq!(loaded("le3 frame"), Ok(Some(0x05_0403)));
    assert_eq!(loaded("be6 frame"), Ok(Some(0x0304_0506_0708)));
    assert_eq!(loaded("be8 frame|record"), Ok(Some(0x0304_0506_0708_090a)));
    let (_, frame) = run(&block("  store be3 frame v0+1, v0\n  return v0"), &[AT.into()]);
    assert_eq!(frame[..5], [1, 0, 0x10, 0, 5]);
}

#[test]
fn accesses_are_in_the_regions_that_they_name() {
    let fault = |address, bytes, regions: Regions| Err(Fault::Memory { address, bytes, regions });
    let load =
        |access: &str, at: u64| run(&block(&format!("  v1 = load.i64 {access} v0\n  return v1")), &[at.into()]).0;
    assert_eq!(load("le8 record", AT), fault(AT, 8, Region::Record.into()));
    assert_eq!(load("le8 frame", AT + 9), fault(AT + 9, 8, Region::Frame.into()));
    assert_eq!(load("le4 frame|record", AT + 0x100), Ok(Some(0x0403_0201)));
    assert_eq!(load("le1 frame", 0), fault(0, 1, Region::Frame.into()));
    // The verifier refuses an access that declares that it writes to entries; this one does not declare it.
    let text = block("  store le2 frame|record v0, v0\n  return v0");
    let entry = AT + 0x200;
    assert_eq!(run(&text, &[entry.into()]).0, fault(entry, 2, Region::Frame | Region::Record));
    // The memory after a slot is not mapped.
    let text = block("  v1 = address s0\n  store le8 stack v1+1, v0\n  return v0");
    assert!(matches!(run(&text, &[0]).0, Err(Fault::Memory { bytes: 8, .. })));
}

#[test]
fn parameters_change_at_once() {
    let text = "function @f -> i64 {
b0(v0: i64, v1: i64):
  v2 = const.i8 3
  jump b1(v0, v1, v2)
b1(v3: i64, v4: i64, v5: i8):
  v6 = const.i8 1
  v7 = sub.i8 v5, v6
  switch v7, 0: b2, else b1(v4, v3, v7)
b2:
  v8 = const.i64 10
  v9 = mul.i64 v3, v8
  v10 = add.i64 v9, v4
  return v10
}";
    assert_eq!(run(text, &[1, 2]).0, Ok(Some(12)));
}

#[test]
fn runs_end() {
    let circle = "function @f {\nb0:\n  jump b1\nb1:\n  jump b1\n}\n";
    assert_eq!(run(circle, &[]).0, Err(Fault::Fuel));
    let deep = "function @f any {\nb0:\n  call @f()\n  return\n}\n";
    assert_eq!(run(deep, &[]).0, Err(Fault::Depth(mir::DEPTH_MAX)));
    let trap = "function @f {\nb0:\n  unreachable\n}\n";
    assert_eq!(run(trap, &[]).0, Err(Fault::Unreachable("f".to_string())));
}

#[test]
fn locks() {
    let text = block(
        "  v1 = const.i8 1
  v2 = const.i8 9
  v3 = atomic.cas.i8 frame v0, v1, v2
  v4 = atomic.cas.i8 frame v0, v1, v1
  atomic.store frame v0+1, v4
  v5 = pack.i64 v3:8 at 8, v4:8 at 0
  return v5",
    );
    let (result, frame) = run(&text, &[AT.into()]);
    assert_eq!((result, &frame[..3]), (Ok(Some(0x0109)), &[9, 9, 3][..]));
}
