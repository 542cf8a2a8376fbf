//! Adopts ids from a controller's P4Info. bmv2's JSON has neither the author's `@id`s nor controller headers, so the
//! P4Info of such a program is made from names alone. A controller that sends its own P4Info has it from the source, so
//! its ids and controller headers are used instead.
//!
//! Objects are matched by kind and name. Those that the controller does not name keep their ids, unless one is taken
//! now. Other disagreements remain as they are, and `check_claims` refuses them. Tests: at the end of the file.

use crate::forwarding::{Claim, Compiled};
use ir::ControllerHeader;
use p4info::{ControllerPacketMetadata, ObjectKind, P4Info, Param, Preamble};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Adopts ids and controller headers, if the P4Info was made from names and the claims are consistent.
pub(crate) fn adopt(compiled: &mut Compiled, claims: &[Claim]) {
    let ids: BTreeSet<u32> = claims.iter().map(|c| c.id).collect();
    let sound = ids.len() == claims.len() && claims.iter().all(|c| ObjectKind::of(c.id) == Some(c.kind));
    if !compiled.p4info.from_names || claims.is_empty() || !sound {
        return;
    }
    let info = Arc::make_mut(&mut compiled.p4info);
    adopt_ids(info, claims);
    for claim in claims.iter().filter(|c| c.kind == ObjectKind::ControllerHeader) {
        let known = |h: &ControllerPacketMetadata| h.preamble.name == claim.name;
        let widths = claim.fields.iter().all(|(_, width)| (1..=FIELD_BITS_MAX).contains(width));
        if info.controller_packet_metadata.iter().any(known) || !widths {
            continue;
        }
        // A claim has no names of fields; requests name them by id.
        let field = |(id, bitwidth): &(u32, u32)| Param {
            id: *id,
            name: format!("field{id}"),
            bitwidth: *bitwidth,
            ..Param::default()
        };
        let metadata: Vec<Param> = claim.fields.iter().map(field).collect();
        let fields = metadata.iter().map(|p| (p.name.clone(), p.bitwidth)).collect();
        let header = ControllerHeader { name: claim.name.clone(), fields };
        Arc::make_mut(&mut compiled.program).controller_headers.push(header);
        let preamble =
            Preamble { id: claim.id, name: claim.name.clone(), alias: claim.name.clone(), ..Preamble::default() };
        info.controller_packet_metadata.push(ControllerPacketMetadata { preamble, metadata });
    }
}

/// Limit on the bits of a controller header's field.
const FIELD_BITS_MAX: u32 = 4096;

fn adopt_ids(info: &mut P4Info, claims: &[Claim]) {
    let claimed: HashMap<(ObjectKind, &str), &Claim> = claims.iter().map(|c| ((c.kind, c.name.as_str()), c)).collect();
    let mut taken: BTreeSet<u32> = claims.iter().map(|c| c.id).collect();
    let mut renamed: HashMap<u32, u32> = HashMap::new();
    for_each_preamble(info, &mut |kind, preamble| {
        let old = preamble.id;
        match claimed.get(&(kind, preamble.name.as_str())) {
            Some(claim) => preamble.id = claim.id,
            None => {
                while !taken.insert(preamble.id) {
                    preamble.id = preamble.id & PREFIX | (preamble.id + 1) & !PREFIX;
                }
            }
        }
        renamed.insert(old, preamble.id);
    });
    let rename = |id: &mut u32| *id = renamed.get(id).copied().unwrap_or(*id);
    for table in &mut info.tables {
        table.action_refs.iter_mut().for_each(|a| rename(&mut a.id));
        table.const_default_action_id.iter_mut().for_each(rename);
        table.initial_default_action.iter_mut().for_each(|a| rename(&mut a.action_id));
        table.implementation_id.iter_mut().for_each(rename);
        table.direct_resource_ids.iter_mut().for_each(rename);
        if let Some(claim) = claimed.get(&(ObjectKind::Table, table.preamble.name.as_str())) {
            field_ids(table.match_fields.iter_mut().map(|f| (&mut f.id, f.bitwidth)).collect(), claim);
        }
    }
    for action in &mut info.actions {
        let Some(claim) = claimed.get(&(ObjectKind::Action, action.preamble.name.as_str())) else { continue };
        let ids: HashMap<u32, u32> = action.params.iter().map(|p| p.id).zip(claim.fields.iter().map(|f| f.0)).collect();
        field_ids(action.params.iter_mut().map(|p| (&mut p.id, p.bitwidth)).collect(), claim);
        let default = |t: &mut p4info::Table| {
            let call = t.initial_default_action.as_mut().filter(|c| c.action_id == action.preamble.id)?;
            call.arguments.iter_mut().for_each(|(id, _)| *id = ids.get(id).copied().unwrap_or(*id));
            Some(())
        };
        info.tables.iter_mut().for_each(|t| _ = default(t));
    }
    for set in &mut info.value_sets {
        if let Some(claim) = claimed.get(&(ObjectKind::ValueSet, set.preamble.name.as_str())) {
            field_ids(set.match_fields.iter_mut().map(|f| (&mut f.id, f.bitwidth)).collect(), claim);
        }
    }
    info.action_profiles.iter_mut().for_each(|p| p.table_ids.iter_mut().for_each(rename));
    info.direct_counters.iter_mut().for_each(|c| rename(&mut c.direct_table_id));
    info.direct_meters.iter_mut().for_each(|m| rename(&mut m.direct_table_id));
}

/// The bits of an id that encode the kind of object.
const PREFIX: u32 = 0xff00_0000;

