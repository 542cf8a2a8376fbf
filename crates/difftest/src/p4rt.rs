//! P4Runtime fuzzing: valid and damaged requests generated from a program's P4Info, checked against a model.
//!
//! ```text
//!   P4Info ──▶ generate ──▶ damage ──▶ request ──▶ control plane ──▶ answer ─┐
//!                                         └──────▶ model (plain maps) ──▶ what may be answered ──▶ compared
//! ```
//!
//! The model ([`model`]) implements the specification's rules and shares no code with the control plane. It collects
//! *all* faults of an update, and the answer's code must be that of one of them; an update without faults must succeed.
//! After every few requests something is read, sometimes everything, and compared with the model. Some requests are
//! converted to protobuf messages and back, as over gRPC.
//!
//! With a state directory (`kept`), the control plane is occasionally restarted from what is on disk.
//!
//! Everything is determined by a seed. Not checked: order among entries, packets (see `round`), time.
//!
//! Tests: `tests/p4rt.rs` runs a fixed part over all programs; `cargo xtask p4rt-fuzz` runs as long as specified.

mod damage;
mod generate;
mod kept;
pub mod model;
mod read;
mod table_rules;
mod target;

use crate::generate::Dice;
use control::control::{ConfigAction, SetConfigRequest, StreamRequest};
use control::entity::{Atomicity, Entity, Role, Update, WriteRequest};
use control::forwarding::ForwardingConfig;
use control::{Code, Control, arbitration::ArbitrationRequest};
use datapath::EngineKind;
use model::{Judgement, Model};
use prost::Message;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DEVICE: u64 = 7;
const ELECTION: u128 = (3 << 64) | 9;

/// The work of a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// The number of writes and reads.
    pub requests: u64,
    /// The number of updates in writes.
    pub updates: u64,
    /// The number of updates that succeeded.
    pub done: u64,
    /// The number of entities read and compared.
    pub read: u64,
    /// The number of restarts from a state directory.
    pub restarts: u64,
}

/// A program with the control plane under test and the model.
pub struct Subject {
    control: Control,
    model: Model,
    dice: Dice,
    name: String,
    path: PathBuf,
    engine: EngineKind,
    kept: Option<kept::Kept>,
}

/// An answer that the model does not allow.
#[derive(Debug)]
pub struct Fault {
    /// The program.
    pub program: String,
    /// The seed.
    pub seed: u64,
    /// The number of requests before it.
    pub request: u64,
    /// What happened.
    pub what: String,
}

/// The tables of a program whose entries are added by packets and expire.
fn timed_tables(program: &Path, info: &p4info::P4Info) -> BTreeSet<u32> {
    let compiled =
        frontend::compile(frontend::Input::File(program), &frontend::Options::default(), frontend::Until::Ir);
    let program = compiled.ok().and_then(|compiled| compiled.optimised);
    let tables = program.iter().flat_map(|program| &program.tables).filter(|t| t.dynamic.is_some() && t.idle_timeout);
    let id = |table: &ir::Table| info.tables.iter().find(|t| *t.preamble.name == *table.name).map(|t| t.preamble.id);
    tables.filter_map(id).collect()
}

impl Subject {
    /// Compiles a program and loads it.
    ///
    /// # Errors
    /// If it does not compile or the control plane refuses it.
    pub fn new(program: &Path, engine: EngineKind, seed: u64) -> Result<Subject, String> {
        let source = std::fs::read(program).map_err(|e| e.to_string())?;
        let mut control = connected(program, engine)?;
        let config = ForwardingConfig { device_config: source, ..Default::default() };
        let request = SetConfigRequest {
            device_id: DEVICE,
            role: Role::default(),
            election_id: Some(ELECTION),
            action: ConfigAction::VerifyAndCommit,
            config: Some(config),
        };
        control.set_config(request).map_err(|e| e.to_string())?;
        let view = control.config(DEVICE).map_err(|e| e.to_string())?.ok_or("no config")?;
        let mut model = Model::new(view.p4info);
        model.timed = timed_tables(program, &model.info);
        // The model adopts the program's initial entities unchecked.
        for query in read::everything(&model.info) {
            let (found, _) = control.read(DEVICE, &[Some(query)]).map_err(|e| e.to_string())?;
            model.adopt(found);
        }
        let (name, path) = (program.display().to_string(), program.to_path_buf());
        Ok(Subject { control, model, dice: Dice::new(seed), name, path, engine, kept: None })
    }

