//! The methods of the services, and their common parts: arguments, and reads and writes of the control plane.
//!
//! ```text
//!   call ─▶ METHODS ─▶ tables, profiles, arrays, value_sets, multicast, device ─▶ control (as operator) ─▶ journal
//! ```
//!
//! Calls run one at a time. Writes have the rights of a local operator: they are rejected while the default role has a
//! primary controller, journaled before they are answered, and recorded in the audit log.

use crate::fault::{Answer, Fault};
use crate::handles::Handles;
use crate::learning::Learning;
use crate::multicast::Replication;
use crate::program::Program;
use crate::switch::{Record, Switch};
use crate::wire::{Call, Outcome, Value};
use crate::{arrays, device, multicast, profiles, tables, value_sets};
use base::visible;
use control::entity::{Atomicity, Entity, Update, UpdateKind, WriteRequest};
use control::{Code, Control, Error};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use thrift::ApplicationErrorKind;

/// Number of entities read while the control plane is locked.
const STEP: usize = 1024;
/// Number of updates of one step of a large write.
pub(crate) const BATCH: usize = 4096;
/// Maximum length in bytes of a name from a client.
const NAME_BYTES_MAX: usize = 1024;
/// Maximum length in bytes of a text in the log and the audit log.
const LOGGED_BYTES_MAX: usize = 500;

/// Makes a text that may contain client input safe for the log: one line, without control characters, truncated.
pub(crate) fn logged(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= LOGGED_BYTES_MAX {
            out.push_str(&format!(" ... ({} bytes)", text.len()));
            break;
        }
        if visible::steers(c) { visible::shown(c, &mut out) } else { out.push(c) }
    }
    out
}

/// The services of a device.
pub(crate) struct Services {
    switch: Arc<dyn Switch>,
    port: u16,
    learning: Option<Arc<Learning>>,
    state: Mutex<State>,
    /// Limits log messages about errors.
    pub(crate) complaints: Complaints,
}

/// A rate limit for log lines that clients can cause.
#[derive(Default)]
pub(crate) struct Complaints(Mutex<(Option<Instant>, u32)>);

/// Limit on lines per second.
const COMPLAINTS_MAX: u32 = 20;

impl Complaints {
    /// Whether another line may be logged.
    pub(crate) fn allow(&self) -> bool {
        let (second, lines) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            (*second, *lines) = (Some(now), 0);
        }
        *lines += 1;
        if *lines == COMPLAINTS_MAX {
            tracing::warn!("thrift: some messages are left out: at most {COMPLAINTS_MAX} lines are logged each second");
        }
        *lines < COMPLAINTS_MAX
    }
}

/// State that bmv2 has and the control plane does not.
#[derive(Default)]
pub(crate) struct State {
    loaded: Option<Loaded>,
    /// A program sent by `bm_load_new_config`, until `bm_swap_configs`.
    pub(crate) waiting: Option<String>,
    pub(crate) replication: Replication,
}

/// The running program, and state that belongs to it.
struct Loaded {
    program: Arc<Program>,
    handles: HashMap<u32, Handles>,
    /// Tables whose default entry was set through these services.
    defaults_set: HashSet<u32>,
    /// The next id to try, by profile and by whether it is for groups.
    next: HashMap<(u32, bool), u32>,
}

/// A call in progress.
pub(crate) struct Context<'a> {
    pub(crate) switch: &'a dyn Switch,
    pub(crate) state: &'a mut State,
    pub(crate) port: u16,
    pub(crate) learning: Option<&'a Learning>,
    arguments: &'a Value,
}

