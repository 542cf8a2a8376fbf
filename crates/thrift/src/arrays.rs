//! Counters, meters and registers whose cells are addressed by index.
//!
//! bmv2's rates are per microsecond, P4Runtime's per second. bmv2 shows a register's value as a signed 64-bit number:
//! `bit<64>` values from 2^63 on appear as negative. Cells that are not numbers of at most 64 bits are rejected.

use crate::fault::{Answer, Fault, array as code, meter, with_code};
use crate::program::find;
use crate::service::{BATCH, Context};
use crate::wire::{Elements, Value};
use base::Bits;
use control::bytes;
use control::entity::{CounterData, CounterEntry, Entity, MeterConfig, MeterEntry, P4Data, RegisterEntry, UpdateKind};
use p4info::{DataType, MeterType, ObjectKind, TypeInfo};

const PER_SECOND: f64 = 1e6;

/// A counter, meter or register array of the program.
struct Array {
    id: u32,
    name: String,
    size: u64,
    meter_type: MeterType,
    cell: Option<Cell>,
}

/// The type of a register's cell that clients can access.
#[derive(Clone, Copy)]
struct Cell {
    width: u32,
    kind: CellKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CellKind {
    Unsigned,
    Signed,
    Bool,
    Enum,
}

fn cell(types: &TypeInfo, of: &DataType) -> Option<Cell> {
    let (width, kind) = match of {
        DataType::Bit(width) => (*width, CellKind::Unsigned),
        DataType::Int(width) => (*width, CellKind::Signed),
        DataType::Bool => (1, CellKind::Bool),
        DataType::SerializableEnum(name) => (types.serializable_enums.get(name)?.bitwidth, CellKind::Enum),
        DataType::NewType(name) => return cell(types, &types.new_types.get(name)?.underlying),
        _ => return None,
    };
    (width <= 64).then_some(Cell { width, kind })
}

impl Cell {
    fn data(self, value: i64) -> Option<P4Data> {
        // A negative number is accepted for an unsigned cell and denotes the value with the same bits.
        let least = if self.width > 0 { -(1i128 << (self.width - 1)) } else { 0 };
        let most = (1i128 << self.width) - 1;
        let bits = Bits::from_i128(self.width, i128::from(value));
        (least..=most).contains(&i128::from(value)).then(|| match self.kind {
            CellKind::Unsigned => P4Data::Bitstring(bytes::canonical(&bits)),
            CellKind::Signed => P4Data::Bitstring(bytes::canonical_signed(&bits)),
            CellKind::Bool => P4Data::Bool(bits.is_true()),
            CellKind::Enum => P4Data::EnumValue(bytes::canonical(&bits)),
        })
    }

    fn value(self, data: &P4Data) -> Option<i64> {
        let bits = match data {
            P4Data::Bitstring(bytes) if self.kind == CellKind::Signed => bytes::parse_signed(self.width, bytes, ""),
            P4Data::Bitstring(bytes) | P4Data::EnumValue(bytes) => bytes::parse(self.width, bytes, ""),
            P4Data::Bool(value) => return Some(i64::from(*value)),
            _ => return None,
        };
        let bits = bits.ok()?;
        match self.kind {
            CellKind::Signed => bits.to_i128().and_then(|value| i64::try_from(value).ok()),
            _ => bits.to_u64().map(|value| value as i64),
        }
    }
}

impl Context<'_> {
    fn array(&mut self, kind: ObjectKind) -> Answer<Array> {
        let name = self.text(2)?;
        let program = self.program()?;
        let arrays = program.schema.arrays.iter().filter(|(_, array)| array.kind == kind);
        let Some((id, array)) = find(name, arrays.map(|(id, array)| (*id, array.name.as_str(), array))) else {
            // The code is 1 for all three kinds.
            return Err(Fault::Coded(code::INVALID_NAME, format!("there is no {} `{name}`", kind.noun())));
        };
        let cell = array.cell.as_ref().and_then(|of| cell(&program.schema.info.type_info, of));
        let name = format!("{} `{}`", kind.noun(), array.name);
        Ok(Array { id, name, size: array.size, meter_type: array.meter_type, cell })
    }

    /// An index of the array; the code of an invalid one is 2 for all three kinds.
    fn index(&self, array: &Array, argument: i16) -> Answer<i64> {
        let index = self.i32(argument)?;
        match u64::try_from(index).is_ok_and(|index| index < array.size) {
            true => Ok(i64::from(index)),
            false => {
                let why = format!("{} has {} cells; there is no index {index}", array.name, array.size);
                Err(Fault::Coded(code::INVALID_INDEX, why))
            }
        }
    }

