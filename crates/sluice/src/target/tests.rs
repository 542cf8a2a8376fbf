//! Programs replaced under load, on memory ports: no packet or count is lost, and no packet sees two programs.

use super::*;
use abi::state::PipelineState;
use base::Bits;
use base::entry::{ActionCall, CounterValue, EntryAction, KeyMatch, MeterConfig, TableEntry};
use base::ids::{ExternId, TableId};
use control::Control;
use control::compare::Fate;
use control::control::Losses;
use control::entity::{self, Entity, MatchValue, TableAction};
use control::forwarding::ForwardingConfig;
use control::reconcile::Report;
use datapath::{Idle, SwitchConfig};
use pktio::{Device, HeapPool, LinkState, MacAddress, MemoryDevice, MemoryHandle, Packet, PoolRef, PortStats, Queue};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const DEVICE: u64 = 1;
const LIMIT: Duration = Duration::from_secs(240);

/// Yields to other threads until a condition holds.
fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        std::thread::yield_now();
    }
}

/// Sets its flag when dropped, so that threads that poll it end if another one panics.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Returns a program that marks packets with `version` in ingress and egress, which shows if a packet saw two programs.
/// Packets of kind 1 are multicast, those of kind 2 recirculated once. `extra` is added to the table's actions,
/// `declared` before them.
fn source(version: u8, extra: &str, declared: &str, apply: &str) -> Vec<u8> {
    format!(
        r#"#include <core.p4>
#include <v1model.p4>
header h_t {{ bit<48> dst; bit<8> kind; bit<8> first; bit<8> second; bit<8> third; bit<32> number; }}
struct headers {{ h_t h; }}
struct meta_t {{ bit<1> unused; }}
parser P(packet_in b, out headers hdr, inout meta_t m, inout standard_metadata_t sm) {{
    state start {{ b.extract(hdr.h); transition accept; }}
}}
control V(inout headers hdr, inout meta_t m) {{ apply {{ }} }}
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t sm) {{
    direct_counter(CounterType.packets_and_bytes) hits;
    counter(8, CounterType.packets) seen;
    meter(4, MeterType.packets) limit;
    register<bit<32>>(4) count;
    action nothing() {{ }}
    action forward(bit<9> port) {{ sm.egress_spec = port; hits.count(); }}
    {declared}
    table dst {{
        key = {{ hdr.h.dst: exact; }}
        actions = {{ forward; {extra} nothing; }}
        default_action = nothing();
        counters = hits;
        size = 1024;
    }}
    apply {{
        sm.egress_spec = 511;
        if (sm.instance_type == 0) {{
            hdr.h.first = {version};
            seen.count(3);
            bit<32> n;
            count.read(n, 1);
            count.write(1, n + 1);
            bit<32> colour;
            limit.execute_meter(2, colour);
            if (hdr.h.kind == 1) {{ sm.mcast_grp = 7; }}
        }} else {{
            hdr.h.third = {version};
            hdr.h.kind = 3;
        }}
        {apply}
        dst.apply();
    }}
}}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t sm) {{
    apply {{
        hdr.h.second = {version};
        if (hdr.h.kind == 2) {{ recirculate_preserving_field_list(0); }}
        else if (hdr.h.kind != 3) {{ hdr.h.third = {version}; }}
    }}
}}
control C(inout headers hdr, inout meta_t m) {{ apply {{ }} }}
control D(packet_out b, in headers hdr) {{ apply {{ b.emit(hdr.h); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"#
    )
    .into_bytes()
}

struct Bed {
    control: Control,
    switch: Arc<Switch>,
    ports: Vec<MemoryHandle>,
}

impl Bed {
    fn new(workers: usize, engine: EngineKind) -> Bed {
        Bed::with_code(workers, engine, CodeOptions::default())
    }

    fn with_code(workers: usize, engine: EngineKind, code: CodeOptions) -> Bed {
        let pool = HeapPool::shared(16 * 1024);
        let config = SwitchConfig { workers, idle: Idle::Busy, pool: Some(Arc::clone(&pool)), ..Default::default() };
        let switch = Arc::new(Switch::new(config));
        let specialise = Specialise::Auto;
        let target = SwitchTarget::new(
            Arc::clone(&switch),
            crate::compiler::Compiler::in_process(),
            Options::default(),
            code,
            engine,
            specialise,
        );
        let mut control = Control::new();
        control.add_device(DEVICE, Arc::new(target));
        let open = |number| {
            let (device, handle) = MemoryDevice::new(format!("m{number}"), Arc::clone(&pool), workers as u16);
            switch.add_port(number, Box::new(device)).expect("a new number");
            handle
        };
        let ports = (0..3).map(open).collect();
        Bed { control, switch, ports }
    }

    fn load(&mut self, source: Vec<u8>) {
        let config = ForwardingConfig { device_config: source, ..Default::default() };
        self.control.load(DEVICE, config).expect("the program is right");
    }

    fn replace(&mut self, source: Vec<u8>) -> Report {
        let config = ForwardingConfig { device_config: source, ..Default::default() };
        self.control.replace(DEVICE, config, Losses::Refused).expect("everything has a place")
    }

    fn state(&self) -> Arc<dyn PipelineState> {
        self.switch.state().expect("a program runs")
    }

    fn table(&self, name: &str) -> TableId {
        self.switch.pipeline().unwrap().program().table_named(name).expect("the table exists")
    }

    fn ext(&self, name: &str) -> ExternId {
        self.switch.pipeline().unwrap().program().extern_named(name).expect("the extern exists")
    }

    /// Sends packets for `dst` to port 2, and those of kind 1 to ports 1 and 2.
    fn set_up(&mut self) {
        let info = Arc::clone(&self.control.config(DEVICE).unwrap().unwrap().p4info);
        let table = info.tables.iter().find(|t| t.preamble.name == "I.dst").unwrap().preamble.id;
        let forward = info.actions.iter().find(|a| a.preamble.name == "I.forward").unwrap().preamble.id;
        let entry = entity::TableEntry {
            table_id: table,
            matches: vec![entity::FieldMatch { field_id: 1, value: MatchValue::Exact(vec![5]) }],
            action: Some(TableAction::Action(entity::Action { action_id: forward, params: vec![(1, vec![2])] })),
            metadata: vec![77],
            ..Default::default()
        };
        let replica = |port| entity::Replica { port: entity::ReplicaPort::Port(vec![port]), ..Default::default() };
        let replicas = vec![replica(1), replica(2)];
        let group = entity::MulticastGroup { group_id: 7, replicas, metadata: vec![] };
        let update = |entity| entity::Update { kind: entity::UpdateKind::Insert, entity: Some(entity) };
        let stream = self.control.connect();
        let claim = control::arbitration::ArbitrationRequest {
            device_id: DEVICE,
            role: Default::default(),
            election_id: Some(1),
            ..Default::default()
        };
        self.control.stream_request(stream, control::control::StreamRequest::Arbitration(claim)).unwrap();
        let request = entity::WriteRequest {
            device_id: DEVICE,
            role: Default::default(),
            election_id: Some(1),
            updates: vec![update(Entity::Table(entry)), update(Entity::MulticastGroup(group))],
            atomicity: entity::Atomicity::ContinueOnError,
        };
        let done = self.control.write(&request).expect("the primary writes");
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    }

    fn metadata(&mut self) -> Vec<Vec<u8>> {
        let query = Entity::Table(entity::TableEntry::default());
        let (found, _) = self.control.read(DEVICE, &[Some(query)]).unwrap();
        let metadata = |e: Entity| match e {
            Entity::Table(entry) => Some(entry.metadata),
            _ => None,
        };
        found.into_iter().filter_map(metadata).collect()
    }
}

fn frame(kind: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![0, 0, 0, 0, 0, 5, kind, 0, 0, 0];
    frame.extend(number.to_be_bytes());
    frame.resize(64, 0);
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[10..14].try_into().unwrap())
}

/// Packets increment a register while a controller writes it: a written number must not be overwritten by an older one.
fn registers_written_under_load(workers: usize) {
    let mut bed = Bed::new(workers, EngineKind::Machine);
    bed.load(source(1, "", "", ""));
    bed.set_up();
    let info = Arc::clone(&bed.control.config(DEVICE).unwrap().unwrap().p4info);
    let register_id = info.registers.iter().find(|r| r.preamble.name == "I.count").unwrap().preamble.id;
    let register = |value: Option<u32>| {
        let data = value.map(|value| entity::P4Data::Bitstring(value.to_be_bytes().to_vec()));
        Entity::Register(entity::RegisterEntry { register_id, index: Some(1), data })
    };
    let (stop, sent, ports) = (AtomicBool::new(false), AtomicU32::new(0), bed.ports.clone());
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                ports[1..].iter().for_each(|port| drop(port.collect()));
                if ports[0].pending() < 256 {
                    assert!(ports[0].inject_on((n % workers as u32) as u16, &frame(0, n)));
                    n += 1;
                    sent.store(n, Ordering::Relaxed);
                } else {
                    std::thread::yield_now();
                }
            }
        });
        let (_end, mut lost) = (Raise(&stop), 0);
        for step in 1..=300u32 {
            // At least as many packets as writes, however busy the machine is.
            wait_for("packets", || sent.load(Ordering::Relaxed) > step);
            let written = step << 20;
            let update = entity::Update { kind: entity::UpdateKind::Modify, entity: Some(register(Some(written))) };
            // As separate updates, and in a dataplane-atomic batch, which holds packets off.
            let atomicity = match step % 3 {
                0 => entity::Atomicity::DataplaneAtomic,
                _ => entity::Atomicity::ContinueOnError,
            };
            let request = entity::WriteRequest {
                device_id: DEVICE,
                election_id: Some(1),
                updates: vec![update.clone(), update],
                atomicity,
                ..Default::default()
            };
            assert!(bed.control.write(&request).unwrap().iter().all(Result::is_ok));
            let (found, _) = bed.control.read(DEVICE, &[Some(register(None))]).unwrap();
            let Entity::Register(entity::RegisterEntry { data: Some(entity::P4Data::Bitstring(bytes)), .. }) =
                &found[0]
            else {
                panic!("{found:?}")
            };
            let now = bytes.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
            lost += u32::from(now < u64::from(written));
        }
        assert_eq!(lost, 0, "writes that packets undid");
    });
}

