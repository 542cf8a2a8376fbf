//! Methods for ports, programs and the switch itself, and methods that are rejected with a reason.

use crate::fault::{self, Answer, Fault, crc, learn, toeplitz};
use crate::learning::{Learning, SAMPLES_MAX};
use crate::program::Program;
use crate::service::Context;
use crate::switch::QueueSetting;
use crate::wire::Value;
use abi::state::{CrcParameters, HashParameters, TOEPLITZ_KEY_MAX};
use control::Code;
use control::entity::{CalculationEntry, Entity, UpdateKind};
use control::schema::Schema;
use md5::{Digest, Md5};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The only code of `InvalidDevMgrOperation`.
const PORT_ERROR: i32 = 1;
/// `SwapOperationErrorCode`.
const ONGOING_SWAP: i32 = 2;
const NO_ONGOING_SWAP: i32 = 3;
/// `IdLookupErrorCode`.
const INVALID_RESOURCE_TYPE: i32 = 0;
const INVALID_RESOURCE_NAME: i32 = 1;
/// Number of members of `BmResourceType`.
const RESOURCES_MAX: i32 = 5;
/// Maximum length of an interface name in bytes (`IFNAMSIZ` without the terminating zero).
const INTERFACE_BYTES_MAX: usize = 15;

pub(crate) fn ports(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let told = on.switch.ports().into_iter().map(|port| {
        Value::Struct(vec![
            (1, Value::I32(port.number as i32)),
            (2, Value::text(port.name)),
            (3, Value::Bool(port.up)),
            (4, Value::Map(port.extra)),
        ])
    });
    Ok(Some(Value::List(told.collect())))
}

fn port_error(why: String) -> Fault {
    Fault::Coded(PORT_ERROR, why)
}

fn port_number(number: i32) -> Answer<u32> {
    u32::try_from(number).map_err(|_| port_error(format!("{number} is not a valid port")))
}

/// Adds a port. Only kernel interfaces are allowed: clients that reach the socket must not name files of the machine.
pub(crate) fn add_port(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (interface, number) = (on.text(1)?, port_number(on.i32(2)?)?);
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, ':' | '/' | ',' | '@');
    if interface.is_empty() || interface.len() > INTERFACE_BYTES_MAX || !interface.chars().all(plain) {
        return Err(port_error(format!(
            "`{interface}` is not the name of a kernel interface; `sluice port add` adds others"
        )));
    }
    if let Some(Value::Bytes(path)) = on.option(3)
        && !path.is_empty()
    {
        return Err(port_error("not supported: a port that writes captures; `sluice capture` does".to_string()));
    }
    on.switch.add_port(number, interface).map_err(port_error)?;
    Ok(None)
}

pub(crate) fn remove_port(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let number = port_number(on.i32(1)?)?;
    on.switch.remove_port(number).map_err(port_error)?;
    Ok(None)
}

/// `BmConfig`; of nanomsg's sockets it has those for notifications and events.
pub(crate) fn info(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let device = i64::try_from(on.switch.device_id()).unwrap_or(i64::MAX);
    let mut told = vec![(1, Value::I64(device)), (2, Value::I32(i32::from(on.port)))];
    told.extend(on.learning.map(|learning| (3, Value::text(learning.address()))));
    told.extend(on.switch.event_socket().map(|address| (4, Value::text(address))));
    Ok(Some(Value::Struct(told)))
}

pub(crate) fn config(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let program = on.program()?;
    let config = program.config.as_ref().map_err(Fault::with_message)?;
    Ok(Some(Value::text(&**config)))
}

pub(crate) fn config_md5(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let program = on.program()?;
    let config = program.config.as_ref().map_err(Fault::with_message)?;
    Ok(Some(Value::Bytes(Md5::digest(config.as_bytes()).to_vec())))
}

pub(crate) fn id_from_name(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (kind, name) = (on.i32(2)?, on.text(3)?);
    if !(0..=RESOURCES_MAX).contains(&kind) {
        return Err(Fault::Coded(INVALID_RESOURCE_TYPE, format!("there is no type {kind} of resources")));
    }
    let program = on.program()?;
    let id = Program::id_of(&program, kind, name);
    id.map(|id| Some(Value::I32(id)))
        .ok_or_else(|| Fault::Coded(INVALID_RESOURCE_NAME, format!("there is no resource `{name}` of type {kind}")))
}