    fn one(&self, query: Entity, error_code: i32) -> Answer<Option<Entity>> {
        Ok(self.read(query).map_err(|error| with_code(error, error_code))?.into_iter().next())
    }

    fn set(&self, entity: Entity, error_code: i32) -> Answer<Option<Value>> {
        self.write_one(UpdateKind::Modify, entity).map_err(|error| with_code(error, error_code))?;
        Ok(None)
    }
}

/// The `BmCounterValue` in an argument.
pub(crate) fn counter_value(on: &Context<'_>, argument: i16) -> Answer<CounterData> {
    let value = on.option(argument);
    match (value.and_then(|value| value.field(1)), value.and_then(|value| value.field(2))) {
        (Some(Value::I64(byte_count)), Some(Value::I64(packet_count))) => {
            Ok(CounterData { byte_count: *byte_count, packet_count: *packet_count })
        }
        _ => Err(Fault::arguments("the counter's value has no bytes or packets")),
    }
}

/// Counter data as a `BmCounterValue`.
pub(crate) fn read_counter_value(data: CounterData) -> Value {
    Value::Struct(vec![(1, Value::I64(data.byte_count)), (2, Value::I64(data.packet_count))])
}

pub(crate) fn counter_read(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let array = on.array(ObjectKind::Counter)?;
    let index = Some(on.index(&array, 3)?);
    let query = Entity::Counter(CounterEntry { counter_id: array.id, index, data: None });
    match on.one(query, code::ERROR)? {
        Some(Entity::Counter(entry)) => Ok(Some(read_counter_value(entry.data.unwrap_or_default()))),
        _ => Err(Fault::Coded(code::ERROR, format!("{} cannot be read", array.name))),
    }
}

pub(crate) fn counter_write(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let array = on.array(ObjectKind::Counter)?;
    let index = Some(on.index(&array, 3)?);
    let data = Some(counter_value(on, 4)?);
    on.set(Entity::Counter(CounterEntry { counter_id: array.id, index, data }), code::ERROR)
}

pub(crate) fn counter_reset(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let array = on.array(ObjectKind::Counter)?;
    let data = Some(CounterData::default());
    on.set(Entity::Counter(CounterEntry { counter_id: array.id, index: None, data }), code::ERROR)
}

/// Converts bmv2's list of rates to a meter's configuration.
///
/// # Errors
/// The code of the method's exception and a message, if the rates are invalid.
pub(crate) fn meter_config(rates: &[Value], of: MeterType) -> Result<MeterConfig, (i32, String)> {
    let rate = |value: &Value| match (value.field(1), value.field(2)) {
        (Some(Value::Double(rate)), Some(Value::I32(burst))) => {
            let per_second = rate * PER_SECOND;
            if !(0.0..=i64::MAX as f64 / 2.0).contains(&per_second) {
                return Err((meter::INVALID_INFO_RATE, format!("{rate} is not a valid rate")));
            }
            if *burst < 0 {
                return Err((meter::INVALID_BURST, format!("{burst} is not a valid burst size")));
            }
            Ok((per_second.round() as i64, i64::from(*burst)))
        }
        _ => Err((meter::BAD_RATES_LIST, "a rate is incomplete".to_string())),
    };
    let rates: Vec<(i64, i64)> = rates.iter().map(rate).collect::<Result<_, _>>()?;
    let lower = || (meter::INVALID_INFO_RATE, "the second rate is below the first".to_string());
    let other = || (meter::INVALID_INFO_RATE, "the meter has a single rate, so both must be the same".to_string());
    match (of, rates.as_slice()) {
        (MeterType::TwoRateThreeColor, [(cir, cburst), (pir, pburst)]) => match pir < cir {
            true => Err(lower()),
            false => Ok(MeterConfig { cir: *cir, cburst: *cburst, pir: *pir, pburst: *pburst, eburst: 0 }),
        },
        (MeterType::SingleRateThreeColor, [(cir, cburst), (same, eburst)]) => match cir == same {
            true => Ok(MeterConfig { cir: *cir, cburst: *cburst, pir: *cir, pburst: *cburst, eburst: *eburst }),
            false => Err(other()),
        },
        (MeterType::SingleRateTwoColor, [(cir, cburst), rest @ ..]) if rest.is_empty() || rest == [(*cir, *cburst)] => {
            Ok(MeterConfig { cir: *cir, cburst: *cburst, pir: *cir, pburst: *cburst, eburst: 0 })
        }
        (_, rates) => Err((meter::BAD_RATES_LIST, format!("{} rates, the meter takes two", rates.len()))),
    }
}

