//! Applies the commands that configure a switch, to any pipeline state.
//!
//! Names may be shortened to any unique suffix, as in the reference compiler's scripts. The widths of values come from
//! the program. A key field that a line omits matches anything (an exact field: 0).
//!
//! Scripts for the reference compiler's eBPF and uBPF back ends use the names of the generated C code (module
//! `c_names`).

use crate::c_names;
use crate::script::{
    ActionText, Command, CounterCell, EntryOptions, EntryVerb, MeterRates, ONE_OF, ReplicaText, ScriptError, number,
    radix_of,
};
use abi::state::{PipelineState, StateError};
use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, GroupMember, KeyMatch, MatchKind, MeterConfig, TableEntry};
use base::ids::{ActionId, ExternId, TableId};
use datapath::replication::{CloneSession, Replica, Replication};
use ir::masked_sets::masked_key;
use ir::{ExternKind, Program, TableAction};
use std::collections::BTreeMap;

/// The switch that commands are applied to.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The program, for names and widths.
    pub program: &'a Program,
    /// Its state.
    pub state: &'a dyn PipelineState,
    /// Its multicast groups and clone sessions.
    pub replication: &'a Replication,
}

/// The change that a line makes to a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TableChange {
    /// Adds an entry, modifies it, or does whichever is possible.
    Write(EntryVerb, TableEntry),
    /// Removes the entry with a key and priority.
    Delete(Vec<KeyMatch>, i32),
    /// Sets the default action.
    SetDefault(EntryAction),
}

/// The change of an `add`, `delete` or `setdefault` line, without applying it; `Ok(None)` for other commands. Needs
/// only the tables and actions of the program, and their names.
///
/// # Errors
///
/// A name or value in the line is wrong.
pub fn table_change(program: &Program, command: &Command) -> Result<Option<(TableId, TableChange)>, String> {
    Ok(Some(match command {
        Command::Entry { verb, table, priority, key, action, options, .. } => {
            let (id, t) = find_table(program, table)?;
            let key = key_of(t, key)?;
            let action = entry_action(program, t, action)?;
            let priority = checked_priority(t, *priority)?;
            let idle_timeout_ns = options.idle_timeout_ns;
            (id, TableChange::Write(*verb, TableEntry { key, priority, action, idle_timeout_ns }))
        }
        Command::Delete { table, priority, key } => {
            let (id, t) = find_table(program, table)?;
            (id, TableChange::Delete(key_of(t, key)?, checked_priority(t, *priority)?))
        }
        Command::SetDefault { table, action, .. } => {
            let (id, t) = find_table(program, table)?;
            (id, TableChange::SetDefault(entry_action(program, t, action)?))
        }
        _ => return Ok(None),
    }))
}

/// The state of a sequence of commands: the handles of multicast nodes are valid only within a script.
#[derive(Default)]
pub struct Setup {
    nodes: Vec<(u32, Vec<u32>)>,
    groups: BTreeMap<u32, Vec<u32>>,
    /// The group of each clone session that follows a group's changes.
    group_sessions: BTreeMap<u32, u32>,
    /// The entries with handles, from `add ... = $HANDLE`.
    handles: BTreeMap<String, EntryHandle>,
}

/// A table entry that a script has a handle for.
struct EntryHandle {
    table: TableId,
    key: Vec<KeyMatch>,
    priority: i32,
}

impl Setup {
    /// The state before the first command.
    pub fn new() -> Setup {
        Setup::default()
    }

