//! Code generation: machine-level IR to machine code.
//!
//! [`compile`] translates each [`mir::Function`] to a function of machine code, instruction by instruction, and never
//! reads the result back. Optimisations that use knowledge of memory regions, tables or packets are passes of `mir`.
//! Cranelift selects instructions, allocates registers and optimises what needs no such knowledge.
//!
//! - `lower`: functions, blocks, terminators; `operations`: instructions; `access`: loads, stores, atomic operations,
//!   with the regions of `flags`.
//! - `prefetch`: the one instruction that Cranelift lacks.
//! - `code` owns the memory of machine code.
//!
//! A function is `extern "C"` on the machine, with integer parameters and results; an `i1` takes one byte. The code
//! trusts its module, which must have passed the verifier, and callers, which must pass addresses of memory that the
//! module may access.
//!
//! Tests: `tests/compiled.rs` runs generated modules and compares results and memory with the interpreter's.

mod access;
mod code;
mod flags;
mod lower;
mod operations;
mod prefetch;

pub use code::Code;

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{self as clif, AbiParam, Signature, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc};
use mir::{Function, Type};

/// The reason why compilation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Cranelift does not support this machine.
    #[error("no code is made for this machine: {0}")]
    Machine(String),
    /// A function that cannot be called from outside, or a bug in this crate.
    #[error("code generation: {0}")]
    Codegen(String),
}

/// Options of the compilation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Largest number of instructions of a function that Cranelift optimises. Larger ones compile in time proportional
    /// to their number of instructions.
    pub thorough_instructions_max: usize,
    /// Whether Cranelift's verifier checks its input.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { thorough_instructions_max: 16_384, verify: cfg!(debug_assertions) }
    }
}

/// Compiles a module's functions.
///
/// # Errors
///
/// [`Error::Machine`] on machines that Cranelift does not support; [`Error::Codegen`] if code generation fails.
pub fn compile(module: &mir::Module, options: &Options) -> Result<Code, Error> {
    compile_listed(module, options, None)
}

/// The assembly text of a module's functions, by function.
///
/// # Errors
///
/// As [`compile`].
pub fn assembly(module: &mir::Module, options: &Options) -> Result<Vec<String>, Error> {
    let mut texts = Vec::new();
    compile_listed(module, options, Some(&mut texts))?;
    Ok(texts)
}

fn compile_listed(module: &mir::Module, options: &Options, texts: Option<&mut Vec<String>>) -> Result<Code, Error> {
    let [thorough, linear] =
        [("speed", "backtracking"), ("none", "single_pass")].map(|effort| machine(effort, options.verify));
    let (thorough, linear) = (thorough?, linear?);
    let mut code = JITModule::new(JITBuilder::with_isa(thorough, cranelift_module::default_libcall_names()));
    match define_all(module, &mut code, &linear, options, texts) {
        Ok(functions) => Ok(Code::new(code, &functions)),
        Err(error) => {
            code::discard(code);
            Err(error)
        }
    }
}

fn machine((level, allocator): (&str, &str), verify: bool) -> Result<OwnedTargetIsa, Error> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", level),
        ("regalloc_algorithm", allocator),
        ("enable_verifier", if verify { "true" } else { "false" }),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        // A frame may be larger than the stack's guard page.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        // Profilers unwind through compiled code.
        ("preserve_frame_pointers", "true"),
    ] {
        flags.set(name, value).map_err(|e| Error::Codegen(e.to_string()))?;
    }
    let isa = cranelift_native::builder().map_err(|e| Error::Machine(e.to_string()))?;
    isa.finish(settings::Flags::new(flags)).map_err(|e| Error::Machine(e.to_string()))
}

/// The Cranelift type of an integer.
fn type_of(ty: Type) -> clif::Type {
    match ty {
        Type::I1 | Type::I8 => clif::types::I8,
        Type::I16 => clif::types::I16,
        Type::I32 => clif::types::I32,
        Type::I64 | Type::Probe(_) => clif::types::I64,
        Type::I128 => clif::types::I128,
    }
}

fn signature(code: &JITModule, function: &Function) -> Result<Signature, Error> {
    let mut signature = Signature::new(code.isa().default_call_conv());
    let passed = |ty: Type| match ty.bits() {
        1..=64 => Ok(AbiParam::new(type_of(ty))),
        _ => Err(Error::Codegen(format!("function `{}` passes a value of type {ty}", function.name))),
    };
    for param in function.params() {
        signature.params.push(passed(function.type_of(*param))?);
    }
    if let Some(result) = function.result {
        signature.returns.push(passed(result)?);
    }
    Ok(signature)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Codegen(error.to_string())
}

fn define_all(
    module: &mir::Module,
    code: &mut JITModule,
    linear: &OwnedTargetIsa,
    options: &Options,
    mut texts: Option<&mut Vec<String>>,
) -> Result<Vec<FuncId>, Error> {
    let mut ids = Vec::new();
    for (number, function) in module.functions.iter().enumerate() {
        let (name, signature) = (format!("{number}:{}", function.name), signature(code, function)?);
        ids.push(code.declare_function(&name, Linkage::Local, &signature).map_err(failed)?);
    }
    let mut context = code.make_context();
    let mut builder_context = FunctionBuilderContext::new();
    for (function, id) in module.functions.iter().zip(&ids) {
        context.func.signature = signature(code, function)?;
        context.func.name = UserFuncName::user(0, id.as_u32());
        let frontend = code.isa().frontend_config();
        let builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
        lower::function(module, function, &ids, code, builder, frontend);
        context.set_disasm(texts.is_some());
        let mut control = ControlPlane::default();
        let thorough = function.instructions() <= options.thorough_instructions_max;
        let isa = if thorough { code.isa() } else { &**linear };
        context.compile(isa, &mut control).map_err(|e| Error::Codegen(format!("{}: {:?}", function.name, e.inner)))?;
        let compiled = context.compiled_code().expect("just compiled");
        if let Some(texts) = &mut texts {
            texts.push(compiled.vcode.clone().unwrap_or_default());
        }
        let alignment = u64::from(compiled.buffer.alignment);
        let relocs = compiled.buffer.relocs().iter();
        let relocs: Vec<ModuleReloc> =
            relocs.map(|reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, *id)).collect();
        let mut bytes = compiled.code_buffer().to_vec();
        prefetch::patch(&mut bytes, compiled.buffer.traps())?;
        code.define_function_bytes(*id, alignment, &bytes, &relocs).map_err(failed)?;
        code.clear_context(&mut context);
    }
    code.finalize_definitions().map_err(failed)?;
    Ok(ids)
}