#[test]
fn what_is_written_into_a_register_is_not_undone_by_a_packet() {
    registers_written_under_load(1);
    registers_written_under_load(2);
}

/// Replaces the program `swaps` times under load by those of `sources` in turn; checks each packet and each count.
fn under_load(workers: usize, swaps: usize, sources: &[Vec<u8>]) {
    let mut bed = Bed::new(workers, EngineKind::Machine);
    bed.load(sources[0].clone());
    bed.set_up();
    let meter = bed.ext("I.limit");
    // A bucket that is never refilled.
    let config = MeterConfig { cir: 0, cburst: 1 << 40, pir: 0, pburst: 1 << 40, eburst: 0 };
    bed.state().meter_set(meter, 2, Some(config)).unwrap();
    let (stop, generated) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, collected) = (AtomicU32::new(0), AtomicU32::new(0));
    let ports = bed.ports.clone();
    let kind = |n: u32| (n % 8).min(3) as u8 % 3;
    let expected = |port: usize, sent: u32| (0..sent).filter(move |n| port == 2 || kind(*n) == 1).collect::<Vec<_>>();
    let received = std::thread::scope(|s| {
        let generator = s.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                // Wait rather than overflow a ring, at the input and where all packets arrive: that would be no loss of
                // the switch.
                wait_for("packets go on", || ports[0].pending() <= 256 && n < collected.load(Ordering::Relaxed) + 2000);
                assert!(ports[0].inject_on((n % workers as u32) as u16, &frame(kind(n), n)));
                n += 1;
                sent.store(n, Ordering::Relaxed);
            }
        });
        let collector = s.spawn(|| {
            let mut got: [Vec<Vec<u8>>; 2] = Default::default();
            // Until all have arrived; a while longer, to detect surplus packets; and with a limit, in case some are
            // missing.
            let (mut complete, mut stopped) = (None::<Instant>, None::<Instant>);
            loop {
                for (port, got) in ports[1..].iter().zip(&mut got) {
                    got.extend(port.collect());
                }
                collected.store(got[1].len() as u32, Ordering::Relaxed);
                if generated.load(Ordering::Acquire) {
                    let sent = sent.load(Ordering::Relaxed);
                    if (1..=2).all(|port| got[port - 1].len() >= expected(port, sent).len()) {
                        complete.get_or_insert_with(Instant::now);
                    }
                    let long = |since: Option<Instant>, time| since.is_some_and(|since| since.elapsed() > time);
                    stopped.get_or_insert_with(Instant::now);
                    if long(complete, Duration::from_millis(200)) || long(stopped, LIMIT) {
                        return got;
                    }
                }
                std::thread::yield_now();
            }
        });
        let _ends = [Raise(&stop), Raise(&generated)];
        for swap in 1..=swaps {
            let before = sent.load(Ordering::Relaxed);
            wait_for("the generator goes on", || sent.load(Ordering::Relaxed) >= before + 300);
            let report = bed.replace(sources[swap % sources.len()].clone());
            assert!(!report.loses(), "{report}");
        }
        stop.store(true, Ordering::Relaxed);
        generator.join().expect("it does not panic");
        generated.store(true, Ordering::Release);
        collector.join().expect("it does not panic")
    });
    let sent = sent.load(Ordering::Relaxed);
    for (port, frames) in (1..).zip(&received) {
        let mut numbers: Vec<u32> = frames.iter().map(|f| number(f)).collect();
        numbers.sort_unstable();
        let expected = expected(port, sent);
        assert!(numbers == expected, "port {port}: {} of {} arrived", numbers.len(), expected.len());
        for f in frames {
            assert!(f[7] == f[8] && f[8] == f[9] && f[7] != 0, "packet {} saw {:?}", number(f), &f[7..10]);
        }
    }
    // Recirculated packets go through the table twice.
    let again = (0..sent).filter(|n| kind(*n) == 2).count() as u64;
    let state = bed.state();
    assert_eq!(state.register(bed.ext("I.count"), 1).unwrap().to_u64(), Some(u64::from(sent)), "register");
    assert_eq!(state.counter(bed.ext("I.seen"), 3).unwrap().packets, u64::from(sent), "counter");
    let key = [KeyMatch::Exact(Bits::new(48, 5))];
    let CounterValue { packets, .. } = state.direct_counter(bed.ext("I.hits"), &key, 0).unwrap();
    assert_eq!(packets, u64::from(sent) + again, "direct counter");
    let tables = bed.switch.tables(DEVICE);
    let lookups = tables.iter().find(|t| t.name == "I.dst").unwrap().lookups;
    assert_eq!(lookups, Some((u64::from(sent) + again, 0)), "hits");
    assert_eq!(state.meter(bed.ext("I.limit"), 2).unwrap(), Some(config));
    assert_eq!(bed.metadata(), [vec![77]]);
}

