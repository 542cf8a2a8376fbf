//! Tables, actions and value sets: their declaration, and the application of tables.
//!
//! An application is `Op::Apply`, followed by a switch on the action found. Each action's body is inlined in a block of
//! its own, with action data loaded by `Op::ActionParam`. A table that is applied twice is inlined twice. In
//! `switch (t.apply().action_run)` the block of each action jumps directly to its case. A `@groupaction` action, which
//! runs before the members of an action set, is combined with each member action to a new action; engines need not know
//! of it.
//!
//! Tables are declared once per instance of their control, even if they are never applied: the control plane sees them.
//! Names are those of the instance tree.

use crate::add_on_miss::OfTable;
use crate::arch::TableProperty;
use crate::codes;
use crate::context::{Lowerer, TableInfo};
use crate::tree::Tree;
use crate::visit::is_pure;
use base::diag::Diagnostic;
use base::entry::{ActionCall, MatchKind};
use base::{Bits, Span};
use ir::{Action, BlockId, CounterUnit, ExternKind, Mark, Op, Operand, SlotId, TableAction};
use sema::Type;
use sema::typed::{
    self, ActionCase, ActionId, Call, Callee, Direction, ExprKind, InstanceId, InstanceOf, TableId, ValueSetId,
    find_annotation,
};
use std::rc::Rc;

/// Number of entries of a table without `size`.
const DEFAULT_SIZE: u64 = 1024;

/// The results of an application.
struct Applied {
    hit: SlotId,
    action: SlotId,
    entry: SlotId,
    data: SlotId,
}