    /// Executes one command. `Ok(None)` if it does not configure the switch; otherwise the text that a `*_get` or
    /// `*_read` command prints, else an empty one.
    ///
    /// # Errors
    ///
    /// The command is wrong, or the state refuses it.
    pub fn apply(&mut self, command: &Command, target: Target) -> Result<Option<String>, String> {
        let Target { program, state, replication } = target;
        let done = Ok(Some(String::new()));
        match command {
            Command::Entry { .. } | Command::Delete { .. } | Command::SetDefault { .. } => {
                let Some((id, change)) = table_change(program, command)? else { return Ok(None) };
                let result = match &change {
                    TableChange::Write(EntryVerb::Add, entry) => state.insert(id, entry),
                    TableChange::Write(EntryVerb::Modify, entry) => state.modify(id, entry),
                    TableChange::Write(EntryVerb::Set, entry) => match state.modify(id, entry) {
                        Err(StateError::NotFound) => state.insert(id, entry),
                        done => done,
                    },
                    TableChange::Delete(key, priority) => state.delete(id, key, *priority),
                    TableChange::SetDefault(action) => state.set_default(id, Some(action)),
                };
                result.map_err(|e| state_error(&program.tables[id.index()].name, e))?;
                if let (Command::Entry { handle, options, .. }, TableChange::Write(_, entry)) = (command, change) {
                    set_resources(program, state, id, &entry, options)?;
                    if let Some(handle) = handle {
                        let entry = EntryHandle { table: id, key: entry.key, priority: entry.priority };
                        self.handles.insert(handle.clone(), entry);
                    }
                }
                done
            }
            Command::Clear { table } => {
                let (id, t) = find_table(program, table)?;
                for found in state.entries(id) {
                    state.delete(id, &found.entry.key, found.entry.priority).map_err(|e| state_error(&t.name, e))?;
                }
                done
            }
            Command::ValueSet { name, values } => {
                let (id, t) = find_table(program, name)?;
                if !t.value_set {
                    return Err(format!("`{}` is a table, not a value set", t.name));
                }
                let fields: Vec<String> = t.keys.iter().map(|k| k.name.clone()).collect();
                for member in members_of(&t.name, &fields, values)? {
                    let named: Vec<_> = fields.iter().cloned().zip(member.iter().cloned()).collect();
                    let action = EntryAction::Call(ActionCall { action: 0, args: Vec::new() });
                    let entry = TableEntry { key: key_of(t, &named)?, priority: 0, action, idle_timeout_ns: 0 };
                    state.insert(id, &entry).map_err(|e| state_error(&t.name, e))?;
                    for (table, masks) in program.masked_tables(id) {
                        match state.insert(table, &TableEntry { key: masked_key(&entry.key, &masks), ..entry.clone() })
                        {
                            // Two members may be equal under a mask.
                            Ok(()) | Err(StateError::Exists) => {}
                            Err(error) => return Err(state_error(&t.name, error)),
                        }
                    }
                }
                done
            }
            Command::Member { profile, id, action } => {
                let (ext, e) = find_extern(program, profile)?;
                let action = action.as_ref().ok_or_else(|| format!("member {id} of `{}` has no action", e.name))?;
                let call = action_call(program, profile_actions(&e.kind, &e.name)?, action)?;
                state.member_insert(ext, *id, &call, 0).map_err(|err| state_error(&e.name, err))?;
                done
            }
            Command::Group { profile, id, max_size, members } => {
                let (ext, e) = find_extern(program, profile)?;
                profile_actions(&e.kind, &e.name)?;
                let member = |part: &crate::script::GroupPart| GroupMember {
                    member: part.member,
                    weight: part.weight.unwrap_or(1),
                    watch_port: part.watch,
                };
                let members: Vec<GroupMember> = members.iter().map(member).collect();
                state.group_insert(ext, *id, &members, *max_size).map_err(|err| state_error(&e.name, err))?;
                done
            }
            Command::Multicast { group, replicas, .. } => {
                let result = match replication.group(*group) {
                    Some(_) => replication.group_modify(*group, first_replicas(replicas)),
                    None => replication.group_insert(*group, first_replicas(replicas)),
                };
                result.map_err(|e| format!("multicast group {group}: {e}"))?;
                done
            }
            Command::Clone { session, replicas, class_of_service, packet_length_bytes } => {
                let (class_of_service, packet_length_bytes) = (*class_of_service, *packet_length_bytes);
                let wanted = CloneSession { replicas: first_replicas(replicas), class_of_service, packet_length_bytes };
                set_session(replication, *session, wanted)?;
                done
            }
            // The settings of a digest matter only to the control plane.
            Command::Digest { name, .. } => {
                let (_, e) = find_extern(program, name)?;
                match &e.kind {
                    ExternKind::Digest { .. } => done,
                    _ => Err(format!("`{}` is not a digest", e.name)),
                }
            }
            Command::GroupCreate { group } => {
                self.groups.entry(*group).or_default();
                self.publish(*group, replication)?;
                done
            }
            Command::NodeCreate { rid, ports } => {
                self.nodes.push((*rid, ports.clone()));
                Ok(Some(format!("node {}", self.nodes.len() - 1)))
            }
            Command::NodeUpdate { node, ports } => {
                let entry = self.nodes.get_mut(*node as usize).ok_or(format!("there is no multicast node {node}"))?;
                entry.1.clone_from(ports);
                let touched: Vec<u32> =
                    self.groups.iter().filter(|(_, nodes)| nodes.contains(node)).map(|(g, _)| *g).collect();
                touched.into_iter().try_for_each(|g| self.publish(g, replication))?;
                done
            }
            Command::NodeAssociate { group, node } => {
                if *node as usize >= self.nodes.len() {
                    return Err(format!("there is no multicast node {node}"));
                }
                let nodes = self.groups.get_mut(group).ok_or(format!("there is no multicast group {group}"))?;
                nodes.push(*node);
                self.publish(*group, replication)?;
                done
            }
            Command::MirroringAdd { session, port } => {
                let replicas = vec![Replica { port: *port, instance: 0 }];
                set_session(replication, *session, CloneSession { replicas, ..CloneSession::default() })?;
                done
            }
            Command::MirroringAddGroup { session, group } => {
                self.group_sessions.insert(*session, *group);
                let replicas = self.replicas(*group);
                set_session(replication, *session, CloneSession { replicas, ..CloneSession::default() })?;
                done
            }
            Command::MirroringDelete { session } => {
                self.group_sessions.remove(session);
                replication.session_delete(*session).map_err(|e| format!("clone session {session} {e}"))?;
                done
            }
            Command::MirroringGet { session } => match replication.session(*session) {
                Some(s) => {
                    let ports: Vec<String> = s.replicas.iter().map(|r| r.port.to_string()).collect();
                    Ok(Some(format!("session {session}: ports {}", ports.join(", "))))
                }
                None => Err(format!("there is no clone session {session}")),
            },
            Command::RegisterWrite { name, index, values } => {
                let (ext, e) = find_extern(program, name)?;
                let ExternKind::Register { width, size, .. } = &e.kind else {
                    return Err(format!("`{}` is not a register", e.name));
                };
                let [value] = values.as_slice() else {
                    return Err(format!("a cell of `{}` is one number of {width} bits here", e.name));
                };
                let value = value_of(value, *width)?;
                for index in cells(*index, *size) {
                    state.register_set(ext, index, &value).map_err(|err| state_error(&e.name, err))?;
                }
                done
            }
            Command::RegisterRead { name, index } => {
                let (ext, e) = find_extern(program, name)?;
                let value = state.register(ext, *index).map_err(|err| state_error(&e.name, err))?;
                Ok(Some(format!("{}[{index}] = {value:#}", e.name)))
            }
            Command::RegisterReset { name } => {
                let (ext, e) = find_extern(program, name)?;
                let ExternKind::Register { size, initial, .. } = &e.kind else {
                    return Err(format!("`{}` is not a register", e.name));
                };
                for index in 0..*size {
                    state.register_set(ext, index, initial).map_err(|err| state_error(&e.name, err))?;
                }
                done
            }
            Command::CounterWrite { name, index, packets, bytes } => {
                let (ext, e) = find_extern(program, name)?;
                let ExternKind::Counter { size, .. } = &e.kind else {
                    return Err(format!("`{}` is not a counter", e.name));
                };
                let value = CounterValue { packets: *packets, bytes: *bytes };
                for index in cells(*index, *size) {
                    state.counter_set(ext, index, value).map_err(|err| state_error(&e.name, err))?;
                }
                done
            }
            Command::CounterRead { name, index } => {
                let (ext, e) = find_extern(program, name)?;
                let value = state.counter(ext, *index).map_err(|err| state_error(&e.name, err))?;
                Ok(Some(format!("{}[{index}] = {} packets, {} bytes", e.name, value.packets, value.bytes)))
            }
            Command::MeterSetRates { name, index, rates } => {
                let (ext, e) = find_extern(program, name)?;
                let ExternKind::Meter { size, .. } = &e.kind else {
                    return Err(format!("`{}` is not a meter", e.name));
                };
                let config = meter_config(rates)?;
                if let Some(table) = direct_table(&e.kind) {
                    for entry in direct_entries(state, table, *index, &e.name)? {
                        state
                            .direct_meter_set(ext, &entry.key, entry.priority, Some(config))
                            .map_err(|err| state_error(&e.name, err))?;
                    }
                    return done;
                }
                for index in cells(*index, *size) {
                    state.meter_set(ext, index, Some(config)).map_err(|err| state_error(&e.name, err))?;
                }
                done
            }
            Command::MeterWrite { name, index, rates } => {
                let (ext, e) = find_extern(program, name)?;
                let ExternKind::Meter { size, direct: None, .. } = &e.kind else {
                    return Err(format!("`{}` is not a meter that has cells", e.name));
                };
                for index in cells(*index, *size) {
                    state.meter_set(ext, index, Some(config_of(*rates))).map_err(|err| state_error(&e.name, err))?;
                }
                done
            }
            Command::MeterGetRates { name, index } => {
                let (ext, e) = find_extern(program, name)?;
                let config = state.meter(ext, *index).map_err(|err| state_error(&e.name, err))?;
                Ok(Some(match config {
                    Some(c) => format!(
                        "{}[{index}]: committed {}/s burst {}, peak {}/s burst {}",
                        e.name, c.cir, c.cburst, c.pir, c.pburst
                    ),
                    None => format!("{}[{index}]: not configured, always green", e.name),
                }))
            }
            Command::SetHash { calculation, parameters } => {
                let name = calculation.as_deref();
                let what = name.map_or_else(|| "calculations".to_string(), |name| format!("calculation `{name}`"));
                state.hash_parameters_set(name, parameters).map_err(|err| state_error(&what, err))?;
                done
            }
            Command::Packet { .. }
            | Command::Expect { .. }
            | Command::NoPacket
            | Command::Wait { .. }
            | Command::CheckCounter { .. }
            | Command::ExpectRegister { .. }
            | Command::ExpectDigest { .. }
            | Command::ExpectLog { .. }
            | Command::CheckDrops { .. } => Ok(None),
        }
    }

