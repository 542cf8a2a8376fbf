//! Actions and tables.

use super::{Builder, extern_kind};
use crate::annotations::{annotations, documentation};
use crate::model::*;
use crate::types::control_name;
use base::Bits;
use base::entry::MatchKind;
use sema::Value;
use sema::typed::{self, InstanceId, InstanceOf};
use sema::types::Type;
use std::collections::BTreeMap;

/// The size of a table without a `size` property, in entries.
const DEFAULT_TABLE_SIZE: i64 = 1024;

/// Table properties that name an action profile or a direct resource.
const ATTACHING: [&str; 9] = [
    "implementation",
    "psa_implementation",
    "pna_implementation",
    "counters",
    "psa_direct_counter",
    "pna_direct_counter",
    "meters",
    "psa_direct_meter",
    "pna_direct_meter",
];

/// Values of `implementation` that carry the table's size (ebpf_model).
const SIZED_MAPS: [&str; 2] = ["array_table", "hash_table"];

impl Builder<'_> {
    /// Describes an action. An action that no table lists has no parameters, since only entries supply action data.
    pub(super) fn action(&mut self, id: typed::ActionId, name: &str, is_listed: bool) {
        let action = &self.program.actions[id.index()];
        let preamble = self.preamble(ObjectKind::Action, name, &action.annotations, &[]);
        let ids = self.field_ids(action.data_params().map(|p| (p.annotations.as_slice(), p.span)));
        let mut params = Vec::new();
        for (param, id) in action.data_params().zip(ids).filter(|_| is_listed) {
            let name = control_name(&param.name, &param.annotations);
            match self.types.scalar(&param.ty) {
                Ok(scalar) => params.push(Param {
                    id,
                    name,
                    annotations: annotations(&param.annotations, &[], self.sources),
                    doc: documentation(&param.annotations),
                    bitwidth: scalar.bitwidth,
                    type_name: scalar.type_name,
                }),
                Err(ty) => self.bad_type(&format!("action parameter `{name}`"), &ty, param.span),
            }
        }
        let restriction = if is_listed {
            self.action_restriction(&action.annotations, &params, action.data_params().map(|p| &p.ty))
        } else {
            None
        };
        self.info.actions.push(Action { preamble, params, restriction });
    }

    /// Describes a table; `users` collects the tables that refer to each extern instance.
    pub(super) fn table(
        &mut self,
        instance: InstanceId,
        id: typed::TableId,
        users: &mut BTreeMap<InstanceId, Vec<u32>>,
    ) {
        let table = &self.program.tables[id.index()];
        if table.control_name.hidden {
            return;
        }
        let path = self.program.instance(instance).path.clone();
        let name = table.control_name.qualified(&path);
        let mut result = Table {
            preamble: self.preamble(ObjectKind::Table, &name, &table.annotations, &[]),
            is_const_table: table.const_entries && table.has_entries,
            has_initial_entries: !table.entries.is_empty(),
            const_entries: table.entries.iter().map(|entry| entry.is_const).collect(),
            ..Table::default()
        };
        result.match_fields = self.match_fields(table);
        // Key elements that are not matched on are not match fields in P4Info.
        let types = table.keys.iter().filter(|k| match_type(&k.match_kind_name).is_some()).map(|k| &k.expr.ty);
        result.restriction = self.entry_restriction(&table.annotations, &result.match_fields, types);
        for listed in &table.actions {
            let action = &self.program.actions[listed.action.index()];
            let mut own = annotations(&listed.annotations, &[], self.sources);
            if listed.implicit && own.plain.is_empty() {
                own.plain.push("@defaultonly".to_string());
            }
            result.action_refs.push(ActionRef {
                id: self.id(ObjectKind::Action, &action.control_name.qualified(&path)),
                scope: match (listed.table_only, listed.default_only || listed.implicit) {
                    _ if listed.group_only => ActionScope::GroupAction,
                    (true, _) => ActionScope::TableOnly,
                    (false, true) => ActionScope::DefaultOnly,
                    (false, false) => ActionScope::TableAndDefault,
                },
                annotations: own,
            });
        }
        if let Some(default) = &table.default_action {
            let listed = &result.action_refs[default.action as usize];
            let arguments = self.arguments(table.actions[default.action as usize].action, &default.args, instance);
            result.const_default_action_id = default.is_const.then_some(listed.id);
            result.initial_default_action = Some(ActionCall { action_id: listed.id, arguments });
        }
        let size = table.size.as_ref().and_then(|size| self.program.eval(size, Some(instance)));
        result.size = match size.and_then(|size| size.to_u64()).map(i64::try_from) {
            None | Some(Ok(0)) => DEFAULT_TABLE_SIZE,
            Some(size) => size.unwrap_or(i64::MAX),
        };
        self.properties(&mut result, table, instance, users);
        self.info.tables.push(result);
    }

    /// The constant arguments of a default action, by parameter id.
    fn arguments(&mut self, action: typed::ActionId, args: &[typed::Expr], instance: InstanceId) -> Vec<(u32, Bits)> {
        let action = &self.program.actions[action.index()];
        let ids = self.field_ids(action.data_params().map(|p| (p.annotations.as_slice(), p.span)));
        let values = args.iter().map(|arg| match self.program.eval(arg, Some(instance)) {
            Some(Value::Bits(bits)) => Some(bits),
            Some(Value::Bool(value)) => Some(Bits::from_bool(value)),
            _ => None,
        });
        ids.into_iter().zip(values).filter_map(|(id, value)| Some((id, value?))).collect()
    }

    fn properties(
        &mut self,
        result: &mut Table,
        table: &typed::Table,
        instance: InstanceId,
        users: &mut BTreeMap<InstanceId, Vec<u32>>,
    ) {
        for property in &table.properties {
            let value = self.program.eval(&property.value, Some(instance));
            match &*property.name {
                "support_timeout" => result.idle_timeout = value.and_then(|v| v.as_bool()) == Some(true),
                "psa_idle_timeout" | "pna_idle_timeout" => {
                    result.idle_timeout = self.enum_member(&property.value, value.as_ref()) == Some("NOTIFY_CONTROL");
                }
                name if ATTACHING.contains(&name) => {
                    let typed::ExprKind::Instance(reference) = &property.value.kind else { continue };
                    let Some(id) = self.program.resolve(*reference, Some(instance)) else { continue };
                    let attached = self.program.instance(id);
                    let InstanceOf::Extern(extern_id) = attached.of else { continue };
                    if SIZED_MAPS.contains(&self.program.extern_name(extern_id)) {
                        let size = attached.arg("size").and_then(Value::to_u64).filter(|size| *size > 0);
                        result.size = size.and_then(|size| i64::try_from(size).ok()).unwrap_or(result.size);
                        continue;
                    }
                    let Some(kind) = extern_kind(self.program.extern_name(extern_id)) else { continue };
                    let object = self.id(kind, &attached.path);
                    match kind {
                        ObjectKind::ActionProfile => result.implementation_id = Some(object),
                        _ => result.direct_resource_ids.push(object),
                    }
                    users.entry(id).or_default().push(result.preamble.id);
                }
                _ => {}
            }
        }
    }

    fn enum_member(&self, expr: &typed::Expr, value: Option<&Value>) -> Option<&str> {
        match (&expr.ty, value?) {
            (Type::Enum(id), Value::Enum(member)) => {
                Some(&self.program.types.enums[id.index()].members.get(*member as usize)?.name)
            }
            _ => None,
        }
    }

    fn match_fields(&mut self, table: &typed::Table) -> Vec<MatchField> {
        let ids = self.field_ids(table.keys.iter().map(|key| (key.annotations.as_slice(), key.span)));
        let mut fields = Vec::new();
        for (key, id) in table.keys.iter().zip(ids) {
            let Some(match_type) = match_type(&key.match_kind_name) else { continue };
            match self.types.scalar(&key.expr.ty) {
                Ok(scalar) => fields.push(MatchField {
                    id,
                    name: key.name.clone(),
                    annotations: annotations(&key.annotations, &[], self.sources),
                    doc: documentation(&key.annotations),
                    bitwidth: scalar.bitwidth,
                    match_type,
                    type_name: scalar.type_name.filter(|_| matches!(key.expr.ty, Type::Newtype(_))),
                }),
                Err(ty) => self.bad_type(&format!("match field `{}`", key.name), &ty, key.span),
            }
        }
        fields
    }
}

/// The match type of a match kind; `None` for `selector`, which is not matched on.
pub(super) fn match_type(kind: &str) -> Option<MatchType> {
    Some(match kind {
        "exact" => MatchType::Known(MatchKind::Exact),
        "lpm" => MatchType::Known(MatchKind::Lpm),
        "ternary" => MatchType::Known(MatchKind::Ternary),
        "range" => MatchType::Known(MatchKind::Range),
        "optional" => MatchType::Known(MatchKind::Optional),
        // Input of the selector's hash; not matched on.
        "selector" => return None,
        other => MatchType::Other(other.to_string()),
    })
}
