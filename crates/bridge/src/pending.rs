//! Stored processing states of packets that do not start at table 0.
//!
//! There are three kinds: the actions of a packet-out, a frozen translation that resumes after the frame was parsed
//! again (recirculation), and a translation that a controller resumes. Each has an id, which names the packet's
//! start (`abi::flows::Arrival::start`), like Open vSwitch's recirculation ids. A frozen translation is the same
//! for all packets of a megaflow, so equal ones share an id, and it lives as long as a cached megaflow refers to
//! it.
//!
//! Both the number ([`ENTRIES_MAX`], at most half of it frozen translations) and the bytes (`crate::memory`) are
//! bounded; beyond, nothing is added. Unused entries expire after [`AGE_US`]. Packet-outs and frozen translations
//! do not compete for the same space. A connection's packet-outs may take no more of each bound than what is free
//! for others (dynamic thresholds, see `crate::memory`): a single connection gets half, and there is always
//! something left for the next.

use crate::memory::{Charge, Memory};
use crate::translate::frames::{Frame, Frozen, List, Same};
use openflow::{Action, Match, memory as heap};
use std::collections::hash_map::{self, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of entries.
pub const ENTRIES_MAX: usize = 1 << 16;
/// How long unused entries live, in microseconds.
pub const AGE_US: u64 = 30_000_000;
/// Bytes of an entry besides its content: in the tables, with the allocator's overhead.
const ENTRY_BYTES: u64 = 192;

/// Where a packet's processing starts.
#[derive(Clone, Debug)]
pub enum Begin {
    /// With a packet-out's actions; used once.
    PacketOut {
        /// The actions.
        actions: Arc<[Action]>,
        /// The input port named in the packet-out.
        in_port: u32,
        /// Other metadata fields.
        fields: Match,
    },
    /// Where a translation was frozen.
    Frozen(Arc<Frozen>),
    /// Likewise, resumed by a controller with changed metadata; used once.
    Resumed(Arc<Frozen>, Match),
}

#[derive(Debug)]
struct Entry {
    begin: Begin,
    /// The connection that sent or resumed the packet; `None` for frozen translations of received packets.
    from: Option<u64>,
    used_us: u64,
    charge: Charge,
}

/// A connection's share of the entries.
#[derive(Debug, Default)]
struct Share {
    entries: usize,
    bytes: u64,
}

impl Begin {
    /// Bytes that the entry takes. The frozen translation of a resumed packet is counted in its own entry.
    fn bytes(&self) -> u64 {
        let own = match self {
            Begin::PacketOut { actions, fields, .. } => (heap::slice(actions) + fields.heap_bytes()) as u64,
            Begin::Frozen(frozen) => frozen.bytes(),
            Begin::Resumed(_, fields) => fields.heap_bytes() as u64,
        };
        own + ENTRY_BYTES
    }
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    all: HashMap<u64, Entry>,
    /// Ids of frozen translations, by hash.
    frozen: HashMap<u64, Vec<u64>>,
    /// The number of frozen translations.
    rests: usize,
    /// Shares of connections that have entries.
    shares: HashMap<u64, Share>,
}

/// Stored processing states, by id.
#[derive(Debug, Default)]
pub struct Pending {
    inner: Mutex<Inner>,
    now_us: AtomicU64,
    memory: Arc<Memory>,
}

fn hash_of(frozen: &Frozen) -> u64 {
    let mut hasher = DefaultHasher::new();
    frozen.metadata.hash(&mut hasher);
    (frozen.queue, frozen.program, frozen.in_port, frozen.is_set_done, &frozen.stack).hash(&mut hasher);
    (&frozen.set, frozen.frames.len()).hash(&mut hasher);
    // Flows and groups are compared by identity, so they are hashed by address.
    fn address<T>(of: &Same<T>) -> usize {
        Arc::as_ptr(&of.0) as usize
    }
    for frame in &frozen.frames {
        match frame {
            Frame::Actions { list: List::Flow(flow), at, .. } => (0, address(flow), *at).hash(&mut hasher),
            Frame::Actions { list: List::Owned(actions), at, .. } => (1, &**actions, *at).hash(&mut hasher),
            Frame::Rest { flow, .. } => (2, address(flow), 0).hash(&mut hasher),
            Frame::Buckets { group, next, .. } => (3, address(group), *next).hash(&mut hasher),
            Frame::Restore(saved) => (4, &saved.stack, &saved.set, saved.queue).hash(&mut hasher),
        }
    }
    hasher.finish()
}

impl Inner {
    /// Adds an entry: of a connection, or a frozen translation if `from` is `None`.
    fn add(&mut self, begin: Begin, from: Option<u64>, memory: &Memory, now_us: u64) -> Option<u64> {
        if self.all.len() >= ENTRIES_MAX {
            self.expire(now_us);
        }
        let own = from.and_then(|from| self.shares.get(&from));
        let (entries, own_bytes) = own.map_or((0, 0), |own| (own.entries, own.bytes));
        let free = ENTRIES_MAX.saturating_sub(self.all.len());
        let has_number = match from {
            Some(_) => entries < free,
            None => free > 0 && self.rests < ENTRIES_MAX / 2,
        };
        let (pool, bytes) = (if from.is_none() { &memory.rests } else { &memory.packet_outs }, begin.bytes());
        let charge = || {
            let mut charge = Charge::nothing(pool);
            // A single entry is admitted whatever its size.
            let has_room = charge.grow(bytes, own_bytes);
            if has_room { Some(charge) } else { (pool.used() == 0).then(|| pool.charge_anyway(bytes)) }
        };
        let Some(charge) = has_number.then(charge).flatten() else {
            memory.log("packets that wait to be translated, or to be parsed anew: they are too many or too long");
            return None;
        };
        self.next += 1;
        match from {
            Some(from) => {
                let share = self.shares.entry(from).or_default();
                (share.entries, share.bytes) = (share.entries + 1, share.bytes + bytes);
            }
            None => self.rests += 1,
        }
        self.all.insert(self.next, Entry { begin, from, used_us: now_us, charge });
        Some(self.next)
    }

    /// Updates the accounts for a removed entry.
    fn give_back(shares: &mut HashMap<u64, Share>, rests: &mut usize, entry: &Entry) {
        let Some(from) = entry.from else {
            *rests -= 1;
            return;
        };
        if let hash_map::Entry::Occupied(mut share) = shares.entry(from) {
            let Share { entries, bytes } = share.get_mut();
            (*entries, *bytes) = (*entries - 1, bytes.saturating_sub(entry.charge.bytes()));
            if *entries == 0 {
                share.remove();
            }
        }
    }

    /// Removes an entry that is used once.
    fn remove(&mut self, start: u64) -> Option<Begin> {
        let entry = self.all.remove(&start)?;
        Inner::give_back(&mut self.shares, &mut self.rests, &entry);
        Some(entry.begin)
    }

    fn expire(&mut self, now_us: u64) {
        let is_used = |entry: &Entry| match &entry.begin {
            // This table holds one reference.
            Begin::Frozen(frozen) => Arc::strong_count(frozen) > 1,
            _ => false,
        };
        let (shares, rests) = (&mut self.shares, &mut self.rests);
        self.all.retain(|_, entry| {
            let stays = is_used(entry) || entry.used_us + AGE_US > now_us;
            if !stays {
                Inner::give_back(shares, rests, entry);
            }
            stays
        });
        let all = &self.all;
        self.frozen.retain(|_, ids| {
            ids.retain(|id| all.contains_key(id));
            !ids.is_empty()
        });
    }
}

impl Pending {
    /// An empty table whose entries are charged to the memory of a bridge.
    pub(crate) fn charging(memory: &Arc<Memory>) -> Pending {
        Pending { memory: Arc::clone(memory), ..Pending::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the current time and expires entries. Called by workers.
    pub fn tick(&self, now_us: u64) {
        let before = self.now_us.fetch_max(now_us, Ordering::Relaxed);
        // Once a second is enough.
        if before / 1_000_000 < now_us / 1_000_000 {
            self.lock().expire(now_us);
        }
    }

    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    /// Adds the actions of a connection's packet-out and returns their id. `None` if there is no room.
    pub fn insert(&self, from: u64, actions: Vec<Action>, in_port: u32, fields: Match) -> Option<u64> {
        let begin = Begin::PacketOut { actions: actions.into(), in_port, fields };
        self.lock().add(begin, Some(from), &self.memory, self.now_us())
    }

    /// Adds a frozen translation, or finds an equal one; returns its id and the shared copy. `None` if there is no
    /// room.
    pub fn freeze(&self, frozen: Frozen) -> Option<(u64, Arc<Frozen>)> {
        let hash = hash_of(&frozen);
        let now_us = self.now_us();
        let mut inner = self.lock();
        let inner = &mut *inner;
        for id in inner.frozen.get(&hash).into_iter().flatten() {
            if let Some(entry) = inner.all.get_mut(id)
                && let Begin::Frozen(other) = &entry.begin
                && **other == frozen
            {
                entry.used_us = now_us;
                return Some((*id, Arc::clone(other)));
            }
        }
        let frozen = Arc::new(frozen);
        let id = inner.add(Begin::Frozen(Arc::clone(&frozen)), None, &self.memory, now_us)?;
        inner.frozen.entry(hash).or_default().push(id);
        Some((id, frozen))
    }

    /// The state with an id. One that is used once is removed by this.
    pub fn take(&self, start: u64) -> Option<Begin> {
        let now_us = self.now_us();
        let mut inner = self.lock();
        let entry = inner.all.get_mut(&start)?;
        if let Begin::Frozen(_) = entry.begin {
            entry.used_us = now_us;
            return Some(entry.begin.clone());
        }
        inner.remove(start)
    }

    /// Removes a packet-out or a resumed packet that no worker has taken. Frozen translations stay, for other
    /// packets.
    pub fn forget(&self, start: u64) {
        let mut inner = self.lock();
        if inner.all.get(&start).is_some_and(|entry| entry.from.is_some()) {
            inner.remove(start);
        }
    }

    /// The continuation sent to a controller, with which it resumes packets frozen under this id.
    pub fn continuation(start: u64) -> Vec<u8> {
        start.to_be_bytes().to_vec()
    }

    /// Adds a packet that a connection resumes, with metadata that it may have changed, and returns its id. `None`
    /// if the continuation is unknown or has expired, or if there is no room.
    pub fn resume(&self, from: u64, continuation: &[u8], fields: &Match) -> Option<u64> {
        let start = u64::from_be_bytes(continuation.try_into().ok()?);
        let now_us = self.now_us();
        let mut inner = self.lock();
        let entry = inner.all.get_mut(&start)?;
        let Begin::Frozen(frozen) = &entry.begin else { return None };
        entry.used_us = now_us;
        let begin = Begin::Resumed(Arc::clone(frozen), fields.clone());
        inner.add(begin, Some(from), &self.memory, now_us)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.lock().all.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::frames::{Place, Saved};

    #[test]
    fn packet_outs_happen_once() {
        let pending = Pending::default();
        let start = pending.insert(1, vec![Action::Exit], 3, Match::any()).unwrap();
        assert!(matches!(pending.take(start), Some(Begin::PacketOut { in_port: 3, .. })));
        assert!(pending.take(start).is_none());
    }

    #[test]
    fn equal_rests_share_a_number_while_they_are_used() {
        let pending = Pending::default();
        let (first, held) = pending.freeze(Frozen::default()).unwrap();
        let (second, _) = pending.freeze(Frozen::default()).unwrap();
        assert_eq!(first, second);
        let other = Frozen { queue: 1, ..Frozen::default() };
        let (third, _) = pending.freeze(other).unwrap();
        assert_ne!(first, third);
        pending.tick(AGE_US);
        assert!(pending.take(first).is_some(), "a megaflow names it");
        assert!(pending.take(third).is_none());
        drop(held);
        pending.tick(2 * AGE_US);
        assert!(pending.is_empty());
    }

    #[test]
    fn continuations_resume_and_others_do_not() {
        let pending = Pending::default();
        let (start, _) = pending.freeze(Frozen::default()).unwrap();
        let resumed = pending.resume(1, &Pending::continuation(start), &Match::any()).unwrap();
        assert!(matches!(pending.take(resumed), Some(Begin::Resumed(..))));
        assert!(pending.resume(1, &Pending::continuation(77), &Match::any()).is_none());
        assert!(pending.resume(1, b"x", &Match::any()).is_none());
    }

    #[test]
    fn what_nothing_takes_is_forgotten() {
        let pending = Pending::default();
        let (rest, held) = pending.freeze(Frozen::default()).unwrap();
        let packet_out = pending.insert(1, vec![Action::Exit], 3, Match::any()).unwrap();
        let resumed = pending.resume(1, &Pending::continuation(rest), &Match::any()).unwrap();
        for start in [packet_out, resumed, rest, u64::MAX] {
            pending.forget(start);
        }
        assert!(pending.take(packet_out).is_none() && pending.take(resumed).is_none());
        assert!(matches!(pending.take(rest), Some(Begin::Frozen(_))), "other packets may begin there");
        assert_eq!(pending.len(), 1);
        drop(held);
    }

    #[test]
    fn numbers_are_bounded() {
        let pending = Pending::default();
        let adds = |from| pending.insert(from, Vec::new(), 0, Match::any()).is_some();
        for from in 1..8 {
            let added = (0..ENTRIES_MAX).take_while(|_| adds(from)).count();
            assert_eq!(added, ENTRIES_MAX >> from, "half of what the others leave");
        }
        assert!((8..).take_while(|from| adds(*from)).count() <= ENTRIES_MAX >> 7);
        pending.tick(AGE_US);
        assert!(pending.is_empty() && pending.lock().shares.is_empty() && adds(1));
    }

    #[test]
    fn rests_and_packet_outs_are_bounded_in_bytes_and_do_not_take_each_others_room() {
        const LIMIT: u64 = 1 << 20;
        let memory = Arc::new(Memory::default());
        memory.limit(16 * LIMIT);
        let pending = Pending::charging(&memory);
        let actions = || vec![Action::Output { port: 1, max_len: 0 }; 1000];
        let rest = |queue| Frozen { queue, set: actions(), ..Frozen::default() };
        let rests = (0..).take_while(|queue| pending.freeze(rest(*queue)).is_some()).count() as u64;
        let least = 1000 * size_of::<Action>() as u64;
        assert!(rests > 0 && rests * least <= LIMIT && (rests + 2) * least > LIMIT, "{rests} rests");
        assert!(memory.rests.used() <= LIMIT);
        assert!(pending.freeze(rest(0)).is_some(), "one that is there takes no more");
        let insert = |from| pending.insert(from, actions(), 1, Match::any());
        let packets: Vec<u64> = (0..).map_while(|_| insert(1)).collect();
        assert!((packets.len() as u64 + 2) * least > LIMIT / 2 && memory.packet_outs.used() <= LIMIT / 2 + least);
        let others = (0..).map_while(|_| insert(2)).count() as u64;
        assert!((others + 2) * least > LIMIT / 4, "a controller that floods leaves room for another one: {others}");
        // Expiry, eviction and resumption of an entry all release its memory.
        pending.forget(packets[0]);
        assert!(pending.take(packets[1]).is_some() && insert(1).is_none() && insert(2).is_some());
        packets.iter().for_each(|packet| pending.forget(*packet));
        assert!(insert(1).is_some());
        pending.tick(AGE_US);
        assert!(pending.is_empty());
        assert_eq!((memory.rests.used(), memory.packet_outs.used()), (0, 0));
        // A single entry is admitted even if it exceeds the limit.
        memory.limit(16);
        assert!(insert(1).is_some() && pending.freeze(rest(0)).is_some());
        assert!(insert(1).is_none() && pending.freeze(rest(1)).is_none());
    }

    #[test]
    fn rests_that_differ_in_little_are_not_compared_with_each_other() {
        let set = |number: u32| vec![Action::SetQueue(number); 100];
        let actions = |list, at| vec![Frame::Actions { list, at, place: Place::default() }];
        let saved = |saved| vec![Frame::Restore(Box::new(saved))];
        let pending = Pending::default();
        let list = List::Owned(Arc::from(set(0)));
        for number in 1..100 {
            let others = List::Owned(Arc::from(set(number)));
            let frames = [
                actions(list.clone(), number as usize),
                actions(others, 0),
                saved(Saved { set: set(number), ..Saved::default() }),
                saved(Saved { stack: vec![(number.into(), 32)], ..Saved::default() }),
            ];
            for frames in frames {
                pending.freeze(Frozen { frames, ..Frozen::default() }).unwrap();
            }
            pending.freeze(Frozen { set: set(number), ..Frozen::default() }).unwrap();
        }
        let inner = pending.lock();
        assert_eq!(inner.frozen.len(), 5 * 99, "each has a hash of its own");
    }

    #[test]
    fn rests_leave_numbers_for_packet_outs() {
        let pending = Pending::default();
        let rest = |queue| pending.freeze(Frozen { queue, ..Frozen::default() });
        let half = ENTRIES_MAX as u32 / 2;
        assert!((0..half).all(|queue| rest(queue).is_some()));
        assert!(rest(half).is_none());
        assert!(pending.insert(1, Vec::new(), 0, Match::any()).is_some());
        pending.tick(AGE_US);
        assert!(rest(half).is_some());
    }
}