type Run = fn(&mut Context<'_>) -> Answer<Option<Value>>;

/// A method of a service.
struct Method {
    service: &'static str,
    name: &'static str,
    /// Whether calls are recorded in the audit log.
    changes: bool,
    run: Run,
}

const fn reads(service: &'static str, name: &'static str, run: Run) -> Method {
    Method { service, name, changes: false, run }
}

const fn changes(service: &'static str, name: &'static str, run: Run) -> Method {
    Method { service, name, changes: true, run }
}

const STANDARD: &str = "standard";
const PRE: &str = "simple_pre";
const PRE_LAG: &str = "simple_pre_lag";
const SWITCH: &str = "simple_switch";
/// Its methods are a subset of those of [`SWITCH`].
const PSA_SWITCH: &str = "psa_switch";

const METHODS: &[Method] = &[
    reads(STANDARD, "bm_mt_get_num_entries", tables::count),
    changes(STANDARD, "bm_mt_clear_entries", tables::clear),
    changes(STANDARD, "bm_mt_add_entry", tables::add),
    changes(STANDARD, "bm_mt_set_default_action", tables::set_default),
    changes(STANDARD, "bm_mt_reset_default_entry", tables::reset_default),
    changes(STANDARD, "bm_mt_delete_entry", tables::delete),
    changes(STANDARD, "bm_mt_modify_entry", tables::modify),
    changes(STANDARD, "bm_mt_set_entry_ttl", tables::set_timeout),
    changes(STANDARD, "bm_mt_act_prof_add_member", profiles::add_member),
    changes(STANDARD, "bm_mt_act_prof_delete_member", profiles::delete_member),
    changes(STANDARD, "bm_mt_act_prof_modify_member", profiles::modify_member),
    changes(STANDARD, "bm_mt_act_prof_create_group", profiles::create_group),
    changes(STANDARD, "bm_mt_act_prof_delete_group", profiles::delete_group),
    changes(STANDARD, "bm_mt_act_prof_add_member_to_group", profiles::join),
    changes(STANDARD, "bm_mt_act_prof_remove_member_from_group", profiles::leave),
    reads(STANDARD, "bm_mt_act_prof_get_members", profiles::members),
    reads(STANDARD, "bm_mt_act_prof_get_member", profiles::member),
    reads(STANDARD, "bm_mt_act_prof_get_groups", profiles::groups),
    reads(STANDARD, "bm_mt_act_prof_get_group", profiles::group),
    changes(STANDARD, "bm_mt_indirect_add_entry", tables::add_to_member),
    changes(STANDARD, "bm_mt_indirect_modify_entry", tables::modify_to_member),
    changes(STANDARD, "bm_mt_indirect_delete_entry", tables::delete),
    changes(STANDARD, "bm_mt_indirect_set_entry_ttl", tables::set_timeout),
    changes(STANDARD, "bm_mt_indirect_set_default_member", tables::set_default_indirect),
    changes(STANDARD, "bm_mt_indirect_reset_default_entry", tables::reset_default),
    changes(STANDARD, "bm_mt_indirect_ws_add_entry", tables::add_to_group),
    changes(STANDARD, "bm_mt_indirect_ws_modify_entry", tables::modify_to_group),
    changes(STANDARD, "bm_mt_indirect_ws_set_default_group", tables::set_default_indirect),
    reads(STANDARD, "bm_mt_read_counter", tables::read_counter),
    changes(STANDARD, "bm_mt_reset_counters", tables::reset_counters),
    changes(STANDARD, "bm_mt_write_counter", tables::write_counter),
    changes(STANDARD, "bm_mt_set_meter_rates", tables::set_meter_rates),
    reads(STANDARD, "bm_mt_get_meter_rates", tables::meter_rates),
    reads(STANDARD, "bm_mt_get_entries", tables::entries),
    reads(STANDARD, "bm_mt_get_entry", tables::entry),
    reads(STANDARD, "bm_mt_get_default_entry", tables::default_entry),
    reads(STANDARD, "bm_mt_get_entry_from_key", tables::entry_from_key),
    reads(STANDARD, "bm_counter_read", arrays::counter_read),
    changes(STANDARD, "bm_counter_reset_all", arrays::counter_reset),
    changes(STANDARD, "bm_counter_write", arrays::counter_write),
    changes(STANDARD, "bm_learning_ack", device::acknowledge_samples),
    changes(STANDARD, "bm_learning_ack_buffer", device::acknowledge_buffer),
    changes(STANDARD, "bm_learning_set_timeout", device::learning_timeout),
    changes(STANDARD, "bm_learning_set_buffer_size", device::learning_samples),
    changes(STANDARD, "bm_load_new_config", device::load),
    changes(STANDARD, "bm_swap_configs", device::swap),
    changes(STANDARD, "bm_meter_array_set_rates", arrays::meter_set_all),
    changes(STANDARD, "bm_meter_set_rates", arrays::meter_set),
    reads(STANDARD, "bm_meter_get_rates", arrays::meter_rates),
    reads(STANDARD, "bm_register_read", arrays::register_read),
    reads(STANDARD, "bm_register_read_all", arrays::register_read_all),
    changes(STANDARD, "bm_register_write", arrays::register_write),
    changes(STANDARD, "bm_register_write_range", arrays::register_write_range),
    changes(STANDARD, "bm_register_reset", arrays::register_reset),
    changes(STANDARD, "bm_parse_vset_add", value_sets::add),
    changes(STANDARD, "bm_parse_vset_remove", value_sets::remove),
    reads(STANDARD, "bm_parse_vset_get", value_sets::get),
    changes(STANDARD, "bm_parse_vset_clear", value_sets::clear),
    changes(STANDARD, "bm_dev_mgr_add_port", device::add_port),
    changes(STANDARD, "bm_dev_mgr_remove_port", device::remove_port),
    reads(STANDARD, "bm_dev_mgr_show_ports", device::ports),
    reads(STANDARD, "bm_mgmt_get_info", device::info),
    changes(STANDARD, "bm_set_crc16_custom_parameters", device::set_crc16),
    changes(STANDARD, "bm_set_crc32_custom_parameters", device::set_crc32),
    changes(STANDARD, "bm_set_toeplitz_hash_key", device::set_toeplitz),
    changes(STANDARD, "bm_reset_state", device::reset),
    reads(STANDARD, "bm_get_config", device::config),
    reads(STANDARD, "bm_get_config_md5", device::config_md5),
    reads(STANDARD, "bm_get_id_from_name", device::id_from_name),
    reads(STANDARD, "bm_serialize_state", device::serialize),
    changes(PRE_LAG, "bm_mc_mgrp_create", multicast::create_group),
    changes(PRE_LAG, "bm_mc_mgrp_destroy", multicast::destroy_group),
    changes(PRE_LAG, "bm_mc_node_create", multicast::create_node),
    changes(PRE_LAG, "bm_mc_node_associate", multicast::associate),
    changes(PRE_LAG, "bm_mc_node_dissociate", multicast::dissociate),
    changes(PRE_LAG, "bm_mc_node_destroy", multicast::destroy_node),
    changes(PRE_LAG, "bm_mc_node_update", multicast::update_node),
    changes(PRE_LAG, "bm_mc_set_lag_membership", multicast::set_lag),
    reads(PRE_LAG, "bm_mc_get_entries", multicast::entries),
    changes(SWITCH, "mirroring_mapping_add", multicast::mapping_add),
    changes(SWITCH, "mirroring_mapping_delete", multicast::mapping_delete),
    reads(SWITCH, "mirroring_mapping_get_egress_port", multicast::mapping_get),
    changes(SWITCH, "mirroring_session_add", multicast::session_add),
    changes(SWITCH, "mirroring_session_delete", multicast::session_delete),
    reads(SWITCH, "mirroring_session_get", multicast::session_get),
    changes(SWITCH, "set_egress_priority_queue_depth", device::queue_depth),
    changes(SWITCH, "set_egress_queue_depth", device::port_depth),
    changes(SWITCH, "set_all_egress_queue_depths", device::all_depths),
    changes(SWITCH, "set_egress_priority_queue_rate", device::queue_rate),
    changes(SWITCH, "set_egress_queue_rate", device::port_rate),
    changes(SWITCH, "set_all_egress_queue_rates", device::all_rates),
    reads(SWITCH, "get_time_elapsed_us", device::elapsed),
    reads(SWITCH, "get_time_since_epoch_us", device::since_epoch),
];

/// The method that a call names. The replication engine without link aggregation has the same methods.
fn method(name: &str) -> Answer<&'static Method> {
    let unknown = |why: String| Fault::Said(ApplicationErrorKind::UnknownMethod, why);
    let (service, method) = name.split_once(':').ok_or_else(|| {
        unknown(format!(
            "`{name}` does not name a service; clients here use the multiplexed protocol, as in `{STANDARD}:{name}`"
        ))
    })?;
    let of = match service {
        PRE => PRE_LAG,
        PSA_SWITCH => SWITCH,
        other => other,
    };
    let found = METHODS.iter().find(|m| m.service == of && m.name == method);
    let all = [STANDARD, PRE, PRE_LAG, SWITCH, PSA_SWITCH];
    found.ok_or_else(|| match all.contains(&service) {
        true => unknown(format!("not supported: service `{service}` has no method `{method}` here")),
        false => unknown(format!("there is no service `{service}`; there are {}", all.join(", "))),
    })
}

