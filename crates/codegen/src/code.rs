//! The memory of machine code.
//!
//! [`Code`] owns it. The code never changes; addresses of functions are valid while it lives. Dropping it frees the memory
//! at once, so whoever shares it with workers drops it when none of them can be in it.
#![allow(unsafe_code)]

use cranelift_jit::JITModule;
use cranelift_module::FuncId;
use mir::FunctionId;

/// Machine code of a module.
pub struct Code {
    /// `None` only while dropping.
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
    /// `functions` are finalised.
    pub(crate) fn new(module: JITModule, functions: &[FuncId]) -> Code {
        let functions = functions.iter().map(|id| module.get_finalized_function(*id).expose_provenance()).collect();
        Code { module: Some(module), functions }
    }

    /// Where the code of a function of the module begins. To call it is unsafe: as a function of its signature in the
    /// machine's C convention, while `self` lives.
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

/// Frees code that nobody runs.
pub(crate) fn discard(module: JITModule) {
    // SAFETY: no address of the code is used any more: it was never given away, or its owner is being dropped.
    unsafe { module.free_memory() };
}
