//! The fast state against the oracle's: the same random operations, through `abi::PipelineState` and as packets
//! perform them, give the same results and leave the same state.
#![allow(unsafe_code)]

use abi::state::ReadEntry;
use abi::{Bindings, EntryHeader, PipelineState};
use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, GroupMember, KeyMatch, MatchKind, MeterConfig, TableEntry};
use base::ids::{ActionId, ExternId, TableId};
use datapath::calls::CALLS;
use datapath::state::{FastState, FastWorker};
use ir::{Action, CounterUnit, Extern, ExternKind, HashAlgorithm, Key, Program, Table, TableAction};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parameters of the actions.
const PARAMS: [&[u32]; 3] = [&[], &[9, 48], &[130]];

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// One of few values, so that operations collide.
    fn value(&mut self, width: u32) -> Bits {
        let value = Bits::new(width, u128::from(self.below(5)));
        if self.below(2) == 0 { value } else { value.shl(u64::from(width.saturating_sub(3))) }
    }

    fn key(&mut self, keys: &[Key]) -> Vec<KeyMatch> {
        let field = |k: &Key| {
            let w = k.width;
            match k.kind {
                MatchKind::Exact => KeyMatch::Exact(self.value(w)),
                MatchKind::Lpm => {
                    let prefix_len = *self.pick(&[0, 1, 3, w - 3, w]);
                    let mask = Bits::ones(w).shl(u64::from(w - prefix_len));
                    KeyMatch::Lpm { value: self.value(w).and(&mask), prefix_len }
                }
                MatchKind::Ternary => {
                    let mask = self.pick(&[Bits::ones(w), Bits::zero(w), Bits::new(w, 3)]).clone();
                    KeyMatch::Ternary { value: self.value(w).and(&mask), mask }
                }
                MatchKind::Range => {
                    let (a, b) = (self.value(w), self.value(w));
                    let (low, high) = if a.ule(&b) { (a, b) } else { (b, a) };
                    KeyMatch::Range { low, high }
                }
                MatchKind::Optional => KeyMatch::Optional((self.below(2) == 0).then(|| self.value(w))),
            }
        };
        keys.iter().map(field).collect()
    }

    fn call(&mut self) -> ActionCall {
        let action = self.below(3) as u32;
        ActionCall { action, args: PARAMS[action as usize].iter().map(|w| self.value(*w)).collect() }
    }

    /// Sometimes an invalid call: an unknown action, or an argument missing, surplus or too wide.
    fn maybe_wrong_call(&mut self) -> ActionCall {
        let mut call = self.call();
        match self.below(24) {
            0 => call.action = 3,
            1 => call.args.push(Bits::zero(8)),
            2 => _ = call.args.pop(),
            3 => call.args.iter_mut().for_each(|arg| *arg = arg.resize_u(arg.width() + 1)),
            _ => {}
        }
        call
    }

    fn action(&mut self, table: &Table, selector: bool) -> EntryAction {
        match (table.implementation.is_some(), self.below(4)) {
            (true, 0) => EntryAction::Member(self.below(5) as u32),
            (true, 1 | 2) if selector => EntryAction::Group(self.below(4) as u32),
            (true, 1 | 2) => EntryAction::Member(self.below(5) as u32),
            _ => EntryAction::Call(self.maybe_wrong_call()),
        }
    }

    fn members(&mut self) -> Vec<GroupMember> {
        let count = self.below(4);
        let member = |_| GroupMember {
            member: self.below(5) as u32,
            weight: 1 + self.below(3) as u32,
            watch_port: (self.below(2) == 0).then(|| self.below(3) as u32),
        };
        (0..count).map(member).collect()
    }

    fn config(&mut self) -> Option<MeterConfig> {
        let mut rate = || 1 + self.below(1_000_000);
        let (cir, pir) = (rate(), rate());
        let burst = 100 + self.below(2000);
        let eburst = if self.below(3) == 0 { 1 + self.below(2000) } else { 0 };
        let config = MeterConfig { cir, cburst: burst, pir: cir + pir, pburst: burst + 500, eburst };
        (self.below(4) > 0).then_some(config)
    }
}

fn actions() -> Vec<TableAction> {
    (0..3).map(|i| TableAction { action: ActionId(i), default_only: false, table_only: false }).collect()
}