/// Accepts a program that `bm_swap_configs` will start. It is compiled here, so that its errors are reported here.
pub(crate) fn load(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let text = on.long_text(1)?;
    if on.state.waiting.is_some() {
        return Err(Fault::Coded(ONGOING_SWAP, "a program waits for bm_swap_configs already".to_string()));
    }
    on.switch.check_program(text).map_err(Fault::with_message)?;
    on.state.waiting = Some(text.to_string());
    Ok(None)
}

pub(crate) fn swap(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let none = || Fault::Coded(NO_ONGOING_SWAP, "no program was loaded by bm_load_new_config".to_string());
    let text = on.state.waiting.take().ok_or_else(none)?;
    on.switch.load_program(&text).map_err(Fault::with_message)?;
    Ok(None)
}

/// Restarts the program: initial entries, counters and registers at zero, no groups.
pub(crate) fn reset(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let sessions = on.sessions()?;
    on.switch.reset().map_err(Fault::with_message)?;
    // bmv2 keeps mirroring sessions.
    on.put_sessions_back(sessions)?;
    on.forget_replication()?;
    Ok(None)
}

pub(crate) fn serialize(on: &mut Context<'_>) -> Answer<Option<Value>> {
    on.switch.entities().map(|text| Some(Value::text(text))).map_err(Fault::with_message)
}

pub(crate) fn elapsed(on: &mut Context<'_>) -> Answer<Option<Value>> {
    Ok(Some(Value::I64(on.switch.elapsed_us() as i64)))
}

pub(crate) fn since_epoch(_: &mut Context<'_>) -> Answer<Option<Value>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Some(Value::I64(now.as_micros() as i64)))
}

fn change_queues(
    on: &mut Context<'_>,
    port: Option<i32>,
    queue: Option<i32>,
    setting: QueueSetting,
) -> Answer<Option<Value>> {
    let no_port = |number| Fault::with_message(format!("{number} is not a valid port"));
    let port = port.map(|number| u32::try_from(number).map_err(|_| no_port(number))).transpose()?;
    let no_queue = |number| Fault::with_message(format!("{number} is not a valid priority"));
    let queue = queue.map(|number| u8::try_from(number).map_err(|_| no_queue(number))).transpose()?;
    on.switch.change_queues(port, queue, setting).map_err(Fault::with_message)?;
    Ok(Some(Value::I32(0)))
}

fn depth(packets: i32) -> Answer<QueueSetting> {
    let wrong = |_| Fault::with_message(format!("a queue cannot hold {packets} packets"));
    u32::try_from(packets).map(QueueSetting::Depth).map_err(wrong)
}

fn rate(packets: i64) -> Answer<QueueSetting> {
    let wrong = |_| Fault::with_message(format!("{packets} packets a second is not a valid rate"));
    u64::try_from(packets).map(QueueSetting::Rate).map_err(wrong)
}

pub(crate) fn queue_depth(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (port, queue, setting) = (on.i32(1)?, on.i32(2)?, depth(on.i32(3)?)?);
    change_queues(on, Some(port), Some(queue), setting)
}

pub(crate) fn port_depth(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (port, setting) = (on.i32(1)?, depth(on.i32(2)?)?);
    change_queues(on, Some(port), None, setting)
}

pub(crate) fn all_depths(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let setting = depth(on.i32(1)?)?;
    change_queues(on, None, None, setting)
}

pub(crate) fn queue_rate(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (port, queue, setting) = (on.i32(1)?, on.i32(2)?, rate(on.i64(3)?)?);
    change_queues(on, Some(port), Some(queue), setting)
}

pub(crate) fn port_rate(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (port, setting) = (on.i32(1)?, rate(on.i64(2)?)?);
    change_queues(on, Some(port), None, setting)
}

pub(crate) fn all_rates(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let setting = rate(on.i64(1)?)?;
    change_queues(on, None, None, setting)
}

/// Parameters from a `BmCrc16Config`, whose numbers are `i16`.
pub(crate) fn set_crc16(on: &mut Context<'_>) -> Answer<Option<Value>> {
    set_crc(on, 16, |value| match value {
        Value::I16(number) => Some(u32::from(*number as u16)),
        _ => None,
    })
}

/// Parameters from a `BmCrc32Config`, whose numbers are `i32`.
pub(crate) fn set_crc32(on: &mut Context<'_>) -> Answer<Option<Value>> {
    set_crc(on, 32, |value| match value {
        Value::I32(number) => Some(*number as u32),
        _ => None,
    })
}

