//! The flows of one table: tuple space search, which also computes the mask for the flow cache.
//!
//! Flows with the same mask form a *subtable*, a hash table over masked words (Srinivasan, Suri and Varghese,
//! "Packet Classification using Tuple Space Search", SIGCOMM 1999). A lookup searches subtables in the order of
//! their highest priority and ends when no later one can hold a better flow. It reports the bits that it
//! *consulted*: any record with the same values in these bits has the same result. Two techniques keep these bits
//! few, and so megaflows wide (Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI 2015, section
//! 5):
//!
//! - *Staged lookup*: a subtable stores hashes of its flows' fields up to each stage (`key`). If the hash of a
//!   stage is not there, the fields of later stages are not consulted. A hash collision only makes the result
//!   narrower.
//! - *Prefix tracking* ([`trie`]): for fields that are matched by prefix, a trie gives the prefix lengths that can
//!   match and the number of bits that determine this. Subtables of other lengths are skipped.
//!
//! **Identity.** Flows with equal words, masks and priority are the same flow, even if one names `xreg0` and the
//! other `reg0` and `reg1`.
//!
//! **Conjunctive matches** (ovs-fields(7), "Conjunctive Match Fields"): flows with `conjunction` actions are soft
//! matches, not results. If the soft matches of a packet satisfy all clauses of a conjunction at a priority above
//! the best other flow, the packet is looked up again with `conj_id` set.
//!
//! **Work bound.** Whoever may add flows can create as many subtables as memory permits, and many conjunctions that
//! each cost a lookup. A lookup therefore has a budget of *visits*: subtables searched, and actions read of
//! conjunctive flows. When it is used up, the lookup ends without a result.
//!
//! Tests: `classifier/tests.rs`, against a linear scan, with every bit flipped that was not consulted.

mod growing;
mod overlap;
mod subtable;
#[cfg(test)]
mod tests;
mod trie;

use crate::flow::Flow;
use crate::key::{CONJ_ID, Consulted, Layout, WordTerm};
use crate::memory::{Charge, Pool, SUBTABLE};
use growing::Growing;
use openflow::{Action, FieldId, Match};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;
pub(crate) use subtable::Keep;
use subtable::{Rule, Subtable};
use trie::Tries;

/// The result of [`Classifier::find_plain`].
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// No flow.
    None,
    /// The flow.
    Flow(&'a Arc<Flow>),
    /// A conjunction may match; [`Classifier::lookup_within`] decides.
    Conjunction,
    /// The budget of visits is used up; [`Classifier::lookup_within`] decides, within a budget of its own.
    TooMuch,
}

/// Locates a flow without a reference to it. Later it finds the flow that is stored there then: the same one, one
/// with the same match and priority, or, on a hash collision, another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    hash: u64,
    subtable: u32,
    priority: u16,
}

/// The subtable number of flows whose match contradicts itself.
const IMPOSSIBLE: u32 = u32::MAX;

/// Flows whose match contradicts itself, by the hash of match and priority. No packet matches them.
#[derive(Debug, Default)]
struct Impossible {
    hasher: RandomState,
    flows: HashMap<u64, Vec<Arc<Flow>>>,
}

impl Impossible {
    fn hash(&self, matching: &Match, priority: u16) -> u64 {
        self.hasher.hash_one((matching, priority))
    }

    fn insert(&mut self, flow: Arc<Flow>) -> Option<Arc<Flow>> {
        let flows = self.flows.entry(self.hasher.hash_one((&flow.matching, flow.priority))).or_default();
        let is_same = |old: &&mut Arc<Flow>| (&old.matching, old.priority) == (&flow.matching, flow.priority);
        match flows.iter_mut().find(is_same) {
            Some(old) => Some(std::mem::replace(old, flow)),
            None => {
                flows.push(flow);
                None
            }
        }
    }

    fn remove(&mut self, matching: &Match, priority: u16) -> Option<Arc<Flow>> {
        let hash = self.hash(matching, priority);
        let flows = self.flows.get_mut(&hash)?;
        let at = flows.iter().position(|flow| (&flow.matching, flow.priority) == (matching, priority))?;
        let old = flows.swap_remove(at);
        if flows.is_empty() {
            self.flows.remove(&hash);
        }
        Some(old)
    }

    fn find(&self, matching: &Match, priority: u16) -> Option<&Arc<Flow>> {
        let is_same = |flow: &&Arc<Flow>| (&flow.matching, flow.priority) == (matching, priority);
        self.of_hash(self.hash(matching, priority)).find(is_same)
    }

    fn of_hash(&self, hash: u64) -> impl Iterator<Item = &Arc<Flow>> {
        self.flows.get(&hash).into_iter().flatten()
    }

