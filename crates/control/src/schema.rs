//! The schema of a loaded program: maps the ids of its P4Info to the objects of the program that runs.
//!
//! It is built once per forwarding config; objects of the P4Info and of the program are matched by their fully
//! qualified names. Requests are checked against it before anything reaches the switch, so that every refusal can name
//! the object and the valid choices.
//!
//! Not every object of the P4Info exists in the running program: an optimiser may have removed a table that is never
//! applied. Such an object has no `target`, and a request that uses it is refused.

use crate::bytes;
use crate::entity::FieldMatch;
use crate::error::{Error, Result, choices};
use crate::forwarding::EntryKey;
use crate::matches;
use crate::translate::Names;
use base::Bits;
use base::entry::{KeyMatch, MatchKind};
use base::ids::{ExternId, TableId};
use constraints::Constraint;
use p4info::{ActionScope, DataType, MatchType, MeterType, ObjectKind, P4Info, SdnType, TypeInfo};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;

/// All objects of a program, by P4Info id.
pub struct Schema {
    /// The program as controllers see it.
    pub info: Arc<P4Info>,
    /// The program that runs.
    pub program: Arc<ir::Program>,
    /// Tables.
    pub tables: BTreeMap<u32, TableSchema>,
    /// Actions.
    pub actions: BTreeMap<u32, ActionSchema>,
    /// Action profiles and selectors.
    pub profiles: BTreeMap<u32, ProfileSchema>,
    /// Counter, meter and register arrays.
    pub arrays: BTreeMap<u32, ArraySchema>,
    /// Value sets.
    pub value_sets: BTreeMap<u32, ValueSetSchema>,
    /// Digests.
    pub digests: BTreeMap<u32, DigestSchema>,
    /// Constant entries, which controllers may not change, by table.
    pub(crate) const_entries: HashMap<TableId, HashSet<EntryKey>>,
    strings: StringTypes,
}

/// The type of a value: its width in the data plane and its form for controllers.
#[derive(Clone, Debug)]
pub struct ValueType {
    /// Width in the data plane, in bits.
    pub width: u32,
    /// Form for controllers.
    pub view: View,
}

/// The form in which a controller sees a value.
#[derive(Clone, Debug)]
pub enum View {
    /// A number of this width in bits.
    Bits(u32),
    /// A number of this width in bits, which is larger than the data plane's width; mapped by the type's table.
    Wide(u32, Arc<Names>),
    /// A string (`@p4runtime_translation(uri, string)`), mapped by the type's table.
    String(Arc<Names>),
}

/// The types of a program whose values are mapped: to strings, or to numbers with more bits than the data plane's.
#[derive(Default)]
pub(crate) struct StringTypes(BTreeMap<String, Arc<Names>>);

impl StringTypes {
    /// Types that an earlier program has unchanged keep its tables, so that their values keep their numbers.
    fn of(types: &TypeInfo, earlier: Option<&Schema>) -> StringTypes {
        let is_mapped = |t: &p4info::NewType| match (t.translation.as_ref().map(|t| t.sdn_type), &t.underlying) {
            (Some(SdnType::String), _) => true,
            (Some(SdnType::Bits(wide)), DataType::Bit(width)) => wide > *width,
            _ => false,
        };
        let names = types.new_types.iter().filter(|(_, t)| is_mapped(t));
        let known = |name: &String, t: &p4info::NewType| {
            let earlier = earlier.filter(|schema| schema.info.type_info.new_types.get(name) == Some(t))?;
            earlier.strings.0.get(name).cloned()
        };
        let made = |name: &String, t: &p4info::NewType| match t.translation.as_ref().map(|t| t.sdn_type) {
            Some(SdnType::String) => Names::new(name),
            _ => Names::of_numbers(name),
        };
        let of = |(name, t): (&String, _)| (name.clone(), known(name, t).unwrap_or_else(|| Arc::new(made(name, t))));
        StringTypes(names.map(of).collect())
    }
}

