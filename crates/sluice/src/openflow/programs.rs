//! BPF programs that flows of a bridge run: workers run them; the operator loads, replaces and unloads them. With
//! `--state` the programs are stored, and so are the map entries that the operator has set, but not what packets have
//! written.
//!
//! The programs are an immutable map that is replaced as a whole: a packet sees the old or the new one and takes no
//! lock. A replaced program is freed after its last run.

use abi::flows::Frame;
use arc_swap::ArcSwap;
use bpf::{Abort, Map, MapSpec, Maps, Object, Options, Program, ProgramName, Verdict};
use bridge::processor::ProgramRunner;
use datapath::memory::Reservation;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// The most programs of a bridge.
const PROGRAMS_MAX: usize = 256;
/// The most map entries per program that the operator may set; they are stored, and copies of them stay in memory.
const SET_MAX: usize = 1 << 16;

/// Machine-code instructions that cost one step through flow tables, some 50 ns, with a margin for cache misses; calls
/// of helpers count as instructions ([`Program::run_in`]).
const STEP_INSTRUCTIONS: i64 = 64;
/// Interpreted instructions that cost one step, where there is no machine code.
const STEP_INTERPRETED: i64 = 8;

/// The most entries of a map that are copied for a trace, which bounds the memory of a request.
const COPIED_MAX: u32 = 1 << 16;

/// Map entries that the operator has set: values by map and key.
pub type Entries = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Counts of a program's runs by outcome.
#[derive(Debug, Default)]
pub struct Counts {
    /// The packet continues.
    pub passed: AtomicU64,
    /// The same for `XDP_TX`, which asked to send the packet back: the flow's later actions decide the output. Also
    /// counted as passed.
    pub transmitted: AtomicU64,
    /// The program dropped it.
    pub dropped: AtomicU64,
    /// The program failed, or ran for too long.
    pub aborted: AtomicU64,
    /// The program asked for another port (`XDP_REDIRECT`), which only flows can choose; the packet is dropped.
    pub redirected: AtomicU64,
}

/// A loaded program.
#[derive(Debug)]
pub struct Loaded {
    /// The verified program.
    pub program: Program,
    /// Its function and section.
    pub name: ProgramName,
    /// The name of its file, for display.
    pub file: String,
    /// Counts of its runs.
    pub counts: Counts,
    /// The object file's content.
    pub object: Arc<[u8]>,
    set: Arc<Mutex<Entries>>,
    /// The memory reserved for its maps, which a successor may take over.
    memory: Arc<Reservation>,
}

impl Loaded {
    /// Locks and returns the map entries that the operator has set.
    pub fn set(&self) -> MutexGuard<'_, Entries> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores the programs of a bridge for the next start.
pub trait ProgramKeeper: Send + Sync {
    /// Stores a loaded program. With `keeps_maps` the stored entries of its maps stay.
    fn keep_program(&self, id: u32, loaded: &Loaded, keeps_maps: bool);

    /// Removes an unloaded program.
    fn forget_program(&self, id: u32);

    /// Stores a map entry that the operator has set; `None` removes it.
    fn keep_entry(&self, id: u32, map: &str, entry: &[u8], value: Option<&[u8]>);
}

/// The programs of a bridge by id.
pub struct Programs {
    loaded: ArcSwap<BTreeMap<u32, Arc<Loaded>>>,
    /// Serialises changes.
    turn: Mutex<()>,
    /// The origin of `ktime_get_ns`.
    started: Instant,
    unknown: AtomicU64,
    keeper: OnceLock<Arc<dyn ProgramKeeper>>,
}

impl Default for Programs {
    fn default() -> Programs {
        Programs {
            loaded: ArcSwap::default(),
            turn: Mutex::default(),
            started: Instant::now(),
            unknown: AtomicU64::new(0),
            keeper: OnceLock::new(),
        }
    }
}

impl ProgramRunner for Programs {
    fn run(&self, id: u32, argument: u64, in_port: u32, frame: &mut Frame<'_>, steps: &mut u32) -> Option<()> {
        let all = self.loaded.load();
        let Some(loaded) = all.get(&id) else {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let mut packet = bpf::Frame { buffer: &mut *frame.buffer, offset: frame.offset, len: frame.len };
        let step = if loaded.program.is_compiled() { STEP_INSTRUCTIONS } else { STEP_INTERPRETED };
        let mut left = i64::from(*steps) * step;
        let verdict = loaded.program.run_in(&mut packet, in_port, argument, now_ns, &mut left);
        // A step that was begun counts as used.
        *steps = (left.max(0) / step) as u32;
        let (offset, len) = (packet.offset, packet.len);
        (frame.offset, frame.len) = (offset, len);
        let Counts { passed, transmitted, dropped, aborted, redirected } = &loaded.counts;
        let count = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::Relaxed);
        match verdict {
            // The burst's budget is exhausted, not the program's own limit: the caller counts the packet as such.
            Verdict::Aborted(Abort::Budget) if left < 0 => *steps = 0,
            Verdict::Pass => count(passed),
            Verdict::Transmit => {
                count(passed);
                count(transmitted);
            }
            Verdict::Drop => count(dropped),
            Verdict::Redirect(_) => count(redirected),
            Verdict::Aborted(Abort::Result | Abort::Budget | Abort::Frame | Abort::Fault) => count(aborted),
        }
        matches!(verdict, Verdict::Pass | Verdict::Transmit).then_some(())
    }
}

impl Programs {
    /// Sets the keeper, which is told of changes from now on; the current programs are stored already.
    pub fn set_keeper(&self, keeper: Arc<dyn ProgramKeeper>) {
        // Set once.
        let _ = self.keeper.set(keeper);
    }

