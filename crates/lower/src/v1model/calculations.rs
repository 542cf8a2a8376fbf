//! Names of calculations. Each call of `hash`, `verify_checksum` and `update_checksum` is a calculation; bmv2's tools
//! set the parameters of a custom CRC by the name that p4c gives to it.
//!
//! p4c numbers all calls, whatever their algorithm: `calc`, `calc_0`, `calc_1`, … Calls in actions come first, in order
//! of declaration; an action has a copy for each table that lists it and another for direct calls. Then come the calls
//! in `apply` blocks, then checksum updates, then checksum verifications. Sub-controls precede the control that
//! contains them. Here all copies of an action are one calculation, with the name of the first copy.
//!
//! Checksums are also numbered separately, updates first: `cksum`, `cksum_0`, …
//!
//! Not supported: p4c avoids names that the program itself uses, and this numbering does not.
//!
//! Tests: `crates/lower/tests/v1model.rs`; with tools, `tests/py/test_thrift.py`.

use crate::visit::{self, Node};
use ir::{Calculated, Calculation, CalculationId};
use sema::typed::{ActionId, Block, Call, Callee, Control, InstanceId, InstanceOf};
use sema::{TypedProgram, Value};
use std::collections::{HashMap, HashSet};

/// The calculations of a program, by call.
#[derive(Default)]
pub(super) struct Calculations {
    pub list: Vec<Calculation>,
    /// By the address of a call in the typed program, and the instance of its block.
    by_call: HashMap<(usize, Option<InstanceId>), CalculationId>,
    /// Names of checksums, by the same key.
    checksums: HashMap<(usize, Option<InstanceId>), String>,
}

impl Calculations {
    /// Collects the calculations of a program; `pipelines` are ingress and egress.
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
        // p4c copies a function into each call, so the checksums of functions that are never called do not count.
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

    /// The calculation that a call performs, within an instance.
    pub fn of(&self, call: &Call, within: Option<InstanceId>) -> Option<CalculationId> {
        let address = std::ptr::from_ref(call).addr();
        let found = self.by_call.get(&(address, within)).or_else(|| self.by_call.get(&(address, None)));
        found.copied()
    }

    /// The name of the checksum that a call verifies or updates, within an instance.
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

/// The functions that are called somewhere.
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

/// The number of copies of each action that p4c makes.
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
    /// Number of names given so far.
    names: u32,
    /// The calls that are checksums, and whether each is an update.
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

/// The index of the argument with the algorithm.
fn algorithm_argument(function: &str) -> Option<usize> {
    match function {
        "hash" => Some(1),
        "verify_checksum" | "update_checksum" | "verify_checksum_with_payload" | "update_checksum_with_payload" => {
            Some(3)
        }
        _ => None,
    }
}

/// The custom CRC that a call uses, if any.
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