// Declarations.
impl Lowerer<'_> {
    /// Declares all tables and value sets of all instances.
    pub fn declare_tables(&mut self) {
        let p = self.p;
        for (i, instance) in p.instances.iter().enumerate() {
            let id = InstanceId::from_index(i);
            match instance.of {
                typed::InstanceOf::Control(control) => {
                    for table in &p.controls[control.index()].tables {
                        self.table_info(*table, id);
                    }
                }
                typed::InstanceOf::Parser(parser) => {
                    for set in &p.parsers[parser.index()].value_sets {
                        self.value_set_table(*set, id);
                    }
                }
                typed::InstanceOf::Extern(_) | typed::InstanceOf::Package(_) => {}
            }
        }
    }

    /// Declares a table of a control instance, if that has not been done, and returns it.
    pub fn table_info(&mut self, id: TableId, instance: InstanceId) -> TableInfo {
        if let Some(info) = self.tables.get(&(id, instance)) {
            return info.clone();
        }
        let p = self.p;
        let table = &p.tables[id.index()];
        let mut keys = Vec::new();
        let mut selector_keys = Vec::new();
        for key in &table.keys {
            let kind = match &*key.match_kind_name {
                "exact" => Some(MatchKind::Exact),
                "lpm" => Some(MatchKind::Lpm),
                "ternary" => Some(MatchKind::Ternary),
                "range" => Some(MatchKind::Range),
                "optional" => Some(MatchKind::Optional),
                "selector" => None,
                other => {
                    self.refuse(codes::UNSUPPORTED_TABLE, key.span, format!("match kind `{other}` is not supported"));
                    None
                }
            };
            selector_keys.push(kind.is_none());
            let width = self.scalar_width(&key.expr.ty).unwrap_or(0);
            if width == 0 {
                let text = self.type_text(&key.expr.ty);
                self.refuse(codes::UNSUPPORTED_TABLE, key.span, format!("a key of type `{text}` cannot be matched"));
            }
            if let Some(kind) = kind {
                keys.push(ir::Key { name: key.name.clone(), width: width.max(1), kind });
            }
        }
        let prefixes = keys.iter().filter(|k| k.kind == MatchKind::Lpm).count();
        if prefixes > 1 && !keys.iter().any(|k| k.kind.needs_priority()) {
            let message = format!("table `{}` has {prefixes} `lpm` keys: no prefix is the longest", table.name);
            self.refuse(codes::UNSUPPORTED_TABLE, table.span, message);
        }
        let listed = self.listed_actions(table, instance);
        let (combined, of_groups) = self.combined_actions(table, &listed);
        let profile = self.profile_of(table, instance);
        let (mut actions, places) = match profile {
            Some(profile) => self.actions_with_shared(&listed, profile),
            None => (listed, (0..table.actions.len() as u32).collect()),
        };
        actions.extend(of_groups);
        let default_action = match &table.default_action {
            Some(default) => {
                let call = self.action_call(table, default.action, &default.args, instance, default.span);
                ActionCall { action: places.get(call.action as usize).copied().unwrap_or_default(), ..call }
            }
            None => {
                let message = format!("table `{}` has no default action and the program no `NoAction`", table.name);
                self.refuse(codes::UNSUPPORTED_TABLE, table.span, message);
                ActionCall { action: 0, args: Vec::new() }
            }
        };
        let entries = self.entries(table, &keys, &places, instance);
        let written_size = table.size.as_ref().and_then(|e| p.eval(e, Some(instance))).and_then(|v| v.to_u64());
        let size = match written_size {
            Some(0) | None => DEFAULT_SIZE,
            Some(size) => size,
        };
        let size = if table.const_entries { entries.len() as u64 } else { size.max(entries.len() as u64) };
        let ir_table = self.b.table(ir::Table {
            name: table.control_name.qualified(&p.instance(instance).path),
            span: table.span,
            keys,
            actions,
            default_action,
            const_default: table.default_action.as_ref().is_some_and(|d| d.is_const),
            entries,
            const_entries: table.const_entries,
            size,
            implementation: None,
            direct: Vec::new(),
            idle_timeout: false,
            value_set: false,
            dynamic: None,
        });
        let mut info = TableInfo {
            table: ir_table,
            selector_keys: selector_keys.into(),
            counters: Rc::new([]),
            meters: Rc::new([]),
            places: places.into(),
            combined: combined.into(),
        };
        self.properties(table, instance, &mut info);
        self.tables.insert((id, instance), info.clone());
        info
    }

    /// The actions of a table, in the order of its declaration.
    fn listed_actions(&mut self, table: &typed::Table, instance: InstanceId) -> Vec<TableAction> {
        let of_list = |a: &typed::TableAction| TableAction {
            action: self.action_id(a.action, instance),
            default_only: a.default_only || a.implicit,
            table_only: a.table_only,
        };
        table.actions.iter().map(of_list).collect()
    }

    /// The action profile or selector that implements a table.
    fn profile_of(&self, table: &typed::Table, instance: InstanceId) -> Option<InstanceId> {
        let arch = self.arch.as_ref()?;
        let is_profile = |p: &&typed::Property| matches!(arch.table_property(&p.name), TableProperty::Implementation);
        self.attached(table.properties.iter().find(is_profile)?, instance)
    }

    /// The extern object to which a property refers.
    fn attached(&self, property: &typed::Property, instance: InstanceId) -> Option<InstanceId> {
        match &property.value.kind {
            ExprKind::Instance(reference) => self.p.resolve(*reference, Some(instance)),
            _ => self.p.eval(&property.value, Some(instance)).and_then(|v| v.as_instance()),
        }
    }

    /// The IR action list of a table with an action profile, and the index in it of each action in `own`.
    ///
    /// A member of a profile stores a single action call for all tables that share the profile, so these tables have
    /// the same list: the union of their actions. A member can run an action only if all of the tables list it (PSA
    /// 7.11 requires them to have the same actions; `warn_of_shared` reports others).
    fn actions_with_shared(&mut self, own: &[TableAction], profile: InstanceId) -> (Vec<TableAction>, Vec<u32>) {
        let mut list: Vec<TableAction> = Vec::new();
        for shared in self.lists_of_profile(profile).iter() {
            for action in shared {
                if list.iter().all(|a| a.action != action.action) {
                    list.push(TableAction { action: action.action, default_only: true, table_only: true });
                }
            }
        }
        let mut places = Vec::new();
        for action in own {
            let place = list.iter().position(|a| a.action == action.action).unwrap_or_else(|| {
                list.push(*action);
                list.len() - 1
            });
            list[place] = *action;
            places.push(place as u32);
        }
        (list, places)
    }

    /// Warns of actions that no member can run, because another table that shares the profile does not list them.
    fn warn_of_shared(&mut self, table: &typed::Table, instance: InstanceId) {
        let Some(profile) = self.profile_of(table, instance) else { return };
        let lists = self.lists_of_profile(profile);
        let default = table.default_action.as_ref().map(|d| d.action as usize);
        for (i, listed) in table.actions.iter().enumerate() {
            if listed.default_only || listed.implicit || default == Some(i) {
                continue;
            }
            let action = self.action_id(listed.action, instance);
            if lists.iter().all(|list| list.iter().any(|a| a.action == action)) {
                continue;
            }
            let (name, profile) = (&self.p.actions[listed.action.index()].name, &self.p.instance(profile).name);
            let message =
                format!("no member of `{profile}` can run `{name}`: not all tables that share it list that action");
            let help = format!("list `{name}` in each of the tables, or give them profiles of their own");
            self.report(Diagnostic::warning(codes::NOT_IN_ALL_TABLES, listed.span, message).help(help));
        }
    }

    /// The action list of each table that is implemented by a profile.
    fn lists_of_profile(&mut self, profile: InstanceId) -> Rc<[Vec<TableAction>]> {
        if let Some(known) = self.profile_lists.get(&profile) {
            return Rc::clone(known);
        }
        let p = self.p;
        let mut lists = Vec::new();
        for (i, instance) in p.instances.iter().enumerate() {
            let InstanceOf::Control(control) = instance.of else { continue };
            let id = InstanceId::from_index(i);
            for table in p.controls[control.index()].tables.iter().map(|t| &p.tables[t.index()]) {
                if self.profile_of(table, id) == Some(profile) {
                    lists.push(self.listed_actions(table, id));
                }
            }
        }
        let lists: Rc<[_]> = lists.into();
        self.profile_lists.insert(profile, Rc::clone(&lists));
        lists
    }

    /// The actions of action sets: each `@groupaction` action combined with each other action, with the parameters of
    /// both. They follow the listed actions in the table's list. Control planes refer to them by both names.
    fn combined_actions(
        &mut self,
        table: &typed::Table,
        listed: &[TableAction],
    ) -> (Vec<(usize, usize)>, Vec<TableAction>) {
        let places = |group: bool| {
            let fits = move |a: &typed::TableAction| a.group_only == group && !a.default_only && !a.implicit;
            (0..table.actions.len()).filter(move |i| fits(&table.actions[*i]))
        };
        let pairs: Vec<_> = places(true).flat_map(|first| places(false).map(move |then| (first, then))).collect();
        let compose = |(first, then): &(usize, usize)| {
            let [first, then] = [first, then].map(|i| &self.b.program().actions[listed[*i].action.index()]);
            let name = ir::combined_action_name(&first.name, &then.name);
            let params = first.params.iter().chain(&then.params).cloned().collect();
            // Tables that share a selector share these actions.
            let known = self.b.program().actions.iter().position(|a| a.name == name).map(ir::ActionId::from_index);
            let action = known.unwrap_or_else(|| self.b.action(Action { name, params }));
            TableAction { action, default_only: false, table_only: true }
        };
        let actions = pairs.iter().map(compose).collect();
        (pairs, actions)
    }

    fn properties(&mut self, table: &typed::Table, instance: InstanceId, info: &mut TableInfo) {
        for property in &table.properties {
            let meaning = match &self.arch {
                Some(arch) => arch.table_property(&property.name),
                None => TableProperty::Unknown,
            };
            match meaning {
                TableProperty::Ignored => {}
                TableProperty::Unknown => self.report(Diagnostic::warning(
                    codes::UNKNOWN_PROPERTY,
                    property.span,
                    format!("table property `{}` has no meaning in this architecture", property.name),
                )),
                TableProperty::IdleTimeout => {
                    let value = self.p.eval(&property.value, Some(instance));
                    let notify = self.member_name(&property.value.ty, value.as_ref()) == Some("NOTIFY_CONTROL");
                    let on = value.and_then(|v| v.as_bool()).unwrap_or(notify);
                    self.table_mut(info.table).idle_timeout = on;
                }
                // Handled below, once the selector is known.
                TableProperty::EmptyGroupAction => {}
                TableProperty::Capacity => self.capacity(property, instance, info.table),
                TableProperty::Implementation | TableProperty::Counters | TableProperty::Meters => {
                    self.attach(property, &meaning, instance, info);
                }
            }
        }
        self.empty_group_action(table, instance, info);
        self.warn_of_shared(table, instance);
        self.dynamic_table(table, instance, info.table);
        let selects = self.table_mut(info.table).implementation.is_some();
        if info.selector_keys.contains(&true) && !selects {
            let message =
                format!("`selector` keys of table `{}` have no effect without an action selector", table.name);
            self.report(Diagnostic::warning(codes::IDLE_SELECTOR_KEY, table.span, message));
        }
    }

    /// Sets the table's size to that of the object to which a property refers.
    fn capacity(&mut self, property: &typed::Property, instance: InstanceId, id: ir::TableId) {
        let resolved = self.attached(property, instance);
        let size = resolved.and_then(|id| self.p.instance(id).arg("size")?.to_u64());
        let Some(size) = size.filter(|size| *size > 0) else {
            let message = format!("the value of `{}` has no size that a table can have", property.name);
            return self.refuse(codes::UNSUPPORTED_TABLE, property.span, message);
        };
        let table = self.table_mut(id);
        if !table.const_entries {
            table.size = size.max(table.entries.len() as u64);
        }
    }

    /// Sets the action that runs if a group is empty; without one, an empty group is a miss. It is stored in the
    /// selector, to which members and groups belong.
    fn empty_group_action(&mut self, table: &typed::Table, instance: InstanceId, info: &TableInfo) {
        let Some(selector) = self.table_mut(info.table).implementation else { return };
        let call = table.empty_group_action.as_ref().map(|empty| {
            let call = self.action_call(table, empty.action, &empty.args, instance, empty.span);
            ActionCall { action: info.places.get(call.action as usize).copied().unwrap_or_default(), ..call }
        });
        let program = self.b.program_mut();
        let shares = |other: &ir::Table| other.implementation == Some(selector);
        let is_first = program.tables.iter().filter(|other| shares(other)).count() == 1;
        match &mut program.externs[selector.index()].kind {
            ExternKind::ActionSelector { empty, .. } if is_first || *empty == call => *empty = call,
            ExternKind::ActionSelector { .. } => {
                let span = table.empty_group_action.as_ref().map_or(table.span, |empty| empty.span);
                let message = "tables that share a selector run the same where a group is empty";
                self.refuse(codes::UNSUPPORTED_TABLE, span, message);
            }
            _ => {}
        }
    }

    fn attach(
        &mut self,
        property: &typed::Property,
        meaning: &TableProperty,
        instance: InstanceId,
        info: &mut TableInfo,
    ) {
        let resolved = self.attached(property, instance);
        let Some(ext) = resolved.and_then(|id| self.externs.get(&id).copied()) else {
            let message = format!("the value of `{}` is not an extern instance that tables can have", property.name);
            return self.refuse(codes::UNSUPPORTED_TABLE, property.span, message);
        };
        let id = info.table;
        let (size, list) = {
            let table = self.table_mut(id);
            (table.size, table.actions.clone())
        };
        let mut wrong = None;
        match (&mut self.b.program_mut().externs[ext.index()].kind, meaning) {
            (
                ExternKind::ActionProfile { actions, .. } | ExternKind::ActionSelector { actions, .. },
                TableProperty::Implementation,
            ) => {
                let ids = |list: &[TableAction]| list.iter().map(|a| a.action).collect::<Vec<_>>();
                if actions.is_empty() {
                    *actions = list;
                } else if ids(actions) == ids(&list) {
                    for (of_profile, of_table) in actions.iter_mut().zip(&list) {
                        of_profile.default_only |= of_table.default_only;
                        of_profile.table_only |= of_table.table_only;
                    }
                } else {
                    wrong = Some("tables that share a selector must have the same `@groupaction` actions");
                }
            }
            (ExternKind::Counter { size: cells, direct, .. }, TableProperty::Counters)
            | (ExternKind::Meter { size: cells, direct, .. }, TableProperty::Meters) => match direct {
                Some(_) => wrong = Some("a direct counter or meter belongs to one table only"),
                None => {
                    *cells = size;
                    *direct = Some(id);
                }
            },
            _ => wrong = Some("this extern does not fit the property"),
        }
        if let Some(wrong) = wrong {
            return self.refuse(codes::UNSUPPORTED_TABLE, property.span, wrong);
        }
        match meaning {
            TableProperty::Implementation => self.table_mut(id).implementation = Some(ext),
            TableProperty::Counters => {
                self.table_mut(id).direct.push(ext);
                info.counters = info.counters.iter().copied().chain([ext]).collect();
            }
            _ => {
                self.table_mut(id).direct.push(ext);
                info.meters = info.meters.iter().copied().chain([ext]).collect();
            }
        }
    }

    fn table_mut(&mut self, id: ir::TableId) -> &mut ir::Table {
        &mut self.b.program_mut().tables[id.index()]
    }

    /// The IR action for an action of a control instance.
    fn action_id(&mut self, id: ActionId, instance: InstanceId) -> ir::ActionId {
        let p = self.p;
        let action = &p.actions[id.index()];
        let owner = action.owner.map(|_| instance);
        if let Some(known) = self.actions.get(&(id, owner)) {
            return *known;
        }
        let path = owner.map_or("", |o| p.instance(o).path.as_str());
        let name = action.control_name.qualified(path);
        // Actions with the same name have the same parameters, and no table has two of them.
        if let Some(same) = self.action_names.get(&name) {
            self.actions.insert((id, owner), *same);
            return *same;
        }
        let mut params = Vec::new();
        for param in action.data_params() {
            let width = self.scalar_width(&param.ty).unwrap_or(0);
            if width == 0 {
                let text = self.type_text(&param.ty);
                let message = format!("the control plane cannot give parameter `{}` of type `{text}`", param.name);
                let diagnostic = Diagnostic::error(codes::UNSUPPORTED_TYPE, param.span, message);
                // Another switch may have a control plane that can provide it.
                if !self.package_is_foreign {
                    self.report(diagnostic.help("give the action the fields that it needs, each as a parameter"));
                }
            }
            let written = find_annotation(&param.annotations, "name").and_then(|a| a.as_str());
            params.push((written.unwrap_or(&param.name).to_string(), width.max(1)));
        }
        let made = self.b.action(Action { name: name.clone(), params });
        self.action_names.insert(name, made);
        self.actions.insert((id, owner), made);
        made
    }

    /// A call of an action with compile-time arguments.
    pub fn action_call(
        &mut self,
        table: &typed::Table,
        index: u32,
        args: &[typed::Expr],
        instance: InstanceId,
        span: Span,
    ) -> ActionCall {
        let p = self.p;
        let action = table.actions.get(index as usize).map(|a| &p.actions[a.action.index()]);
        let params: Vec<_> = action.map(|a| a.data_params().collect()).unwrap_or_default();
        let mut values = Vec::new();
        for (i, param) in params.iter().enumerate() {
            let value = args.get(i).and_then(|e| p.eval(e, Some(instance)));
            match value.map(|v| self.value_tree(&v, &param.ty)) {
                Some(Tree::Leaf(Operand::Const(c))) if c.width() > 0 => values.push(c),
                // A parameter that no control plane can provide; one bit represents it.
                Some(_) => values.push(Bits::zero(1)),
                None => {
                    let message = format!("the value of `{}` is not known at compile time", param.name);
                    self.refuse(codes::NOT_CONSTANT, args.get(i).map_or(span, |e| e.span), message);
                    values.push(Bits::zero(self.scalar_width(&param.ty).unwrap_or(1)));
                }
            }
        }
        ActionCall { action: index, args: values }
    }

    /// The IR table of a value set in an instance of its parser.
    fn value_set_table(&mut self, id: ValueSetId, instance: InstanceId) -> ir::TableId {
        if let Some(table) = self.value_sets.get(&(id, instance)) {
            return *table;
        }
        let p = self.p;
        let set = &p.value_sets[id.index()];
        let mut keys = Vec::new();
        self.value_set_keys(set, &set.name, &set.element, &set.annotations, &mut keys);
        let size = p.eval(&set.size, Some(instance)).and_then(|v| v.to_u64()).unwrap_or(DEFAULT_SIZE);
        let name = set.control_name.qualified(&p.instance(instance).path);
        let action = self.b.action(Action { name: format!("{name}.$member"), params: Vec::new() });
        let table = self.b.table(ir::Table {
            name,
            span: set.span,
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
        });
        self.value_sets.insert((id, instance), table);
        table
    }

    /// The fields of a value set's element, flattened; a single value gets the name of the set.
    fn value_set_keys(
        &mut self,
        set: &typed::ValueSet,
        name: &str,
        ty: &Type,
        annotations: &[typed::Annotation],
        keys: &mut Vec<ir::Key>,
    ) {
        let p = self.p;
        let inside = |field: &str| match std::ptr::eq(ty, &set.element) {
            true => field.to_string(),
            false => format!("{name}.{field}"),
        };
        match p.types.underlying(ty) {
            Type::Struct(fields) => {
                for field in &p.types.fields_of(fields).fields {
                    self.value_set_keys(set, &inside(&field.name), &field.ty, &field.annotations, keys);
                }
            }
            Type::Tuple(types) => {
                for (i, ty) in types.iter().enumerate() {
                    self.value_set_keys(set, &inside(&format!("f{i}")), ty, &[], keys);
                }
            }
            _ => {
                let kind = match find_annotation(annotations, "match").map(match_annotation) {
                    None => MatchKind::Exact,
                    Some(Some(kind)) => kind,
                    Some(None) => {
                        self.refuse(codes::UNSUPPORTED_TABLE, set.span, "this `@match` is not supported");
                        MatchKind::Exact
                    }
                };
                let width = self.scalar_width(ty).unwrap_or(0);
                if width == 0 {
                    let text = self.type_text(ty);
                    self.refuse(codes::UNSUPPORTED_TABLE, set.span, format!("a value set cannot hold `{text}`"));
                }
                keys.push(ir::Key { name: name.to_string(), width: width.max(1), kind });
            }
        }
    }

    /// One bit: whether the keys are in a value set of the current parser.
    pub fn value_set_hit(&mut self, set: ValueSetId, keys: Vec<Operand>) -> Operand {
        let Some(instance) = self.env.instance else { return Self::bit(false) };
        let table = self.value_set_table(set, instance);
        let to = self.results();
        self.b.emit(Op::Apply {
            table,
            keys,
            selector: Vec::new(),
            hit: to.hit,
            action: to.action,
            entry: to.entry,
            data: to.data,
        });
        to.hit.into()
    }
}

