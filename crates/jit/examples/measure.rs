//! `measure X.p4 [clif|asm ENTRY]`: how long compiling a program takes, phase by phase, how large its code is, and what
//! the code looks like. The code is made for tables without entries and is never run.

use abi::{
    Bindings, EngineKind, EntryHeader, EntryLayout, EntryParts, ExternBinding, KeyLayout, RuntimeCalls, TableBinding,
    TableHandle,
};
use base::entry::MatchKind;
use ir::{EntryKind, ExternKind, Program};
use std::error::Error;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

extern "C" fn meter(_: *const abi::WorkerCtx, _: u32, _: u64, _: u32) -> u32 {
    0
}
extern "C" fn hash(_: *const abi::WorkerCtx, _: u32, _: *const u8, _: u32, _: *const u8, _: u32) -> u64 {
    0
}
extern "C" fn random(_: *const abi::WorkerCtx, low: u64, _: u64) -> u64 {
    low
}
extern "C" fn words(_: *const abi::WorkerCtx, _: u32, _: *const u64, _: u32) {}
extern "C" fn assert_failed(_: *const abi::WorkerCtx, _: u32) {}
extern "C" fn wide_bin(_: u32, _: u32, _: *mut u64, _: *const u64, _: *const u64) {}
extern "C" fn make_headroom(_: *const abi::WorkerCtx, _: *mut abi::PacketDesc, _: u32) -> bool {
    false
}
extern "C" fn lookup(_: *const TableHandle, _: *const u8) -> *const EntryHeader {
    null_mut()
}
extern "C" fn lookup_batch(_: *const TableHandle, _: *const u8, _: u32, _: *mut *const EntryHeader) {}

fn bindings(program: &Program) -> Bindings {
    let tables = program.tables.iter().map(|t| {
        let key = KeyLayout::new(t.keys.iter().map(|k| (k.width, k.kind)));
        let exact = t.keys.iter().all(|k| k.kind == MatchKind::Exact);
        let widths = |a: &ir::TableAction| program.actions[a.action.index()].params.iter().map(|p| p.1).collect();
        let widths: Vec<Vec<u32>> = t.actions.iter().map(widths).collect();
        TableBinding {
            handle: Box::leak(Box::new(TableHandle {
                snapshot: AtomicPtr::new(null_mut()),
                default_entry: AtomicPtr::new(null_mut()),
            })),
            engine: match t.keys.as_slice() {
                [] => EngineKind::Empty,
                [only] if exact && only.width <= 16 => EngineKind::DirectIndex,
                _ if exact && key.bytes <= tables::exact::MAX_KEY_BYTES => EngineKind::ExactInline,
                _ => EngineKind::Opaque,
            },
            key,
            lookup,
            lookup_batch,
            select: None,
            entry: EntryLayout::new(
                &widths,
                EntryParts { last_hit: t.idle_timeout, index: true, ..EntryParts::default() },
            ),
            footprint_bytes: 0,
        }
    });
    let externs = program.externs.iter().map(|e| match e.kind {
        ExternKind::Counter { size, .. } => ExternBinding::Counter { size },
        ExternKind::Meter { size, .. } => ExternBinding::Meter { size },
        ExternKind::Register { size, width, .. } => ExternBinding::Register { cells: null_mut(), size, width },
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
    let calls = RuntimeCalls { meter, hash, random, digest: words, log: words, assert_failed, wide_bin, make_headroom };
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
