//! The functions that compiled code calls: those of `abi::RuntimeCalls` and those of table engines, with their effects
//! on memory.

use abi::RuntimeCalls;
use abi::table::{AddEntryFn, SelectFn, SetExpireFn};
use mir::{Effects, Region, Regions, Runtime, RuntimeId, Type};
use std::collections::HashMap;

/// Identity of a runtime function, for callers that do not use its address (an interpreter).
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// [`RuntimeCalls::meter`].
    Meter,
    /// [`RuntimeCalls::hash`].
    Hash,
    /// [`RuntimeCalls::random`].
    Random,
    /// [`RuntimeCalls::digest`].
    Digest,
    /// [`RuntimeCalls::log`].
    Log,
    /// [`RuntimeCalls::assert_failed`].
    AssertFailed,
    /// [`RuntimeCalls::wide_bin`].
    WideBin,
    /// [`RuntimeCalls::make_headroom`].
    MakeHeadroom,
    /// [`RuntimeCalls::wait_for_lock`].
    WaitForLock,
    /// Selects a member of an action selector's group.
    Select(SelectFn),
    /// Adds or replaces an entry.
    AddEntry(AddEntryFn),
    /// Sets an entry's expire time.
    SetExpire(SetExpireFn),
    /// An unresolved extern.
    Unresolved,
}

/// The runtime functions that have been used so far.
pub(crate) struct Calls {
    table: RuntimeCalls,
    runtime: Vec<Runtime>,
    calls: Vec<Call>,
    by_name: HashMap<String, RuntimeId>,
}

const WORD: Type = Type::I64;
const HALF: Type = Type::I32;

fn effects(reads: Regions, writes: Regions) -> Effects {
    Effects { reads, writes, ends: false }
}

/// The effects of a function that reads and changes private state of the runtime.
fn state(reads: Regions) -> Effects {
    effects(reads | Region::State | Region::Context, Region::State.into())
}

impl Calls {
    pub fn new(table: &RuntimeCalls) -> Calls {
        Calls { table: *table, runtime: Vec::new(), calls: Vec::new(), by_name: HashMap::new() }
    }

    pub fn into_parts(self) -> (Vec<Runtime>, Vec<Call>) {
        (self.runtime, self.calls)
    }

    /// The type of a function's result.
    pub fn result(&self, id: RuntimeId) -> Option<Type> {
        self.runtime[id.index()].result
    }

    fn get(
        &mut self,
        name: &str,
        call: Call,
        address: usize,
        params: &[Type],
        result: Option<Type>,
        effects: Effects,
    ) -> RuntimeId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = RuntimeId(self.runtime.len() as u32);
        let (params, address) = (params.to_vec(), address as u64);
        self.runtime.push(Runtime { name: name.to_string(), params, result, effects, address });
        self.calls.push(call);
        self.by_name.insert(name.to_string(), id);
        id
    }

    pub fn meter(&mut self) -> RuntimeId {
        let (params, address) = ([WORD, HALF, WORD, HALF, HALF], self.table.meter as usize);
        self.get("meter", Call::Meter, address, &params, Some(HALF), state(Regions::NONE))
    }

    pub fn hash(&mut self) -> RuntimeId {
        let (params, address) = ([WORD, HALF, WORD, HALF, WORD, HALF], self.table.hash as usize);
        self.get("hash", Call::Hash, address, &params, Some(WORD), state(Region::Stack | Region::Frame))
    }

    pub fn random(&mut self) -> RuntimeId {
        let address = self.table.random as usize;
        self.get("random", Call::Random, address, &[WORD; 3], Some(WORD), state(Regions::NONE))
    }

    pub fn digest(&mut self) -> RuntimeId {
        let (params, address) = ([WORD, WORD, HALF, WORD, HALF], self.table.digest as usize);
        self.get("digest", Call::Digest, address, &params, None, state(Region::Stack.into()))
    }

    pub fn log(&mut self) -> RuntimeId {
        let (params, address) = ([WORD, WORD, HALF, WORD, HALF], self.table.log as usize);
        self.get("log", Call::Log, address, &params, None, state(Region::Stack.into()))
    }

    pub fn assert_failed(&mut self) -> RuntimeId {
        let (params, address) = ([WORD, WORD, HALF], self.table.assert_failed as usize);
        self.get("assert_failed", Call::AssertFailed, address, &params, None, state(Regions::NONE))
    }

    pub fn wide_bin(&mut self) -> RuntimeId {
        let (params, address) = ([HALF, HALF, WORD, WORD, WORD], self.table.wide_bin as usize);
        let stack = Regions::from(Region::Stack);
        self.get("wide_bin", Call::WideBin, address, &params, None, effects(stack, stack))
    }

    pub fn make_headroom(&mut self) -> RuntimeId {
        let (params, address) = ([WORD, WORD, HALF], self.table.make_headroom as usize);
        let packet = Region::Frame | Region::Descriptor;
        self.get("make_headroom", Call::MakeHeadroom, address, &params, Some(Type::I8), effects(packet, packet))
    }

    pub fn wait_for_lock(&mut self) -> RuntimeId {
        let address = self.table.wait_for_lock as usize;
        self.get("wait_for_lock", Call::WaitForLock, address, &[WORD; 2], None, state(Regions::NONE))
    }

    pub fn select(&mut self, table: &str, select: SelectFn) -> RuntimeId {
        let effects = effects(Region::Table | Region::State | Region::Entry, Regions::NONE);
        let name = format!("select {table}");
        self.get(&name, Call::Select(select), select as usize, &[WORD; 2], Some(WORD), effects)
    }

    /// `verb` is "add" or "replace" and names the function.
    pub fn add_entry(&mut self, verb: &str, table: &str, add: AddEntryFn) -> RuntimeId {
        let params = [WORD, WORD, WORD, HALF, HALF, WORD];
        let table_state = Region::Table | Region::State;
        // An entry that is evicted for the new one has counters, which are cleared.
        let effects = effects(table_state | Region::Stack | Region::Entry, table_state | Region::Counter);
        let name = format!("{verb} {table}");
        self.get(&name, Call::AddEntry(add), add as usize, &params, Some(HALF), effects)
    }

    pub fn set_expire(&mut self, table: &str, set: SetExpireFn) -> RuntimeId {
        let (params, name) = ([WORD, WORD, HALF, WORD], format!("expire {table}"));
        self.get(&name, Call::SetExpire(set), set as usize, &params, None, state(Region::Entry.into()))
    }

    /// An unresolved extern. Parameters: the context; address and number of the arguments' words; address and number of
    /// the results' words.
    pub fn unresolved(&mut self, callee: &str) -> RuntimeId {
        let (params, name) = ([WORD, WORD, HALF, WORD, HALF], format!("unresolved {callee}"));
        self.get(&name, Call::Unresolved, 0, &params, None, Effects::ANY)
    }
}
