//! The states of the places of a frame during a walk.
//!
//! One array for the frame, and a trail of what was changed. Ends by `return` and `exit` are gathered without copying the
//! array: a place's state is added to the ends' when it next changes, if an end came in between ([`Ends`]).

use super::ENTRY;
use crate::lint::places::FramePlaces;

/// Places and their states after a branch.
pub(super) type Changes = Vec<(u32, u8)>;

/// The union of the states at several ends of a body.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) count: u32,
    /// By place: how many ends there were when it changed last.
    since: Vec<u32>,
    pub(super) states: Vec<u8>,
}

impl Ends {
    fn new(places: usize) -> Ends {
        Ends { count: 0, since: vec![0; places], states: vec![0; places] }
    }

    pub(super) fn leave(&mut self, place: u32, state: u8) {
        let i = place as usize;
        if self.since[i] < self.count {
            self.states[i] |= state;
        }
        self.since[i] = self.count;
    }

    pub(super) fn of(&self, place: u32, state: u8) -> u8 {
        let i = place as usize;
        self.states[i] | if self.since[i] < self.count { state } else { 0 }
    }

    pub(super) fn reset(&mut self, places: &[u32]) {
        self.count = 0;
        for p in places {
            self.since[*p as usize] = 0;
            self.states[*p as usize] = 0;
        }
    }
}

/// What the walks over the bodies of one frame share: its arrays, as at the begin of a body.
pub(super) struct Scratch {
    pub(super) state: Vec<u8>,
    pub(super) trail: Vec<(u32, u8)>,
    pub(super) stamps: Vec<u32>,
    pub(super) stamp: u32,
    pub(super) changed: Vec<u32>,
    pub(super) has_changed: Vec<bool>,
    /// By local: the depth at its declaration.
    pub(super) declared_at: Vec<u32>,
    /// The locals that are not 0 there.
    pub(super) declared: Vec<usize>,
    pub(super) returns: Ends,
    pub(super) exits: Ends,
}

impl Scratch {
    pub fn new(places: &FramePlaces) -> Scratch {
        let n = places.kinds.len();
        Scratch {
            state: vec![ENTRY; n],
            trail: Vec::new(),
            stamps: vec![0; n],
            stamp: 0,
            changed: Vec::new(),
            has_changed: vec![false; n],
            declared_at: vec![0; places.frame.locals.len()],
            declared: Vec::new(),
            returns: Ends::new(n),
            exits: Ends::new(n),
        }
    }
}