impl ValueType {
    fn of(
        bitwidth: u32,
        type_name: &Option<String>,
        types: &TypeInfo,
        strings: &StringTypes,
        width: Option<u32>,
    ) -> ValueType {
        let new_type = type_name.as_ref().and_then(|name| types.new_types.get(name));
        let view = match type_name.as_ref().and_then(|name| strings.0.get(name)) {
            Some(names) => match new_type.and_then(|t| t.translation.as_ref()).map(|t| t.sdn_type) {
                Some(SdnType::Bits(wide)) => View::Wide(wide, Arc::clone(names)),
                _ => View::String(Arc::clone(names)),
            },
            None => View::Bits(bitwidth),
        };
        let underlying = new_type.map(|new_type| match new_type.underlying {
            DataType::Bit(width) | DataType::Int(width) => width,
            DataType::Bool => 1,
            _ => bitwidth,
        });
        ValueType { width: width.or(underlying).unwrap_or(bitwidth), view }
    }

    /// The type of an action's parameter or a controller header's field; `width` is the data plane's width, if known.
    pub(crate) fn for_param(param: &p4info::Param, schema: &Schema, width: Option<u32>) -> ValueType {
        ValueType::of(param.bitwidth, &param.type_name, &schema.info.type_info, &schema.strings, width)
    }

    /// The data plane's value of a controller's value.
    ///
    /// # Errors
    ///
    /// OUT_OF_RANGE or INVALID_ARGUMENT if it does not fit the type, RESOURCE_EXHAUSTED if no number is free; the
    /// message names `what`.
    pub fn decode(&self, value: &[u8], what: impl Display) -> Result<Bits> {
        let bits = match &self.view {
            View::Bits(width) => bytes::parse(*width, value, &what)?,
            View::Wide(width, names) => {
                return names.narrowed(&bytes::parse(*width, value, &what)?, self.width, what);
            }
            View::String(names) => return names.number(value, self.width, what),
        };
        if bits.width() > self.width && bits.lshr(u64::from(self.width)).is_true() {
            let message = format!("{what}: the value {bits:#} does not fit into the data plane's {} bits", self.width);
            return Err(Error::out_of_range(message));
        }
        Ok(bits.resize_u(self.width))
    }

    /// The controller's value of a data plane's value.
    pub fn encode(&self, value: &Bits) -> Vec<u8> {
        match &self.view {
            View::Bits(_) => bytes::canonical(value),
            View::Wide(width, names) => {
                let decimal = names.name(value);
                let number = num_bigint::BigUint::parse_bytes(&decimal, 10).unwrap_or_default();
                bytes::canonical(&Bits::from_bytes_be(*width, &number.to_bytes_be()))
            }
            View::String(names) => names.name(value),
        }
    }

    /// The controller's width in bits, if it is larger than the data plane's.
    pub(crate) fn wide(&self) -> Option<u32> {
        match self.view {
            View::Wide(width, _) => Some(width),
            View::Bits(_) | View::String(_) => None,
        }
    }
}

/// A field of a table's key or of a value set.
#[derive(Clone, Debug)]
pub struct FieldSchema {
    /// The field's id in the P4Info.
    pub id: u32,
    /// Its name, for messages.
    pub name: String,
    /// The type of its values.
    pub value: ValueType,
    /// The match kind; `None` for an architecture-specific one.
    pub kind: Option<MatchKind>,
}

/// An action.
pub struct ActionSchema {
    /// Its name, for messages.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<ParamSchema>,
    /// The `@action_restriction` that arguments must satisfy.
    pub restriction: Option<Constraint>,
}

/// An action's parameter, or a field of a controller header.
#[derive(Clone, Debug)]
pub struct ParamSchema {
    /// Its id in the P4Info.
    pub id: u32,
    /// Its name, for messages.
    pub name: String,
    /// The type of its values.
    pub value: ValueType,
}

/// An action in the action list of a table or profile.
#[derive(Clone, Copy, Debug)]
pub struct ListedAction {
    /// The action.
    pub id: u32,
    /// Where it may be used: in entries, as the default action, as a group action.
    pub scope: ActionScope,
    /// Its index in the program's list, by which entries refer to it.
    pub position: u32,
}