    /// Holds off changes of programs, and of map entries by the operator, until the guard is dropped.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all programs, by id.
    pub fn all(&self) -> Arc<BTreeMap<u32, Arc<Loaded>>> {
        self.loaded.load_full()
    }

    /// Returns the number of packets dropped because no program had the id.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Returns the program with an id.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, id: u32) -> Result<Arc<Loaded>, String> {
        self.loaded.load().get(&id).cloned().ok_or_else(|| missing(id))
    }

    /// Returns a map of a program.
    ///
    /// # Errors
    /// If there is none.
    pub fn map(&self, id: u32, name: &str) -> Result<Arc<Map>, String> {
        self.get(id)?.program.maps().get(name).map(Arc::clone).map_err(|error| error.to_string())
    }

    /// Reads, verifies and compiles a program, and installs it under an id. Returns whether it replaced another one.
    /// With `keep_maps` it takes over that one's maps.
    ///
    /// # Errors
    /// If the object or the program is refused (the message names the instruction, the register and the reason), the
    /// maps to take over differ, the maps do not fit into `--state-memory`, or there are [`PROGRAMS_MAX`] programs.
    pub fn load(&self, id: u32, object: &[u8], name: &str, file: &str, keep_maps: bool) -> Result<bool, String> {
        let _turn = self.hold();
        let all = self.loaded.load_full();
        let old = all.get(&id);
        if old.is_none() && all.len() >= PROGRAMS_MAX {
            return Err(format!("there are {PROGRAMS_MAX} programs already; unload one of them"));
        }
        let content: Arc<[u8]> = object.into();
        let object = Object::read(object).map_err(|error| error.to_string())?;
        let name = chosen(&object, name)?;
        let (maps, memory) = match old.filter(|_| keep_maps) {
            Some(old) => (kept(&object, &old.program.maps())?, Arc::clone(&old.memory)),
            None => {
                let memory = reserve(&object)?;
                (Maps::new(&object).map_err(|error| error.to_string())?, Arc::new(memory))
            }
        };
        let program = Program::load_with(&object, &name.function, &maps, Options::default());
        let program = program.map_err(|error| error.to_string())?;
        let set = old.filter(|_| keep_maps).map_or_else(Arc::default, |old| Arc::clone(&old.set));
        let (file, counts) = (file.to_string(), Counts::default());
        let loaded = Arc::new(Loaded { program, name, file, counts, object: content, set, memory });
        let replaced = old.is_some();
        let mut new = (*all).clone();
        new.insert(id, Arc::clone(&loaded));
        self.loaded.store(Arc::new(new));
        if let Some(keeper) = self.keeper.get() {
            keeper.keep_program(id, &loaded, keep_maps);
        }
        Ok(replaced)
    }

    /// Unloads a program. Packets of flows that name it are dropped from now on.
    ///
    /// # Errors
    /// If there is none.
    pub fn unload(&self, id: u32) -> Result<(), String> {
        let _turn = self.hold();
        let mut new = (**self.loaded.load()).clone();
        new.remove(&id).ok_or_else(|| missing(id))?;
        self.loaded.store(Arc::new(new));
        if let Some(keeper) = self.keeper.get() {
            keeper.forget_program(id);
        }
        Ok(())
    }