#[test]
fn programs_of_one_shape_are_replaced_under_load_without_losing_a_packet_or_a_count() {
    let sources: Vec<_> = (1..=3).map(|version| source(version, "", "", "")).collect();
    under_load(2, 12, &sources);
}

#[test]
fn tables_of_another_shape_are_copied_under_load_without_losing_a_packet_or_a_count() {
    let action = "action other(bit<9> port) { sm.egress_spec = port; }";
    under_load(2, 8, &[source(1, "", "", ""), source(2, "other;", action, "")]);
}

#[test]
fn registers_of_another_size_lose_no_write_of_a_packet() {
    let sized = |version, size: &str| {
        let text = String::from_utf8(source(version, "", "", "")).expect("it is text");
        text.replace("register<bit<32>>(4) count;", &format!("register<bit<32>>({size}) count;")).into_bytes()
    };
    // `under_load` compares what packets counted in the register, each from the cell's last value, with the packets sent.
    under_load(2, 12, &[sized(1, "4"), sized(2, "300"), sized(3, "8")]);
}

#[test]
fn what_is_kept_is_the_same_object_and_what_is_not_is_named() {
    let mut bed = Bed::new(1, EngineKind::Machine);
    bed.load(source(1, "", "", ""));
    bed.set_up();
    let (count, meter) = (bed.ext("I.count"), bed.ext("I.limit"));
    bed.state().register_set(count, 3, &Bits::new(32, 99)).unwrap();
    bed.state().meter_set(meter, 1, Some(MeterConfig { cir: 1, cburst: 2, pir: 3, pburst: 4, eburst: 0 })).unwrap();
    let more = "counter(4, CounterType.bytes) fresh; action other(bit<9> port) { sm.egress_spec = port; }";
    let report = bed.replace(source(2, "other;", more, "fresh.count(1);"));
    let fate = |name: &str| report.outcomes.iter().find(|o| o.object.name == name).map(|o| o.object.fate);
    assert_eq!(fate("I.count"), Some(Fate::Kept));
    assert_eq!(fate("I.dst"), Some(Fate::Copied));
    assert_eq!(fate("I.hits"), Some(Fate::Copied));
    assert_eq!(fate("I.fresh"), Some(Fate::New));
    assert!(
        report.to_string().contains("copied table `I.dst`: 1 carried over (the action `I.other` is new)"),
        "{report}"
    );
    // State that the new program has no object for.
    let table = bed.table("I.dst");
    let program = Arc::clone(bed.switch.pipeline().unwrap().program());
    let listed = &program.tables[table.index()].actions;
    let other = listed.iter().position(|a| program.actions[a.action.index()].name == "I.other").unwrap() as u32;
    let call = EntryAction::Call(ActionCall { action: other, args: vec![Bits::new(9, 1)] });
    let key = vec![KeyMatch::Exact(Bits::new(48, 6))];
    let entry = TableEntry { key, priority: 0, action: call, idle_timeout_ns: 0 };
    bed.state().insert(table, &entry).unwrap();
    let config = ForwardingConfig { device_config: source(3, "", "", ""), ..Default::default() };
    let running = bed.state();
    let refused = bed.control.replace(DEVICE, config.clone(), Losses::Refused).unwrap_err().message;
    assert!(refused.contains("copied table `I.dst`: 1 carried over, 1 lost"), "{refused}");
    assert!(Arc::ptr_eq(&running, &bed.state()), "the old program goes on running");
    let report = bed.control.replace(DEVICE, config, Losses::Accepted).unwrap();
    assert!(report.to_string().contains("the new program has no action `I.other`"), "{report}");
    assert_eq!(bed.state().len(bed.table("I.dst")), 1);
    assert_eq!(bed.state().register(bed.ext("I.count"), 3), Ok(Bits::new(32, 99)));
    let config = MeterConfig { cir: 1, cburst: 2, pir: 3, pburst: 4, eburst: 0 };
    assert_eq!(bed.state().meter(bed.ext("I.limit"), 1), Ok(Some(config)));
}

