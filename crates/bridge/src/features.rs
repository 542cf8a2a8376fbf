//! Capabilities of a bridge, which depend on its P4 program, and its feature replies.

use crate::tables::{TableSettings, Tables, limit};
use openflow::action::HeaderAction;
use openflow::message::{Features, GroupFeatures, MeterFeatures, TableFeatures, meter_flag};
use openflow::{FieldId, Fields, Version};

/// The capabilities of a P4 program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    header_actions: u32,
}

impl Capabilities {
    /// The capabilities of a program: its header actions, by name.
    pub fn of(program: &ir::Program) -> Capabilities {
        let table = program.openflow.as_ref().and_then(|openflow| openflow.actions);
        let names = table.into_iter().flat_map(|(_, table)| &program.tables[table.index()].actions);
        let names: Vec<&str> = names
            .map(|of| program.actions[of.action.index()].name.as_str())
            .map(|name| name.rsplit_once('.').map_or(name, |(_, last)| last))
            .collect();
        let has = |(i, action): (usize, HeaderAction)| u32::from(names.contains(&action.name())) << i;
        Capabilities { header_actions: HeaderAction::ALL.into_iter().enumerate().map(has).sum() }
    }

    /// Whether the program has a header action.
    pub fn has(&self, action: HeaderAction) -> bool {
        let at = HeaderAction::ALL.iter().position(|other| *other == action);
        at.is_some_and(|at| self.header_actions >> at & 1 == 1)
    }
}

/// `OFPIT_` numbers, each with the first version without it.
const INSTRUCTIONS: [(u16, Option<Version>); 6] =
    [(1, None), (2, None), (3, None), (4, None), (5, None), (6, Some(Version::V15))];
/// `OFPAT_` numbers of actions that need no header action of the program.
const ACTIONS: [u16; 4] = [0, 21, 22, 25];

fn action_number(action: HeaderAction) -> Option<u16> {
    Some(match action {
        HeaderAction::CopyTtlOut => 11,
        HeaderAction::CopyTtlIn => 12,
        HeaderAction::SetMplsTtl => 15,
        HeaderAction::DecMplsTtl => 16,
        HeaderAction::PushVlan => 17,
        HeaderAction::PopVlan => 18,
        HeaderAction::PushMpls => 19,
        HeaderAction::PopMpls => 20,
        HeaderAction::SetNwTtl => 23,
        HeaderAction::DecNwTtl => 24,
        HeaderAction::PushPbb => 26,
        HeaderAction::PopPbb => 27,
        HeaderAction::SetVlanVid | HeaderAction::SetVlanPcp => return None,
    })
}

/// The `OFPAT_` numbers of the actions that a version of OpenFlow has and the bridge supports.
fn actions(capabilities: &Capabilities, version: Version) -> Vec<u16> {
    let headers = HeaderAction::ALL.into_iter().filter(|action| capabilities.has(*action));
    let mut actions: Vec<u16> = headers.filter_map(action_number).chain(ACTIONS).collect();
    if version >= Version::V15 {
        // Copy-field and meter.
        actions.extend([28, 29]);
    }
    actions.sort_unstable();
    actions
}

/// The features of a table (1.3.5, 7.3.5.5).
pub(crate) fn table_features(
    number: u8,
    settings: &TableSettings,
    fields: &Fields,
    capabilities: &Capabilities,
    version: Version,
) -> TableFeatures {
    let instructions = INSTRUCTIONS.into_iter().filter(|(_, until)| until.is_none_or(|until| version < until));
    let instructions: Vec<u16> = instructions.map(|(number, _)| number).collect();
    let actions = actions(capabilities, version);
    let next: Vec<u8> = (number + 1..limit::TABLES).collect();
    let writable: Vec<FieldId> = fields.iter().filter(|(_, field)| field.writable).map(|(id, _)| id).collect();
    TableFeatures {
        table: number,
        name: if settings.name.is_empty() { format!("table{number}") } else { settings.name.clone() },
        metadata: (u64::MAX, u64::MAX),
        config: settings.config,
        max: settings.max_flows() as u32,
        instructions: [instructions.clone(), instructions],
        next: [next.clone(), next],
        write: [actions.clone(), actions.clone()],
        apply: [actions.clone(), actions],
        matches: fields.iter().map(|(id, field)| (id, field.maskable)).collect(),
        wildcards: fields.iter().map(|(id, _)| id).collect(),
        write_fields: [writable.clone(), writable.clone()],
        apply_fields: [writable.clone(), writable],
        ..TableFeatures::default()
    }
}

/// The features of groups (1.3.5, 7.3.5.10).
pub(crate) fn group_features(capabilities: &Capabilities) -> GroupFeatures {
    let actions = actions(capabilities, Version::V13).into_iter().fold(0, |all, action| all | 1u32 << action);
    GroupFeatures { kinds: 0b1111, capabilities: 0b1111, max: [limit::GROUPS as u32; 4], actions: [actions; 4] }
}

/// The features of meters (1.3.5, 7.3.5.13).
pub(crate) fn meter_features() -> MeterFeatures {
    MeterFeatures {
        max: limit::METERS as u32,
        // Drop and DSCP remark.
        bands: 1 << 1 | 1 << 2,
        capabilities: u32::from(meter_flag::KBPS | meter_flag::PKTPS | meter_flag::BURST | meter_flag::STATS),
        max_bands: limit::BANDS as u8,
        max_colors: 0,
        features: 0,
    }
}

/// The features reply (1.3.5, 7.3.1). `OFPC_` capabilities: statistics of flows, tables, ports, groups and queues;
/// since 1.4 also bundles and flow monitors.
pub(crate) fn features(datapath: u64, tables: &Tables, version: Version) -> Features {
    let capabilities = 0b100_1111 | if version >= Version::V14 { 0b110_0000_0000 } else { 0 };
    let is_first = version == Version::V10;
    Features {
        datapath,
        buffers: 0,
        tables: limit::TABLES,
        auxiliary: 0,
        capabilities,
        actions: if is_first { 0xfff } else { 0 },
        ports: if is_first { tables.ports().iter().cloned().collect() } else { Vec::new() },
    }
}
