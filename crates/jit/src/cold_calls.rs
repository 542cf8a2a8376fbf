//! Calls on cold paths that cost the hot paths nothing.
//!
//! A call may clobber half of the registers, so every value that is live across one is kept in the other half or
//! spilled, on all paths, also on those that never call. Digests, log lines, assertions and making headroom are such
//! calls. They go through a *cold call*: a trampoline that saves every register it changes (Cranelift's `preserve_all`
//! calling convention), generated once per compilation and kind of call. For the caller no register changes. The
//! convention has no results, so a result is returned through memory.
//!
//! Packets' changes of tables are cold calls too, and so are lookups in the few cases that inline code does not answer.
//! What is called for every packet (other engines, hashes, meters) is called directly: a cold call saves and restores
//! two dozen registers.
//!
//! In programs of many tables, digests, log lines and assertions are called directly all the same: there the register
//! allocator does worse with registers that are free across calls than with clobbered ones (`l2l3acl` with tiny tables:
//! 20.4 cycles with cold calls, 19.1 without).
//!
//! Tests: `tests/state.rs`, `tests/packets.rs`.

use crate::Error;
use crate::translate::Translator;
use abi::{PacketDesc, TableBinding};
use cranelift_codegen::Context;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, FuncRef, InstBuilder, MemFlagsData, Signature, StackSlotData, StackSlotKind,
    Type, UserExternalName, UserFuncName, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Linkage, Module};
use std::cell::Cell;
use std::mem::offset_of;

/// The signatures of cold calls: arguments and result. They are those of `abi::RuntimeCalls` on cold paths, and of
/// lookups on cold paths.
const KINDS: [(&[Type], Option<Type>); 7] = [
    (&[I64, I64, I32, I64, I32], None),
    (&[I64, I64, I32], None),
    (&[I64, I64, I32], Some(I8)),
    (&[I64, I64, I64, I32, I32, I64], Some(I32)),
    (&[I64, I64, I32, I64], None),
    (&[I64, I64], None),
    (&[I64, I64], Some(I64)),
];
/// The last kind: a lookup, of a handle and the address of a one-word key. The trampoline takes the key itself and
/// stores it in its own frame: an address in the caller's frame would be a value that the whole loop carries.
const LOOKUP: usize = KINDS.len() - 1;
/// The kind that waits for the lock of a register's cell.
const LOCK: usize = LOOKUP - 1;
/// The kind that makes headroom. Kinds before it are digests, log lines and assertions; kinds after it are entries that
/// packets add.
const HEADROOM: usize = 2;

/// The cold calls of one compilation.
pub(crate) struct ColdCalls {
    cold_calls: Vec<ColdCall>,
    inner: CallConv,
}

struct ColdCall {
    id: FuncId,
    is_used: Cell<bool>,
}

fn signature(call_conv: CallConv, params: &[Type], result: Option<Type>) -> Signature {
    let mut signature = Signature::new(call_conv);
    signature.params = params.iter().copied().map(AbiParam::new).collect();
    signature.returns = result.into_iter().map(AbiParam::new).collect();
    signature
}

/// The signature of a trampoline: the callee's address, the arguments, and the address for the result if there is one.
fn outer(params: &[Type], result: Option<Type>) -> Signature {
    let place = result.map(|_| I64);
    let params: Vec<Type> = [I64].into_iter().chain(params.iter().copied()).chain(place).collect();
    signature(CallConv::PreserveAll, &params, None)
}

impl ColdCalls {
    /// Declares the trampolines; none on targets whose calling convention Cranelift lacks.
    pub fn declare(module: &mut JITModule) -> Result<ColdCalls, Error> {
        let inner = module.isa().default_call_conv();
        let mut cold_calls = Vec::new();
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            for (i, (params, result)) in KINDS.iter().enumerate() {
                let id = module.declare_function(&format!("cold_call{i}"), Linkage::Local, &outer(params, *result))?;
                cold_calls.push(ColdCall { id, is_used: Cell::new(false) });
            }
        }
        Ok(ColdCalls { cold_calls, inner })
    }

    /// Generates the trampolines that were used and passes each to `define`.
    pub fn define(
        &self,
        module: &mut JITModule,
        context: &mut Context,
        mut define: impl FnMut(&mut JITModule, FuncId, &mut Context) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut builder_context = FunctionBuilderContext::new();
        for (i, (cold_call, (params, result))) in
            self.cold_calls.iter().zip(KINDS).enumerate().filter(|(_, (cold_call, _))| cold_call.is_used.get())
        {
            context.func.signature = outer(params, result);
            context.func.name = UserFuncName::user(0, cold_call.id.as_u32());
            let mut b = FunctionBuilder::new(&mut context.func, &mut builder_context);
            let start = b.create_block();
            b.append_block_params_for_function_params(start);
            b.switch_to_block(start);
            b.seal_block(start);
            let values = b.block_params(start).to_vec();
            let mut args = values[1..=params.len()].to_vec();
            if i == LOOKUP {
                let slot = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3));
                let key = b.ins().stack_addr(I64, slot, 0);
                b.ins().store(MemFlagsData::trusted(), args[1], key, 0);
                args[1] = key;
            }
            let inner = b.import_signature(signature(self.inner, params, result));
            let call = b.ins().call_indirect(inner, values[0], &args);
            if let Some(&result) = b.inst_results(call).first() {
                let place = *values.last().expect("a place for the result");
                b.ins().store(MemFlagsData::trusted(), result, place, 0);
            }
            b.ins().return_(&[]);
            b.finalize(module.isa().frontend_config());
            define(module, cold_call.id, context)?;
            module.clear_context(context);
        }
        Ok(())
    }
}