    /// The value of a counter's cell; for a direct counter, that of the entry at this position, or with this handle.
    pub(crate) fn counter_value(
        &self,
        state: &dyn PipelineState,
        ext: ExternId,
        e: &ir::Extern,
        cell: &CounterCell,
    ) -> Result<CounterValue, String> {
        let value = match (direct_table(&e.kind), cell) {
            (None, CounterCell::Index(index)) => state.counter(ext, *index),
            (Some(table), CounterCell::Index(index)) => {
                let entry = direct_entries(state, table, Some(*index), &e.name)?.swap_remove(0);
                state.direct_counter(ext, &entry.key, entry.priority)
            }
            (table, CounterCell::Handle(handle)) => {
                let entry = self.handles.get(handle).ok_or(format!("no `add` has the handle `${handle}`"))?;
                if table != Some(entry.table) {
                    return Err(format!("`{}` is not a counter of the table that the entry `${handle}` is in", e.name));
                }
                state.direct_counter(ext, &entry.key, entry.priority)
            }
        };
        value.map_err(|error| state_error(&e.name, error))
    }

    fn replicas(&self, group: u32) -> Vec<Replica> {
        let nodes = self.groups.get(&group).into_iter().flatten();
        nodes
            .flat_map(|n| {
                let (rid, ports) = &self.nodes[*n as usize];
                ports.iter().map(|port| Replica { port: *port, instance: *rid })
            })
            .collect()
    }