#[test]
fn the_interpreter_has_no_tables_to_share_so_everything_is_copied() {
    let mut bed = Bed::new(1, EngineKind::Interpreter);
    bed.load(source(1, "", "", ""));
    bed.set_up();
    bed.state().register_set(bed.ext("I.count"), 3, &Bits::new(32, 99)).unwrap();
    let report = bed.replace(source(2, "", "", ""));
    assert!(!report.loses(), "{report}");
    assert_eq!(bed.state().len(bed.table("I.dst")), 1);
    assert_eq!(bed.state().register(bed.ext("I.count"), 3), Ok(Bits::new(32, 99)));
    assert_eq!(bed.metadata(), [vec![77]]);
}

#[test]
fn a_program_is_called_as_its_file_and_program_without_one() {
    let mut bed = Bed::new(1, EngineKind::Machine);
    let mut name_of = |name: &str| {
        let config = ForwardingConfig { device_config: source(3, "", "", ""), name: name.into(), ..Default::default() };
        bed.control.load(DEVICE, config).expect("the program is right");
        bed.switch.pipeline().expect("it runs").program().name.clone()
    };
    assert_eq!(name_of("/etc/sluice/router.p4"), "router");
    assert_eq!(name_of(""), "program");
}

/// A port that blocks its worker in send while a flag is set.
struct Holds {
    device: MemoryDevice,
    hold: Arc<AtomicBool>,
    is_held: Arc<AtomicBool>,
}