    fn hashes(&self) -> impl Iterator<Item = (u64, &Arc<Flow>)> {
        self.flows.iter().flat_map(|(hash, flows)| flows.iter().map(|flow| (*hash, flow)))
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.flows.values().flatten()
    }
}

/// The flows of a table.
#[derive(Debug)]
pub struct Classifier {
    layout: Arc<Layout>,
    subtables: Vec<Option<Subtable>>,
    free: Vec<usize>,
    by_mask: HashMap<Box<[(u32, u64)]>, usize>,
    /// Words that flows have matched on, in ascending order. They stay when the flows are removed.
    words: Vec<u32>,
    /// Subtables with their highest priorities, in descending order.
    order: Vec<(u16, usize)>,
    tries: Tries,
    /// Flows whose match contradicts itself.
    impossible: Impossible,
    /// How many flows have each cookie.
    cookies: Growing<u64, u32, RandomState>,
    len: usize,
    conj_id: Option<FieldId>,
    /// The memory pool that subtables are charged to.
    memory: Option<Arc<Pool>>,
}

impl Classifier {
    /// An empty classifier.
    pub fn new(layout: &Arc<Layout>) -> Classifier {
        Classifier {
            subtables: Vec::new(),
            free: Vec::new(),
            by_mask: HashMap::new(),
            words: Vec::new(),
            order: Vec::new(),
            tries: Tries::default(),
            impossible: Impossible::default(),
            cookies: Growing::default(),
            len: 0,
            conj_id: layout.fields().numbered(CONJ_ID),
            layout: Arc::clone(layout),
            memory: None,
        }
    }

    /// An empty classifier whose subtables are charged to a pool. Flows are charged separately.
    pub(crate) fn charging(layout: &Arc<Layout>, memory: &Arc<Pool>) -> Classifier {
        Classifier { memory: Some(Arc::clone(memory)), ..Classifier::new(layout) }
    }

    /// Adds a flow. Returns the flow with the same match and priority that it replaces.
    pub fn insert(&mut self, flow: Arc<Flow>) -> Option<Arc<Flow>> {
        *self.cookies.entry(flow.cookie) += 1;
        let old = self.put(flow);
        self.forget_cookie(old.as_deref());
        old
    }

    fn forget_cookie(&mut self, old: Option<&Flow>) {
        let Some(old) = old else { return };
        if let Some(count) = self.cookies.get_mut(&old.cookie) {
            *count -= 1;
            if *count == 0 {
                self.cookies.remove(&old.cookie);
            }
        }
    }

    fn put(&mut self, flow: Arc<Flow>) -> Option<Arc<Flow>> {
        let Some(terms) = self.layout.terms(&flow.matching) else {
            let old = self.impossible.insert(flow);
            self.len += usize::from(old.is_none());
            return old;
        };
        let is_conjunction = flow.instructions.apply.iter().any(|action| matches!(action, Action::Conjunction { .. }));
        let rule = Rule { flow, is_conjunction };
        let at = self.subtable_for(&terms);
        let subtable = self.subtables[at].as_mut()?;
        let before = subtable.max_priority();
        let old = subtable.insert(&terms, rule);
        let after = subtable.max_priority();
        if old.is_none() {
            self.len += 1;
            self.tries.insert(subtable.prefixes(), &terms);
        }
        self.reorder(at, before, after);
        old
    }

    /// Removes a flow and returns it.
    pub fn remove(&mut self, matching: &Match, priority: u16) -> Option<Arc<Flow>> {
        let old = self.take(matching, priority);
        self.forget_cookie(old.as_deref());
        old
    }

    fn take(&mut self, matching: &Match, priority: u16) -> Option<Arc<Flow>> {
        let Some(terms) = self.layout.terms(matching) else {
            let old = self.impossible.remove(matching, priority);
            self.len -= usize::from(old.is_some());
            return old;
        };
        let at = self.subtable_of(&terms)?;
        let subtable = self.subtables[at].as_mut()?;
        let before = subtable.max_priority();
        let old = subtable.remove(&terms, priority)?;
        let after = subtable.max_priority();
        self.len -= 1;
        self.tries.remove(subtable.prefixes(), &terms);
        self.reorder(at, before, after);
        if after.is_none() {
            self.tries.release(self.subtables[at].take()?.prefixes());
            self.by_mask.remove(&mask_of(&terms));
            self.free.push(at);
        }
        Some(old)
    }

    /// The flow with this match and priority.
    pub fn find(&self, matching: &Match, priority: u16) -> Option<&Arc<Flow>> {
        match self.layout.terms(matching) {
            Some(terms) => self.subtables[self.subtable_of(&terms)?].as_ref()?.find(&terms, priority),
            None => self.impossible.find(matching, priority),
        }
    }