impl Services {
    pub(crate) fn new(switch: Arc<dyn Switch>, port: u16, learning: Option<Arc<Learning>>) -> Services {
        Services { switch, port, learning, state: Mutex::default(), complaints: Complaints::default() }
    }

    /// Runs `f` while no call is in progress, waiting if necessary.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Context<'_>) -> R) -> R {
        self.within(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner), f)
    }

    /// Like [`Services::with`], but returns `None` if a call is in progress.
    pub(crate) fn try_with<R>(&self, f: impl FnOnce(&mut Context<'_>) -> R) -> Option<R> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.within(&mut state, f))
    }

    fn within<R>(&self, state: &mut State, f: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let (switch, port) = (self.switch.as_ref(), self.port);
        let (learning, arguments) = (self.learning.as_deref(), &Value::Struct(vec![]));
        f(&mut Context { switch, state, port, learning, arguments })
    }

    /// Runs a call.
    pub(crate) fn run(&self, call: &Call, peer: SocketAddr) -> Outcome {
        let start = Instant::now();
        let method = match method(&call.name) {
            Ok(method) => method,
            Err(fault) => {
                if self.complaints.allow() {
                    tracing::warn!(%peer, "thrift: {}", logged(fault.message()));
                }
                return fault.outcome();
            }
        };
        let answer = {
            // A call that panicked leaves usable state: its parts are independently consistent.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let (switch, port) = (self.switch.as_ref(), self.port);
            let learning = self.learning.as_deref();
            let mut context = Context { switch, state: &mut state, port, learning, arguments: &call.arguments };
            (method.run)(&mut context)
        };
        let (outcome, message) = match &answer {
            Ok(_) => ("Ok", String::new()),
            Err(fault) => ("Refused", logged(fault.message())),
        };
        if !message.is_empty() && self.complaints.allow() {
            tracing::warn!(%peer, method = method.name, "thrift: {message}");
        }
        if method.changes {
            let what = subject(&call.arguments);
            let (method, took) = (call.name.as_str(), start.elapsed());
            self.switch.record(Record { peer, method, what, outcome, message: &message, took });
        }
        answer.map_or_else(Fault::outcome, Outcome::Result)
    }
}

