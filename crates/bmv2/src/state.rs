//! Stateful objects, and those that are referred to by id: counters, meters, registers, calculations, checksums, field
//! lists and learn lists. Extern instances are refused by name.

use crate::codes;
use crate::expressions::hex;
use crate::model::{Calculation, Checksum, Counter, Field, FieldList, Input, LearnList, Meter, Register};
use crate::names::{Names, Reader};
use crate::read::{At, Read};
use base::Bits;
use ir::{Calculated, CalculationId, HashAlgorithm};

/// The hash that simple_switch has under this name.
pub(crate) fn algorithm(value: &At<'_>) -> Read<HashAlgorithm> {
    Ok(match value.text()? {
        "crc32" => HashAlgorithm::Crc32,
        "crc32_custom" => HashAlgorithm::Crc32Custom,
        "crc16" => HashAlgorithm::Crc16,
        "crc16_custom" => HashAlgorithm::Crc16Custom,
        "random" => HashAlgorithm::Random,
        "identity" => HashAlgorithm::Identity,
        "crcCCITT" => HashAlgorithm::CrcCcitt,
        "csum16" | "cksum16" => HashAlgorithm::Csum16,
        "xor16" => HashAlgorithm::Xor16,
        "xor32" => HashAlgorithm::Xor32,
        // The parameters of these two cannot be set.
        "crc8_custom" => HashAlgorithm::Crc8,
        "crc64_custom" => HashAlgorithm::Crc64,
        "xxh64" | "bmv2_hash" => HashAlgorithm::Xxh64,
        "hash_ex" => HashAlgorithm::HashEx,
        name @ ("round_robin" | "round_robin_consistent") => {
            let message = format!(
                "hash algorithm `{name}` is not supported: its values count packets, and are not a hash of the data"
            );
            return value.fail(codes::UNSUPPORTED, message);
        }
        other => return value.fail(codes::UNSUPPORTED, format!("there is no hash algorithm `{other}`")),
    })
}

impl Reader {
    pub fn extern_instances(&self, root: &At<'_>) -> Read<()> {
        match root.list_of("extern_instances")?.first() {
            None => Ok(()),
            Some(object) => {
                let ty = object.need("type")?;
                let (name, type_name) = (object.name()?, ty.text()?);
                ty.fail(
                    codes::UNSUPPORTED,
                    format!("`{name}` is an instance of extern `{type_name}`, which is not supported"),
                )
            }
        }
    }

    pub fn counters(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.list_of("counter_arrays")? {
            let index = self.m.counters.len();
            self.counters.add("counter array", &object, index)?;
            let table = match object.flag("is_direct", false)? {
                true => Some(object.need("binding")?.text()?.to_string()),
                false => None,
            };
            // A direct counter has its table's size.
            let size = match table {
                Some(_) => 0,
                None => u64::from(object.need("size")?.number()?),
            };
            let location = self.locations.of(&object)?;
            self.m.counters.push(Counter { name: object.name()?.to_string(), location, size, table });
        }
        Ok(())
    }

    pub fn meters(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.list_of("meter_arrays")? {
            let index = self.m.meters.len();
            self.meters.add("meter array", &object, index)?;
            let ty = object.need("type")?;
            let bytes = match ty.text()? {
                "bytes" => true,
                "packets" => false,
                other => return ty.fail(codes::UNSUPPORTED, format!("a meter of `{other}`")),
            };
            if let Some(rates) = object.get("rate_count")
                && rates.number()? != 2
            {
                return rates.fail(codes::UNSUPPORTED, "meters have two rates");
            }
            let direct = object.flag("is_direct", false)?;
            let size = if direct { 0 } else { u64::from(object.need("size")?.number()?) };
            let result = match (direct, object.get("result_target")) {
                (true, Some(target)) => self.fixed_or_empty(&target)?,
                _ => None,
            };
            let location = self.locations.of(&object)?;
            self.m.meters.push(Meter { name: object.name()?.to_string(), location, bytes, size, direct, result });
        }
        Ok(())
    }

    pub fn registers(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.list_of("register_arrays")? {
            let index = self.m.registers.len();
            self.registers.add("register array", &object, index)?;
            let size = u64::from(object.need("size")?.number()?);
            let bits = object.need("bitwidth")?;
            let width = bits.number()?;
            if width == 0 || width > lower::WIDTH_LIMIT {
                return bits.fail(codes::RANGE, format!("a register of {width} bits"));
            }
            let location = self.locations.of(&object)?;
            self.m.registers.push(Register { name: object.name()?.to_string(), location, size, width });
        }
        Ok(())
    }