    fn publish(&self, group: u32, replication: &Replication) -> Result<(), String> {
        let replicas = self.replicas(group);
        let result = match replication.group(group) {
            Some(_) => replication.group_modify(group, replicas.clone()),
            None => replication.group_insert(group, replicas.clone()),
        };
        result.map_err(|e| format!("multicast group {group}: {e}"))?;
        for (session, of) in &self.group_sessions {
            if *of == group {
                let replicas = replicas.clone();
                set_session(replication, *session, CloneSession { replicas, ..CloneSession::default() })?;
            }
        }
        Ok(())
    }
}

/// The replicas while all ports are up: link states are not followed here.
fn first_replicas(replicas: &[ReplicaText]) -> Vec<Replica> {
    let first =
        |replica: &ReplicaText| replica.alternatives.first().map(|&(port, instance)| Replica { port, instance });
    replicas.iter().filter_map(first).collect()
}

/// Sets the direct meter and counter of an entry to the values of a line.
fn set_resources(
    program: &Program,
    state: &dyn PipelineState,
    table: TableId,
    entry: &TableEntry,
    options: &EntryOptions,
) -> Result<(), String> {
    let of_table = |wanted: fn(&ExternKind) -> bool| {
        let found = program.externs.iter().position(|e| wanted(&e.kind) && direct_table(&e.kind) == Some(table));
        found.map(ExternId::from_index)
    };
    let name = &program.tables[table.index()].name;
    if let Some(rates) = options.meter {
        let meter = of_table(|kind| matches!(kind, ExternKind::Meter { .. }));
        let meter = meter.ok_or_else(|| format!("table `{name}` has no meter"))?;
        let config = Some(config_of(rates));
        state.direct_meter_set(meter, &entry.key, entry.priority, config).map_err(|e| state_error(name, e))?;
    }
    if let Some((packets, bytes)) = options.counter {
        let counter = of_table(|kind| matches!(kind, ExternKind::Counter { .. }));
        let counter = counter.ok_or_else(|| format!("table `{name}` has no counter"))?;
        let value = CounterValue { packets, bytes };
        state.direct_counter_set(counter, &entry.key, entry.priority, value).map_err(|e| state_error(name, e))?;
    }
    Ok(())
}

fn config_of(rates: MeterRates) -> MeterConfig {
    let MeterRates { cir, cburst, pir, pburst, eburst } = rates;
    MeterConfig { cir, cburst, pir, pburst, eburst }
}

fn set_session(replication: &Replication, id: u32, session: CloneSession) -> Result<(), String> {
    let result = match replication.session(id) {
        Some(_) => replication.session_modify(id, session),
        None => replication.session_insert(id, session),
    };
    result.map_err(|e| format!("clone session {id}: {e}"))
}

