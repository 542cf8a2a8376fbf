//! The functions that lowered code calls, for the interpreter of machine-level IR: the same that compiled code calls.

use crate::calls::CALLS;
use abi::table::LookupFn;
use lowering::Call;
use mir::{Fault, Host, RuntimeId, TableId};

use super::memory::ProcessMemory;

/// The runtime and the match engines.
pub(super) struct ProcessHost<'a> {
    /// By [`RuntimeId`].
    pub calls: &'a [Call],
    /// By [`TableId`]: lookup function and handle.
    pub lookups: &'a [(LookupFn, usize)],
}

fn at<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn result<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

impl Host<ProcessMemory> for ProcessHost<'_> {
    fn call(&mut self, _: &mut ProcessMemory, id: RuntimeId, args: &[u64]) -> Result<u64, Fault> {
        let arg = |i: usize| args[i];
        let half = |i: usize| args[i] as u32;
        // SAFETY: lowered code passes the arguments that each function demands, as compiled code does, in the order
        // of its parameters.
        let result = unsafe {
            match self.calls[id.index()] {
                Call::Meter => (CALLS.meter)(at(arg(0)), half(1), arg(2), half(3), half(4)).into(),
                Call::Hash => (CALLS.hash)(at(arg(0)), half(1), at(arg(2)), half(3), at(arg(4)), half(5)),
                Call::Random => (CALLS.random)(at(arg(0)), arg(1), arg(2)),
                Call::Digest => {
                    (CALLS.digest)(at(arg(0)), at(arg(1)), half(2), at(arg(3)), half(4));
                    0
                }
                Call::Log => {
                    (CALLS.log)(at(arg(0)), at(arg(1)), half(2), at(arg(3)), half(4));
                    0
                }
                Call::AssertFailed => {
                    (CALLS.assert_failed)(at(arg(0)), at(arg(1)), half(2));
                    0
                }
                Call::WideBin => {
                    (CALLS.wide_bin)(half(0), half(1), at(arg(2)), at(arg(3)), at(arg(4)));
                    0
                }
                Call::MakeHeadroom => (CALLS.make_headroom)(at(arg(0)), at(arg(1)), half(2)).into(),
                Call::WaitForLock => {
                    (CALLS.wait_for_lock)(at(arg(0)), at(arg(1)));
                    0
                }
                Call::Select(select) => result(select(at(arg(0)), arg(1))),
                Call::AddEntry(add) => add(at(arg(0)), at(arg(1)), at(arg(2)), half(3), half(4), arg(5)).into(),
                Call::SetExpire(set) => {
                    set(at(arg(0)), at(arg(1)), half(2), arg(3));
                    0
                }
                Call::Unresolved => return Err(Fault::Host("a call of what nobody has".to_string())),
            }
        };
        Ok(result)
    }

    fn lookup(&mut self, _: &mut ProcessMemory, table: TableId, key: &[u64]) -> Result<u64, Fault> {
        let (lookup, handle) = self.lookups[table.index()];
        // SAFETY: the key has the words of the table's layout; the handle lives as long as the state.
        Ok(result(unsafe { lookup(at(handle as u64), key.as_ptr().cast()) }))
    }
}
