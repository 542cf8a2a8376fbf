//! Lowers pipelines, with a block for each node, and declares tables.
//!
//! Digests of learn lists are sent at the end of ingress, with the values that fields have then; of several requests
//! the last one counts.

use super::actions::Exit;
use super::{Cx, Role};
use crate::locations::Location;
use crate::model::{BinaryOp, Expr, Next, Node, Pipeline, Table, UnaryOp};
use base::Bits;
use base::entry::{ActionCall, EntryAction, TableEntry};
use ir::{
    Action, BinOp, BlockId, CounterUnit, ExternId, ExternKind, Mark, Op, Operand, StageKind, TableAction, TableId,
};
use p4info::ids::numbered;
use std::collections::HashMap;

/// A declared table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableIds {
    pub table: TableId,
    pub counter: Option<ExternId>,
    /// Whether an action that does nothing was added after the table's own, as its default.
    pub added_default: bool,
}

/// The tables of a value set: one of its members, and one of the members under each mask.
#[derive(Debug)]
pub(super) struct SetTables {
    pub whole: TableId,
    pub masked: Vec<TableId>,
}

// Declarations.
impl Cx<'_> {
    pub(super) fn declare_tables(&mut self) {
        let m = self.m;
        let mut ids: HashMap<&str, Vec<ir::ActionId>> = HashMap::new();
        for (egress, pipeline) in [(false, &m.ingress), (true, &m.egress)] {
            for (i, node) in pipeline.nodes.iter().enumerate() {
                if let Node::Table(table) = node
                    && !table.hidden
                {
                    let made = self.declare_table(table, &mut ids);
                    self.tables.insert((egress, i), made);
                }
            }
        }
        // Direct counters of tables that do not exist are not used either.
        for (meter, id) in m.meters.iter().zip(self.meters.clone()) {
            let of_table = self.b.program().tables.iter().position(|t| t.direct.contains(&id));
            if let (true, Some(table)) = (meter.direct, of_table)
                && let ExternKind::Meter { direct, .. } = &mut self.b.program_mut().externs[id.index()].kind
            {
                *direct = Some(TableId::from_index(table));
            }
        }
    }

    /// The control plane's action: copies that the compiler made for their tables are merged, and other actions of the
    /// same name get numbered names.
    fn action_id<'m>(
        &mut self,
        ids: &mut HashMap<&'m str, Vec<ir::ActionId>>,
        action: &'m crate::model::Action,
    ) -> ir::ActionId {
        let same = ids.entry(&action.name).or_default();
        let program = self.b.program();
        if let Some(id) = same.iter().find(|id| program.actions[id.index()].params == action.params) {
            return *id;
        }
        let name = match same.len() {
            0 => action.name.clone(),
            before => numbered(&action.name, before + 1),
        };
        let made = self.b.action(Action { name, params: action.params.clone() });
        same.push(made);
        made
    }

    /// An action that does nothing, for tables with that default.
    fn nothing(&mut self, ids: &mut HashMap<&str, Vec<ir::ActionId>>) -> ir::ActionId {
        let same = ids.entry("NoAction").or_default();
        let program = self.b.program();
        if let Some(id) = same.iter().find(|id| program.actions[id.index()].params.is_empty()) {
            return *id;
        }
        let name = if same.is_empty() { "NoAction".to_string() } else { numbered("NoAction", same.len() + 1) };
        let made = self.b.action(Action { name, params: Vec::new() });
        same.push(made);
        made
    }

    fn declare_table<'m>(&mut self, table: &'m Table, ids: &mut HashMap<&'m str, Vec<ir::ActionId>>) -> TableIds
    where
        Self: HasModel<'m>,
    {
        let m = self.model();
        self.set_location(table.location);
        let mut actions: Vec<TableAction> = Vec::new();
        for action in &table.actions {
            let action = self.action_id(ids, &m.actions[*action]);
            actions.push(TableAction { action, default_only: false, table_only: false });
        }
        let nothing = |a: &usize| m.actions[*a].params.is_empty() && m.actions[*a].calls.is_empty();
        let (default_action, added_default) = match &table.default {
            Some((action, args)) => (ActionCall { action: *action as u32, args: args.clone() }, false),
            None => match table.actions.iter().position(nothing) {
                Some(action) => (ActionCall { action: action as u32, args: Vec::new() }, false),
                None => {
                    let action = self.nothing(ids);
                    actions.push(TableAction { action, default_only: true, table_only: false });
                    (ActionCall { action: actions.len() as u32 - 1, args: Vec::new() }, true)
                }
            },
        };
        let needs_priority = table.keys.iter().any(|k| k.kind.needs_priority());
        let mut entries = Vec::new();
        for entry in table.entries.iter().flatten() {
            // The lowest number has the highest priority in bmv2, the highest number in the IR.
            let lowest = table.entries.iter().flatten().map(|e| e.priority).max().unwrap_or(0);
            let priority = i32::try_from(lowest - entry.priority).unwrap_or(i32::MAX - 1) + 1;
            let call = ActionCall { action: entry.action as u32, args: entry.args.clone() };
            entries.push(TableEntry {
                key: entry.key.clone(),
                priority: if needs_priority { priority } else { 0 },
                action: EntryAction::Call(call),
                idle_timeout_ns: 0,
            });
        }
        let key = |k: &crate::model::Key| ir::Key { name: k.name.clone(), width: k.width, kind: k.kind };
        let implementation = table.profile.map(|p| self.profiles[p]);
        let made = self.b.table(ir::Table {
            name: table.name.clone(),
            span: self.spans.of(table.location),
            keys: table.keys.iter().map(key).collect(),
            actions: actions.clone(),
            default_action,
            const_default: table.const_default,
            entries,
            const_entries: table.entries.is_some(),
            size: table.size,
            implementation,
            direct: Vec::new(),
            idle_timeout: table.idle_timeout,
            value_set: false,
            dynamic: None,
        });
        if let Some(profile) = implementation {
            match &mut self.b.program_mut().externs[profile.index()].kind {
                ExternKind::ActionProfile { actions: of, .. } | ExternKind::ActionSelector { actions: of, .. } => {
                    if of.is_empty() {
                        *of = actions;
                    } else if *of != actions {
                        self.fault(format!("table `{}` and its action profile have different actions", table.name));
                    }
                }
                _ => {}
            }
        }
        let mut direct = Vec::new();
        let bound = m.counters.iter().position(|c| c.table.as_deref() == Some(&*table.name));
        let counter = match bound {
            Some(i) => Some(self.counters[i]),
            None if table.with_counters => {
                let kind = ExternKind::Counter { size: 0, unit: CounterUnit::Both, direct: None };
                let name = format!("{}.$counter", table.name);
                Some(self.b.extern_instance(ir::Extern { name, span: self.spans.of(table.location), kind }))
            }
            None => None,
        };
        let counter = counter.filter(|c| {
            // Another table may have claimed it already.
            matches!(self.b.program().externs[c.index()].kind, ExternKind::Counter { direct: None, .. })
        });
        if let Some(counter) = counter {
            direct.push(counter);
            if let ExternKind::Counter { direct, .. } = &mut self.b.program_mut().externs[counter.index()].kind {
                *direct = Some(made);
            }
        }
        if let Some(meter) = table.meter {
            let id = self.meters[meter];
            let taken = self.b.program().tables.iter().any(|t| t.direct.contains(&id));
            match taken {
                true => self.fault(format!("two tables have direct meter `{}`", m.meters[meter].name)),
                false => direct.push(id),
            }
        }
        self.b.program_mut().tables[made.index()].direct = direct;
        TableIds { table: made, counter, added_default }
    }

    pub(super) fn declare_value_sets(&mut self) {
        let m = self.m;
        for set in &m.value_sets {
            let parts = match set.parts.is_empty() {
                true => vec![(set.name.clone(), set.width)],
                false => set.parts.clone(),
            };
            let key = |(name, width): (String, u32)| ir::Key { name, width, kind: base::entry::MatchKind::Exact };
            let keys: Vec<ir::Key> = parts.into_iter().map(key).collect();
            let action = self.b.action(Action { name: format!("{}.$member", set.name), params: Vec::new() });
            let whole = self.set_table(set.name.clone(), set.size, keys.clone(), action);
            let masked = set.masks.iter().map(|masks| {
                self.set_table(ir::masked_sets::masked_name(&set.name, masks), set.size, keys.clone(), action)
            });
            let masked = masked.collect();
            self.value_sets.push(SetTables { whole, masked });
        }
    }

    fn set_table(&mut self, name: String, size: u64, keys: Vec<ir::Key>, action: ir::ActionId) -> TableId {
        self.b.table(ir::Table {
            name,
            span: base::Span::NONE,
            keys,
            actions: vec![TableAction { action, default_only: false, table_only: false }],
            default_action: ActionCall { action: 0, args: Vec::new() },
            const_default: true,
            entries: Vec::new(),
            const_entries: false,
            size,
            implementation: None,
            direct: Vec::new(),
            idle_timeout: false,
            value_set: true,
            dynamic: None,
        })
    }
}