    pub fn calculations(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.list_of("calculations")? {
            let index = self.m.calculations.len();
            self.calculations.add("calculation", &object, index)?;
            let algorithm = self.calculation(&object.need("algo")?, object.name()?)?;
            let (mut input, mut payload) = (Vec::new(), false);
            for part in object.need("input")?.list()? {
                let ty = part.need("type")?;
                match ty.text()? {
                    "payload" => payload = true,
                    "field" => input.extend(self.field(&part.need("value")?)?.map(Input::Field)),
                    "header" => input.push(Input::Header(self.headers.named("header", &part.need("value")?)?)),
                    "hexstr" => {
                        let bits = part.need("bitwidth")?;
                        let width = bits.number()?;
                        if width == 0 || width > lower::WIDTH_LIMIT {
                            return bits.fail(codes::RANGE, format!("a constant of {width} bits"));
                        }
                        input.push(Input::Constant(Bits::from_bigint(width, &hex(&part.need("value")?)?)));
                    }
                    other => return ty.fail(codes::UNSUPPORTED, format!("`{other}` as input of a calculation")),
                }
            }
            self.m.calculations.push(Calculation { algorithm, input, payload });
        }
        Ok(())
    }

    /// The algorithm of a calculation; one with parameters has its own instance.
    fn calculation(&mut self, value: &At<'_>, name: &str) -> Read<HashAlgorithm> {
        let function = match value.text()? {
            "crc16_custom" => Calculated::Crc16,
            "crc32_custom" => Calculated::Crc32,
            "toeplitz" => Calculated::Toeplitz,
            _ => return algorithm(value),
        };
        let id = CalculationId::from_index(self.m.parametric.len());
        self.m.parametric.push(ir::Calculation { name: name.to_string(), function });
        Ok(HashAlgorithm::Calculation(id))
    }

    pub fn checksums(&mut self, root: &At<'_>) -> Read<()> {
        let mut names = Names::default();
        for (i, object) in root.list_of("checksums")?.into_iter().enumerate() {
            names.add_id("checksum", &object, i)?;
            let target_at = object.need("target")?;
            let target = self.fixed_field(&target_at)?;
            let ty = object.need("type")?;
            let calculation = match ty.text()? {
                "generic" => Some(self.calculations.named("calculation", &object.need("calculation")?)?),
                "ipv4" if self.m.field(target).width == 16 && !self.m.headers[target.header].metadata => None,
                "ipv4" => return target_at.fail(codes::CONTRADICTION, "an IPv4 checksum has 16 bits of a header"),
                other => return ty.fail(codes::UNSUPPORTED, format!("a checksum of type `{other}`")),
            };
            let condition = object.get("if_cond").map(|c| self.condition(&c)).transpose()?;
            let (verify, update) = (object.flag("verify", true)?, object.flag("update", true)?);
            let (name, location) = (object.name()?.to_string(), self.locations.of(&object)?);
            self.m.checksums.push(Checksum { name, location, target, calculation, verify, update, condition });
        }
        Ok(())
    }

    pub fn field_lists(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.list_of("field_lists")? {
            let index = self.m.field_lists.len();
            self.field_lists.add_id("field list", &object, index)?;
            let id = object.need("id")?;
            let number = id.number()?;
            if number >= 0xffff {
                return id.fail(codes::RANGE, format!("a field list with id {number}"));
            }
            let mut fields = Vec::new();
            for element in object.need("elements")?.list()? {
                let ty = element.need("type")?;
                match ty.text()? {
                    "field" => {
                        let value = element.need("value")?;
                        let pair = value.list()?;
                        // Validity is not copied.
                        if pair.get(1).is_some_and(|f| f.text().is_ok_and(|t| t == "$valid$")) {
                            self.headers.named("header", &pair[0])?;
                            continue;
                        }
                        fields.extend(self.fixed_or_empty(&value)?);
                    }
                    // Constants are only used by calculations.
                    "hexstr" => {}
                    other => return ty.fail(codes::UNSUPPORTED, format!("`{other}` in a field list")),
                }
            }
            self.m.field_lists.push(FieldList { id: number, fields });
        }
        Ok(())
    }

    pub fn learn_lists(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.list_of("learn_lists")? {
            let index = self.m.learn_lists.len();
            // There is a list for each call of `digest`, with the name of the digest's type.
            self.learn_lists.add_id("learn list", &object, index)?;
            let id = object.need("id")?;
            let number = id.number()?;
            if number == 0 || number > 0xffff {
                return id.fail(codes::RANGE, format!("a learn list with id {number}"));
            }
            let mut fields: Vec<Field> = Vec::new();
            for element in object.need("elements")?.list()? {
                let ty = element.need("type")?;
                if ty.text()? != "field" {
                    return ty.fail(codes::UNSUPPORTED, "a learn list has fields only");
                }
                fields.extend(self.fixed_or_empty(&element.need("value")?)?);
            }
            let location = self.locations.of(&object)?;
            self.m.learn_lists.push(LearnList { id: number, name: object.name()?.to_string(), location, fields });
        }
        Ok(())
    }
}
