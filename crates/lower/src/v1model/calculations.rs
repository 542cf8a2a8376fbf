//! Names of custom CRCs: each call of `hash`, `verify_checksum` and `update_checksum` is a calculation, whose parameters bmv2's
//! tools set by the name that p4c gives it.
//!
//! p4c counts all calls, whatever their algorithm: `calc`, `calc_0`, `calc_1`, … First come the calls in actions, in the order of
//! their declaration, where an action has a copy for each table that lists it and one for direct calls; then those of `apply`
//! blocks; then checksums that are updated, then those that are verified. Sub-controls stand before the control that has them.
//! The copies of an action are one calculation here, with the name of the first.
//!
//! Checksums are counted by themselves, those that are updated first: `cksum`, `cksum_0`, …
//!
//! Deliberately not here: names that a program's own identifiers take from p4c.
//!
//! Tests: `crates/lower/tests/v1model.rs`; with tools, `tests/py/test_thrift.py`.

use crate::visit::{self, Node};
use ir::{Calculated, Calculation, CalculationId};
use sema::typed::{ActionId, Block, Call, Callee, Control, InstanceId, InstanceOf};
use sema::{TypedProgram, Value};
use std::collections::{HashMap, HashSet};

/// The calculations of a program, by the calls that they stand for.
#[derive(Default)]
pub(super) struct Calculations {
    pub list: Vec<Calculation>,
    /// By the address of a call in the typed program, and the instance that its block belongs to.
    by_call: HashMap<(usize, Option<InstanceId>), CalculationId>,
    /// Names of checksums, likewise.
    checksums: HashMap<(usize, Option<InstanceId>), String>,
}

impl Calculations {
    /// Of a program whose package has these controls.
    pub fn new(program: &TypedProgram, pipelines: [InstanceId; 2], [compute, verify]: [InstanceId; 2]) -> Calculations {
        let mut walk = Walk { program, found: Calculations::default(), names: 0, checksums: Vec::new() };
        let mut pipelines = pipelines.map(|id| (declared(program, id), id));
        pipelines.sort();
        let users = Users::new(program);
        for action in (0..program.actions.len()).filter(|i| program.actions[*i].owner.is_none()) {
            walk.action(&users, ActionId::from_index(action), None);
        }
        pipelines.iter().for_each(|(_, id)| walk.control(&users, *id));
        [compute, verify].into_iter().for_each(|id| walk.control(&users, id));
        // Functions of the program; p4c has a copy for each call, so those that nobody calls have no checksum.
        let called = called(program);
        for (i, function) in program.functions.iter().enumerate() {
            let before = walk.checksums.len();
            walk.calls(&function.body, 1, None);
            if !called.contains(&i) {
                walk.checksums.truncate(before);
            }
        }
        let Walk { mut found, mut checksums, .. } = walk;
        checksums.sort_by_key(|(_, update)| !update);
        for (at, _) in checksums {
            let number = found.checksums.len() as u32;
            found.checksums.entry(at).or_insert_with(|| numbered("cksum", number));
        }
        found
    }

    /// The calculation that a call is, within an instance.
    pub fn of(&self, call: &Call, within: Option<InstanceId>) -> Option<CalculationId> {
        let address = std::ptr::from_ref(call).addr();
        let found = self.by_call.get(&(address, within)).or_else(|| self.by_call.get(&(address, None)));
        found.copied()
    }

    /// The name of the checksum that a call is, within an instance.
    pub fn checksum(&self, call: &Call, within: Option<InstanceId>) -> Option<&str> {
        let address = std::ptr::from_ref(call).addr();
        let found = self.checksums.get(&(address, within)).or_else(|| self.checksums.get(&(address, None)));
        found.map(String::as_str)
    }
}

fn declared(program: &TypedProgram, id: InstanceId) -> usize {
    match program.instance(id).of {
        InstanceOf::Control(control) => control.index(),
        _ => usize::MAX,
    }
}