    /// Sends `requests` requests.
    ///
    /// # Errors
    /// The first answer that the model does not allow.
    pub fn run(&mut self, seed: u64, requests: u64, totals: &mut Totals) -> Result<(), Fault> {
        self.dice = Dice::new(seed);
        for request in 0..requests {
            let asked = match self.dice.below(4) {
                0 => self.read(totals),
                _ => self.write(totals),
            };
            let again = if request % 128 == 127 && self.kept.is_some() { self.restarted(totals) } else { Ok(()) };
            let all = if request % 512 == 511 { self.compare_all(totals) } else { Ok(()) };
            totals.requests += 1;
            asked.and(again).and(all).map_err(|what| Fault { program: self.name.clone(), seed, request, what })?;
        }
        self.compare_all(totals).map_err(|what| Fault { program: self.name.clone(), seed, request: requests, what })
    }

    fn restarted(&mut self, totals: &mut Totals) -> Result<(), String> {
        self.restart().map_err(|what| format!("restart: {what}"))?;
        totals.restarts += 1;
        self.compare_all(totals).map_err(|what| format!("after a restart: {what}"))
    }

    fn write(&mut self, totals: &mut Totals) -> Result<(), String> {
        let count = 1 + self.dice.below(6);
        let mut updates: Vec<Update> = (0..count).map(|_| generate::update(&mut self.dice, &self.model)).collect();
        for update in &mut updates {
            if self.dice.one_in(6) {
                damage::update(&mut self.dice, update);
            }
        }
        let atomicity = *self.dice.pick(&[
            Atomicity::ContinueOnError,
            Atomicity::ContinueOnError,
            Atomicity::RollbackOnError,
            Atomicity::DataplaneAtomic,
        ]);
        let (role, election_id) = (Role::default(), Some(ELECTION));
        let mut request = WriteRequest { device_id: DEVICE, role, election_id, updates, atomicity };
        let refused = damage::envelope(&mut self.dice, &mut request, DEVICE);
        if self.dice.one_in(4) {
            request = over_the_wire(request)?;
        }
        let answer = self.control.write(&request);
        totals.updates += request.updates.len() as u64;
        let results = match (answer, refused) {
            (Err(error), Some(codes)) if codes.contains(&error.code) => return Ok(()),
            (Err(error), _) => return Err(format!("the request is refused: {:?} {error}\n{request:#?}", error.code)),
            (Ok(_), Some(codes)) => {
                return Err(format!("the request is answered, not refused {codes:?}\n{request:#?}"));
            }
            (Ok(results), None) => results,
        };
        if results.len() != request.updates.len() {
            return Err(format!("{} results for {} updates", results.len(), request.updates.len()));
        }
        totals.done += results.iter().filter(|r| r.is_ok()).count() as u64;
        let codes: Vec<Code> = results.iter().map(|r| r.as_ref().err().map_or(Code::Ok, |e| e.code)).collect();
        let explain = |what: String| format!("{what}\nresults: {results:#?}\n{request:#?}");
        match request.atomicity {
            Atomicity::ContinueOnError => self.follow(&request.updates, &codes).map_err(explain),
            Atomicity::RollbackOnError | Atomicity::DataplaneAtomic => {
                let before = self.model.clone();
                let failed = codes.iter().position(|code| !matches!(code, Code::Ok | Code::Aborted));
                let end = failed.map_or(codes.len(), |at| at + 1);
                let mut tried = vec![Code::Ok; end];
                if let Some(at) = failed {
                    tried[at] = codes[at];
                }
                self.follow(&request.updates[..end], &tried).map_err(explain)?;
                let mut rest = codes.iter().enumerate().filter(|(at, _)| Some(*at) != failed);
                let wanted = if failed.is_some() { Code::Aborted } else { Code::Ok };
                let as_wanted = rest.all(|(_, code)| *code == wanted);
                if failed.is_some() {
                    self.model = before;
                }
                if as_wanted { Ok(()) } else { Err(explain(format!("not all of the rest are {wanted:?}"))) }
            }
        }
    }

    /// Checks each answer, and applies updates that succeeded to the model.
    fn follow(&mut self, updates: &[Update], codes: &[Code]) -> Result<(), String> {
        for (at, (update, code)) in updates.iter().zip(codes).enumerate() {
            let Judgement { faults, possible } = self.model.judge(update);
            let allowed = match code {
                Code::Ok => faults.is_empty(),
                code => faults.contains(code) || possible.contains(code),
            };
            if !allowed {
                let possible = format!("wrong with it: {faults:?}, possible besides: {possible:?}");
                return Err(format!("update {at} is answered {code:?}; {possible}"));
            }
            if *code == Code::Ok {
                self.model.apply(update);
            }
        }
        Ok(())
    }

    fn read(&mut self, totals: &mut Totals) -> Result<(), String> {
        let query = generate::query(&mut self.dice, &self.model);
        self.compare(query, totals)
    }