/// The subject of a call for logs: its first name or number.
fn subject(arguments: &Value) -> String {
    let Value::Struct(fields) = arguments else { return String::new() };
    // Most methods' first argument is the context, which is always 0.
    let shown = fields.iter().filter_map(|(id, value)| match value {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned()),
        Value::I32(number) if *id != 1 || *number != 0 => Some(number.to_string()),
        _ => None,
    });
    shown.take(2).collect::<Vec<_>>().join(" ")
}

// Arguments.
impl<'a> Context<'a> {
    pub(crate) fn argument(&self, id: i16) -> Answer<&'a Value> {
        self.arguments.field(id).ok_or_else(|| Fault::arguments(format!("argument {id} is missing")))
    }

    pub(crate) fn i32(&self, id: i16) -> Answer<i32> {
        match self.argument(id)? {
            Value::I32(value) => Ok(*value),
            Value::I16(value) => Ok(i32::from(*value)),
            _ => Err(Fault::arguments(format!("argument {id} is not an i32"))),
        }
    }

    pub(crate) fn i64(&self, id: i16) -> Answer<i64> {
        match self.argument(id)? {
            Value::I64(value) => Ok(*value),
            _ => Err(Fault::arguments(format!("argument {id} is not an i64"))),
        }
    }

    pub(crate) fn bool(&self, id: i16) -> Answer<bool> {
        match self.argument(id)? {
            Value::Bool(value) => Ok(*value),
            _ => Err(Fault::arguments(format!("argument {id} is not a bool"))),
        }
    }

    pub(crate) fn bytes(&self, id: i16) -> Answer<&'a [u8]> {
        match self.argument(id)? {
            Value::Bytes(value) => Ok(value),
            _ => Err(Fault::arguments(format!("argument {id} is not a string"))),
        }
    }

    /// A name.
    pub(crate) fn text(&self, id: i16) -> Answer<&'a str> {
        let text = self.long_text(id)?;
        match text.len() <= NAME_BYTES_MAX {
            true => Ok(text),
            false => Err(Fault::arguments(format!(
                "argument {id} is a name of {} bytes; the most are {NAME_BYTES_MAX}",
                text.len()
            ))),
        }
    }

    /// A text of any length, such as a program.
    pub(crate) fn long_text(&self, id: i16) -> Answer<&'a str> {
        std::str::from_utf8(self.bytes(id)?).map_err(|_| Fault::arguments(format!("argument {id} is not text (UTF-8)")))
    }

    pub(crate) fn list(&self, id: i16) -> Answer<&'a [Value]> {
        match self.argument(id)? {
            Value::List(values) => Ok(values),
            _ => Err(Fault::arguments(format!("argument {id} is not a list"))),
        }
    }

    /// An optional argument.
    pub(crate) fn option(&self, id: i16) -> Option<&'a Value> {
        self.arguments.field(id)
    }

    /// Arguments of an action, in an argument of the call.
    pub(crate) fn data(&self, id: i16) -> Answer<Vec<Vec<u8>>> {
        let bytes = |value: &Value| match value {
            Value::Bytes(bytes) => Ok(bytes.clone()),
            _ => Err(Fault::arguments(format!("argument {id} is not a list of strings"))),
        };
        self.list(id)?.iter().map(bytes).collect()
    }
}