struct HoldsQueue {
    queue: Box<dyn Queue>,
    hold: Arc<AtomicBool>,
    is_held: Arc<AtomicBool>,
}

impl Queue for HoldsQueue {
    fn rx(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        self.queue.rx(out, max)
    }

    fn tx(&mut self, packets: &mut Vec<Packet>) -> usize {
        while self.hold.load(Ordering::Acquire) {
            self.is_held.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_micros(100));
        }
        self.is_held.store(false, Ordering::Release);
        self.queue.tx(packets)
    }
}

impl Device for Holds {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn kind(&self) -> &'static str {
        self.device.kind()
    }

    fn queue_count(&self) -> u16 {
        self.device.queue_count()
    }

    fn take_queues(&mut self) -> Vec<Box<dyn Queue>> {
        let holds = |queue| {
            let (hold, is_held) = (Arc::clone(&self.hold), Arc::clone(&self.is_held));
            Box::new(HoldsQueue { queue, hold, is_held }) as Box<dyn Queue>
        };
        self.device.take_queues().into_iter().map(holds).collect()
    }

    fn pool(&self) -> PoolRef {
        self.device.pool()
    }

    fn link(&self) -> LinkState {
        self.device.link()
    }

    fn stats(&self) -> PortStats {
        self.device.stats()
    }

    fn mac(&self) -> Option<MacAddress> {
        self.device.mac()
    }

    fn mtu(&self) -> u16 {
        self.device.mtu()
    }
}