/// A table.
pub struct TableSchema {
    /// Its name, for messages.
    pub name: String,
    /// Its noun and name, for messages; shared, so that passing it on copies nothing.
    pub label: Arc<str>,
    /// Its id in the program.
    pub target: Option<TableId>,
    /// Key fields, in order.
    pub fields: Vec<FieldSchema>,
    /// The actions of entries and of the default entry.
    pub actions: Vec<ListedAction>,
    /// Whether entries have a priority.
    pub needs_priority: bool,
    /// The action profile whose members and groups its entries refer to.
    pub profile: Option<u32>,
    /// Its direct counter: P4Info id and id in the program.
    pub direct_counter: Option<(u32, ExternId)>,
    /// Its direct meter: P4Info id and id in the program.
    pub direct_meter: Option<(u32, ExternId)>,
    /// The type of that meter.
    pub meter_type: MeterType,
    /// Whether entries may have idle timeouts.
    pub idle_timeout: bool,
    /// Whether it has `const entries`.
    pub is_const: bool,
    /// Whether it has a `const default_action`.
    pub const_default: bool,
    /// The `@entry_restriction` that entries must satisfy.
    pub restriction: Option<Constraint>,
}

impl TableSchema {
    /// The match fields of a key, as a controller sees them.
    pub fn key_of(&self, key: &[KeyMatch]) -> Vec<FieldMatch> {
        matches::encode(&self.fields, key)
    }
}

/// An action profile or selector.
pub struct ProfileSchema {
    /// Its name, for messages.
    pub name: String,
    /// Its id in the program.
    pub target: Option<ExternId>,
    /// Whether it is a selector, which has groups.
    pub with_selector: bool,
    /// The actions of members.
    pub actions: Vec<ListedAction>,
    /// The index of the action that runs a group action and then a member's action, by the group action's id and the
    /// index of the member's action in the program's list.
    pub combined: HashMap<(u32, u32), u32>,
    /// Limit on the size of a group.
    pub max_group_size: i32,
    /// Whether a group's size is its number of members rather than the sum of their weights.
    pub counts_members: bool,
    /// Limit on the weight of a member, 0 for none; only with `counts_members`.
    pub max_member_weight: i32,
    /// Whether controllers may not give weights.
    pub weights_disallowed: bool,
}

/// A counter, meter or register array.
pub struct ArraySchema {
    /// Counter, meter or register.
    pub kind: ObjectKind,
    /// Its name, for messages.
    pub name: String,
    /// Its id in the program.
    pub target: Option<ExternId>,
    /// Number of cells.
    pub size: u64,
    /// The type of a register's cells.
    pub cell: Option<DataType>,
    /// The type of a meter.
    pub meter_type: MeterType,
}

/// A value set.
pub struct ValueSetSchema {
    /// Its name, for messages.
    pub name: String,
    /// The table that holds its members.
    pub target: Option<TableId>,
    /// Its fields, in order.
    pub fields: Vec<FieldSchema>,
    /// Limit on the number of members.
    pub size: u64,
}

/// A digest.
pub struct DigestSchema {
    /// Its name, for messages.
    pub name: String,
    /// Its id in the program.
    pub target: Option<ExternId>,
    /// The type of a message.
    pub data: DataType,
}

impl Schema {
    /// Whether some values are mapped by names, which get their numbers in the order in which they first occur.
    pub(crate) fn has_names(&self) -> bool {
        !self.strings.0.is_empty()
    }