    /// All flows, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.subtables.iter().flatten().flat_map(Subtable::iter).chain(self.impossible.iter())
    }

    /// All flows in no order, with their handles.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (Handle, &Arc<Flow>)> {
        let subtables =
            self.subtables.iter().enumerate().filter_map(|(at, subtable)| Some((at as u32, subtable.as_ref()?)));
        let possible = subtables.flat_map(|(at, subtable)| subtable.hashes_of_flows().map(move |of| (at, of)));
        let impossible = self.impossible.hashes().map(|of| (IMPOSSIBLE, of));
        possible
            .chain(impossible)
            .map(|(subtable, (hash, flow))| (Handle { hash, subtable, priority: flow.priority }, flow))
    }

    /// The flows that a handle now locates: usually one or none.
    pub(crate) fn at(&self, handle: Handle) -> Vec<&Arc<Flow>> {
        match handle.subtable {
            IMPOSSIBLE => self.impossible.of_hash(handle.hash).collect(),
            at => {
                let subtable = self.subtables.get(at as usize).and_then(Option::as_ref);
                subtable.map_or_else(Vec::new, |subtable| subtable.of_hash(handle.hash, handle.priority).collect())
            }
        }
    }

    /// A flow of the same priority that passes `is_meant` and overlaps: some packet can match both it and
    /// `matching`. Adds the number of flows and subtables visited to `visits`.
    pub fn overlapping(
        &self,
        matching: &Match,
        priority: u16,
        is_meant: &dyn Fn(&Arc<Flow>) -> bool,
        visits: &mut u64,
    ) -> Option<&Arc<Flow>> {
        let terms = self.layout.terms(matching)?;
        let memory = self.memory.as_ref();
        let mut subtables = self.subtables.iter().flatten();
        subtables.find_map(|subtable| subtable.overlapping(&terms, priority, is_meant, memory, visits))
    }

    /// Frees the indices that speed up overlap checks. Later checks are slower.
    pub fn give_up_indices(&self) {
        self.subtables.iter().flatten().for_each(Subtable::give_up_indices);
    }

    /// How many flows have this cookie.
    pub fn with_cookie(&self, cookie: u64) -> usize {
        self.cookies.get(&cookie).map_or(0, |count| *count as usize)
    }

    /// The number of flows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words that lookups read, in ascending order, and maybe others. No word is ever removed.
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    /// The number of subtables, that is, of distinct masks.
    pub fn masks(&self) -> usize {
        self.order.len()
    }

    /// [`Classifier::lookup_within`] with an unlimited budget.
    #[cfg(test)]
    fn lookup(&self, record: &[u64], consulted: &mut Consulted) -> Option<&Arc<Flow>> {
        self.lookup_within(record, consulted, &mut { u32::MAX }).expect("nothing has so many subtables")
    }

    /// The flow of the highest priority that a record matches, or `Some(None)` if there is none. Adds the bits that
    /// determined this to `consulted`, and takes the work from `visits`. `None` if the budget does not suffice.
    ///
    /// Which of several matching flows of the same priority is found is undefined (OpenFlow 1.3.5, 5.3), but
    /// depends on consulted bits only.
    pub fn lookup_within(
        &self,
        record: &[u64],
        consulted: &mut Consulted,
        visits: &mut u32,
    ) -> Option<Option<&Arc<Flow>>> {
        let mut soft = Vec::new();
        let hard = self.search(record, consulted, &mut soft, visits)?;
        let above = hard.map(|flow| flow.priority);
        soft.retain(|flow: &&Arc<Flow>| above.is_none_or(|above| flow.priority > above));
        let Some(conj_id) = self.conj_id.filter(|_| !soft.is_empty()) else { return Some(hard) };
        let actions = soft.iter().map(|flow| flow.instructions.apply.len()).sum::<usize>();
        *visits = visits.checked_sub(u32::try_from(actions).ok()?)?;
        let mut again = record.to_vec();
        for id in complete_conjunctions(&soft) {
            let place = self.layout.place(conj_id);
            place.write(&mut again, u128::from(id), u128::MAX);
            // In this lookup, the bits of `conj_id` are not bits of the packet.
            let mut these = Consulted::new(record.len());
            let found = self.search(&again, &mut these, &mut Vec::new(), visits)?;
            place.spread(0, u128::MAX, |word, mask, _| these.remove(word, mask));
            these.iter().for_each(|(word, mask)| consulted.add(word, mask));
            if found.is_some() {
                return Some(found);
            }
        }
        Some(hard)
    }

    /// The best flow without conjunctions. Adds the soft matches to `soft`, at least all of those with a higher
    /// priority. `None` if the budget of visits does not suffice.
    fn search<'a>(
        &'a self,
        record: &[u64],
        consulted: &mut Consulted,
        soft: &mut Vec<&'a Arc<Flow>>,
        visits: &mut u32,
    ) -> Option<Option<&'a Arc<Flow>>> {
        let mut best: Option<&Arc<Flow>> = None;
        let mut answers = self.tries.begin();
        for (priority, at) in &self.order {
            if best.is_some_and(|best| best.priority >= *priority) {
                break;
            }
            *visits = visits.checked_sub(1)?;
            let Some(subtable) = &self.subtables[*at] else { continue };
            let Some(rules) = subtable.lookup(record, &self.tries, &mut answers, consulted) else { continue };
            for rule in rules {
                if best.is_some_and(|best| best.priority >= rule.flow.priority) {
                    break;
                }
                if !rule.is_conjunction {
                    best = Some(&rule.flow);
                    break;
                }
                soft.push(&rule.flow);
            }
        }
        Some(best)
    }

    /// [`Classifier::lookup_within`] without consulted bits, and so without stages and tries. (Walking a trie takes
    /// as long as ruling out tens of subtables.) Takes the subtables searched from `visits`.
    pub fn find_plain(&self, record: &[u64], visits: &mut u32) -> Found<'_> {
        let mut best: Option<&Arc<Flow>> = None;
        for (priority, at) in &self.order {
            if best.is_some_and(|best| best.priority >= *priority) {
                break;
            }
            let Some(left) = visits.checked_sub(1) else { return Found::TooMuch };
            *visits = left;
            let Some(subtable) = &self.subtables[*at] else { continue };
            // Rules are sorted by priority, the highest first.
            let Some(rule) = subtable.find_plain(record).first() else { continue };
            if best.is_some_and(|best| best.priority >= rule.flow.priority) {
                continue;
            }
            if rule.is_conjunction {
                return Found::Conjunction;
            }
            best = Some(&rule.flow);
        }
        best.map_or(Found::None, Found::Flow)
    }

    fn subtable_of(&self, terms: &[WordTerm]) -> Option<usize> {
        self.by_mask.get(&mask_of(terms)).copied()
    }

    fn subtable_for(&mut self, terms: &[WordTerm]) -> usize {
        let mask = mask_of(terms);
        if let Some(at) = self.by_mask.get(&mask) {
            return *at;
        }
        let prefixes = self.tries.acquire(&self.layout, &mask);
        let charge = self.memory.as_ref().map_or_else(Charge::default, |memory| memory.charge_anyway(SUBTABLE));
        let subtable = Some(Subtable::new(&self.layout, &mask, prefixes, charge));
        let at = match self.free.pop() {
            Some(at) => {
                self.subtables[at] = subtable;
                at
            }
            None => {
                self.subtables.push(subtable);
                self.subtables.len() - 1
            }
        };
        for (word, _) in &mask {
            if let Err(place) = self.words.binary_search(word) {
                self.words.insert(place, *word);
            }
        }
        self.by_mask.insert(mask, at);
        at
    }

    /// Updates `order` after a subtable's highest priority has changed.
    fn reorder(&mut self, at: usize, before: Option<u16>, after: Option<u16>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            let from = self.order.partition_point(|(priority, _)| *priority > before);
            if let Some(i) = self.order[from..].iter().position(|(_, other)| *other == at) {
                self.order.remove(from + i);
            }
        }
        if let Some(after) = after {
            let to = self.order.partition_point(|(priority, _)| *priority >= after);
            self.order.insert(to, (after, at));
        }
    }
}

fn mask_of(terms: &[WordTerm]) -> Box<[(u32, u64)]> {
    terms.iter().map(|term| (term.word, term.mask)).collect()
}

/// The ids of conjunctions whose clauses are all satisfied, by descending priority, then by id.
fn complete_conjunctions(soft: &[&Arc<Flow>]) -> Vec<u32> {
    // By priority and id: the number of clauses, and a bit mask of those that are satisfied.
    let mut clauses: BTreeMap<(std::cmp::Reverse<u16>, u32), (u8, u64)> = BTreeMap::new();
    for flow in soft {
        for action in &flow.instructions.apply {
            if let Action::Conjunction { clause, clauses: count, id } = action {
                let (least, seen) = clauses.entry((std::cmp::Reverse(flow.priority), *id)).or_insert((*count, 0));
                *least = (*least).max(*count);
                *seen |= 1u64.checked_shl(u32::from(*clause)).unwrap_or(0);
            }
        }
    }
    let complete = clauses.into_iter().filter(|(_, (count, seen))| {
        let all = 1u64.checked_shl(u32::from(*count)).unwrap_or(0).wrapping_sub(1);
        seen & all == all
    });
    complete.map(|((_, id), _)| id).collect()
}