/// Access to the model with its own lifetime.
pub(super) trait HasModel<'m> {
    fn model(&self) -> &'m crate::model::Model;
}

impl<'m> HasModel<'m> for Cx<'m> {
    fn model(&self) -> &'m crate::model::Model {
        self.m
    }
}

// Application.
impl Cx<'_> {
    pub(super) fn pipeline(&mut self, role: Role) -> ir::StageId {
        let m = self.m;
        let (name, pipeline): (_, &Pipeline) = match role {
            Role::Egress => ("egress", &m.egress),
            _ => ("ingress", &m.ingress),
        };
        let stage = self.open(role, name, StageKind::Control);
        // Queues are numbered like their priorities.
        if let (Role::Egress, Some(qid), Some(priority)) = (role, self.standard("qid"), self.standard("priority")) {
            let width = self.b.program().width(qid);
            let queue = self.b.resize_u(width, priority);
            self.b.mov(qid, queue);
        }
        let end = self.b.block("end");
        let label = |n: &Node| match n {
            Node::Table(table) => table.name.clone(),
            _ => String::new(),
        };
        let blocks: Vec<BlockId> = pipeline.nodes.iter().map(|n| self.b.block(label(n))).collect();
        let target = |node: Option<usize>| node.map_or(end, |n| blocks[n]);
        self.b.jump(target(pipeline.first));
        for (i, (node, block)) in pipeline.nodes.iter().zip(&blocks).enumerate() {
            self.b.switch_to(*block);
            if self.is_over_limit() {
                self.b.jump(end);
                continue;
            }
            match node {
                Node::Conditional { name, condition, location, then, other } => {
                    self.set_location(*location);
                    let (yes, no) = (self.b.block(""), self.b.block(""));
                    self.branch_on(condition, yes, no);
                    for (block, holds, next) in [(yes, true, *then), (no, false, *other)] {
                        self.b.switch_to(block);
                        self.b.emit(Op::Mark(Mark::Decision { name: name.clone(), holds }));
                        self.b.jump(target(next));
                    }
                }
                Node::Action { action, next } => {
                    let action = &m.actions[*action];
                    self.b.emit(Op::Mark(Mark::Action(action.name.clone())));
                    self.body(action, Exit { to: end, interrupts: next.is_some() });
                    self.b.fall_through(target(*next));
                }
                Node::Table(table) if table.hidden => {
                    let action = &m.actions[table.actions[0]];
                    self.set_location(table.location);
                    let (name, of) = (table.name.clone(), action.name.clone());
                    self.b.emit(Op::Mark(Mark::Direct { table: name, action: of.clone() }));
                    self.b.emit(Op::Mark(Mark::Action(of)));
                    let args = table.default.as_ref().map(|(_, args)| args.clone()).unwrap_or_default();
                    self.locals = args.into_iter().map(Operand::Const).collect();
                    let next = match &table.next {
                        Next::HitMiss(_, miss) => *miss,
                        Next::Actions(next, _) => next[0],
                    };
                    self.body(action, Exit { to: end, interrupts: next.is_some() });
                    self.locals.clear();
                    self.b.fall_through(target(next));
                }
                Node::Table(table) => self.apply((role == Role::Egress, i), table, end, &target),
            }
        }
        self.b.switch_to(end);
        self.set_location(Location::default());
        if let (Role::Ingress, Some(learn)) = (role, self.learn) {
            for (list, digest) in m.learn_lists.iter().zip(self.digests.clone()) {
                let is_selected = self.b.bin(BinOp::Eq, learn, Operand::new_const(16, u128::from(list.id)));
                let data = list.fields.iter().map(|f| self.slot(*f).into()).collect();
                self.set_location(list.location);
                self.when(Operand::Slot(is_selected), |cx| cx.b.emit(Op::Digest { digest, data }));
            }
        }
        self.close();
        stage
    }

    /// Branches on a condition, with a branch for each operand of `and`, `or` and `not`.
    pub(super) fn branch_on(&mut self, condition: &Expr, then: BlockId, other: BlockId) {
        match condition {
            Expr::Unary(UnaryOp::Not, a) => self.branch_on(a, other, then),
            Expr::Unary(UnaryOp::DataToBool, a) if let Expr::Unary(UnaryOp::BoolToData, a) = &**a => {
                self.branch_on(a, then, other);
            }
            Expr::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let second = self.b.block("");
                match op {
                    BinaryOp::And => self.branch_on(a, second, other),
                    _ => self.branch_on(a, then, second),
                }
                self.b.switch_to(second);
                self.branch_on(b, then, other);
            }
            condition => match self.boolean(condition) {
                Operand::Const(c) => self.b.jump(if c.is_true() { then } else { other }),
                cond => self.b.branch(cond, then, other),
            },
        }
    }

    fn apply(&mut self, id: (bool, usize), table: &Table, end: BlockId, target: &dyn Fn(Option<usize>) -> BlockId) {
        let m = self.m;
        let Some(ids) = self.tables.get(&id).copied() else { return self.b.jump(end) };
        self.set_location(table.location);
        let mut keys = Vec::new();
        for key in &table.keys {
            let value = self.exact(&key.value).operand;
            keys.push(match &key.mask {
                Some(mask) => self.b.bin(BinOp::And, value, mask.clone()).into(),
                None => value,
            });
        }
        let selector = table.profile.and_then(|p| m.profiles[p].selector.as_ref());
        let selector = selector.map_or(Vec::new(), |s| match s.input.as_slice() {
            [] => vec![Operand::new_const(1, 0)],
            input => input.iter().map(|f| self.slot(*f).into()).collect(),
        });
        let [hit, action, entry, data] = [1, 32, 64, 64].map(|w| self.b.temp(w));
        self.b.emit(Op::Apply { table: ids.table, keys, selector, hit, action, entry, data });
        let always: Operand = Bits::from_bool(true).into();
        if let Some(counter) = ids.counter {
            self.b.emit(Op::CountDirect { counter, hit: always.clone(), entry, bytes: None });
        }
        if let Some(meter) = table.meter
            && self.b.program().tables[ids.table.index()].direct.contains(&self.meters[meter])
        {
            let colour = self.b.temp(2);
            let ext = self.meters[meter];
            self.b.emit(Op::MeterDirect { meter: ext, dst: colour, hit: always, entry, before: None, bytes: None });
            if let Some(result) = m.meters[meter].result {
                self.when(Operand::Slot(hit), |cx| {
                    let width = cx.m.field(result).width;
                    let value = cx.b.resize_u(width, colour);
                    cx.write(result, value);
                });
            }
        }
        // After the actions: the successors of their table.
        let by_hit = match &table.next {
            Next::HitMiss(..) => Some(self.b.block("")),
            Next::Actions(..) => None,
        };
        let after = |i: usize| match (&table.next, by_hit) {
            (Next::Actions(next, _), _) => target(next[i]),
            (Next::HitMiss(..), Some(block)) => block,
            (Next::HitMiss(..), None) => end,
        };
        let mut cases: Vec<(Bits, BlockId)> = Vec::new();
        let mut bodies = Vec::new();
        for (i, of) in table.actions.iter().enumerate() {
            let action = &m.actions[*of];
            let to = match action.calls.is_empty() {
                true => after(i),
                false => {
                    let block = self.b.block(action.name.clone());
                    bodies.push((i, action, block));
                    block
                }
            };
            cases.push((Bits::new(32, i as u128), to));
        }
        if ids.added_default {
            let to = match (&table.next, by_hit) {
                (Next::Actions(_, miss), _) => target(*miss),
                (_, Some(block)) => block,
                _ => end,
            };
            cases.push((Bits::new(32, cases.len() as u128), to));
        }
        match cases.as_slice() {
            [] => self.b.jump(end),
            [(_, first), rest @ ..] if rest.iter().all(|(_, t)| t == first) => self.b.jump(*first),
            _ => match cases.pop() {
                Some((_, default)) => self.b.switch(action, cases, default),
                None => self.b.jump(end),
            },
        }
        for (i, action, block) in bodies {
            self.b.switch_to(block);
            self.b.emit(Op::Mark(Mark::Action(action.name.clone())));
            let mut locals = Vec::new();
            for (param, (_, width)) in action.params.iter().enumerate() {
                let dst = self.b.temp(*width);
                let (action, param) = (i as u32, param as u32);
                self.b.emit(Op::ActionParam { dst, table: ids.table, action, param, data });
                locals.push(dst.into());
            }
            self.locals = locals;
            let interrupts = match &table.next {
                Next::Actions(next, _) => next[i].is_some(),
                Next::HitMiss(hit, miss) => hit.is_some() || miss.is_some(),
            };
            self.body(action, Exit { to: end, interrupts });
            self.locals.clear();
            self.b.fall_through(after(i));
            self.set_location(table.location);
        }
        if let (Next::HitMiss(on_hit, on_miss), Some(block)) = (&table.next, by_hit) {
            self.b.switch_to(block);
            self.b.branch(hit, target(*on_hit), target(*on_miss));
        }
    }
}
