//! `fail_mode` standalone (ovs-vsctl(8)): while no controller is connected, a flow of the switch's own forwards as a
//! learning switch does.

use super::kept::Journaled;
use bridge::Bridge;
use openflow::message::{FlowCommand, FlowMod, Timeouts};
use openflow::{Action, Instructions, Match, action::port};
use std::sync::{Arc, Mutex, PoisonError};

/// The cookie of the switch's own flow.
const COOKIE: u64 = 0x736c_7569_6365_0001;

/// Replaces a controller's flow by the switch's own, and restores it.
pub(super) struct Standalone {
    bridge: Arc<Bridge>,
    journaled: Option<Arc<Journaled>>,
    /// The controllers' flow that the switch's own flow has replaced.
    replaced: Mutex<Option<FlowMod>>,
}

/// Returns a request about the flow of priority 0 in table 0 that matches every packet.
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

impl Standalone {
    /// Returns the state for a bridge. `replaced` is the flow that the switch's own flow has replaced, if that is in
    /// force.
    pub(super) fn new(
        bridge: &Arc<Bridge>,
        journaled: Option<Arc<Journaled>>,
        replaced: Option<FlowMod>,
    ) -> Standalone {
        let one = Standalone { bridge: Arc::clone(bridge), journaled, replaced: Mutex::default() };
        if one.is_there() {
            *one.replaced.lock().unwrap_or_else(PoisonError::into_inner) = replaced;
        }
        one
    }

    /// Whether the switch's own flow is in force.
    fn is_there(&self) -> bool {
        let tables = self.bridge.tables();
        tables.table(0).flows.find(&Match::any(), 0).is_some_and(|flow| flow.cookie == COOKIE)
    }

    fn request(&self, request: &FlowMod) {
        if let Err(error) = self.bridge.flow_mod(request, &bridge::Origin::SWITCH) {
            tracing::warn!("the bridge's own flow: {}", error.text);
        }
    }

    /// Puts the switch's own flow in force, and remembers the flow that it replaces.
    pub(super) fn stand_in(&self) {
        // Holding the lock makes the next controller that connects or disconnects wait.
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_there() {
            return;
        }
        *replaced = {
            let tables = self.bridge.tables();
            tables.table(0).flows.find(&Match::any(), 0).map(|flow| FlowMod {
                cookie: flow.cookie,
                timeouts: flow.timeouts,
                flags: flow.flags,
                importance: flow.importance,
                instructions: flow.instructions.clone(),
                ..lowest(FlowCommand::Add, 0, Vec::new())
            })
        };
        // Before the replacement, so that the flow is not lost if the switch ends in between.
        if let Some(journaled) = &self.journaled {
            journaled.keep_replaced(replaced.as_ref(), &self.bridge);
        }
        let normal = vec![Action::Output { port: port::NORMAL, max_len: 0 }];
        self.request(&lowest(FlowCommand::Add, 0, normal));
    }

    /// Restores the flow that the switch's own flow has replaced; without one, deletes the latter.
    pub(super) fn leave(&self) {
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        match replaced.take() {
            Some(flow) => {
                self.request(&flow);
                if let Some(journaled) = &self.journaled {
                    journaled.keep_replaced(None, &self.bridge);
                }
            }
            None => self.request(&lowest(FlowCommand::DeleteStrict, u64::MAX, Vec::new())),
        }
    }
}