/// A meter's configuration as bmv2's list of rates; empty without a configuration.
pub(crate) fn read_rates(config: Option<MeterConfig>, of: MeterType) -> Value {
    let rate = |rate: i64, burst: i64| {
        let burst = i32::try_from(burst).unwrap_or(i32::MAX);
        Value::Struct(vec![(1, Value::Double(rate as f64 / PER_SECOND)), (2, Value::I32(burst))])
    };
    let Some(config) = config else { return Value::List(vec![]) };
    let second = match of {
        MeterType::SingleRateThreeColor => rate(config.cir, config.eburst),
        _ => rate(config.pir, config.pburst),
    };
    Value::List(vec![rate(config.cir, config.cburst), second])
}

fn set_rates(on: &mut Context<'_>, array: &Array, index: Option<i64>, rates: i16) -> Answer<Option<Value>> {
    let config = meter_config(on.list(rates)?, array.meter_type).map_err(|(code, why)| Fault::Coded(code, why))?;
    let entry = MeterEntry { meter_id: array.id, index, config: Some(config), counter_data: None };
    on.set(Entity::Meter(entry), meter::ERROR)
}

pub(crate) fn meter_set(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let array = on.array(ObjectKind::Meter)?;
    let index = on.index(&array, 3)?;
    set_rates(on, &array, Some(index), 4)
}

pub(crate) fn meter_set_all(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let array = on.array(ObjectKind::Meter)?;
    set_rates(on, &array, None, 3)
}

pub(crate) fn meter_rates(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let array = on.array(ObjectKind::Meter)?;
    let index = Some(on.index(&array, 3)?);
    let query = Entity::Meter(MeterEntry { meter_id: array.id, index, ..MeterEntry::default() });
    match on.one(query, meter::ERROR)? {
        Some(Entity::Meter(entry)) => Ok(Some(read_rates(entry.config, array.meter_type))),
        _ => Err(Fault::Coded(meter::ERROR, format!("{} cannot be read", array.name))),
    }
}

/// The register in the arguments, with its cell type; an error if clients cannot access its cells.
fn register(on: &mut Context<'_>) -> Answer<(Array, Cell)> {
    let array = on.array(ObjectKind::Register)?;
    match array.cell {
        Some(cell) => Ok((array, cell)),
        None => {
            let why = format!("not supported: {} has cells that are not numbers of at most 64 bits", array.name);
            Err(Fault::Coded(code::ERROR, why))
        }
    }
}

pub(crate) fn register_read(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (array, cell) = register(on)?;
    let index = Some(on.index(&array, 3)?);
    let query = Entity::Register(RegisterEntry { register_id: array.id, index, data: None });
    let value = match on.one(query, code::ERROR)? {
        Some(Entity::Register(entry)) => entry.data.and_then(|data| cell.value(&data)),
        _ => None,
    };
    let value = value.ok_or_else(|| Fault::Coded(code::ERROR, format!("{} cannot be read", array.name)))?;
    Ok(Some(Value::I64(value)))
}

pub(crate) fn register_read_all(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (array, cell) = register(on)?;
    let mut list = Elements::of(&Value::I64(0));
    let query = Entity::Register(RegisterEntry { register_id: array.id, index: None, data: None });
    let told = on.read_each(query, |entity| {
        let Entity::Register(entry) = entity else { return Ok(()) };
        let value = entry.data.and_then(|data| cell.value(&data));
        let value = value.ok_or_else(|| Fault::Coded(code::ERROR, format!("{} cannot be read", array.name)))?;
        list.push(&Value::I64(value)).map_err(Fault::from)
    });
    told.map_err(|error| error.fault(code::ERROR))?;
    Ok(Some(Value::Elements(list)))
}

fn register_data(on: &Context<'_>, array: &Array, cell: Cell, argument: i16) -> Answer<P4Data> {
    let value = on.i64(argument)?;
    let wide = || Fault::Coded(code::ERROR, format!("{}: {value} needs more than {} bits", array.name, cell.width));
    cell.data(value).ok_or_else(wide)
}

pub(crate) fn register_write(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (array, cell) = register(on)?;
    let index = Some(on.index(&array, 3)?);
    let data = Some(register_data(on, &array, cell, 4)?);
    on.set(Entity::Register(RegisterEntry { register_id: array.id, index, data }), code::ERROR)
}

