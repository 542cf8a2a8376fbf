//! Lookup of a P4Info's objects by name and by id.

use crate::text::{Holds, holds, width};
use base::entry::{ActionCall, MatchKind};
use ir::Program;
use messages::p4::config::v1 as config;
use std::collections::HashMap;

/// A P4Info with indices. Its tables also exist as IR tables, at the same positions, as the line parser needs them.
pub struct Names {
    /// The P4Info, as the server sent it.
    pub(crate) info: config::P4Info,
    program: Program,
    actions: HashMap<u32, usize>,
    tables: HashMap<u32, usize>,
    /// Whether lines may omit exact fields, which are then 0. Scripts do so; for a typed line it is an error.
    lenient: bool,
}

impl Names {
    /// The names of a P4Info.
    pub fn new(info: config::P4Info) -> Names {
        let tables = info.tables.iter().map(|t| keyed(name_of(&t.preamble), &t.match_fields)).collect();
        let program = Program { tables, ..Program::default() };
        let by_id = |ids: &mut dyn Iterator<Item = u32>| ids.enumerate().map(|(at, id)| (id, at)).collect();
        Names {
            actions: by_id(&mut info.actions.iter().map(|a| id_of(&a.preamble))),
            tables: by_id(&mut info.tables.iter().map(|t| id_of(&t.preamble))),
            program,
            info,
            lenient: false,
        }
    }

    /// Allows lines to omit exact fields, as scripts do.
    pub fn lenient(self) -> Names {
        Names { lenient: true, ..self }
    }

    pub(crate) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// The P4Info.
    pub fn info(&self) -> &config::P4Info {
        &self.info
    }

    /// All tables.
    pub fn tables(&self) -> &[config::Table] {
        &self.info.tables
    }

    /// The table with a name or a unique suffix of it.
    ///
    /// # Errors
    ///
    /// There is none, or the suffix is ambiguous.
    pub fn table(&self, name: &str) -> Result<&config::Table, String> {
        let (id, _) = stf::setup::find_table(&self.program, name)?;
        Ok(&self.info.tables[id.index()])
    }

    pub(crate) fn table_of_id(&self, id: u32) -> Option<&config::Table> {
        self.tables.get(&id).map(|at| &self.info.tables[*at])
    }

    /// The position of a table's key field, by its name or a unique suffix.
    pub(crate) fn key_position(&self, table: &config::Table, field: &str) -> Result<usize, String> {
        let at = self.tables.get(&id_of(&table.preamble)).copied().unwrap_or_default();
        stf::setup::key_position(&self.program.tables[at], field)
    }

    pub(crate) fn action_of_id(&self, id: u32) -> Option<&config::Action> {
        self.actions.get(&id).map(|at| &self.info.actions[*at])
    }

    /// An action's name, or its number if there is no such action.
    pub fn action_name(&self, id: u32) -> String {
        self.action_of_id(id).map_or_else(|| format!("action_{id:#010x}"), |info| name_of(&info.preamble).to_string())
    }

    pub(crate) fn holds(&self, bitwidth: i32, type_name: Option<&config::P4NamedType>) -> Holds {
        holds(&self.info, bitwidth, type_name)
    }

    /// The name of the object with an id, among those of a kind.
    pub(crate) fn name_in<'a, T>(
        &self,
        objects: &'a [T],
        preamble: impl Fn(&'a T) -> &'a Option<config::Preamble>,
        id: u32,
    ) -> String {
        let found = objects.iter().map(preamble).find(|p| id_of(p) == id);
        found.map_or_else(|| format!("object_{id:#010x}"), |p| name_of(p).to_string())
    }

    /// All objects that lines can name, each with its noun.
    pub fn objects(&self) -> Vec<(&'static str, &str)> {
        let info = &self.info;
        let mut all: Vec<(&'static str, &str)> = Vec::new();
        all.extend(info.tables.iter().map(|o| ("table", name_of(&o.preamble))));
        all.extend(info.action_profiles.iter().map(|o| ("action profile", name_of(&o.preamble))));
        all.extend(info.value_sets.iter().map(|o| ("value set", name_of(&o.preamble))));
        all.extend(info.digests.iter().map(|o| ("digest", name_of(&o.preamble))));
        all.extend(info.registers.iter().map(|o| ("register", name_of(&o.preamble))));
        all.extend(info.counters.iter().map(|o| ("counter", name_of(&o.preamble))));
        all.extend(info.meters.iter().map(|o| ("meter", name_of(&o.preamble))));
        all
    }
}

/// The object with a name or a unique suffix of it.
pub(crate) fn find<'a, T>(
    what: &str,
    name: &str,
    objects: &'a [T],
    preamble: impl Fn(&T) -> &Option<config::Preamble>,
) -> Result<&'a T, String> {
    if objects.is_empty() {
        return Err(format!("the program has no {what}"));
    }
    stf::setup::by_suffix(what, name, objects.iter().enumerate(), |object| name_of(preamble(object)))
        .map(|(_, found)| found)
}

/// The fully qualified name of an object.
pub fn name_of(preamble: &Option<config::Preamble>) -> &str {
    preamble.as_ref().map_or("", |preamble| preamble.name.as_str())
}

/// The id of an object.
pub fn id_of(preamble: &Option<config::Preamble>) -> u32 {
    preamble.as_ref().map_or(0, |preamble| preamble.id)
}

/// The match kind of a field; `None` for an architecture-specific one.
pub(crate) fn match_kind(field: &config::MatchField) -> Option<MatchKind> {
    use config::match_field::{Match, MatchType};
    match field.r#match {
        Some(Match::MatchType(kind)) => match MatchType::try_from(kind) {
            Ok(MatchType::Exact) => Some(MatchKind::Exact),
            Ok(MatchType::Lpm) => Some(MatchKind::Lpm),
            Ok(MatchType::Ternary) => Some(MatchKind::Ternary),
            Ok(MatchType::Range) => Some(MatchKind::Range),
            Ok(MatchType::Optional) => Some(MatchKind::Optional),
            _ => None,
        },
        _ => None,
    }
}

/// A match field as an IR key, as the parser of values needs it.
pub(crate) fn key(field: &config::MatchField) -> ir::Key {
    let kind = match_kind(field).unwrap_or(MatchKind::Exact);
    // A value set's fields have names only if the set's type is a structure.
    let name = if field.name.is_empty() { "value" } else { &field.name };
    ir::Key { name: name.to_string(), width: width(field.bitwidth), kind }
}

fn keyed(name: &str, fields: &[config::MatchField]) -> ir::Table {
    ir::Table {
        name: name.to_string(),
        span: base::Span::default(),
        keys: fields.iter().map(key).collect(),
        actions: vec![],
        default_action: ActionCall { action: 0, args: vec![] },
        const_default: false,
        entries: vec![],
        const_entries: false,
        size: 0,
        implementation: None,
        direct: vec![],
        idle_timeout: false,
        value_set: false,
        dynamic: None,
    }
}