    /// Matches the objects of a P4Info and a program by name. With an `earlier` program, whose state is kept, mapped
    /// values keep their numbers.
    pub fn new(info: Arc<P4Info>, program: Arc<ir::Program>, earlier: Option<&Schema>) -> Schema {
        let mut schema = Schema {
            tables: BTreeMap::new(),
            actions: BTreeMap::new(),
            profiles: BTreeMap::new(),
            arrays: BTreeMap::new(),
            value_sets: BTreeMap::new(),
            digests: BTreeMap::new(),
            const_entries: HashMap::new(),
            strings: StringTypes::of(&info.type_info, earlier),
            info: Arc::clone(&info),
            program: Arc::clone(&program),
        };
        for action in &info.actions {
            let widths = program.actions.iter().find(|a| a.name == action.preamble.name).map(|a| &a.params);
            let width = |i: usize| widths.and_then(|params| params.get(i)).map(|(_, width)| *width);
            let params = action.params.iter().enumerate().map(|(i, p)| ParamSchema {
                id: p.id,
                name: p.name.clone(),
                value: ValueType::for_param(p, &schema, width(i)),
            });
            let params = params.collect();
            let (name, restriction) = (action.preamble.name.clone(), action.restriction.clone());
            schema.actions.insert(action.preamble.id, ActionSchema { name, params, restriction });
        }
        for table in &info.tables {
            let entry = schema.table(table);
            schema.tables.insert(table.preamble.id, entry);
        }
        for profile in &info.action_profiles {
            let entry = schema.profile(profile);
            schema.profiles.insert(profile.preamble.id, entry);
        }
        for counter in &info.counters {
            schema.array(ObjectKind::Counter, &counter.preamble, counter.size, None);
        }
        for meter in &info.meters {
            schema.array(ObjectKind::Meter, &meter.preamble, meter.size, None);
        }
        for register in &info.registers {
            let cell = Some(register.type_spec.clone());
            schema.array(ObjectKind::Register, &register.preamble, i64::from(register.size), cell);
        }
        for set in &info.value_sets {
            let target = program.table_named(&set.preamble.name);
            let fields = schema.fields(&set.match_fields, target.map(|t| &program.tables[t.index()]));
            let size = u64::try_from(set.size).unwrap_or(0);
            let entry = ValueSetSchema { name: set.preamble.name.clone(), target, fields, size };
            schema.value_sets.insert(set.preamble.id, entry);
        }
        for table in &info.tables {
            let Some(target) = program.table_named(&table.preamble.name) else { continue };
            let of_program = &program.tables[target.index()];
            // The program has only the first of several entries with the same key, so the positions do not tell which
            // entries are constant. If any is, all are treated as constant.
            let all_known = table.const_entries.len() == of_program.entries.len();
            let any = of_program.const_entries || table.const_entries.contains(&true);
            let is_const =
                |at: usize| of_program.const_entries || if all_known { table.const_entries[at] } else { any };
            let constant = of_program.entries.iter().enumerate().filter(|(at, _)| is_const(*at));
            let keys: HashSet<EntryKey> = constant.map(|(_, e)| (e.key.clone(), e.priority)).collect();
            if !keys.is_empty() {
                schema.const_entries.insert(target, keys);
            }
        }
        for digest in &info.digests {
            let entry = DigestSchema {
                name: digest.preamble.name.clone(),
                target: program.extern_named(&digest.preamble.name),
                data: digest.type_spec.clone(),
            };
            schema.digests.insert(digest.preamble.id, entry);
        }
        schema
    }

    fn table(&self, table: &p4info::Table) -> TableSchema {
        let target = self.program.table_named(&table.preamble.name);
        let ir_table = target.map(|t| &self.program.tables[t.index()]);
        let fields = self.fields(&table.match_fields, ir_table);
        let direct = |kind: ObjectKind| {
            let id = table.direct_resource_ids.iter().copied().find(|id| ObjectKind::of(*id) == Some(kind))?;
            Some((id, self.program.extern_named(self.name_of(id)?)?))
        };
        TableSchema {
            name: table.preamble.name.clone(),
            label: format!("table `{}`", table.preamble.name).into(),
            target,
            needs_priority: fields.iter().any(|f| f.kind.is_some_and(MatchKind::needs_priority)),
            fields,
            actions: self.listed(&table.action_refs, ir_table.map(|t| t.actions.as_slice())),
            profile: table.implementation_id,
            direct_counter: direct(ObjectKind::DirectCounter),
            direct_meter: direct(ObjectKind::DirectMeter),
            meter_type: self.meter_type(&table.direct_resource_ids),
            // P4Info cannot describe entries that expire by themselves.
            idle_timeout: table.idle_timeout || ir_table.is_some_and(|t| t.dynamic.is_some() && t.idle_timeout),
            is_const: table.is_const_table,
            const_default: table.const_default_action_id.is_some(),
            restriction: table.restriction.clone(),
        }
    }