/// A worker does not finish its batch. Writes that it could misread are UNAVAILABLE, also within batches, which are
/// then rolled back as a whole; other writes succeed. All succeed once the worker goes on.
#[test]
fn writes_that_a_standing_worker_could_misread_are_unavailable_and_rolled_back() {
    let mut bed = Bed::new(1, EngineKind::Machine);
    let (device, _handle) = MemoryDevice::new("holds", HeapPool::shared(64), 1);
    let (hold, is_held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let holds = Holds { device, hold: Arc::clone(&hold), is_held: Arc::clone(&is_held) };
    bed.switch.add_port(3, Box::new(holds)).expect("a new number");
    bed.load(source(1, "", "", ""));
    bed.set_up();
    let info = Arc::clone(&bed.control.config(DEVICE).unwrap().unwrap().p4info);
    let table_id = info.tables.iter().find(|t| t.preamble.name == "I.dst").unwrap().preamble.id;
    let action_id = info.actions.iter().find(|a| a.preamble.name == "I.forward").unwrap().preamble.id;
    let counter_id = info.counters.iter().find(|c| c.preamble.name == "I.seen").unwrap().preamble.id;
    let insert = |dst: u8, port: u8| {
        let entry = entity::TableEntry {
            table_id,
            matches: vec![entity::FieldMatch { field_id: 1, value: MatchValue::Exact(vec![dst]) }],
            action: Some(TableAction::Action(entity::Action { action_id, params: vec![(1, vec![port])] })),
            ..Default::default()
        };
        entity::Update { kind: entity::UpdateKind::Insert, entity: Some(Entity::Table(entry)) }
    };
    let count = |packet_count| {
        let data = Some(entity::CounterData { byte_count: 0, packet_count });
        let entry = Entity::Counter(entity::CounterEntry { counter_id, index: Some(5), data });
        entity::Update { kind: entity::UpdateKind::Modify, entity: Some(entry) }
    };
    let write = |bed: &mut Bed, updates, atomicity| {
        let request =
            entity::WriteRequest { device_id: DEVICE, election_id: Some(1), updates, atomicity, ..Default::default() };
        bed.control.write(&request).expect("the primary writes")
    };
    let codes = |results: &[Result<(), control::error::Error>]| -> Vec<control::error::Code> {
        results.iter().map(|r| r.as_ref().map_or_else(|e| e.code, |()| control::error::Code::Ok)).collect()
    };
    use control::error::Code::{Aborted, Ok, Unavailable};
    assert_eq!(codes(&write(&mut bed, vec![insert(6, 3), count(7)], entity::Atomicity::ContinueOnError)), [Ok, Ok]);
    bed.switch.pipeline().unwrap().recompile(Specialise::Contents).expect("it compiles");

    hold.store(true, Ordering::Release);
    let _go_on = Lower(&hold);
    let mut to_hold = frame(0, 1);
    to_hold[5] = 6;
    assert!(bed.ports[0].inject(&to_hold));
    wait_for("the worker stands", || is_held.load(Ordering::Acquire));
    let everything = |bed: &Bed| {
        let cell = bed.state().counter(bed.ext("I.seen"), 5).expect("a cell");
        (bed.state().entries(bed.table("I.dst")), cell)
    };
    let before = everything(&bed);
    let results = write(&mut bed, vec![count(8), insert(9, 1), count(9)], entity::Atomicity::RollbackOnError);
    assert_eq!(codes(&results), [Aborted, Unavailable, Aborted]);
    let error = results[1].as_ref().unwrap_err();
    assert!(error.message.contains("worker 0") && error.message.contains("nothing was changed"), "{error}");
    assert_eq!(everything(&bed), before, "the batch left something");
    let results = write(&mut bed, vec![insert(9, 1), count(9)], entity::Atomicity::ContinueOnError);
    assert_eq!(codes(&results), [Unavailable, Ok], "what the worker could not misread is made");

    hold.store(false, Ordering::Release);
    wait_for("the worker goes on", || {
        codes(&write(&mut bed, vec![insert(9, 1)], entity::Atomicity::RollbackOnError)) == [Ok]
    });
}

/// Clears its flag when dropped, so that a worker goes on if its test panics.
struct Lower<'a>(&'a AtomicBool);

