//! Cache lines under an invalidation protocol (MESI), as far as time is concerned: one owner that may write, or any number of
//! workers that may read. Requests for a line are served in the order in which they are made, one transfer each. Half of a
//! transfer is the request's travel: until then the owner goes on with the line, so that short steps come in runs.

/// Picoseconds.
pub type Time = u64;

/// Most workers: a set of them is one word.
pub const WORKERS_MAX: usize = 64;

/// Times to get a line from another worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfers {
    /// From a worker of the same group, which shares a cache.
    pub near: Time,
    /// From any other.
    pub far: Time,
    /// Workers of a group.
    pub group: usize,
}

impl Transfers {
    /// The time from one worker to another.
    pub fn between(&self, a: usize, b: usize) -> Time {
        if a / self.group == b / self.group { self.near } else { self.far }
    }
}

/// What a worker wants of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// To read it, as others may.
    Read,
    /// To write it, alone.
    Own,
}

#[derive(Clone, Copy)]
struct Line {
    /// The workers that have it.
    holders: u64,
    /// Whether the only holder may write.
    owned: bool,
    /// Who asked last.
    last: u8,
    /// When the last request is served.
    ready: Time,
}

/// A line that a worker still has after another one's request.
#[derive(Clone, Copy, Default)]
struct Kept {
    line: usize,
    from: Time,
    until: Time,
}

/// Lines that a worker still has: more than a packet comes to, so that older ones are gone.
const KEPT: usize = 8;

/// All lines of a program's state.
pub struct Lines {
    all: Vec<Line>,
    /// By worker, the last ones.
    kept: Vec<[Kept; KEPT]>,
    transfers: Transfers,
    /// Transfers so far.
    pub moved: u64,
}

impl Lines {
    /// Lines that nobody has.
    pub fn new(count: usize, transfers: Transfers) -> Lines {
        let all = vec![Line { holders: 0, owned: false, last: 0, ready: 0 }; count];
        Lines { all, kept: vec![[Kept::default(); KEPT]; WORKERS_MAX], transfers, moved: 0 }
    }

    /// Gives a line to workers before anything happens.
    pub fn place(&mut self, line: usize, holders: u64, owned: bool) {
        self.all[line] = Line { holders, owned, last: holders.trailing_zeros() as u8, ready: 0 };
    }

    /// Whether a worker has a line as it wants it, or will once its request is served.
    pub fn has(&self, worker: usize, line: usize, want: Want, now: Time) -> bool {
        let Line { holders, owned, .. } = self.all[line];
        self.kept(worker, line, now).is_some() || holders >> worker & 1 == 1 && (owned || want == Want::Read)
    }

    /// Since when a worker has a line that another one has asked for and that is still there.
    fn kept(&self, worker: usize, line: usize, now: Time) -> Option<Time> {
        let is_it = |kept: &&Kept| kept.line == line && now < kept.until;
        self.kept[worker].iter().find(is_it).map(|kept| kept.from)
    }

    /// Asks for a line; returns when the worker has it. A line that nobody has costs nothing.
    pub fn request(&mut self, worker: usize, line: usize, want: Want, now: Time) -> Time {
        let has = self.has(worker, line, want, now);
        if let Some(from) = self.kept(worker, line, now) {
            return now.max(from);
        }
        let state = &mut self.all[line];
        if has {
            return if usize::from(state.last) == worker { now.max(state.ready) } else { now };
        }
        let others = state.holders & !(1 << worker);
        let mut distances = (0..WORKERS_MAX).filter(|other| others >> other & 1 == 1);
        let between = |other| self.transfers.between(worker, other);
        // All copies are given up, or the nearest one is copied.
        let time = match want {
            Want::Own => distances.map(between).max(),
            Want::Read if state.owned => distances.next().map(between),
            Want::Read => distances.map(between).min(),
        };
        self.moved += u64::from(time.is_some());
        let begin = state.ready.max(now);
        let loser = state.owned.then_some(state.holders.trailing_zeros() as usize);
        state.ready = begin + time.unwrap_or(0);
        state.last = worker as u8;
        state.owned = want == Want::Own;
        state.holders = 1 << worker | if want == Want::Own { 0 } else { others };
        let ready = state.ready;
        if let Some(loser) = loser {
            let kept = &mut self.kept[loser];
            kept.rotate_right(1);
            kept[0] = Kept { line, from: begin, until: begin + time.unwrap_or(0) / 2 };
        }
        ready
    }
}