    fn fields(&self, fields: &[p4info::MatchField], table: Option<&ir::program::Table>) -> Vec<FieldSchema> {
        let types = &self.info.type_info;
        let width = |i: usize| table.and_then(|t| t.keys.get(i)).map(|key| key.width);
        let field = |(i, f): (usize, &p4info::MatchField)| FieldSchema {
            id: f.id,
            name: f.name.clone(),
            value: ValueType::of(f.bitwidth, &f.type_name, types, &self.strings, width(i)),
            kind: match &f.match_type {
                MatchType::Known(kind) => Some(*kind),
                MatchType::Other(_) => None,
            },
        };
        fields.iter().enumerate().map(field).collect()
    }

    /// The actions that the program's list has, too.
    fn listed(&self, refs: &[p4info::ActionRef], list: Option<&[ir::program::TableAction]>) -> Vec<ListedAction> {
        let place = |id: u32| {
            let name = &self.actions.get(&id)?.name;
            let position = |a: &ir::program::TableAction| self.program.actions[a.action.index()].name == *name;
            list?.iter().position(position).map(|p| p as u32)
        };
        let listed = refs.iter().map(|r| Some(ListedAction { id: r.id, scope: r.scope, position: place(r.id)? }));
        listed.flatten().collect()
    }

    /// The indices of the program's actions that run a group action and then a member's action.
    fn combined(&self, listed: &[ListedAction], list: &[ir::program::TableAction]) -> HashMap<(u32, u32), u32> {
        let groups = || listed.iter().filter(|a| a.scope == ActionScope::GroupAction);
        if groups().next().is_none() {
            return HashMap::new();
        }
        let name_at = |place: usize| self.program.actions[list[place].action.index()].name.as_str();
        let places: HashMap<&str, u32> = (0..list.len()).map(|place| (name_at(place), place as u32)).collect();
        let pairs = groups().flat_map(|group| listed.iter().map(move |member| (group, member)));
        let place = |(group, member): (&ListedAction, &ListedAction)| {
            let names = [group, member].map(|a| name_at(a.position as usize));
            let place = places.get(ir::combined_action_name(names[0], names[1]).as_str())?;
            Some(((group.id, member.position), *place))
        };
        pairs.filter_map(place).collect()
    }

    fn profile(&self, profile: &p4info::ActionProfile) -> ProfileSchema {
        use ir::program::ExternKind;
        let target = self.program.extern_named(&profile.preamble.name);
        let list = target.and_then(|t| match &self.program.externs[t.index()].kind {
            ExternKind::ActionProfile { actions, .. } | ExternKind::ActionSelector { actions, .. } => {
                Some(actions.as_slice())
            }
            _ => None,
        });
        // All tables that share a profile have the same actions, so any of them will do.
        let table = profile.table_ids.first().and_then(|id| self.info.tables.iter().find(|t| t.preamble.id == *id));
        let counts_members = matches!(profile.selector_size, Some(p4info::SelectorSize::SumOfMembers { .. }));
        let mut actions = self.listed(table.map_or(&[], |t| &t.action_refs), list);
        let is_for_members = |a: &ListedAction| list.is_some_and(|list| !list[a.position as usize].default_only);
        actions.retain(|a| a.scope == ActionScope::DefaultOnly || is_for_members(a));
        ProfileSchema {
            name: profile.preamble.name.clone(),
            target,
            with_selector: profile.with_selector,
            combined: self.combined(&actions, list.unwrap_or_default()),
            actions,
            max_group_size: profile.max_group_size,
            counts_members,
            max_member_weight: match profile.selector_size {
                Some(p4info::SelectorSize::SumOfMembers { max_member_weight }) => max_member_weight,
                _ => 0,
            },
            weights_disallowed: profile.weights_disallowed,
        }
    }

    fn array(&mut self, kind: ObjectKind, preamble: &p4info::Preamble, size: i64, cell: Option<DataType>) {
        let target = self.program.extern_named(&preamble.name);
        let size = u64::try_from(size).unwrap_or(0);
        let (name, meter_type) = (preamble.name.clone(), self.meter_type(&[preamble.id]));
        self.arrays.insert(preamble.id, ArraySchema { kind, name, target, size, cell, meter_type });
    }