pub(crate) fn register_write_range(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (array, cell) = register(on)?;
    let (from, to) = (on.i32(3)?, on.i32(4)?);
    let in_array = 0 <= from && from <= to && to as u64 <= array.size;
    if !in_array {
        let why = format!("{} has {} cells; there is no range {from}..{to}", array.name, array.size);
        return Err(Fault::Coded(code::INVALID_INDEX, why));
    }
    let data = register_data(on, &array, cell, 5)?;
    for first in (from..to).step_by(BATCH) {
        let update = |index: i32| control::entity::Update {
            kind: UpdateKind::Modify,
            entity: Some(Entity::Register(RegisterEntry {
                register_id: array.id,
                index: Some(i64::from(index)),
                data: Some(data.clone()),
            })),
        };
        let some = first..to.min(first.saturating_add(BATCH as i32));
        let results = on.write(some.map(update).collect()).map_err(|error| with_code(error, code::ERROR))?;
        if let Some(error) = results.into_iter().find_map(Result::err) {
            return Err(with_code(error, code::ERROR));
        }
    }
    Ok(None)
}

pub(crate) fn register_reset(on: &mut Context<'_>) -> Answer<Option<Value>> {
    let (array, cell) = register(on)?;
    let data = cell.data(0);
    on.set(Entity::Register(RegisterEntry { register_id: array.id, index: None, data }), code::ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_cell_are_taken_by_value_or_by_bits() {
        let bit = |width| Cell { width, kind: CellKind::Unsigned };
        let int = |width| Cell { width, kind: CellKind::Signed };
        let round = |cell: Cell, value: i64| cell.data(value).and_then(|data| cell.value(&data));
        assert_eq!(round(bit(8), 255), Some(255));
        assert_eq!(round(bit(8), 256), None);
        assert_eq!(round(bit(8), -1), Some(255));
        assert_eq!(round(bit(8), -129), None);
        assert_eq!(round(bit(64), -1), Some(-1));
        assert_eq!(round(bit(64), i64::MIN), Some(i64::MIN));
        assert_eq!(round(bit(1), 1), Some(1));
        assert_eq!(round(int(8), -128), Some(-128));
        assert_eq!(round(int(8), 255), Some(-1));
        assert_eq!(round(int(8), -129), None);
        assert_eq!(round(int(64), i64::MIN), Some(i64::MIN));
        assert_eq!(round(Cell { width: 1, kind: CellKind::Bool }, 1), Some(1));
    }

    fn rates(list: &[(f64, i32)]) -> Vec<Value> {
        list.iter()
            .map(|(rate, burst)| Value::Struct(vec![(1, Value::Double(*rate)), (2, Value::I32(*burst))]))
            .collect()
    }

    #[test]
    fn rates_are_those_of_the_meters_type() {
        let two = |list: &[(f64, i32)]| meter_config(&rates(list), MeterType::TwoRateThreeColor);
        let config = two(&[(0.5, 10), (1.0, 20)]).unwrap();
        assert_eq!(config, MeterConfig { cir: 500_000, cburst: 10, pir: 1_000_000, pburst: 20, eburst: 0 });
        assert_eq!(read_rates(Some(config), MeterType::TwoRateThreeColor), Value::List(rates(&[(0.5, 10), (1.0, 20)])));
        let code = |list: &[(f64, i32)]| two(list).unwrap_err().0;
        assert_eq!(code(&[(1.0, 10), (0.5, 20)]), meter::INVALID_INFO_RATE);
        assert_eq!(code(&[(f64::NAN, 10), (0.5, 20)]), meter::INVALID_INFO_RATE);
        assert_eq!(code(&[(f64::INFINITY, 10), (0.5, 20)]), meter::INVALID_INFO_RATE);
        assert_eq!(code(&[(-1.0, 10), (0.5, 20)]), meter::INVALID_INFO_RATE);
        assert_eq!(code(&[(0.5, -10), (0.5, 20)]), meter::INVALID_BURST);
        assert_eq!(code(&[(0.5, 10)]), meter::BAD_RATES_LIST);
        let single = meter_config(&rates(&[(1.0, 10), (1.0, 30)]), MeterType::SingleRateThreeColor).unwrap();
        assert_eq!((single.pir, single.pburst, single.eburst), (single.cir, 10, 30));
        assert!(meter_config(&rates(&[(1.0, 10), (2.0, 30)]), MeterType::SingleRateThreeColor).is_err());
        assert_eq!(read_rates(None, MeterType::TwoRateThreeColor), Value::List(vec![]));
    }
}
