//! `measure X.p4 [clif|asm ENTRY]`: the time that compiling a program takes, by phase, the size of its code, and the
//! code itself. The code is specialised for empty tables and is never run.

use abi::{Bindings, ExternBinding, RuntimeCalls};
use ir::{EntryKind, ExternKind, Program};
use std::error::Error;
use std::path::Path;
use std::ptr::null_mut;
use tables::{Domain, Runs, Table, TableSpec};

extern "C" fn meter(_: *const abi::WorkerCtx, _: u32, _: u64, _: u32, _: u32) -> u32 {
    0
}
extern "C" fn hash(_: *const abi::WorkerCtx, _: u32, _: *const u8, _: u32, _: *const u8, _: u32) -> u64 {
    0
}
extern "C" fn random(_: *const abi::WorkerCtx, low: u64, _: u64) -> u64 {
    low
}
extern "C" fn words(_: *const abi::WorkerCtx, _: *const abi::PacketDesc, _: u32, _: *const u64, _: u32) {}
extern "C" fn assert_failed(_: *const abi::WorkerCtx, _: *const abi::PacketDesc, _: u32) {}
extern "C" fn wide_bin(_: u32, _: u32, _: *mut u64, _: *const u64, _: *const u64) {}
extern "C" fn wait_for_lock(_: *const abi::WorkerCtx, _: *const u8) {}
extern "C" fn make_headroom(_: *const abi::WorkerCtx, _: *mut abi::PacketDesc, _: u32) -> bool {
    false
}
fn bindings(program: &Program) -> Bindings {
    let tables = program.tables.iter().map(|t| {
        let widths = |a: &ir::TableAction| program.actions[a.action.index()].params.iter().map(|p| p.1).collect();
        let spec = TableSpec {
            keys: t.keys.iter().map(|k| (k.width, k.kind)).collect(),
            size: t.size,
            actions: t.actions.iter().map(widths).collect(),
            members: t.implementation.is_some(),
            selector: t.implementation.is_some(),
            idle_timeout: t.idle_timeout,
            direct: !t.direct.is_empty(),
        };
        let table = Table::new(spec, Runs::Call(&t.default_action), Domain::new(1)).expect("a possible table");
        // The code holds its address.
        Box::leak(Box::new(table)).binding()
    });
    let externs = program.externs.iter().map(|e| match e.kind {
        ExternKind::Counter { size, .. } => ExternBinding::Counter { size },
        ExternKind::Meter { size, .. } => ExternBinding::Meter { size, cells: std::ptr::null(), stride_bytes: 64 },
        ExternKind::Register { size, width, .. } => ExternBinding::Register {
            cells: null_mut(),
            size,
            width,
            footprint_bytes: 0,
            lock_rank: None,
            is_stepped: false,
        },
        _ => ExternBinding::None,
    });
    Bindings { tables: tables.collect(), externs: externs.collect() }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let path = args.get(1).ok_or("usage: measure X.p4 [clif|asm ENTRY]")?;
    let input = frontend::Input::File(Path::new(path));
    let compiled = frontend::compile(input, &frontend::Options::default(), frontend::Until::Ir)?;
    let Some(program) = compiled.optimised else { return Err(compiled.render(false).into()) };
    let calls = RuntimeCalls {
        meter,
        hash,
        random,
        digest: words,
        log: words,
        assert_failed,
        wide_bin,
        make_headroom,
        wait_for_lock,
    };
    let text = args.len() > 2;
    let options = jit::Options { keep_text: text, verify: false, ..jit::Options::default() };
    let pipeline = jit::compile(&program, &bindings(&program), &calls, &options)?;
    if let [_, _, form, entry] = args.as_slice() {
        let kind = EntryKind::ALL.into_iter().find(|k| k.name() == entry).ok_or("no such entry")?;
        let shown = if form == "clif" { pipeline.clif(kind) } else { pipeline.asm(kind) };
        println!("{}", shown.ok_or("the program has no such entry")?);
        return Ok(());
    }
    let insts: usize = program.stages.iter().flat_map(|s| &s.blocks).map(|b| b.insts.len() + 1).sum();
    let timing = pipeline.timing();
    println!("{} slots, {} instructions, {} bytes of code", program.slots.len(), insts, pipeline.code_size());
    for kind in EntryKind::ALL {
        if let (Some(insts), Some((_, bytes))) = (pipeline.instructions(kind), pipeline.code_range(kind)) {
            println!("{}: {insts} Cranelift instructions, {bytes} bytes", kind.name());
        }
    }
    println!("analysis {:?}, translation {:?}", timing.analysis, timing.translation);
    println!("codegen {:?}, linking {:?}, total {:?}", timing.codegen, timing.linking, timing.total());
    Ok(())
}