    /// The type of the first meter among these ids.
    fn meter_type(&self, ids: &[u32]) -> MeterType {
        let arrays = self.info.meters.iter().map(|m| (m.preamble.id, m.meter_type));
        let direct = self.info.direct_meters.iter().map(|m| (m.preamble.id, m.meter_type));
        arrays.chain(direct).find(|(id, _)| ids.contains(id)).map_or_else(MeterType::default, |(_, of)| of)
    }

    /// The name of a direct resource.
    fn name_of(&self, id: u32) -> Option<&str> {
        let counters = self.info.direct_counters.iter().map(|c| &c.preamble);
        let meters = self.info.direct_meters.iter().map(|m| &m.preamble);
        counters.chain(meters).find(|preamble| preamble.id == id).map(|preamble| preamble.name.as_str())
    }

    /// The table with an id.
    ///
    /// # Errors
    ///
    /// The P4Info has no such table.
    pub fn table_by_id(&self, id: u32) -> Result<&TableSchema> {
        let names = || self.tables.values().map(|t| t.name.as_str());
        find(&self.tables, id, ObjectKind::Table, names)
    }

    /// The action profile with an id, or an error if there is none.
    pub fn profile_by_id(&self, id: u32) -> Result<&ProfileSchema> {
        let names = || self.profiles.values().map(|p| p.name.as_str());
        find(&self.profiles, id, ObjectKind::ActionProfile, names)
    }

    /// The array of a kind (counter, meter, register) with an id, or an error if there is none.
    pub fn array_by_id(&self, id: u32, kind: ObjectKind) -> Result<&ArraySchema> {
        let of_kind = || self.arrays.values().filter(|a| a.kind == kind).map(|a| a.name.as_str());
        find(&self.arrays, id, kind, of_kind)
    }

    /// The value set with an id, or an error if there is none.
    pub fn value_set_by_id(&self, id: u32) -> Result<&ValueSetSchema> {
        let names = || self.value_sets.values().map(|s| s.name.as_str());
        find(&self.value_sets, id, ObjectKind::ValueSet, names)
    }

    /// The digest with an id, or an error if there is none.
    pub fn digest_by_id(&self, id: u32) -> Result<&DigestSchema> {
        let names = || self.digests.values().map(|d| d.name.as_str());
        find(&self.digests, id, ObjectKind::Digest, names)
    }

    /// The name of the object with an id, for messages; the number if no object that has entities has this id.
    pub fn name_for(&self, id: u32) -> String {
        let name = (self.tables.get(&id).map(|o| &o.name))
            .or_else(|| self.profiles.get(&id).map(|o| &o.name))
            .or_else(|| self.arrays.get(&id).map(|o| &o.name))
            .or_else(|| self.value_sets.get(&id).map(|o| &o.name))
            .or_else(|| self.digests.get(&id).map(|o| &o.name));
        name.map_or_else(|| id.to_string(), |name| format!("`{name}`"))
    }

    /// The name of an action, for messages; its number if there is no such action.
    pub fn action_name(&self, id: u32) -> String {
        self.actions.get(&id).map_or_else(|| format!("{id:#010x}"), |action| action.name.clone())
    }
}

/// The object's id in the program, or FAILED_PRECONDITION if the program does not use the object.
pub(crate) fn present<T: Copy>(target: Option<T>, kind: ObjectKind, name: &str) -> Result<T> {
    target.ok_or_else(|| {
        let noun = kind.noun();
        Error::precondition(format!("{noun} `{name}` has no place in the running program: nothing in it is ever used"))
    })
}

fn find<'a, T, I: Iterator<Item = &'a str>>(
    objects: &'a BTreeMap<u32, T>,
    id: u32,
    kind: ObjectKind,
    names: impl FnOnce() -> I,
) -> Result<&'a T> {
    let noun = kind.noun();
    if id == 0 {
        return Err(Error::invalid(format!("the {noun} id is missing")));
    }
    objects.get(&id).ok_or_else(|| match ObjectKind::of(id) {
        Some(other) if other != kind => {
            Error::invalid(format!("{id:#010x} is the id of a {}, expected a {noun}", other.noun()))
        }
        _ => Error::not_found(format!("no {noun} has the id {id:#010x}; there is {}", choices(names()))),
    })
}
