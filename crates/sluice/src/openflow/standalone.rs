//! The flow of a bridge that no controller is connected to: it forwards as a learning switch does (ovs-vsctl(8), `fail_mode`).

use bridge::Bridge;
use openflow::message::{FlowCommand, FlowMod, Timeouts};
use openflow::{Action, Instructions, Match, action::port};

/// The cookie of the switch's own flow.
const COOKIE: u64 = 0x736c_7569_6365_0001;

/// A request about the flow that every packet matches at the lowest priority of the first table.
fn lowest(command: FlowCommand, cookie_mask: u64, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        command,
        table: 0,
        matching: Match::any(),
        priority: 0,
        cookie: COOKIE,
        cookie_mask,
        timeouts: Timeouts::default(),
        buffer: u32::MAX,
        out_port: port::ANY,
        out_group: openflow::message::GROUP_ANY,
        flags: 0,
        importance: 0,
        instructions: Instructions { apply: actions, ..Instructions::default() },
    }
}

fn request(bridge: &Bridge, request: &FlowMod) {
    if let Err(error) = bridge.flow_mod(request, &bridge::Origin::SWITCH) {
        tracing::warn!("the bridge's own flow: {}", error.text);
    }
}

/// While no controller is connected, the switch forwards as a learning switch does. Gives the flow that was in that place.
pub(super) fn stand_in(bridge: &Bridge) -> Option<FlowMod> {
    let replaced = {
        let tables = bridge.tables();
        let flow = tables.table(0).flows.find(&Match::any(), 0).filter(|flow| flow.cookie != COOKIE);
        flow.map(|flow| FlowMod {
            cookie: flow.cookie,
            timeouts: flow.timeouts,
            flags: flow.flags,
            importance: flow.importance,
            instructions: flow.instructions.clone(),
            ..lowest(FlowCommand::Add, 0, Vec::new())
        })
    };
    request(bridge, &lowest(FlowCommand::Add, 0, vec![Action::Output { port: port::NORMAL, max_len: 0 }]));
    replaced
}

/// A controller decides again, with the flow that was there before.
pub(super) fn leave(bridge: &Bridge, replaced: Option<FlowMod>) {
    match replaced {
        Some(flow) => request(bridge, &flow),
        None => request(bridge, &lowest(FlowCommand::DeleteStrict, u64::MAX, Vec::new())),
    }
}