impl Drop for Lower<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[test]
fn a_program_whose_machine_code_takes_too_long_is_refused() {
    let mut code = CodeOptions::default();
    code.jit.time_max = Some(std::time::Duration::ZERO);
    let mut bed = Bed::with_code(1, EngineKind::Machine, code);
    let config = ForwardingConfig { device_config: source(1, "", "", ""), ..Default::default() };
    let refused = bed.control.load(DEVICE, config).unwrap_err();
    assert_eq!(refused.code, control::Code::ResourceExhausted);
    assert!(refused.message.contains("compiling it to machine code takes longer than 0 s"), "{}", refused.message);
    assert!(refused.message.contains("--compile-time"), "{}", refused.message);
    assert!(bed.switch.state().is_none());
}

/// Workers that are blocked at a gate take no command, as in a batch that does not end.
#[test]
fn a_program_change_that_a_worker_does_not_acknowledge_is_unavailable_and_undone() {
    let mut bed = Bed::new(2, EngineKind::Machine);
    bed.load(source(1, "", "", ""));
    bed.set_up();
    let before = bed.switch.pipeline().unwrap();
    let held = bed.switch.hold().unwrap();
    let config = |version| ForwardingConfig { device_config: source(version, "", "", ""), ..Default::default() };
    let refused = bed.control.load(DEVICE, config(2)).unwrap_err();
    assert_eq!(refused.code, control::Code::Unavailable, "{}", refused.message);
    assert!(refused.message.contains("the previous program still runs"), "{}", refused.message);
    let refused = bed.control.replace(DEVICE, config(3), Losses::Refused).unwrap_err();
    assert_eq!(refused.code, control::Code::Unavailable, "{}", refused.message);
    drop(held);

    assert!(Arc::ptr_eq(&bed.switch.pipeline().unwrap(), &before));
    assert_eq!(bed.control.running_config(DEVICE).unwrap().unwrap().device_config, config(1).device_config);
    assert!(bed.metadata().contains(&vec![77]), "its entries are there");
    assert!(bed.ports[0].inject_on(0, &frame(0, 9)));
    let mut got = Vec::new();
    wait_for("the packet", || {
        got.extend(bed.ports[2].collect());
        !got.is_empty()
    });
    assert_eq!(got[0][7], 1, "the program before marks packets with its version");
    // Afterwards the change succeeds.
    bed.replace(source(4, "", "", ""));
}