    fn compare_all(&mut self, totals: &mut Totals) -> Result<(), String> {
        read::everything(&self.model.info).into_iter().try_for_each(|query| self.compare(query, totals))
    }

    fn compare(&mut self, query: Entity, totals: &mut Totals) -> Result<(), String> {
        let query = match self.dice.one_in(4) {
            true => entity_over_the_wire(query)?,
            false => query,
        };
        let (found, results) =
            self.control.read(DEVICE, &[Some(query.clone())]).map_err(|e| format!("the read is refused: {e}"))?;
        totals.read += found.len() as u64;
        let expected = read::expected(&self.model, &query);
        match (results.as_slice(), expected) {
            ([Ok(())], Ok(expected)) => read::same(found, expected).map_err(|what| format!("{what}\nread {query:#?}")),
            ([Err(error)], Err(codes)) if codes.contains(&error.code) => Ok(()),
            (results, expected) => {
                let expected = expected.map(|found| found.len());
                Err(format!("a read is answered {results:?}, expected {expected:?}\nread {query:#?}"))
            }
        }
    }
}

/// A control plane with the device, without a program, and with a primary client.
fn connected(program: &Path, engine: EngineKind) -> Result<Control, String> {
    let mut control = Control::new();
    control.add_device(DEVICE, Arc::new(target::Switch::new(engine, program.parent())));
    let client = control.connect();
    let claim = ArbitrationRequest { device_id: DEVICE, election_id: Some(ELECTION), ..Default::default() };
    control.stream_request(client, StreamRequest::Arbitration(claim)).map_err(|e| e.to_string())?;
    Ok(control)
}

/// Decodes an input as a client's message and serves it: whatever it is, there must be an answer. The first byte
/// selects the message type; the program is fixed.
pub fn fuzz_message(bytes: &[u8]) {
    use messages::p4::v1 as pb;
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/py/everything.p4");
    let mut subject = Subject::new(&program, EngineKind::Interpreter, 0).expect("it compiles");
    let control = &mut subject.control;
    match choice % 4 {
        0 => {
            let Ok(message) = pb::WriteRequest::decode(bytes) else { return };
            let Ok(request) = messages::convert::write_request(message) else { return };
            let (device_id, election_id) = (DEVICE, Some(ELECTION));
            let request = WriteRequest { device_id, role: Role::default(), election_id, ..request };
            let results = control.write(&request).expect("the primary may write");
            assert_eq!(results.len(), request.updates.len());
            for update in &request.updates {
                let _ = control.read(DEVICE, std::slice::from_ref(&update.entity));
            }
        }
        1 => {
            let Ok(message) = pb::ReadRequest::decode(bytes) else { return };
            let entities = messages::convert::read_entities(message.entities);
            let (found, results) = control.read(DEVICE, &entities).expect("there is a program");
            assert_eq!(results.len(), entities.len());
            found.into_iter().map(messages::convert::entity_to_proto).for_each(drop);
        }
        2 => {
            let Ok(message) = pb::StreamMessageRequest::decode(bytes) else { return };
            let client = control.connect();
            let events = control.stream_request(client, messages::convert::stream_request(message));
            events.into_iter().flatten().for_each(|(_, event)| drop(messages::convert::event_to_proto(event)));
            control.disconnect(client);
        }
        _ => {
            let Ok(p4info) = messages::p4::config::v1::P4Info::decode(bytes) else { return };
            let claims = messages::convert::p4info::claims(&p4info);
            let device_config = std::fs::read(&program).unwrap_or_default();
            let config = ForwardingConfig { device_config, claims, ..Default::default() };
            let action = ConfigAction::Verify;
            let (device_id, role, election_id) = (DEVICE, Role::default(), Some(ELECTION));
            let _ = control.set_config(SetConfigRequest { device_id, role, election_id, action, config: Some(config) });
        }
    }
}

/// Seed inputs of the fuzz target `state_log`: logs with the kinds of records that requests produce.
pub fn log_seeds() -> Vec<Vec<Vec<u8>>> {
    use control::journal::{After, Batch, Change, Slot};
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/py/everything.p4");
    let subject = Subject::new(&program, EngineKind::Interpreter, 0).expect("it compiles");
    let (mut dice, model) = (Dice::new(2), &subject.model);
    let mut change = || {
        let key = vec![b'k', dice.below(4) as u8];
        let after = match (dice.below(8), generate::update(&mut dice, model).entity) {
            (0, _) | (_, None) => After::Gone,
            (1, _) => After::GoneBelow,
            (_, Some(entity)) => After::Is(Box::new(entity)),
        };
        Change { key, after }
    };
    let mut record = |changes| Batch {
        device_id: 1,
        slot: Slot::Running,
        request: Default::default(),
        changes: (0..changes).map(|_| change()).collect(),
    };
    (0..24).map(|i| (0..1 + i % 3).map(|_| store::log::record(1, &record(1 + i % 5))).collect()).collect()
}