fn set_crc(on: &mut Context<'_>, width: u32, number: fn(&Value) -> Option<u32>) -> Answer<Option<Value>> {
    let (name, config) = (on.text(2)?, on.argument(3)?);
    let missing =
        |id: i16| Fault::arguments(format!("field {id} of the CRC's parameters is missing or of another type"));
    let number = |id: i16| config.field(id).and_then(number).ok_or_else(|| missing(id));
    let flag = |id: i16| match config.field(id) {
        Some(Value::Bool(flag)) => Ok(*flag),
        _ => Err(missing(id)),
    };
    let parameters = CrcParameters {
        width,
        polynomial: number(1)?,
        initial: number(2)?,
        xor_out: number(3)?,
        reflect_in: flag(4)?,
        reflect_out: flag(5)?,
    };
    set_parameters(on, name, HashParameters::Crc(parameters), [crc::INVALID_NAME, crc::WRONG_TYPE])
}

/// Sets the parameters of a calculation. `codes` are for an unknown name, and for a calculation of another kind.
fn set_parameters(on: &Context<'_>, name: &str, parameters: HashParameters, codes: [i32; 2]) -> Answer<Option<Value>> {
    let entry = CalculationEntry { name: name.to_string(), parameters: Some(parameters) };
    on.write_one(UpdateKind::Modify, Entity::Calculation(entry)).map_err(|error| match error.code {
        Code::NotFound => Fault::Coded(codes[0], error.message),
        _ => fault::with_code(error, codes[1]),
    })?;
    Ok(None)
}

pub(crate) fn set_toeplitz(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (name, key) = (on.text(2)?, on.bytes(3)?);
    let parameters = HashParameters::Toeplitz(key.to_vec());
    if parameters.function().is_none() {
        let message = format!(
            "a Toeplitz key has words of 4 bytes, {TOEPLITZ_KEY_MAX} bytes at most; this one has {}",
            key.len()
        );
        return Err(Fault::Coded(toeplitz::INVALID_KEY, message));
    }
    set_parameters(on, name, parameters, [toeplitz::INVALID_NAME, toeplitz::WRONG_TYPE])
}

/// Calls `f` with the learning list that argument 2 identifies.
fn learning(on: &mut Context<'_>, f: impl FnOnce(&Learning, &Arc<Schema>, i32) -> bool) -> Answer<Option<Value>> {
    let none = "learning lists: digests go to controllers by P4Runtime; `sluice run --notifications` sends them";
    let lists = on.learning.ok_or_else(|| Fault::unsupported(none))?;
    let (list, device) = (on.i32(2)?, on.switch.device_id());
    let schema = on.control(|control| control.schema(device)).map_err(|error| Fault::with_message(error.message))?;
    match f(lists, &schema, list) {
        true => Ok(None),
        false => Err(Fault::Coded(learn::INVALID_LIST, format!("there is no learning list {list}"))),
    }
}

pub(crate) fn acknowledge_samples(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let buffer = on.i64(3)? as u64;
    let number = |value: &Value| match value {
        Value::I32(number) => Ok(usize::try_from(*number).unwrap_or(usize::MAX)),
        _ => Err(Fault::arguments("argument 4 is not a list of i32")),
    };
    let samples = on.list(4)?.iter().map(number).collect::<Answer<Vec<usize>>>()?;
    learning(on, |lists, schema, list| lists.acknowledge(schema, list, buffer, Some(&samples)))
}

pub(crate) fn acknowledge_buffer(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let buffer = on.i64(3)? as u64;
    learning(on, |lists, schema, list| lists.acknowledge(schema, list, buffer, None))
}

pub(crate) fn learning_timeout(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let wrong = |_| Fault::Coded(learn::ERROR, "a time below 0".to_string());
    let timeout_ms = u64::try_from(on.i32(3)?).map_err(wrong)?;
    learning(on, |lists, schema, list| lists.set_timeout(schema, list, timeout_ms))
}

pub(crate) fn learning_samples(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let samples = usize::try_from(on.i32(3)?).ok().filter(|samples| (1..=SAMPLES_MAX).contains(samples));
    let samples =
        samples.ok_or_else(|| Fault::Coded(learn::ERROR, format!("a message has 1 to {SAMPLES_MAX} samples")))?;
    learning(on, |lists, schema, list| lists.set_samples(schema, list, samples))
}
