//! Addresses that the code uses: tables' handles and engines, registers, runtime functions.
//!
//! They are known when code is generated and do not change while it runs, so they are constants of the code. Code
//! without [`Optimisation::BakedAddresses`] loads them from a list at each use instead, as code would that was compiled
//! before its tables existed.

use crate::translate::Translator;
use crate::{Optimisation, Options};
use abi::{Bindings, ExternBinding, RuntimeCalls};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};

/// Most addresses that are kept in registers.
const BASES_MAX: usize = 3;

/// The list; empty when addresses are constants. It lives as long as the code.
pub(crate) struct Addresses(Box<[u64]>);

impl Addresses {
    pub fn new(bindings: &Bindings, runtime: &RuntimeCalls, options: &Options) -> Addresses {
        let mut list = Vec::new();
        if !options.has(Optimisation::BakedAddresses) {
            for table in &bindings.tables {
                list.extend([table.handle as u64, table.lookup as usize as u64]);
                list.extend(table.select.map(|select| select as usize as u64));
                if let Some(dynamic) = &table.dynamic {
                    let calls = [dynamic.add as usize, dynamic.replace as usize, dynamic.set_expire as usize];
                    list.extend(calls.map(|call| call as u64));
                }
            }
            list.extend(bindings.externs.iter().filter_map(|e| match e {
                ExternBinding::Register { cells, .. } => Some(*cells as u64),
                _ => None,
            }));
            let RuntimeCalls {
                meter,
                hash,
                random,
                digest,
                log,
                assert_failed,
                wide_bin,
                make_headroom,
                wait_for_lock,
            } = *runtime;
            let calls = [
                meter as usize,
                hash as usize,
                random as usize,
                digest as usize,
                log as usize,
                assert_failed as usize,
                wide_bin as usize,
                make_headroom as usize,
                wait_for_lock as usize,
            ];
            list.extend(calls.map(|call| call as u64));
            list.sort_unstable();
            list.dedup();
        }
        Addresses(list.into_boxed_slice())
    }
}

impl Translator<'_, '_> {
    /// An address that is constant while the code runs.
    pub fn address(&mut self, address: u64) -> Value {
        match self.addresses.0.binary_search(&address) {
            Ok(at) => {
                let list = self.iconst(self.addresses.0.as_ptr() as u64);
                self.b.ins().load(I64, self.flags.state, list, 8 * at as i32)
            }
            Err(_) => self.iconst(address),
        }
    }

    /// The constant address of memory that packets on this path read. If few tables compete for registers, it is kept
    /// in one from the function's start on: a 64-bit constant takes an instruction at each use.
    pub fn base(&mut self, address: u64) -> Value {
        let block = self.b.current_block().expect("an operation is being translated");
        if self.is_cold || self.b.func.layout.is_cold(block) || self.plan.is_staged() || self.are_tables_many() {
            return self.iconst(address);
        }
        if let Some((_, value)) = self.bases.iter().find(|(known, _)| *known == address) {
            return *value;
        }
        if self.bases.len() == BASES_MAX {
            return self.iconst(address);
        }
        let start = self.b.func.layout.entry_block().expect("the function has begun");
        let mut first = FuncCursor::new(self.b.func).at_first_insertion_point(start);
        let constant = first.ins().iconst(I64, address as i64);
        // An instruction with two results is not rematerialised at its uses.
        let pair = first.ins().iconcat(constant, constant);
        let (value, _) = first.ins().isplit(pair);
        self.bases.push((address, value));
        value
    }
}