    /// Runs a program on a frame for a trace: on copies of its maps, without counting.
    ///
    /// # Errors
    /// If there is no such program, or a map has more than [`COPIED_MAX`] entries.
    pub fn run_apart(
        &self,
        id: u32,
        argument: u64,
        in_port: u32,
        now_us: u64,
        frame: &mut Frame<'_>,
    ) -> Result<Verdict, String> {
        let loaded = self.get(id)?;
        let object = Object::read(&loaded.object).map_err(|error| error.to_string())?;
        let maps = Maps::new(&object).map_err(|error| error.to_string())?;
        for (from, to) in loaded.program.maps().iter().zip(maps.iter()) {
            if from.len() > COPIED_MAX {
                return Err(format!("its map `{}` has more than {COPIED_MAX} entries", from.spec().name));
            }
            for (key, value) in from.dump() {
                to.update(&key, &value, bpf::Update::Any).map_err(|error| error.to_string())?;
            }
        }
        let program = Program::load_with(&object, &loaded.name.function, &maps, Options::default());
        let program = program.map_err(|error| error.to_string())?;
        let mut packet = bpf::Frame { buffer: &mut *frame.buffer, offset: frame.offset, len: frame.len };
        let verdict = program.run(&mut packet, in_port, argument, now_us * 1000);
        let (offset, len) = (packet.offset, packet.len);
        (frame.offset, frame.len) = (offset, len);
        Ok(verdict)
    }

    /// Adds or changes an entry of a map.
    ///
    /// # Errors
    /// If there is no such map, it refuses the entry, or the operator has set [`SET_MAX`] entries.
    pub fn set(&self, id: u32, map: &str, key: &[u8], value: &[u8]) -> Result<(), String> {
        let _turn = self.hold();
        let loaded = self.get(id)?;
        let mut set = loaded.set();
        let place = (map.to_string(), key.to_vec());
        if set.len() >= SET_MAX && !set.contains_key(&place) {
            return Err(format!("the operator has set {SET_MAX} entries of this program's maps; delete some of them"));
        }
        self.map(id, map)?.update(key, value, bpf::Update::Any).map_err(|error| error.to_string())?;
        set.insert(place, value.to_vec());
        if let Some(keeper) = self.keeper.get() {
            keeper.keep_entry(id, map, key, Some(value));
        }
        Ok(())
    }

    /// Removes an entry of a map. Returns whether there was one.
    ///
    /// # Errors
    /// If there is no such map, or its kind does not support removal.
    pub fn delete(&self, id: u32, map: &str, key: &[u8]) -> Result<bool, String> {
        let _turn = self.hold();
        let loaded = self.get(id)?;
        let was_there = self.map(id, map)?.delete(key).map_err(|error| error.to_string())?;
        if loaded.set().remove(&(map.to_string(), key.to_vec())).is_some()
            && let Some(keeper) = self.keeper.get()
        {
            keeper.keep_entry(id, map, key, None);
        }
        Ok(was_there)
    }
}

fn missing(id: u32) -> String {
    format!("there is no program {id}; `sluice program list` shows all")
}

/// Returns the program that a function or section name selects; without a name, the only one.
fn chosen(object: &Object, name: &str) -> Result<ProgramName, String> {
    let programs = object.programs();
    let list = |programs: &[ProgramName]| {
        let names = programs.iter().map(|p| format!("`{}` (section `{}`)", p.function, p.section));
        names.collect::<Vec<_>>().join(", ")
    };
    if name.is_empty() {
        return match &programs[..] {
            [only] => Ok(only.clone()),
            [] => Err("the object has no program".to_string()),
            several => Err(format!("the object has several programs: --name one of {}", list(several))),
        };
    }
    if let Some(found) = programs.iter().find(|program| program.function == name) {
        return Ok(found.clone());
    }
    let within: Vec<_> = programs.iter().filter(|program| program.section == name).cloned().collect();
    match &within[..] {
        [only] => Ok(only.clone()),
        [] => Err(format!("there is no program `{name}`; there are {}", list(&programs))),
        several => Err(format!("section `{name}` has several programs: name one of {}", list(several))),
    }
}

