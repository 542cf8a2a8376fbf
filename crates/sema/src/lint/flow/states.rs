//! The states of the places of a frame during the analysis of a body.
//!
//! One array for the frame, and a trail (undo log) of changes. States at `return` and `exit` are joined without copying
//! the array: the state of a place is joined into [`Ends`] when it next changes, if an end was passed in between.

use super::ENTRY;
use crate::lint::places::FramePlaces;

/// Places and their states after a branch.
pub(super) type Changes = Vec<(u32, u8)>;

/// The join of the states at several ends of a body.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) count: u32,
    /// By place: the number of ends when it last changed.
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

/// Arrays shared by the analyses of all bodies of one frame; between bodies they are in their initial state.
pub(super) struct Scratch {
    pub(super) state: Vec<u8>,
    pub(super) trail: Vec<(u32, u8)>,
    pub(super) stamps: Vec<u32>,
    pub(super) stamp: u32,
    pub(super) changed: Vec<u32>,
    pub(super) has_changed: Vec<bool>,
    /// By local: the depth of conditions at its declaration.
    pub(super) declared_at: Vec<u32>,
    /// The locals whose `declared_at` is not 0.
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