// The program and its handles.
impl Context<'_> {
    /// The running program, with its description.
    pub(crate) fn program(&mut self) -> Answer<Arc<Program>> {
        let device = self.switch.device_id();
        let schema =
            self.control(|control| control.schema(device)).map_err(|error| Fault::with_message(error.message))?;
        if let Some(loaded) = self.state.loaded.as_ref().filter(|loaded| Arc::ptr_eq(&loaded.program.schema, &schema)) {
            return Ok(Arc::clone(&loaded.program));
        }
        let config = self.switch.config(&schema);
        let program = Arc::new(Program::new(schema, config));
        let loaded = Loaded {
            program: Arc::clone(&program),
            handles: HashMap::new(),
            defaults_set: HashSet::new(),
            next: HashMap::new(),
        };
        self.state.loaded = Some(loaded);
        Ok(program)
    }

    /// The handles of a table; `program` must have been called before.
    pub(crate) fn handles(&mut self, table: u32) -> &mut Handles {
        static NONE: &str = "the program was asked for before";
        self.state.loaded.as_mut().expect(NONE).handles.entry(table).or_default()
    }

    /// Tables whose default entry was set through these services.
    pub(crate) fn defaults_set(&mut self) -> &mut HashSet<u32> {
        static NONE: &str = "the program was asked for before";
        &mut self.state.loaded.as_mut().expect(NONE).defaults_set
    }

    /// The next id to try for a member or group of a profile.
    pub(crate) fn next_id(&mut self, profile: u32, group: bool) -> &mut u32 {
        static NONE: &str = "the program was asked for before";
        self.state.loaded.as_mut().expect(NONE).next.entry((profile, group)).or_insert(1)
    }
}