fn table(name: &str, keys: &[(u32, MatchKind)], size: u64, implementation: Option<u32>, direct: &[u32]) -> Table {
    let key = |(width, kind): &(u32, MatchKind)| Key { name: "k".to_string(), width: *width, kind: *kind };
    Table {
        name: name.to_string(),
        span: base::Span::default(),
        keys: keys.iter().map(key).collect(),
        actions: actions(),
        default_action: ActionCall { action: 0, args: vec![] },
        const_default: false,
        entries: vec![],
        const_entries: false,
        size,
        implementation: implementation.map(ExternId),
        direct: direct.iter().map(|e| ExternId(*e)).collect(),
        idle_timeout: name == "timed",
        value_set: false,
        dynamic: None,
    }
}

fn program(random: &mut Random) -> Program {
    use MatchKind::{Exact, Lpm, Optional, Range, Ternary};
    let mut tables = vec![
        table("exact", &[(32, Exact), (16, Exact)], 20, None, &[0, 1]),
        table("timed", &[(9, Exact)], 300, None, &[2]),
        table("routes", &[(12, Exact), (32, Lpm)], 40, None, &[]),
        table("acl", &[(32, Ternary), (16, Range), (8, Optional)], 60, None, &[3, 4]),
        table("profiled", &[(128, Lpm)], 30, Some(5), &[]),
        table("selected", &[(32, Exact)], 30, Some(6), &[]),
        table("selected_too", &[(32, Ternary)], 30, Some(6), &[]),
    ];
    for (i, priority) in [(2usize, 0), (3, 3)] {
        for _ in 0..5 {
            let new = TableEntry {
                key: random.key(&tables[i].keys),
                priority,
                action: EntryAction::Call(random.call()),
                idle_timeout_ns: 0,
            };
            tables[i].entries.push(new);
        }
        // A duplicate entry with another action: the first one counts.
        let twice = TableEntry { action: EntryAction::Call(random.call()), ..tables[i].entries[0].clone() };
        tables[i].entries.push(twice);
    }
    let counter = |size, unit, direct: Option<u32>| ExternKind::Counter { size, unit, direct: direct.map(TableId) };
    let meter = |size, unit, direct: Option<u32>| ExternKind::Meter { size, unit, direct: direct.map(TableId) };
    let empty = Some(random.call()).filter(|call| call.action != 0);
    let kinds = vec![
        counter(20, CounterUnit::Both, Some(0)),
        meter(20, CounterUnit::Bytes, Some(0)),
        counter(300, CounterUnit::Both, Some(1)),
        counter(60, CounterUnit::Both, Some(3)),
        meter(60, CounterUnit::Packets, Some(3)),
        ExternKind::ActionProfile { size: 4, actions: actions() },
        ExternKind::ActionSelector {
            size: 4,
            actions: actions(),
            algorithm: HashAlgorithm::Identity,
            hash_width: 7,
            empty,
        },
        counter(7, CounterUnit::Both, None),
        meter(5, CounterUnit::Bytes, None),
        ExternKind::Register { size: 6, width: 33, initial: Bits::new(33, 5) },
        ExternKind::Register { size: 6, width: 200, initial: Bits::zero(200) },
    ];
    let ext = |(i, kind)| Extern { name: format!("extern{i}"), span: base::Span::default(), kind };
    let params = |widths: &[u32]| widths.iter().map(|w| ("p".to_string(), *w)).collect();
    Program {
        name: "random".to_string(),
        actions: PARAMS.iter().map(|widths| Action { name: "a".to_string(), params: params(widths) }).collect(),
        tables,
        externs: kinds.into_iter().enumerate().map(ext).collect(),
        ..Program::default()
    }
}

