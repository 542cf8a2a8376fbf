//! Parameters of hash calculations, as extern entries: P4Runtime has no entity for them.

use crate::proto::p4::v1 as pb;
use crate::proto::sluice::v1 as own;
use abi::state::{CrcParameters, HashParameters};
use control::entity::{CalculationEntry, Entity};
use own::calculation_entry::{Crc, Parameters};
use prost::Message;

/// The type URL of such an entry's message.
const TYPE: &str = "type.googleapis.com/sluice.v1.CalculationEntry";

/// Converts an extern entry: a calculation if it has that type and can be decoded, else an unknown extern.
pub(super) fn from_entry(entry: pb::ExternEntry) -> Entity {
    let pb::ExternEntry { extern_type_id, extern_id, entry } = entry;
    let message = entry.filter(|any| extern_type_id == 0 && extern_id == 0 && any.type_url == TYPE);
    match message.and_then(|any| own::CalculationEntry::decode(&*any.value).ok()) {
        Some(own::CalculationEntry { name, parameters }) => {
            let parameters = parameters.map(|parameters| match parameters {
                Parameters::Crc(Crc { width, polynomial, initial, xor_out, reflect_in, reflect_out }) => {
                    HashParameters::Crc(CrcParameters { width, polynomial, initial, xor_out, reflect_in, reflect_out })
                }
                Parameters::ToeplitzKey(key) => HashParameters::Toeplitz(key),
            });
            Entity::Calculation(CalculationEntry { name, parameters })
        }
        None => Entity::Extern { extern_type_id, extern_id },
    }
}

/// Converts a calculation to an extern entry.
pub(super) fn to_entry(entry: CalculationEntry) -> pb::ExternEntry {
    let CalculationEntry { name, parameters } = entry;
    let parameters = parameters.map(|parameters| match parameters {
        HashParameters::Crc(CrcParameters { width, polynomial, initial, xor_out, reflect_in, reflect_out }) => {
            Parameters::Crc(Crc { width, polynomial, initial, xor_out, reflect_in, reflect_out })
        }
        HashParameters::Toeplitz(key) => Parameters::ToeplitzKey(key),
    });
    let value = own::CalculationEntry { name, parameters }.encode_to_vec();
    let entry = Some(prost_types::Any { type_url: TYPE.to_string(), value });
    pb::ExternEntry { extern_type_id: 0, extern_id: 0, entry }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        for parameters in [
            None,
            Some(HashParameters::Crc(CrcParameters::CCITT)),
            Some(HashParameters::Toeplitz(vec![0x6d, 0x5a, 0x56, 0xda])),
        ] {
            let entry = CalculationEntry { name: "calc_0".to_string(), parameters };
            assert_eq!(from_entry(to_entry(entry.clone())), Entity::Calculation(entry));
        }
        let entry = pb::ExternEntry { extern_type_id: 0x81, extern_id: 7, entry: None };
        assert_eq!(from_entry(entry), Entity::Extern { extern_type_id: 0x81, extern_id: 7 });
        let mut damaged = to_entry(CalculationEntry::default());
        damaged.entry.as_mut().expect("it has one").value = vec![0xff];
        assert_eq!(from_entry(damaged), Entity::Extern { extern_type_id: 0, extern_id: 0 });
    }
}