// The control plane.
impl Context<'_> {
    pub(crate) fn control<R>(&self, f: impl FnOnce(&mut Control) -> R) -> R {
        let (mut f, mut result) = (Some(f), None);
        self.switch.control(&mut |control| result = f.take().map(|f| f(control)));
        result.expect("the switch gives its control plane")
    }

    /// The entities that a query selects.
    ///
    /// # Errors
    /// The control plane's, if it rejects the query.
    pub(crate) fn read(&self, query: Entity) -> control::Result<Vec<Entity>> {
        let mut found = Vec::new();
        self.read_each(query, |entity| {
            found.push(entity);
            Ok(())
        })
        .map_err(|error| match error {
            ReadError::Control(error) => error,
            ReadError::Own(fault) => Error::internal(fault.message()),
        })?;
        Ok(found)
    }

    /// Passes the entities that a query selects to `more`, until it returns false.
    ///
    /// # Errors
    /// The control plane's, if it rejects the query.
    pub(crate) fn read_some(&self, query: Entity, mut more: impl FnMut(Entity) -> bool) -> control::Result<()> {
        let read = self.read_each(query, |entity| match more(entity) {
            true => Ok(()),
            false => Err(Fault::with_message("")),
        });
        match read {
            Err(ReadError::Control(error)) => Err(error),
            Ok(()) | Err(ReadError::Own(_)) => Ok(()),
        }
    }

    /// Passes the entities that a query selects to `f`, in steps, so that other clients can read and write in between.
    ///
    /// # Errors
    /// The control plane's, if it rejects the query, or the first one of `f`, which ends the read.
    pub(crate) fn read_each(&self, query: Entity, mut f: impl FnMut(Entity) -> Answer<()>) -> Result<(), ReadError> {
        let device = self.switch.device_id();
        let opened = self.control(|control| {
            let (id, mut results) = control.open_read(device, &Default::default(), &[Some(query)])?;
            match results.pop() {
                Some(Err(error)) => {
                    control.close_read(id);
                    Err(error)
                }
                _ => Ok(id),
            }
        });
        let id = opened.map_err(ReadError::Control)?;
        loop {
            let some = self.control(|control| control.read_on(id, STEP)).map_err(ReadError::Control)?;
            if some.is_empty() {
                return Ok(());
            }
            for entity in some {
                if let Err(fault) = f(entity) {
                    self.control(|control| control.close_read(id));
                    return Err(ReadError::Own(fault));
                }
            }
        }
    }

    /// Executes updates, and returns when their effects would survive a crash.
    fn carry_out(&self, updates: Vec<Update>, atomicity: Atomicity) -> control::Result<Vec<control::Result<()>>> {
        let device_id = self.switch.device_id();
        let request = Arc::new(WriteRequest { device_id, updates, atomicity, ..WriteRequest::default() });
        let (results, change) = self.control(|control| {
            let results = control.write_as_operator(&request)?;
            Ok::<_, Error>((results, control.last_change(device_id)))
        })?;
        if let Some((journal, ticket)) = change
            && let Err(why) = journal.wait(ticket)
        {
            let rolled_back = self.control(Control::roll_back);
            return Err(Error::unavailable(match rolled_back {
                Ok(()) => format!("the request was rolled back: {why}"),
                Err(error) => format!("the request could not be kept ({why}), and {error}"),
            }));
        }
        Ok(results)
    }

    /// Writes updates independently: those that are not rejected take effect.
    ///
    /// # Errors
    /// The control plane's, if it rejects the whole request or cannot journal it. An inner result is that of one
    /// update.
    pub(crate) fn write(&self, updates: Vec<Update>) -> control::Result<Vec<control::Result<()>>> {
        self.carry_out(updates, Atomicity::ContinueOnError)
    }

    /// Writes all updates, or none if one is rejected.
    ///
    /// # Errors
    /// The error of the update that was rejected, or the control plane's for the whole request.
    pub(crate) fn write_all(&self, updates: Vec<Update>) -> control::Result<()> {
        let results = self.carry_out(updates, Atomicity::RollbackOnError)?;
        let mut errors: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
        // The others were rolled back because of this one.
        let cause = errors.iter().position(|error| error.code != Code::Aborted).unwrap_or(0);
        if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(cause)) }
    }

    pub(crate) fn write_one(&self, kind: UpdateKind, entity: Entity) -> control::Result<()> {
        let results = self.write(vec![Update { kind, entity: Some(entity) }])?;
        results.into_iter().next().unwrap_or(Ok(()))
    }
}

/// Why a read ended early.
pub(crate) enum ReadError {
    /// The control plane rejected it.
    Control(Error),
    /// The callback failed, for example because the answer is too long.
    Own(Fault),
}

impl ReadError {
    /// Converts it to a fault; `code` is for errors of the control plane.
    pub(crate) fn fault(self, code: i32) -> Fault {
        match self {
            ReadError::Control(error) => crate::fault::with_code(error, code),
            ReadError::Own(fault) => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_is_one_short_line() {
        assert_eq!(logged("there is no table `a`"), "there is no table `a`");
        assert_eq!(logged("a\n2026 ERROR b\r\x1b[2J\u{202e}\t"), "a\\u{a}2026 ERROR b\\u{d}\\u{1b}[2J\\u{202e}\\u{9}");
        let long = logged(&"é".repeat(3 << 20));
        assert!(long.len() < 600 && long.ends_with("... (6291456 bytes)"), "{long}");
        // A multi-byte character is not split.
        assert!(logged(&format!("x{}", "é".repeat(500))).starts_with("xé"));
        assert!(logged(&"\n".repeat(5000)).len() < 600);
    }
}