/// The range of one cell, or of all.
fn cells(index: Option<u64>, size: u64) -> std::ops::Range<u64> {
    index.map_or(0..size, |index| index..index.saturating_add(1))
}

/// The table of a direct counter or meter.
fn direct_table(kind: &ExternKind) -> Option<TableId> {
    match kind {
        ExternKind::Counter { direct, .. } | ExternKind::Meter { direct, .. } => *direct,
        _ => None,
    }
}

/// The entry of a table at a position, or all entries without one. The order is that in which they are read back: the
/// order of insertion, as long as none was deleted.
fn direct_entries(
    state: &dyn PipelineState,
    table: TableId,
    position: Option<u64>,
    name: &str,
) -> Result<Vec<TableEntry>, String> {
    let mut entries: Vec<TableEntry> = state.entries(table).into_iter().map(|e| e.entry).collect();
    let Some(position) = position else { return Ok(entries) };
    let at = usize::try_from(position).ok().filter(|at| *at < entries.len());
    let at = at.ok_or_else(|| format!("`{name}`: its table has {} entries, none at {position}", entries.len()))?;
    Ok(vec![entries.swap_remove(at)])
}

/// Applies all lines of a script, which must be configuration commands.
///
/// # Errors
///
/// All lines that cannot be parsed or applied, and other commands.
pub fn apply_all(text: &str, target: Target) -> Result<(), Vec<ScriptError>> {
    let lines = crate::script::parse(text)?;
    let mut setup = Setup::new();
    let mut errors = Vec::new();
    for line in lines {
        let message = match setup.apply(&line.command, target) {
            Ok(Some(_)) => continue,
            Ok(None) => "only commands that set a switch up may stand here".to_string(),
            Err(message) => message,
        };
        errors.push(ScriptError { line: line.number, message });
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Splits values into the members of a value set, with one value for every field.
///
/// # Errors
///
/// The number of values is not a multiple of the number of fields.
pub fn members_of<'v>(
    name: &str,
    fields: &[String],
    values: &'v [String],
) -> Result<std::slice::Chunks<'v, String>, String> {
    let count = fields.len();
    if values.len().is_multiple_of(count) {
        return Ok(values.chunks(count.max(1)));
    }
    let all = fields.join(" ");
    Err(match count {
        0 => format!("`{name}` has no fields that a member could have values for"),
        _ => format!(
            "a member of `{name}` is {count} values, one for each of its fields ({all}), and {} {} given; several members are \
             written one behind the other: `{name} {all} {all}`",
            values.len(),
            if values.len() == 1 { "is" } else { "are" },
        ),
    })
}

/// The item with this name, or the only one whose name ends with it.
///
/// # Errors
///
/// There is none, or several names end so; the message lists the candidates.
pub fn by_suffix<'a, T>(
    what: &str,
    name: &str,
    items: impl Iterator<Item = (usize, &'a T)>,
    get: impl Fn(&T) -> &str,
) -> Result<(usize, &'a T), String> {
    let mut all = Vec::new();
    let mut names = Vec::new();
    let mut in_c = Vec::new();
    for (i, item) in items {
        if get(item) == name {
            return Ok((i, item));
        }
        in_c.push((i, item));
        // Whole components have priority: `t` means `c.t` rather than `c.mt`.
        let have = get(item);
        if let Some(before) = have.strip_suffix(name) {
            let whole = before.ends_with('.');
            all.push((i, item, whole));
        }
        names.push(have.to_string());
    }
    let whole: Vec<_> = all.iter().filter(|(_, _, w)| *w).collect();
    match (whole.as_slice(), all.as_slice()) {
        ([(i, item, _)], _) | ([], [(i, item, _)]) => Ok((*i, item)),
        ([], []) => {
            let in_c: Vec<_> = in_c.into_iter().filter(|(_, item)| c_names::is_of(name, get(item))).collect();
            match in_c.as_slice() {
                [found] => Ok(*found),
                _ => Err(format!("there is no {what} `{name}`; there are: {}", names.join(", "))),
            }
        }
        _ => {
            let matches: Vec<&str> = all.iter().map(|(_, item, _)| get(item)).collect();
            Err(format!("{what} `{name}` is ambiguous: {}", matches.join(", ")))
        }
    }
}

/// The table with a name or a unique suffix of it.
pub fn find_table<'a>(program: &'a Program, name: &str) -> Result<(TableId, &'a ir::Table), String> {
    by_suffix("table", name, program.tables.iter().enumerate(), |t| &t.name).map(|(i, t)| (TableId::from_index(i), t))
}

/// The extern instance with a name or a unique suffix of it.
pub fn find_extern<'a>(program: &'a Program, name: &str) -> Result<(ExternId, &'a ir::Extern), String> {
    by_suffix("extern instance", name, program.externs.iter().enumerate(), |e| &e.name)
        .map(|(i, e)| (ExternId::from_index(i), e))
}