/// Seed inputs: meaningful writes and reads.
pub fn message_seeds() -> Vec<Vec<u8>> {
    use messages::p4::v1 as pb;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/py/everything.p4");
    let subject = Subject::new(&program, EngineKind::Interpreter, 0).expect("it compiles");
    let (mut dice, model) = (Dice::new(1), &subject.model);
    let update = |update: Update| pb::Update {
        r#type: match update.kind {
            control::entity::UpdateKind::Unspecified => 0,
            control::entity::UpdateKind::Insert => 1,
            control::entity::UpdateKind::Modify => 2,
            control::entity::UpdateKind::Delete => 3,
        },
        entity: update.entity.map(messages::convert::entity_to_proto),
    };
    let mut seeds = Vec::new();
    for _ in 0..24 {
        let updates = (0..3).map(|_| update(generate::update(&mut dice, model))).collect();
        let request = pb::WriteRequest { updates, ..Default::default() };
        seeds.push([vec![0], request.encode_to_vec()].concat());
        let entities = vec![messages::convert::entity_to_proto(generate::query(&mut dice, model))];
        seeds.push([vec![1], pb::ReadRequest { entities, ..Default::default() }.encode_to_vec()].concat());
    }
    let packet =
        pb::PacketOut { payload: vec![1; 20], metadata: vec![pb::PacketMetadata { metadata_id: 1, value: vec![3] }] };
    let update = Some(pb::stream_message_request::Update::Packet(packet));
    seeds.push([vec![2], pb::StreamMessageRequest { update }.encode_to_vec()].concat());
    let info = messages::convert::p4info::to_proto(&model.info);
    seeds.push([vec![3], info.encode_to_vec()].concat());
    seeds
}

/// Parses an input as a constraint on keys of every match kind, and checks an entry against it.
pub fn fuzz_constraint(bytes: &[u8]) {
    use base::Bits;
    use base::entry::{KeyMatch, MatchKind};
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let kinds = [MatchKind::Exact, MatchKind::Ternary, MatchKind::Lpm, MatchKind::Range, MatchKind::Optional];
    let names = kinds.iter().map(|kind| (kind.name().to_string(), constraints::Operand::Field(*kind, 9)));
    let scope = constraints::Scope { names: names.collect(), has_priority: true };
    let value = || Bits::new(9, 5);
    let key = [
        KeyMatch::Exact(value()),
        KeyMatch::Ternary { value: value(), mask: Bits::ones(9) },
        KeyMatch::Lpm { value: Bits::zero(9), prefix_len: 3 },
        KeyMatch::Range { low: value(), high: Bits::ones(9) },
        KeyMatch::Optional(None),
    ];
    match constraints::Constraint::new(text, &scope) {
        Ok(constraint) => drop(constraint.check(constraints::Values::Entry(&key, 7)).map_err(str::len)),
        Err(error) => assert!(text.get(error.place.clone()).is_some(), "{error:?} has no place in the text"),
    }
}

/// Seed inputs: constraints.
pub const CONSTRAINT_SEEDS: [&str; 14] = [
    "exact == 1",
    "ternary::mask != 0 -> exact == 0x1f;",
    "lpm::prefix_length <= 8 && lpm::value == 0b101",
    "range::low < range::high; range::low > 3",
    "optional::mask == -1 || optional::mask == 0",
    "::priority < 0x7fffffff",
    "!(exact == 0) -> true",
    "// comment\nfalse",
    "/* comment */ (true; true;)",
    "exact == ipv4('0.0.1.2')",
    "exact < mac('00:00:00:00:00:05')",
    "ternary == ternary",
    "-1 < --2",
    "exact::value != ipv6('::1')",
];

/// A request as the server decodes it after a client has encoded it.
fn over_the_wire(request: WriteRequest) -> Result<WriteRequest, String> {
    let entity = |update: Update| {
        let entity = update.entity.map(entity_over_the_wire).transpose()?;
        Ok::<_, String>(Update { entity, ..update })
    };
    let updates = request.updates.into_iter().map(entity).collect::<Result<_, _>>()?;
    Ok(WriteRequest { updates, ..request })
}

fn entity_over_the_wire(entity: Entity) -> Result<Entity, String> {
    let bytes = messages::convert::entity_to_proto(entity.clone()).encode_to_vec();
    let message = messages::p4::v1::Entity::decode(bytes.as_slice()).map_err(|e| e.to_string())?;
    let back = messages::convert::entity(message);
    if back.as_ref() == Some(&entity) {
        return Ok(entity);
    }
    Err(format!("the messages change an entity: {entity:#?} becomes {back:#?}"))
}