impl Translator<'_, '_> {
    /// As [`Translator::call`], on a cold path.
    pub fn call_on_cold_path(&mut self, address: usize, args: &[Value], result: Option<Type>) -> Option<Value> {
        let types: Vec<Type> = args.iter().map(|&a| self.b.func.dfg.value_type(a)).collect();
        let kind = KINDS.iter().position(|(params, r)| *params == types && *r == result);
        debug_assert!(
            kind.is_some_and(|kind| kind < LOOKUP),
            "there is a cold call for each kind of call that is seldom made"
        );
        let cold_calls = self.cold_calls;
        let Some((kind, cold_call)) = kind
            .filter(|kind| *kind == HEADROOM || *kind == LOCK || !self.are_tables_many())
            .and_then(|kind| Some((kind, cold_calls.cold_calls.get(kind)?)))
        else {
            return self.call(address, args, result);
        };
        let place = result.map(|_| {
            let slot = self.stack_slot(8);
            self.stack_addr(slot)
        });
        self.call_cold(kind, cold_call, address, args, place);
        Some(self.b.ins().load(result?, self.flags.stack, place?, 0))
    }

    /// Looks up a one-word key on a cold path.
    pub fn lookup_on_cold_path(&mut self, binding: &TableBinding, key: Value) -> Value {
        let (address, cold_calls) = (binding.lookup as usize, self.cold_calls);
        let handle = self.address(binding.handle as u64);
        // With `check_bounds` packets end without a fate of their own.
        let Some(cold_call) = cold_calls.cold_calls.get(LOOKUP).filter(|_| !self.options.check_bounds) else {
            let buffer = self.buffer_of(8);
            self.store_words(self.flags.stack, &[key], buffer, 0);
            return self.call(address, &[handle, buffer], Some(I64)).expect("the call has a result");
        };
        // The fate is written when the packet ends; until then its place in the descriptor receives the result.
        const { assert!(offset_of!(PacketDesc, fate_arg) == offset_of!(PacketDesc, fate) + 4) };
        let packet = self.reload_packet();
        let place = self.add_imm(packet, offset_of!(PacketDesc, fate) as u64);
        self.call_cold(LOOKUP, cold_call, address, &[handle, key], Some(place));
        self.b.ins().load(I64, self.flags.desc, place, 0)
    }

    fn call_cold(&mut self, kind: usize, cold_call: &ColdCall, address: usize, args: &[Value], place: Option<Value>) {
        cold_call.is_used.set(true);
        let function = match self.cold_calls_here[kind] {
            Some(function) => function,
            None => {
                let function = self.import_cold_call(cold_call.id, kind);
                *self.cold_calls_here[kind].insert(function)
            }
        };
        self.store_call_site();
        let callee = self.address(address as u64);
        let args: Vec<Value> = [callee].into_iter().chain(args.iter().copied()).chain(place).collect();
        self.b.ins().call(function, &args);
    }

    fn import_cold_call(&mut self, id: FuncId, kind: usize) -> FuncRef {
        let (params, result) = KINDS[kind];
        let signature = self.b.import_signature(outer(params, result));
        let name = self.b.func.declare_imported_user_function(UserExternalName { namespace: 0, index: id.as_u32() });
        let name = ExternalName::user(name);
        self.b.import_function(ExtFuncData { name, signature, colocated: true, patchable: false })
    }
}

/// The trampolines that a function has imported, by kind.
pub(crate) type ColdCallsHere = [Option<FuncRef>; KINDS.len()];