fn profile_actions<'a>(kind: &'a ExternKind, name: &str) -> Result<&'a [TableAction], String> {
    match kind {
        ExternKind::ActionProfile { actions, .. } | ExternKind::ActionSelector { actions, .. } => Ok(actions),
        _ => Err(format!("`{name}` is not an action profile")),
    }
}

fn entry_action(program: &Program, table: &ir::Table, text: &ActionText) -> Result<EntryAction, String> {
    let id = |what: &str| match text.args.as_slice() {
        [(_, value)] => number(value, what).and_then(|n| u32::try_from(n).map_err(|_| format!("{n} is too large"))),
        _ => Err(format!("`{}` takes one number", text.name)),
    };
    if table.implementation.is_some() {
        match text.name.as_str() {
            "member" => return Ok(EntryAction::Member(id("a member id")?)),
            "group" => return Ok(EntryAction::Group(id("a group id")?)),
            ONE_OF => {
                let why =
                    "`one_of` is for a running switch, which makes a group of it; here `member` and `group` lines do";
                return Err(why.to_string());
            }
            _ => {}
        }
    }
    action_call(program, &table.actions, text).map(EntryAction::Call)
}

fn action_call(program: &Program, actions: &[TableAction], text: &ActionText) -> Result<ActionCall, String> {
    let get = |a: ActionId| &program.actions[a.index()];
    let list: Vec<&ir::Action> = actions.iter().map(|a| get(a.action)).collect();
    // In the reference compiler's scripts, a top-level action may have a leading dot or underscore.
    let wanted = text.name.trim_start_matches('.');
    let (at, action) = by_suffix("action", wanted, list.iter().copied().enumerate(), |a: &ir::Action| &a.name)?;
    let mut args: Vec<Option<Bits>> = vec![None; action.params.len()];
    for (position, (param, value)) in text.args.iter().enumerate() {
        let i = if param.is_empty() {
            position
        } else {
            let names: Vec<&str> = action.params.iter().map(|(n, _)| n.as_str()).collect();
            action.params.iter().position(|(n, _)| n == param).ok_or_else(|| {
                format!("action `{}` has no parameter `{param}`; it has: {}", action.name, names.join(", "))
            })?
        };
        let (_, width) =
            action.params.get(i).ok_or(format!("action `{}` has {} parameters", action.name, action.params.len()))?;
        args[i] = Some(value_of(value, *width)?);
    }
    // C initialises missing members of a structure with zeros.
    let has_c_name = !action.name.ends_with(wanted);
    let args = args
        .into_iter()
        .zip(&action.params)
        .map(|(arg, (name, width))| match arg {
            None if has_c_name => Ok(Bits::zero(*width)),
            arg => arg.ok_or(format!("action `{}` needs a value for `{name}`", action.name)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(ActionCall { action: at as u32, args })
}

fn checked_priority(table: &ir::Table, priority: Option<i32>) -> Result<i32, String> {
    let needs = table.keys.iter().any(|k| k.kind.needs_priority());
    // Scripts of the reference compiler give priorities for tables that take none, and omit them for tables that need
    // one.
    Ok(if needs { priority.unwrap_or(1) } else { 0 })
}

/// The key of an entry from `(field, value)` pairs.
fn key_of(table: &ir::Table, pairs: &[(String, String)]) -> Result<Vec<KeyMatch>, String> {
    let mut values: Vec<Option<String>> = vec![None; table.keys.len()];
    for (field, value) in pairs {
        let at = key_position(table, field)?;
        let key = &table.keys[at];
        let value = match c_names::is_swapped(field, key) && !value.contains('*') {
            true => swapped(key, value)?,
            false => value.clone(),
        };
        if values[at].replace(value).is_some() {
            return Err(format!("key `{}` of table `{}` is given twice", table.keys[at].name, table.name));
        }
    }
    table.keys.iter().zip(values).map(|(key, value)| match_of(key, value.as_deref())).collect()
}

/// A value, with its prefix length if it has one, that a script gives in the opposite byte order.
fn swapped(key: &ir::Key, text: &str) -> Result<String, String> {
    let (number, prefix) = text.find('/').map_or((text, ""), |at| text.split_at(at));
    let bits = value_of(number, key.width).map_err(|e| format!("key `{}`: {e}", key.name))?;
    Ok(c_names::swapped(&bits) + prefix)
}

/// Normalises a key's name: validity (`h.isValid()`, `h.$valid$`) and stack elements (`hs$1.f` is `hs[1].f`).
fn plain_key_name(text: &str) -> String {
    let text = text.replace("isValid()", "$valid").replace("$valid$", "$valid");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('$') {
        let digits = rest[at + 1..].len() - rest[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit()).len();
        out.push_str(&rest[..at]);
        if digits == 0 {
            out.push('$');
        } else {
            out.push_str(&format!("[{}]", &rest[at + 1..at + 1 + digits]));
        }
        rest = &rest[at + 1 + digits..];
    }
    out + rest
}

/// The position of a key field, by its name or a unique suffix.
pub fn key_position(table: &ir::Table, field: &str) -> Result<usize, String> {
    let wanted = plain_key_name(field);
    let names: Vec<String> = table.keys.iter().map(|k| plain_key_name(&k.name)).collect();
    if let Some(at) = names.iter().position(|n| *n == wanted) {
        return Ok(at);
    }
    // A header alone stands for its validity.
    if let Some(at) = names.iter().position(|n| n.strip_suffix(".$valid") == Some(wanted.as_str())) {
        return Ok(at);
    }
    let valid = wanted.strip_suffix(".valid").map(|w| format!("{w}.$valid"));
    let found: Vec<usize> = (0..names.len())
        .filter(|&i| {
            names[i].ends_with(&format!(".{wanted}")) || valid.as_ref().is_some_and(|v| names[i].ends_with(v.as_str()))
        })
        .collect();
    match found.as_slice() {
        [at] => Ok(*at),
        [] if c_names::key(table, field).is_some() => Ok(c_names::key(table, field).unwrap_or_default()),
        [] => {
            let have: Vec<&str> = table.keys.iter().map(|k| k.name.as_str()).collect();
            Err(format!("table `{}` has no key `{field}`; it has: {}", table.name, have.join(", ")))
        }
        _ => Err(format!("key `{field}` of table `{}` is ambiguous", table.name)),
    }
}

/// The match that a word represents; `None` if the word is omitted.
///
/// # Errors
///
/// The word has another form than the key's match kind, or its value does not fit the field.
pub fn match_of(key: &ir::Key, value: Option<&str>) -> Result<KeyMatch, String> {
    let width = key.width;
    let any = value.is_none_or(|v| v == "*");
    let value = value.unwrap_or("0");
    let place = |e: String| format!("key `{}`: {e}", key.name);
    let wrong = |form: &str| Err(place(format!("`{value}` is {form}, but the key's kind is {}", key.kind.name())));
    let (before, mask) = match value.split_once("&&&") {
        Some((v, m)) => (v, Some(value_of(m, width).map_err(place)?)),
        None => (value, None),
    };
    if let Some((low, high)) = value.split_once("..").or(value.split_once("->")) {
        if key.kind != MatchKind::Range {
            return wrong("a range");
        }
        let (low, high) = (value_of(low, width).map_err(place)?, value_of(high, width).map_err(place)?);
        return if high.ult(&low) {
            Err(place(format!("the range `{value}` is empty")))
        } else {
            Ok(KeyMatch::Range { low, high })
        };
    }
    let (number_part, prefix) = match before.split_once('/') {
        Some((v, p)) => {
            let length = number(p, "a prefix length").map_err(place)?;
            if length > u64::from(width) {
                return Err(place(format!("prefix length {length} is more than the width, {width}")));
            }
            (v, Some(length as u32))
        }
        None => (before, None),
    };
    let (bits, stars) =
        if any { (Bits::zero(width), Bits::zero(width)) } else { wildcard(number_part, width).map_err(place)? };
    let all = Bits::ones(width);
    let prefix_mask = |length: u32| {
        if length == 0 { Bits::zero(width) } else { all.shl(u64::from(width - length)) }
    };
    Ok(match key.kind {
        MatchKind::Exact => {
            if mask.is_some() || prefix.is_some() || (!any && stars != all) {
                return wrong("a pattern");
            }
            KeyMatch::Exact(bits)
        }
        MatchKind::Lpm => {
            let prefix_len = match prefix {
                Some(p) => p,
                None if any => 0,
                None => leading_ones(&stars),
            };
            let m = prefix_mask(prefix_len);
            KeyMatch::Lpm { value: bits.and(&m), prefix_len }
        }
        MatchKind::Ternary => {
            let mask = match (mask, prefix) {
                (Some(m), _) => m,
                (None, Some(p)) => prefix_mask(p),
                (None, None) => stars,
            };
            KeyMatch::Ternary { value: bits.and(&mask), mask }
        }
        MatchKind::Range if any || stars.is_zero() => KeyMatch::Range { low: Bits::zero(width), high: all },
        MatchKind::Optional if any || stars.is_zero() => KeyMatch::Optional(None),
        MatchKind::Range | MatchKind::Optional if mask.is_some() || prefix.is_some() || stars != all => {
            return wrong("a pattern");
        }
        MatchKind::Range => KeyMatch::Range { low: bits.clone(), high: bits },
        MatchKind::Optional => KeyMatch::Optional(Some(bits)),
    })
}

fn leading_ones(mask: &Bits) -> u32 {
    (0..mask.width()).rev().take_while(|&i| mask.bit(i)).count() as u32
}

/// Value and mask of a number whose digits may be `*`. Digits before the written ones are zero and are compared.
fn wildcard(text: &str, width: u32) -> Result<(Bits, Bits), String> {
    if !text.contains('*') {
        return Ok((value_of(text, width)?, Bits::ones(width)));
    }
    let (digits, radix) = radix_of(text);
    let per_digit = match radix {
        16 => 4,
        2 => 1,
        8 => 3,
        _ => return Err(format!("`{text}`: `*` needs a number with 0x, 0b or 0o")),
    };
    let known: String = digits.replace('*', "0");
    let value = value_of(&format!("{}{known}", &text[..2]), width)?;
    let mut mask = Bits::ones(width);
    for (i, c) in digits.chars().rev().enumerate() {
        let low = i as u32 * per_digit;
        if c == '*' && low < width {
            let high = (low + per_digit - 1).min(width - 1);
            mask = mask.set_slice(high, low, &Bits::zero(high - low + 1));
        }
    }
    Ok((value, mask))
}

/// A number of a width in bits; an error if it does not fit.
///
/// # Errors
///
/// The text is no number, or its value does not fit the width.
pub fn value_of(text: &str, width: u32) -> Result<Bits, String> {
    let text = text.trim();
    if let Some(bytes) = address(text) {
        let bits = Bits::from_bytes_be(bytes.len() as u32 * 8, &bytes);
        return fits(bits, width, text);
    }
    let (digits, radix) = radix_of(text);
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    // Through wide arithmetic, so that long decimal and hexadecimal numbers work for wide fields.
    let mut value = Bits::zero(width.max(8 * digits.len() as u32) + 8);
    let wide = value.width();
    let base = Bits::new(wide, u128::from(radix));
    if digits.is_empty() {
        return Err(format!("`{text}` is not a number"));
    }
    for c in digits.chars() {
        let digit = c.to_digit(radix).ok_or(format!("`{text}` is not a number"))?;
        value = value.mul(&base).add(&Bits::new(wide, u128::from(digit)));
    }
    fits(value, width, text)
}

fn fits(value: Bits, width: u32, text: &str) -> Result<Bits, String> {
    let cut = value.resize_u(width);
    if cut.resize_u(value.width()) == value || value.width() <= width {
        Ok(cut)
    } else {
        Err(format!("`{text}` does not fit in {width} bits"))
    }
}

/// The bytes of an IPv4 (`10.0.0.1`), MAC (`02:00:00:00:00:01`) or IPv6 address.
fn address(text: &str) -> Option<Vec<u8>> {
    if let Ok(v4) = text.parse::<std::net::Ipv4Addr>() {
        return Some(v4.octets().to_vec());
    }
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() == 6 && parts.iter().all(|p| p.len() == 2) {
        return parts.iter().map(|p| u8::from_str_radix(p, 16).ok()).collect();
    }
    text.parse::<std::net::Ipv6Addr>().ok().map(|v6| v6.octets().to_vec())
}

/// A meter's configuration from rates in units per microsecond, as in bmv2.
fn meter_config(rates: &[(String, u64)]) -> Result<MeterConfig, String> {
    let per_second = |text: &str| -> Result<u64, String> {
        let rate: f64 = text.parse().map_err(|_| format!("`{text}` is not a rate"))?;
        if !(0.0..1e12).contains(&rate) {
            return Err(format!("the rate `{text}` is out of range"));
        }
        Ok((rate * 1e6).round() as u64)
    };
    let (cir, cburst) = &rates[0];
    let (pir, pburst) = rates.get(1).unwrap_or(&rates[0]);
    Ok(MeterConfig { cir: per_second(cir)?, cburst: *cburst, pir: per_second(pir)?, pburst: *pburst, eburst: 0 })
}

fn state_error(name: &str, error: StateError) -> String {
    match error {
        StateError::Exists => format!("`{name}` has that already"),
        StateError::NotFound => format!("`{name}` has no such entry, member, group or cell"),
        StateError::Full(n) => format!("`{name}` is full: it holds {n}"),
        StateError::NoMemory(bytes) => format!("`{name}`: more than {} MB are in use", bytes >> 20),
        StateError::NoSuchReference(id) => format!("`{name}`: there is no member or group {id}"),
        StateError::InUse => format!("`{name}`: still referred to"),
        StateError::WrongKind => format!("`{name}` is of another kind"),
        StateError::Unsupported(what) => format!("`{name}`: not supported: {what}"),
        StateError::Unacknowledged(worker) => format!("`{name}`: worker {worker} does not come to the end of a batch"),
    }
}