/// Reserves memory for all maps of an object.
fn reserve(object: &Object) -> Result<Reservation, String> {
    let bytes = object.maps().iter().map(MapSpec::bytes).sum();
    Reservation::new(bytes).map_err(|max| {
        let [mb, max_mb] = [bytes, max].map(|bytes| bytes.div_ceil(1 << 20));
        format!(
            "its maps take {mb} MB, and all maps and cells of programs may take {max_mb} MB (--state-memory): lower `max_entries`, \
             or unload a program"
        )
    })
}

/// Returns a program's maps for its successor; refused if the object declares others.
fn kept(object: &Object, maps: &Maps) -> Result<Maps, String> {
    if maps.iter().map(|map| map.spec()).eq(object.maps()) {
        return Ok(maps.clone());
    }
    let text = |spec: &bpf::MapSpec| {
        let bpf::MapSpec { name, kind, key_size, value_size, max_entries, .. } = spec;
        format!("{name} ({}, {max_entries} entries of {key_size} and {value_size} bytes)", kind.name())
    };
    let differs = |spec: &&bpf::MapSpec| maps.iter().all(|map| map.spec() != *spec);
    let new: Vec<String> = object.maps().iter().filter(differs).map(text).collect();
    let gone = maps.iter().filter(|map| !object.maps().contains(map.spec())).map(|map| text(map.spec()));
    let gone: Vec<String> = gone.collect();
    let parts = [("the object has", new), ("the loaded program has", gone)];
    let parts = parts.into_iter().filter(|(_, maps)| !maps.is_empty());
    let parts: Vec<String> = parts.map(|(who, maps)| format!("{who} {}", maps.join(", "))).collect();
    let why = if parts.is_empty() { "they are in another order".to_string() } else { parts.join("; ") };
    Err(format!("its maps cannot be kept: {why}"))
}

#[cfg(test)]
#[path = "../../../bpf/tests/support/mod.rs"]
mod test_objects;

#[cfg(test)]
mod tests {
    use super::test_objects as support;
    use super::*;
    use support::assembler::{add, call, data, exit, j, mov};

    /// Regression test: a pass of a packet cost the same whatever its program did, and several programs of a flow ran
    /// for all packets of a burst while other ports waited.
    #[test]
    fn a_run_takes_its_cost_from_the_bursts_steps() {
        // 1,000 checksums of 64 bytes.
        let checksum = [mov(1, 0), mov(2, 0), data(3, "globals", 0), mov(4, 64), mov(5, 0), call(28)];
        let rest = [add(6, 1), j(bpf::Condition::Lt, 6, 1000, -9), mov(0, 2), exit()];
        let code = [&[mov(6, 0)][..], &checksum, &rest].concat();
        let programs = Programs::default();
        programs.load(3, &support::bytes(&code, &[], &[]), "", "a.o", false).expect("a good program");
        let mut buffer = [0; 64];
        let mut run = |steps: u32| {
            let (mut frame, mut left) = (Frame { buffer: &mut buffer, offset: 0, len: 64 }, steps);
            (programs.run(3, 0, 1, &mut frame, &mut left), left)
        };
        let (done, left) = run(100_000);
        let cost = 100_000 - left;
        assert!(done.is_some() && (1000..5000).contains(&cost) || !cfg!(target_arch = "x86_64"), "{cost} steps");
        assert_eq!(run(cost).0, Some(()));
        assert_eq!([0, 1, cost / 2].map(&mut run), [(None, 0); 3]);
        let counts = &programs.get(3).expect("it is there").counts;
        assert_eq!((counts.passed.load(Ordering::Relaxed), counts.aborted.load(Ordering::Relaxed)), (2, 0));
    }

    #[test]
    fn a_packet_of_no_program_is_dropped_and_counted_and_junk_is_no_object() {
        let programs = Programs::default();
        let mut buffer = [0; 64];
        let mut frame = Frame { buffer: &mut buffer, offset: 0, len: 64 };
        assert_eq!(programs.run(3, 0, 1, &mut frame, &mut 100), None);
        assert_eq!(programs.unknown(), 1);
        assert!(programs.load(3, b"\x7fELF", "", "a.o", false).unwrap_err().contains("not a BPF object file"));
        assert!(programs.get(3).unwrap_err().contains("there is no program 3"));
        assert!(programs.unload(3).unwrap_err().contains("there is no program 3"));
    }
}