/// Adopts ids of fields, if the controller has the same number of fields with the same widths in the same order.
fn field_ids(fields: Vec<(&mut u32, u32)>, claim: &Claim) {
    if fields.iter().map(|(_, width)| *width).eq(claim.fields.iter().map(|(_, width)| *width)) {
        fields.into_iter().zip(&claim.fields).for_each(|((id, _), (claimed, _))| *id = *claimed);
    }
}

fn for_each_preamble(info: &mut P4Info, f: &mut dyn FnMut(ObjectKind, &mut Preamble)) {
    use ObjectKind::*;
    info.tables.iter_mut().for_each(|o| f(Table, &mut o.preamble));
    info.actions.iter_mut().for_each(|o| f(Action, &mut o.preamble));
    info.value_sets.iter_mut().for_each(|o| f(ValueSet, &mut o.preamble));
    info.controller_packet_metadata.iter_mut().for_each(|o| f(ControllerHeader, &mut o.preamble));
    info.action_profiles.iter_mut().for_each(|o| f(ActionProfile, &mut o.preamble));
    info.counters.iter_mut().for_each(|o| f(Counter, &mut o.preamble));
    info.direct_counters.iter_mut().for_each(|o| f(DirectCounter, &mut o.preamble));
    info.meters.iter_mut().for_each(|o| f(Meter, &mut o.preamble));
    info.direct_meters.iter_mut().for_each(|o| f(DirectMeter, &mut o.preamble));
    info.registers.iter_mut().for_each(|o| f(Register, &mut o.preamble));
    info.digests.iter_mut().for_each(|o| f(Digest, &mut o.preamble));
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4info::{ActionCall, ActionRef, ActionScope, MatchField, MatchType, Table};

    fn preamble(id: u32, name: &str) -> Preamble {
        Preamble { id, name: name.into(), alias: name.into(), ..Preamble::default() }
    }

    /// Tables `t` and `u`; `t` has a key of 8 bits and the default action `a(1)`.
    fn compiled(from_names: bool) -> Compiled {
        let key = MatchField {
            id: 1,
            name: "k".into(),
            annotations: Default::default(),
            doc: None,
            bitwidth: 8,
            match_type: MatchType::Known(base::entry::MatchKind::Exact),
            type_name: None,
        };
        let action =
            ActionRef { id: 0x0100_0001, scope: ActionScope::TableAndDefault, annotations: Default::default() };
        let call = ActionCall { action_id: 0x0100_0001, arguments: vec![(1, base::Bits::new(8, 7))] };
        let table = Table {
            preamble: preamble(0x0200_0001, "t"),
            match_fields: vec![key],
            action_refs: vec![action],
            initial_default_action: Some(call),
            ..Table::default()
        };
        let other = Table { preamble: preamble(0x0200_0002, "u"), ..Table::default() };
        let param = Param { id: 1, name: "p".into(), bitwidth: 8, ..Param::default() };
        let action = p4info::Action { preamble: preamble(0x0100_0001, "a"), params: vec![param], restriction: None };
        let info = P4Info { tables: vec![table, other], actions: vec![action], from_names, ..P4Info::default() };
        Compiled { p4info: Arc::new(info), program: Arc::default() }
    }

    fn claim(kind: ObjectKind, id: u32, name: &str, fields: &[(u32, u32)]) -> Claim {
        Claim { kind, id, name: name.into(), fields: fields.to_vec() }
    }

    #[test]
    fn ids_and_headers_of_the_controller_are_taken_over() {
        let claims = [
            claim(ObjectKind::Table, 0x0200_0002, "t", &[(4, 8)]),
            claim(ObjectKind::Action, 0x0100_0055, "a", &[(9, 8)]),
            claim(ObjectKind::ControllerHeader, 0x0400_0001, "packet_in", &[(1, 9), (2, 7)]),
        ];
        let mut made = compiled(true);
        adopt(&mut made, &claims);
        let info = &made.p4info;
        assert_eq!(crate::forwarding::check_claims(info, &claims), Ok(()));
        let table = &info.tables[0];
        assert_eq!(
            (table.preamble.id, table.match_fields[0].id, table.action_refs[0].id),
            (0x0200_0002, 4, 0x0100_0055)
        );
        let call = table.initial_default_action.as_ref().unwrap();
        assert_eq!((call.action_id, call.arguments[0].0), (0x0100_0055, 9));
        // The other table's id was taken.
        assert_eq!(info.tables[1].preamble.id, 0x0200_0003);
        assert_eq!(made.program.controller_headers[0].fields, [("field1".to_string(), 9), ("field2".to_string(), 7)]);
    }

    #[test]
    fn what_does_not_fit_is_refused_afterwards() {
        let unsound = [
            vec![claim(ObjectKind::Table, 0x0100_0009, "t", &[(1, 8)])],
            vec![
                claim(ObjectKind::Table, 0x0200_0009, "t", &[(1, 8)]),
                claim(ObjectKind::Table, 0x0200_0009, "u", &[]),
            ],
            vec![claim(ObjectKind::Table, 0x0200_0009, "t", &[(1, 9)])],
            vec![claim(ObjectKind::Table, 0x0200_0009, "v", &[])],
        ];
        for claims in unsound {
            let mut made = compiled(true);
            adopt(&mut made, &claims);
            assert!(crate::forwarding::check_claims(&made.p4info, &claims).is_err(), "{claims:?}");
        }
        // A program compiled from source already has its author's ids.
        let claims = [claim(ObjectKind::Table, 0x0200_0009, "t", &[(1, 8)])];
        let mut made = compiled(false);
        adopt(&mut made, &claims);
        assert!(crate::forwarding::check_claims(&made.p4info, &claims).is_err());
    }
}
