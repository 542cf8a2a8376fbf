//! Calls of external functions without an implementation (`Op::Unresolved`): unresolved symbols of the generated code.
//!
//! Such code is generated only to check that it can be, and never linked: [`crate::compile`] refuses the program. Each
//! callee is an imported function `extern "C" fn(ctx, args, arg_words: u32, results, result_words: u32)`, where `args`
//! points to the words of the arguments and `results` to space for those of the results, as for digests.
//!
//! Tests: `tests/state.rs`.

use crate::Error;
use crate::translate::Translator;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, ExtFuncData, ExternalName, InstBuilder, Signature, UserExternalName};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Linkage, Module};
use ir::{Operand, Program, SlotId};
use std::collections::HashMap;

/// The imported functions by callee.
pub(crate) struct Symbols {
    by_callee: HashMap<String, FuncId>,
    signature: Signature,
}

impl Symbols {
    /// Declares the external functions that a program calls without an implementation.
    pub fn declare(program: &Program, module: &mut JITModule) -> Result<Symbols, Error> {
        let mut signature = Signature::new(module.isa().default_call_conv());
        signature.params = [I64, I64, I32, I64, I32].map(AbiParam::new).to_vec();
        let mut by_callee = HashMap::new();
        for callee in program.unresolved() {
            if !by_callee.contains_key(callee) {
                let id = module.declare_function(callee, Linkage::Import, &signature)?;
                by_callee.insert(callee.to_string(), id);
            }
        }
        Ok(Symbols { by_callee, signature })
    }
}

impl Translator<'_, '_> {
    /// A call of an external function without an implementation.
    pub fn unresolved(&mut self, callee: &str, args: &[Operand], results: &[SlotId]) {
        let id = self.symbols.by_callee[callee];
        let signature = self.b.import_signature(self.symbols.signature.clone());
        let name = self.b.func.declare_imported_user_function(UserExternalName { namespace: 0, index: id.as_u32() });
        let name = ExternalName::user(name);
        let function = self.b.import_function(ExtFuncData { name, signature, colocated: false, patchable: false });

        let words = |width: u32| width.div_ceil(64);
        let given: Vec<_> = args.iter().flat_map(|o| self.read_words(o)).collect();
        let result_words: u32 = results.iter().map(|s| words(self.program.width(*s))).sum();
        let first_result = 8 * given.len() as u32;
        let buffer = self.buffer_of(first_result + 8 * result_words);
        self.store_words(self.flags.stack, &given, buffer, 0);
        let result_buffer = self.b.ins().iadd_imm_u(buffer, i64::from(first_result));
        let (given, wanted) = (self.i32_const(given.len() as u32), self.i32_const(result_words));
        let ctx = self.context();
        self.b.ins().call(function, &[ctx, buffer, given, result_buffer, wanted]);
        let mut offset = first_result;
        for slot in results {
            let width = self.program.width(*slot);
            let value = self.load_val(self.flags.stack, width, buffer, offset);
            let value = self.mask_val(value, width);
            self.write_slot(*slot, &value);
            offset += 8 * words(width);
        }
    }
}
