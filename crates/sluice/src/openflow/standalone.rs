//! The flow of a bridge that no controller is connected to: it forwards as a learning switch does (ovs-vsctl(8), `fail_mode`).

use super::kept::Journaled;
use bridge::Bridge;
use openflow::message::{FlowCommand, FlowMod, Timeouts};
use openflow::{Action, Instructions, Match, action::port};
use std::sync::{Arc, Mutex, PoisonError};

/// The cookie of the switch's own flow.
const COOKIE: u64 = 0x736c_7569_6365_0001;

/// Puts the switch's own flow in the place of a controller's, and gives that back.
pub(super) struct Standalone {
    bridge: Arc<Bridge>,
    journaled: Option<Arc<Journaled>>,
    /// The controllers' flow in whose place the switch's own one is.
    replaced: Mutex<Option<FlowMod>>,
}

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

impl Standalone {
    /// For a bridge that has the switch's own flow in the place of `replaced`, or not at all.
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

    /// While no controller is connected, the switch forwards as a learning switch does.
    pub(super) fn stand_in(&self) {
        // Until this is done, the next controller that comes or goes waits.
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
        // First, so that it is not lost if the switch ends in between.
        if let Some(journaled) = &self.journaled {
            journaled.keep_replaced(replaced.as_ref(), &self.bridge);
        }
        let normal = vec![Action::Output { port: port::NORMAL, max_len: 0 }];
        self.request(&lowest(FlowCommand::Add, 0, normal));
    }

    /// A controller decides again, with the flow that was there before.
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
