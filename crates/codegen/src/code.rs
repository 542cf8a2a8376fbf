//! Ownership of machine code.
//!
//! [`Code`] owns the memory. The code is immutable, and addresses of functions are valid while it lives. Dropping it
//! frees the memory at once, so whoever shares it with workers must drop it only when none of them can be executing it.
#![allow(unsafe_code)]

use cranelift_jit::JITModule;
use cranelift_module::FuncId;
use mir::FunctionId;

/// Machine code of a module.
pub struct Code {
    /// `None` only during `drop`.
    module: Option<JITModule>,
    /// Addresses, by function.
    functions: Vec<usize>,
}

// SAFETY: the code is immutable; the module is only touched by `drop`, which has exclusive access. Nothing in it is
// bound to a thread.
unsafe impl Send for Code {}
// SAFETY: as above; shared access only reads addresses.
unsafe impl Sync for Code {}

impl Code {
    /// Takes a module whose `functions` are finalised.
    pub(crate) fn new(module: JITModule, functions: &[FuncId]) -> Code {
        let functions = functions.iter().map(|id| module.get_finalized_function(*id).expose_provenance()).collect();
        Code { module: Some(module), functions }
    }

    /// The address of a function. Calling it is unsafe: it has the signature of the [`mir::Function`] in the platform's
    /// C calling convention, and is valid while `self` lives.
    pub fn function(&self, id: FunctionId) -> *const u8 {
        std::ptr::with_exposed_provenance(self.functions[id.index()])
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Code").field("functions", &self.functions.len()).finish_non_exhaustive()
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            discard(module);
        }
    }
}

/// Frees the memory of code that is not being executed.
pub(crate) fn discard(module: JITModule) {
    // SAFETY: no address of the code is used any more: it was never given away, or its owner is being dropped.
    unsafe { module.free_memory() };
}
