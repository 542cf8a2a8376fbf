//! Execution of groups, and of Nicira's `bundle` action.

use super::frames::{Frame, Place, Same, of_bucket};
use super::hash::{hash_words, highest_weight};
use super::{DEPTH_MAX, Translator, copied};
use crate::controllers::packet_in_reason;
use crate::flow::Group;
use crate::recent::Dependence;
use openflow::action::{BundleAlgorithm, HashFields, Subfield, port};
use openflow::message::GroupKind;
use std::sync::Arc;

/// What `bundle` writes if no member is up: `OFPP_NONE` of OpenFlow 1.0.
const NO_PORT: u128 = 0xffff;

impl Translator<'_> {
    /// Executes a group. A group that does not exist has no effect.
    pub(super) fn group(&mut self, id: u32, place: &Place) {
        self.depend(Dependence::Groups);
        let Some(group) = self.tables.as_ref().and_then(|tables| tables.group(id)).cloned() else {
            return self.note(|| format!("there is no group {id}"));
        };
        if place.depth >= DEPTH_MAX {
            return self.fail("groups are too deep within each other");
        }
        let place = Place { reason: packet_in_reason::GROUP, depth: place.depth + 1, ..place.clone() };
        self.count(&group.usage);
        self.note(|| format!("group {id}, {:?}", group.kind));
        let chosen = match group.kind {
            GroupKind::All => {
                self.frames.push(Frame::Buckets { group: Same(group), next: 0, place });
                return;
            }
            GroupKind::Indirect => (!group.buckets.is_empty()).then_some(0),
            GroupKind::FastFailover => (0..group.buckets.len()).find(|at| self.is_live(&group, *at, 0)),
            GroupKind::Select => self.select(&group),
        };
        match chosen {
            Some(at) => self.do_bucket(&group, at, &place),
            None => self.note(|| "no bucket is live".to_string()),
        }
    }

    /// Executes a bucket's actions on a copy of the packet.
    pub(super) fn do_bucket(&mut self, group: &Arc<Group>, at: usize, place: &Place) {
        let (bucket, usage) = &group.buckets[at];
        if !self.work_on(1 + copied(bucket.actions.len())) {
            return;
        }
        self.note(|| format!("bucket {}", bucket.id));
        self.count(usage);
        self.copy();
        self.frames.push(Frame::Actions { list: of_bucket(bucket), at: 0, place: place.clone() });
    }

    /// Whether a bucket is live: the port or group that it watches is live, or it watches none.
    fn is_live(&mut self, group: &Group, at: usize, depth: u16) -> bool {
        if !self.work_on(1) {
            return false;
        }
        let bucket = &group.buckets[at].0;
        let watched_port = bucket.watch_port.filter(|watched| *watched != port::ANY);
        let watched_group = bucket.watch_group.filter(|watched| *watched != openflow::message::GROUP_ANY);
        if watched_port.is_none() && watched_group.is_none() {
            return true;
        }
        if let Some(watched) = watched_port {
            self.depend(Dependence::Ports);
            if self.tables.as_ref().is_some_and(|tables| tables.ports().is_up(watched)) {
                return true;
            }
        }
        let Some(watched) = watched_group.filter(|_| depth < DEPTH_MAX) else { return false };
        let Some(other) = self.tables.as_ref().and_then(|tables| tables.group(watched)).cloned() else { return false };
        // Counted as steps, because groups can watch each other in exponentially many combinations.
        self.steps += other.buckets.len() as u32;
        self.steps <= super::STEPS_MAX && (0..other.buckets.len()).any(|at| self.is_live(&other, at, depth + 1))
    }

    /// Selects a live bucket by weighted rendezvous hashing: the one with the least -ln(u) / weight, where u is a
    /// hash of packet and bucket. When a bucket becomes live or stops being so, only its own flows move (Thaler and
    /// Ravishankar, "Using name-based mappings to increase hit rates", 1998, with weights).
    fn select(&mut self, group: &Arc<Group>) -> Option<usize> {
        let live: Vec<usize> = (0..group.buckets.len())
            .filter(|at| group.buckets[*at].0.weight > 0 && self.is_live(group, *at, 0))
            .collect();
        if live.len() < 2 {
            return live.first().copied();
        }
        let selection = &group.selection;
        let hash = if selection.fields.is_empty() {
            self.hash_flow(selection.parameter)
        } else {
            self.hash_selected(&selection.fields, selection.parameter)
        };
        let score = |at: &usize| {
            let bucket = &group.buckets[*at].0;
            let draw = hash_words(&[u64::from(hash), u64::from(bucket.id), u64::from(group.id)]);
            -((f64::from(draw) + 0.5) / 4_294_967_296.0).ln() / f64::from(bucket.weight)
        };
        live.into_iter().min_by(|a, b| score(a).total_cmp(&score(b)))
    }

    /// Outputs to one of the members that are up, or writes its number to a field.
    pub(super) fn bundle(
        &mut self,
        fields: HashFields,
        basis: u16,
        algorithm: BundleAlgorithm,
        members: &[u32],
        to: Option<Subfield>,
        place: &Place,
    ) {
        self.depend(Dependence::Ports);
        let Some(tables) = &self.tables else { return };
        let up: Vec<u32> = members.iter().copied().filter(|member| tables.ports().is_up(*member)).collect();
        let chosen = match algorithm {
            BundleAlgorithm::ActiveBackup => up.first().copied(),
            BundleAlgorithm::HighestRandomWeight => {
                let hash = self.hash_fields(fields, u32::from(basis));
                highest_weight(hash, up.into_iter())
            }
        };
        match (to, chosen) {
            (Some(to), chosen) => self.load(to, chosen.map_or(NO_PORT, u128::from)),
            (None, Some(chosen)) => self.output(chosen, 0xffff, u32::MAX, self.queue, place),
            (None, None) => self.note(|| "no port of the bundle is up".to_string()),
        }
    }
}