fn match_annotation(annotation: &typed::Annotation) -> Option<MatchKind> {
    let typed::AnnotationBody::Unstructured { tokens, .. } = &annotation.body else { return None };
    match tokens.as_slice() {
        [token] => match &*token.text {
            "exact" => Some(MatchKind::Exact),
            "lpm" => Some(MatchKind::Lpm),
            "ternary" => Some(MatchKind::Ternary),
            "range" => Some(MatchKind::Range),
            "optional" => Some(MatchKind::Optional),
            _ => None,
        },
        _ => None,
    }
}

// Application of tables.
impl Lowerer<'_> {
    fn results(&mut self) -> Applied {
        let [hit, action, entry, data] = [1, 32, 64, 64].map(|w| self.b.temp(w));
        Applied { hit, action, entry, data }
    }

    /// `table.apply().hit`
    pub fn apply_hit(&mut self, call: &Call) -> Operand {
        self.apply_call(call, None)
    }

    /// Applies a table, then runs the action that it finds and that action's `switch` case. Returns the hit flag.
    pub fn apply_call(&mut self, call: &Call, cases: Option<&[ActionCase]>) -> Operand {
        let (Callee::TableApply(id), Some(instance)) = (&call.callee, self.env.instance) else {
            self.refuse(codes::MISPLACED, call.span, "only a table of a control can be applied here");
            return Self::bit(false);
        };
        if self.too_large(call.span) {
            return Self::bit(false);
        }
        let p = self.p;
        let table = &p.tables[id.index()];
        let info = self.table_info(*id, instance);
        let saved = self.b.set_span(call.span);
        let exprs: Vec<_> = table.keys.iter().map(|k| &k.expr).collect();
        let values = self.eval_all(&exprs);
        let (mut keys, mut selector) = (Vec::new(), Vec::new());
        for (value, selects) in values.iter().zip(info.selector_keys.iter()) {
            if *selects { &mut selector } else { &mut keys }.push(value.operand());
        }
        if self.table_mut(info.table).dynamic.is_some() {
            // An action that adds an entry may have changed a variable of the key.
            keys = keys.into_iter().map(|key| self.freeze(&Tree::Leaf(key)).operand()).collect();
        }
        let looked_up = keys.clone();
        let to = self.results();
        // Without a selector, `selector` keys have no effect; a warning was reported.
        if self.table_mut(info.table).implementation.is_none() {
            selector.clear();
        }
        self.b.emit(Op::Apply {
            table: info.table,
            keys,
            selector,
            hit: to.hit,
            action: to.action,
            entry: to.entry,
            data: to.data,
        });
        // A default entry has direct resources as well (P4Runtime, "Default Entry").
        if self.arch.as_ref().is_some_and(|a| !a.runs_direct_at_lookup()) {
            self.direct.extend(info.counters.iter().chain(info.meters.iter()).map(|ext| (*ext, to.entry)));
        } else {
            for &counter in info.counters.iter() {
                self.b.emit(Op::CountDirect { counter, hit: Self::bit(true), entry: to.entry, bytes: None });
            }
            for &meter in info.meters.iter() {
                self.run_direct_meter(table, meter, &to);
            }
        }
        let outer = std::mem::replace(&mut self.in_table_action, true);
        let of_table = OfTable::new(*id, &info, &looked_up, to.hit, to.entry);
        let outer_table = self.of_table.replace(of_table);
        self.run_action(table, &info, &to, cases.unwrap_or(&[]));
        self.of_table = outer_table;
        self.in_table_action = outer;
        for ext in info.counters.iter().chain(info.meters.iter()) {
            self.direct.remove(ext);
        }
        self.b.set_span(saved);
        to.hit.into()
    }

    /// Runs a direct meter once for each lookup, whether or not the action reads the colour.
    fn run_direct_meter(&mut self, table: &typed::Table, meter: ir::ExternId, to: &Applied) {
        let dst = self.b.temp(2);
        let (hit, entry) = (Self::bit(true), to.entry);
        self.b.emit(Op::MeterDirect { meter, dst, hit, entry, before: None, bytes: None });
        self.direct.insert(meter, dst);
        let mut arch = self.arch.take();
        if let Some(arch) = &mut arch {
            arch.direct_meter(self, table, meter, to.hit, dst);
        }
        self.arch = arch;
    }

    fn run_action(&mut self, table: &typed::Table, info: &TableInfo, to: &Applied, cases: &[ActionCase]) {
        let facts = self.facts.clone();
        let done = self.new_join("");
        let case_joins: Vec<_> = cases.iter().map(|_| self.new_join("")).collect();
        let after = |i: usize| {
            let listed = cases.iter().position(|c| c.actions.contains(&(i as u32)));
            let case = listed.or_else(|| cases.iter().position(|c| c.default));
            case.map_or(done, |c| case_joins[c])
        };
        let bodies: Vec<Option<BlockId>> = table
            .actions
            .iter()
            .map(|a| {
                let action = &self.p.actions[a.action.index()];
                let nothing = action.body.stmts.is_empty() && a.args.iter().all(|x| x.value.expr().is_none_or(is_pure));
                (!nothing).then(|| self.b.block(action.name.to_string()))
            })
            .collect();
        let mut targets: Vec<(Bits, BlockId)> = Vec::new();
        for (i, body) in bodies.iter().enumerate() {
            let target = match body {
                Some(block) => *block,
                None => self.join_block(after(i), &facts),
            };
            targets.push((Bits::new(32, info.places[i].into()), target));
        }
        let combined: Vec<BlockId> = info.combined.iter().map(|_| self.b.block("group")).collect();
        let listed = self.table_mut(info.table).actions.len() - combined.len();
        // Actions of other tables that share the profile, which no member can run.
        for place in (0..listed as u32).filter(|place| !info.places.contains(place)) {
            targets.push((Bits::new(32, place.into()), self.join_block(done, &facts)));
        }
        for (i, block) in (listed..).zip(&combined) {
            targets.push((Bits::new(32, i as u128), *block));
        }
        match targets.as_slice() {
            [] => {}
            [(_, only)] => self.b.jump(*only),
            [(_, first), rest @ ..] if rest.iter().all(|(_, t)| t == first) => self.b.jump(*first),
            _ => {
                let (_, default) = targets.pop().expect("there are two");
                self.b.switch(to.action, targets, default);
            }
        }
        for (i, body) in bodies.iter().enumerate() {
            let Some(block) = body else { continue };
            self.start_block(*block, facts.clone());
            self.table_action(table, info, i, (info.places[i] as usize, 0), to);
            self.to(after(i));
        }
        for (i, (block, (first, then))) in (listed..).zip(combined.iter().zip(info.combined.iter())) {
            self.start_block(*block, facts.clone());
            self.table_action(table, info, *first, (i, 0), to);
            let params = self.p.actions[table.actions[*first].action.index()].data_params().count();
            self.table_action(table, info, *then, (i, params), to);
            self.to(after(*then));
        }
        for (case, join) in cases.iter().zip(case_joins.iter()) {
            if self.is_used(*join) {
                self.enter(*join);
                self.block(&case.body);
                self.to(done);
            }
        }
        self.continue_at(done);
    }

    /// Runs the action listed at `index`. Its data belong to the call found, of the action at index `called.0` in the
    /// table's list; they begin at parameter `called.1` of that action.
    fn table_action(
        &mut self,
        table: &typed::Table,
        info: &TableInfo,
        index: usize,
        called: (usize, usize),
        to: &Applied,
    ) {
        let p = self.p;
        let listed = &table.actions[index];
        let action = &p.actions[listed.action.index()];
        let place = info.places[index] as usize;
        let name = self.b.program().tables[info.table.index()].actions[place].action;
        let name = self.b.program().actions[name.index()].name.clone();
        self.b.set_span(action.span);
        self.mark(Mark::Action(name));
        let (ir_table, data) = (info.table, to.data);
        let mut load = |cx: &mut Lowerer<'_>, param: usize| {
            let number = action.params[..param].iter().filter(|q| q.direction == Direction::None).count();
            let ty = &action.params[param].ty;
            let Some(width) = cx.scalar_width(ty).filter(|w| *w > 0) else {
                // No control plane can provide it; the program cannot be loaded.
                let callee = format!("action data {}", action.params[param].name);
                return cx.call_unresolved(callee, &[], &[ty], listed.span).pop().unwrap_or(Tree::Nothing);
            };
            let dst = cx.b.temp(width);
            let (action, param) = (called.0 as u32, (called.1 + number) as u32);
            cx.b.emit(Op::ActionParam { dst, table: ir_table, action, param, data });
            Tree::from(dst)
        };
        let of_table = self.of_table.take();
        self.of_table = of_table.as_ref().map(|of| of.in_action(index));
        self.inline_action(listed.action, &listed.args, Some(&mut load), listed.span);
        self.of_table = of_table;
    }

    /// The unit of a counter or meter, given its name in the program.
    pub fn unit(name: &str) -> CounterUnit {
        match name {
            "packets" => CounterUnit::Packets,
            "bytes" => CounterUnit::Bytes,
            _ => CounterUnit::Both,
        }
    }
}
