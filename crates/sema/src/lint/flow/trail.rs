//! Changes of states during the analysis of a body: made, undone, joined, collected at the ends.

use super::states::Changes;
use super::walk::Walker;
use super::{BAD, ENTRY, GOOD, Summary, TESTED};
use crate::lint::places::Kind;

impl Walker<'_, '_> {
    /// Ends the body and returns its summary; restores the scratch arrays.
    pub fn finish(mut self) -> Summary {
        let mut summary = std::mem::take(&mut self.summary);
        let s = &mut *self.scratch;
        summary.completes = !self.dead || s.returns.count > 0;
        s.changed.sort_unstable();
        let mut exit = Vec::new();
        for &place in &s.changed {
            let now = s.state[place as usize];
            let end = s.returns.of(place, now) | if self.dead { 0 } else { now };
            if end != ENTRY && summary.completes {
                summary.effects.push((place, end));
            }
            let end = s.exits.of(place, now);
            if end != ENTRY && end != 0 {
                exit.push((place, end));
            }
        }
        if s.exits.count > 0 {
            summary.exit = Some(exit);
        }
        for (place, before) in s.trail.drain(..).rev() {
            s.state[place as usize] = before;
        }
        s.returns.reset(&s.changed);
        s.exits.reset(&s.changed);
        for place in s.changed.drain(..) {
            s.has_changed[place as usize] = false;
        }
        for local in s.declared.drain(..) {
            s.declared_at[local] = 0;
        }
        summary.find_interest();
        summary
    }

    pub fn state(&self, place: u32) -> u8 {
        self.scratch.state[place as usize]
    }

    pub fn set(&mut self, place: u32, state: u8) {
        let s = &mut *self.scratch;
        let i = place as usize;
        let before = s.state[i];
        if before == state {
            return;
        }
        s.returns.leave(place, before);
        s.exits.leave(place, before);
        s.trail.push((place, before));
        if !std::mem::replace(&mut s.has_changed[i], true) {
            s.changed.push(place);
        }
        s.state[i] = state;
    }

    /// Joins more members into the state of a place.
    pub fn weaken(&mut self, place: u32, more: u8) {
        self.set(place, self.state(place) | more);
    }

    /// Records that the body ends here by `exit`; `places` are those changed by the callee that exits.
    pub fn record_exit(&mut self, places: &[(u32, u8)]) {
        for (place, state) in places {
            let s = &mut *self.scratch;
            if !std::mem::replace(&mut s.has_changed[*place as usize], true) {
                s.changed.push(*place);
            }
            s.exits.states[*place as usize] |= *state;
        }
        self.scratch.exits.count += 1;
    }

    /// The changes since a point of the trail, each place once.
    pub fn changes_since(&mut self, mark: usize) -> Changes {
        let s = &mut *self.scratch;
        s.stamp += 1;
        let mut changes = Vec::new();
        for (place, _) in &s.trail[mark..] {
            if std::mem::replace(&mut s.stamps[*place as usize], s.stamp) != s.stamp {
                changes.push((*place, s.state[*place as usize]));
            }
        }
        changes
    }

    /// Analyses a branch and undoes it. Returns its changes (`None` if its end is unreachable) and the depth at its
    /// end.
    pub fn branch(&mut self, f: impl FnOnce(&mut Self)) -> (Option<Changes>, u32) {
        let mark = self.scratch.trail.len();
        let (dead, depth) = (std::mem::replace(&mut self.dead, false), self.depth);
        f(self);
        let changes = (!self.dead).then(|| self.changes_since(mark));
        let depth_at_end = std::mem::replace(&mut self.depth, depth);
        self.dead = dead;
        while self.scratch.trail.len() > mark {
            if let Some((place, before)) = self.scratch.trail.pop() {
                let s = &mut *self.scratch;
                let now = s.state[place as usize];
                s.returns.leave(place, now);
                s.exits.leave(place, now);
                s.state[place as usize] = before;
            }
        }
        (changes, depth_at_end)
    }

    /// Joins branches of which exactly one is executed.
    pub fn join(&mut self, branches: Vec<Option<Changes>>) {
        let live = branches.iter().flatten().count();
        if live == 0 {
            self.dead = true;
            return;
        }
        let mut all: Changes = branches.into_iter().flatten().flatten().collect();
        if live > 1 {
            all.sort_unstable();
        }
        let mut i = 0;
        while i < all.len() {
            let (place, mut state) = all[i];
            let mut count = 1;
            while live > 1 && all.get(i + count).is_some_and(|next| next.0 == place) {
                state |= all[i + count].1;
                count += 1;
            }
            let before = self.state(place);
            if count < live {
                state |= before;
            }
            // Assigned under two conditions, which may be exhaustive.
            const BOTH: u8 = BAD | GOOD;
            if before & BOTH == BOTH && state & BOTH == BOTH && self.places.kinds[place as usize] == Kind::Scalar {
                state |= TESTED;
            }
            self.set(place, state);
            i += count;
        }
    }
}