/// Functions that something calls.
fn called(program: &TypedProgram) -> HashSet<usize> {
    let mut called = HashSet::new();
    let controls = program.controls.iter().map(|control| &control.body);
    let actions = program.actions.iter().map(|action| &action.body);
    for body in controls.chain(actions).chain(program.functions.iter().map(|function| &function.body)) {
        visit::block(body, &mut |node| {
            if let Node::Call(Call { callee: Callee::Function(function), .. }) = node {
                called.insert(function.index());
            }
        });
    }
    called
}

/// How many copies of an action p4c makes.
struct Users(HashMap<ActionId, u32>);

impl Users {
    fn new(program: &TypedProgram) -> Users {
        let mut users = HashMap::new();
        for table in &program.tables {
            table.actions.iter().for_each(|listed| *users.entry(listed.action).or_default() += 1);
        }
        let mut direct = HashSet::new();
        let bodies = program.controls.iter().map(|control| &control.body);
        for body in bodies.chain(program.actions.iter().map(|action| &action.body)) {
            visit::block(body, &mut |node| {
                if let Node::Call(Call { callee: Callee::Action(action), .. }) = node {
                    direct.insert(*action);
                }
            });
        }
        direct.into_iter().for_each(|action| *users.entry(action).or_default() += 1);
        Users(users)
    }
}

struct Walk<'a> {
    program: &'a TypedProgram,
    found: Calculations,
    /// Names given so far.
    names: u32,
    /// Calls that are checksums, and whether they update.
    checksums: Vec<((usize, Option<InstanceId>), bool)>,
}

impl Walk<'_> {
    fn control(&mut self, users: &Users, id: InstanceId) {
        let instance = self.program.instance(id);
        let InstanceOf::Control(control) = instance.of else { return };
        for &child in &instance.children {
            self.control(users, child);
        }
        let Control { actions, body, .. } = &self.program.controls[control.index()];
        for action in actions {
            self.action(users, *action, Some(id));
        }
        self.calls(body, 1, Some(id));
    }

    fn action(&mut self, users: &Users, action: ActionId, within: Option<InstanceId>) {
        let copies = users.0.get(&action).copied().unwrap_or(0);
        self.calls(&self.program.actions[action.index()].body, copies, within);
    }

    fn calls(&mut self, body: &Block, copies: u32, within: Option<InstanceId>) {
        let program = self.program;
        let mut calls: Vec<(&Call, Option<Calculated>, &str)> = Vec::new();
        visit::block(body, &mut |node| {
            if let Node::Call(call) = node
                && let Callee::ExternFunction(function) = &call.callee
                && let name = &*program.extern_functions[function.index()].name
                && let Some(at) = algorithm_argument(name)
            {
                calls.push((call, custom(program, call, at), name));
            }
        });
        for (call, custom, name) in &calls {
            let at = (std::ptr::from_ref::<Call>(call).addr(), within);
            let update = name.starts_with("update_checksum");
            if update || name.starts_with("verify_checksum") {
                self.checksums.push((at, update));
            }
            if let Some(function) = *custom {
                let id = CalculationId::from_index(self.found.list.len());
                self.found.list.push(Calculation { name: numbered("calc", self.names), function });
                self.found.by_call.insert(at, id);
            }
            self.names += u32::from(copies > 0);
        }
        self.names += copies.saturating_sub(1) * calls.len() as u32;
    }
}

/// Which argument of an extern function is its algorithm.
fn algorithm_argument(function: &str) -> Option<usize> {
    match function {
        "hash" => Some(1),
        "verify_checksum" | "update_checksum" | "verify_checksum_with_payload" | "update_checksum_with_payload" => {
            Some(3)
        }
        _ => None,
    }
}

/// The custom CRC that a call names.
fn custom(program: &TypedProgram, call: &Call, argument: usize) -> Option<Calculated> {
    let argument = call.args.get(argument)?;
    let (sema::Type::Enum(id), Value::Enum(member)) = (&argument.ty, argument.value.expr()?.as_const()?) else {
        return None;
    };
    match &*program.types.enums[id.index()].members.get(*member as usize)?.name {
        "crc16_custom" => Some(Calculated::Crc16),
        "crc32_custom" => Some(Calculated::Crc32),
        _ => None,
    }
}

fn numbered(name: &str, number: u32) -> String {
    number.checked_sub(1).map_or_else(|| name.to_string(), |number| format!("{name}_{number}"))
}