/// Both states of one program.
struct Pair {
    program: Arc<Program>,
    fast: Arc<FastState>,
    worker: FastWorker,
    bindings: Bindings,
    slow: interp::State,
    now_us: u64,
    what: String,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let program = Arc::new(program(&mut Random(seed ^ 1)));
        let fast = Arc::new(FastState::new(Arc::clone(&program), 2).expect("the program fits"));
        let worker = fast.worker(1).expect("the worker is free");
        let slow = interp::State::new(Arc::clone(&program));
        let bindings = fast.bindings();
        Pair { program, fast, worker, bindings, slow, now_us: 0, what: format!("seed {seed}") }
    }

    /// Applies `ask` to both states and compares the results.
    fn both<R: PartialEq + Debug>(&self, ask: impl Fn(&dyn PipelineState) -> R) {
        let _ = self.answer(ask);
    }

    /// Applies `ask` to both states; returns the result, which must agree.
    fn answer<R: PartialEq + Debug>(&self, ask: impl Fn(&dyn PipelineState) -> R) -> R {
        let (fast, slow) = (ask(&*self.fast), ask(&self.slow));
        assert_eq!(fast, slow, "{}", self.what);
        fast
    }

    /// All entries of a table, which must agree; those of exact tables come in any order.
    fn entries(&self, table: TableId) -> Vec<ReadEntry> {
        let unordered = self.program.tables[table.index()].keys.iter().all(|k| k.kind == MatchKind::Exact);
        self.answer(|s| {
            let mut entries = s.entries(table);
            if unordered {
                entries.sort_by_key(|read| format!("{:?}", read.entry.key));
            }
            entries
        })
    }

    fn default_entry(&self, table: TableId) -> *const EntryHeader {
        // SAFETY: the handle lives as long as the state.
        unsafe { (*self.bindings.tables[table.index()].handle).default_entry.load(Ordering::Acquire) }
    }

    fn call_of(&self, table: TableId, entry: *const EntryHeader) -> ActionCall {
        let layout = &self.bindings.tables[table.index()].entry;
        let byte = |at: u32| {
            // SAFETY: the worker is online, so the entry is live; the binding says which bytes it has.
            unsafe { entry.cast::<u8>().add(at as usize).read() }
        };
        assert_eq!(layout.action_bytes, 1);
        let action = u32::from(byte(0));
        let offsets = &layout.params[action as usize];
        let arg = |(width, offset): (&u32, &u32)| {
            let bytes: Vec<u8> = (0..width.div_ceil(8)).rev().map(|i| byte(offset + i)).collect();
            Bits::from_bytes_be(*width, &bytes)
        };
        ActionCall { action, args: PARAMS[action as usize].iter().zip(offsets).map(arg).collect() }
    }

    /// The group of a live entry, or null.
    fn group_of(&self, table: TableId, entry: *const EntryHeader) -> *const std::ffi::c_void {
        let Some(at) = self.bindings.tables[table.index()].entry.group else { return std::ptr::null() };
        // SAFETY: the binding says that a pointer is there.
        unsafe { entry.byte_offset(at as isize).cast::<*const std::ffi::c_void>().read_unaligned() }
    }

    /// Performs a packet's lookup, counting and metering; on the fast side as compiled code does.
    fn packet(&mut self, table: TableId, key: &[Bits], selector: &Bits, bytes: u32) {
        self.now_us += u64::from(bytes % 7);
        self.worker.begin(self.now_us);
        self.fast.set_time(self.now_us);
        self.slow.set_time(self.now_us);
        let expected = self.slow.lookup(table, key, std::slice::from_ref(selector));
        let binding = &self.bindings.tables[table.index()];
        let mut words = vec![0u8; binding.key.bytes as usize];
        for (field, value) in binding.key.fields.iter().zip(key) {
            for (i, byte) in value.to_bytes_be().iter().rev().enumerate() {
                words[field.offset as usize + i] = *byte;
            }
        }
        // SAFETY: the worker is online and the key has the table's layout.
        let found = unsafe { (binding.lookup)(binding.handle, words.as_ptr()) };
        let mut data = found;
        if !found.is_null() {
            if let Some(last_hit) = binding.entry.last_hit {
                // SAFETY: the binding says where it is.
                unsafe {
                    let cell = found.byte_offset(last_hit as isize).cast_mut().cast();
                    AtomicU64::from_ptr(cell).store(self.now_us, Ordering::Relaxed);
                }
            }
            let group = self.group_of(table, found);
            if !group.is_null() {
                let hash = selector.to_u64().expect("a short selector") & 0x7f;
                // SAFETY: the entry has a group.
                data = unsafe { binding.select.expect("groups need a selector")(group, hash) };
            }
        }
        let hit = !data.is_null();
        assert_eq!(hit, expected.hit, "{}: {table:?} {key:?}", self.what);
        let default = self.default_entry(table);
        let default_group = self.group_of(table, default);
        let runs = if hit {
            data
        } else if !default_group.is_null() && found.is_null() {
            let hash = selector.to_u64().expect("a short selector") & 0x7f;
            // SAFETY: the default entry has a group.
            let member = unsafe { binding.select.expect("groups need a selector")(default_group, hash) };
            if member.is_null() { default } else { member }
        } else {
            default
        };
        assert_eq!(self.call_of(table, runs), expected.action, "{}: {table:?} {key:?}", self.what);
        if hit {
            self.packet_direct(table, found, expected.entry, bytes);
        }
        self.worker.quiescent();
    }

    fn packet_direct(&self, table: TableId, found: *const EntryHeader, expected: u64, bytes: u32) {
        if self.program.tables[table.index()].direct.is_empty() {
            return;
        }
        let at = self.bindings.tables[table.index()].entry.index.expect("the entries of such tables have indices");
        // SAFETY: the entry is live and has an index there.
        let index = unsafe { found.byte_offset(at as isize).cast::<u32>().read_unaligned() };
        for ext in &self.program.tables[table.index()].direct {
            if let ExternKind::Meter { .. } = self.program.externs[ext.index()].kind {
                // SAFETY: the context is the worker's.
                let fast = unsafe { (CALLS.meter)(self.worker.ctx(), ext.0, index.into(), bytes, 0) };
                let slow = self.slow.meter_direct_execute(*ext, expected, bytes.into(), self.now_us);
                assert_eq!(fast, slow as u32, "{}", self.what);
            } else {
                self.count(*ext, index.into(), bytes);
                self.slow.count_direct(*ext, expected, bytes.into());
            }
        }
    }

    /// Counts as compiled code does.
    fn count(&self, counter: ExternId, index: u64, bytes: u32) {
        let abi::ExternBinding::Counter { size } = self.bindings.externs[counter.index()] else { panic!("a counter") };
        if index < size {
            // SAFETY: the index is in the array.
            unsafe {
                let cell = (*(*self.worker.ctx()).counters.add(counter.index())).add(index as usize);
                (*cell)[0] += 1;
                (*cell)[1] += u64::from(bytes);
            }
        }
    }

    /// One random operation.
    fn step(&mut self, random: &mut Random) {
        let program = Arc::clone(&self.program);
        let table_id = TableId(random.below(program.tables.len() as u64) as u32);
        let table = &program.tables[table_id.index()];
        let ext = ExternId(random.below(program.externs.len() as u64) as u32);
        let cell = random.below(8);
        let selector = table.implementation == Some(ExternId(6));
        let prioritised = table.keys.iter().any(|k| k.kind.needs_priority());
        let known = self.entries(table_id);
        let (key, priority) = if !known.is_empty() && random.below(2) == 0 {
            let entry = &random.pick(&known).entry;
            (entry.key.clone(), entry.priority)
        } else {
            (random.key(&table.keys), if prioritised { 1 + random.below(3) as i32 } else { 0 })
        };
        let mut key = key;
        match random.below(40) {
            0 => _ = key.pop(),
            1 => key[0] = KeyMatch::Exact(Bits::zero(3)),
            _ => {}
        }
        let entry = TableEntry {
            key: key.clone(),
            priority,
            action: random.action(table, selector),
            idle_timeout_ns: if table.idle_timeout { random.below(3) * 1000 } else { 0 },
        };
        let profile = *random.pick(&[ExternId(5), ExternId(6)]);
        let (member, group, call) = (random.below(5) as u32, random.below(4) as u32, random.maybe_wrong_call());
        match random.below(28) {
            0..=4 => self.both(|s| s.insert(table_id, &entry)),
            5 => self.both(|s| s.modify(table_id, &entry)),
            6 => self.both(|s| s.delete(table_id, &key, priority)),
            7 => {
                let action = (random.below(4) > 0).then(|| random.action(table, selector));
                self.both(|s| s.set_default(table_id, action.as_ref()).map(|()| s.default_action(table_id)));
            }
            8 => self.both(|s| s.member_insert(profile, member, &call, usize::from(member % 4 == 0))),
            9 => self.both(|s| s.member_modify(profile, member, &call)),
            10 => self.both(|s| s.member_delete(profile, member)),
            11 => {
                let (members, max_size) = (random.members(), random.below(3) as u32 * 4);
                self.both(|s| s.group_insert(profile, group, &members, max_size));
            }
            12 => {
                let members = random.members();
                self.both(|s| s.group_modify(ExternId(6), group, &members));
            }
            13 => self.both(|s| s.group_delete(ExternId(6), group)),
            14 => {
                let (port, up) = (random.below(3) as u32, random.below(2) == 0);
                self.both(|s| s.port_state(port, up));
            }
            15 => {
                let value = CounterValue { packets: random.below(100), bytes: random.below(1000) };
                self.both(|s| (s.counter_set(ext, cell, value), s.counter(ext, cell)));
                if let ExternKind::Counter { direct: Some(t), .. } = program.externs[ext.index()].kind
                    && t == table_id
                {
                    // An empty key stands for the default entry.
                    let key = if random.below(3) == 0 { &[] } else { &key[..] };
                    self.both(|s| s.direct_counter_set(ext, key, priority, value));
                }
            }
            16 => {
                let config = random.config();
                self.both(|s| (s.meter_set(ext, cell, config), s.meter(ext, cell)));
                if random.below(4) == 0 {
                    self.both(|s| s.meter_counts_reset(ext, cell));
                }
                if let ExternKind::Meter { direct: Some(t), .. } = program.externs[ext.index()].kind
                    && t == table_id
                {
                    let key = if random.below(3) == 0 { &[] } else { &key[..] };
                    self.both(|s| s.direct_meter_set(ext, key, priority, config));
                    if random.below(4) == 0 {
                        self.both(|s| s.direct_meter_counts_reset(ext, key, priority));
                    }
                }
            }
            17 => {
                let width =
                    if let ExternKind::Register { width, .. } = program.externs[ext.index()].kind { width } else { 8 };
                let value = random.value(width);
                self.both(|s| (s.register_set(ext, cell, &value), s.register(ext, cell)));
            }
            18 => {
                let bytes = random.below(1500) as u32;
                self.count(ExternId(7), cell, bytes);
                self.slow.count(ExternId(7), cell, bytes.into());
            }
            19 | 20 => {
                let bytes = random.below(1500) as u32;
                self.now_us += random.below(2000);
                self.worker.begin(self.now_us);
                // SAFETY: the context is the worker's.
                let fast = unsafe { (CALLS.meter)(self.worker.ctx(), 8, cell, bytes, 0) };
                let slow = self.slow.meter_execute(ExternId(8), cell, bytes.into(), self.now_us);
                assert_eq!(fast, slow as u32, "{}", self.what);
                self.fast.set_time(self.now_us);
                self.slow.set_time(self.now_us);
                self.worker.quiescent();
            }
            _ => {
                let values: Vec<Bits> = table.keys.iter().map(|k| random.value(k.width)).collect();
                self.packet(table_id, &values, &Bits::new(16, random.below(1 << 16).into()), random.below(1500) as u32);
            }
        }
        if random.below(8) == 0 {
            self.worker.idle();
            self.fast.collect();
        }
    }

    /// Compares everything that can be read.
    fn compare(&self) {
        for (i, table) in self.program.tables.iter().enumerate() {
            let id = TableId::from_index(i);
            self.both(|s| s.len(id));
            self.both(|s| s.default_action(id));
            for read in self.entries(id) {
                let TableEntry { key, priority, .. } = &read.entry;
                assert_eq!(self.answer(|s| s.entry(id, key, *priority)), Ok(read.clone()), "{}", self.what);
                for ext in &table.direct {
                    self.both(|s| s.direct_counter(*ext, key, *priority));
                    self.both(|s| s.direct_meter(*ext, key, *priority));
                    self.both(|s| s.direct_meter_counts(*ext, key, *priority));
                }
            }
            for ext in &table.direct {
                self.both(|s| (s.direct_counter(*ext, &[], 0), s.direct_meter(*ext, &[], 0)));
                self.both(|s| s.direct_meter_counts(*ext, &[], 0));
            }
        }
        for ext in (0..self.program.externs.len()).map(ExternId::from_index) {
            self.both(|s| s.members(ext));
            self.both(|s| s.groups(ext));
            for index in 0..8 {
                self.both(|s| (s.counter(ext, index), s.meter(ext, index), s.register(ext, index)));
                self.both(|s| s.meter_counts(ext, index));
            }
        }
    }
}

#[test]
fn random_operations_leave_both_states_alike() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let mut pair = Pair::new(seed);
        for step in 0..1500 {
            pair.what = format!("seed {seed}, step {step}");
            pair.step(&mut random);
            if step % 25 == 0 {
                pair.compare();
            }
        }
        pair.compare();
    }
}
