//! Match fields, as a P4 program declares them with `@oxm` and `@nxm`.

use std::collections::HashMap;

/// The index of a field in its [`Fields`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FieldId(pub u16);

/// OXM classes (OpenFlow 1.3.5, 7.2.3.2).
pub mod class {
    /// `NXM_0`: Nicira's fields with equivalents in OpenFlow 1.0.
    pub const NXM_0: u16 = 0x0000;
    /// `NXM_1`: Nicira's other fields.
    pub const NXM_1: u16 = 0x0001;
    /// `OFPXMC_OPENFLOW_BASIC`: OpenFlow's own fields.
    pub const OPENFLOW_BASIC: u16 = 0x8000;
    /// Packet registers (OpenFlow 1.5).
    pub const PACKET_REGISTERS: u16 = 0x8001;
    /// Experimenters' fields: four more header bytes name the experimenter.
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// A field's number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OxmNumber {
    /// The class.
    pub class: u16,
    /// The field number in the class, at most 127.
    pub field: u8,
    /// The experimenter id; 0 unless the class is [`class::EXPERIMENTER`].
    pub experimenter: u32,
}

/// A condition on another field that must hold for a field to exist in a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prerequisite {
    /// The other field.
    pub field: FieldId,
    /// The bits that are compared.
    pub mask: u128,
    /// The values, one of which those bits must have.
    pub values: Vec<u128>,
}

/// A match field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name in the text form: `eth_dst`, `reg0`.
    pub name: String,
    /// Its width in bits, 1 to 128.
    pub width: u32,
    /// Its numbers, the preferred one first; OXM numbers precede NXM numbers.
    pub numbers: Vec<OxmNumber>,
    /// Whether a match may give it a mask.
    pub maskable: bool,
    /// Whether actions may write it.
    pub writable: bool,
    /// Its prerequisites, all of which must hold.
    pub prerequisites: Vec<Prerequisite>,
}

impl Field {
    /// The value with all bits of the field set.
    pub fn full(&self) -> u128 {
        if self.width >= 128 { u128::MAX } else { (1 << self.width) - 1 }
    }

    /// The length of a value on the wire in bytes: the width if that is whole bytes, otherwise the next larger integer;
    /// an MPLS label of 20 bits takes four (OpenFlow 1.3.5, 7.2.3.7).
    pub fn bytes(&self) -> usize {
        let bytes = self.width.div_ceil(8) as usize;
        if self.width.is_multiple_of(8) { bytes } else { bytes.next_power_of_two() }
    }
}

/// The match fields of a P4 program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    all: Vec<Field>,
    by_number: HashMap<OxmNumber, FieldId>,
    by_name: HashMap<String, FieldId>,
}

/// Why a set of fields is ambiguous.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FieldsError {
    /// Two fields have the same number.
    #[error("`{0}` and `{1}` have the same OXM number")]
    Number(String, String),
    /// Two fields have the same name.
    #[error("two fields are named `{0}`")]
    Name(String),
}

impl Fields {
    /// The set of these fields; a field's id is its index.
    ///
    /// # Errors
    /// [`FieldsError`] if two fields have the same name or number.
    pub fn new(all: Vec<Field>) -> Result<Fields, FieldsError> {
        let mut fields = Fields::default();
        for (i, field) in all.iter().enumerate() {
            let id = FieldId(i as u16);
            if fields.by_name.insert(field.name.clone(), id).is_some() {
                return Err(FieldsError::Name(field.name.clone()));
            }
            for number in &field.numbers {
                if let Some(FieldId(other)) = fields.by_number.insert(*number, id) {
                    return Err(FieldsError::Number(all[usize::from(other)].name.clone(), field.name.clone()));
                }
            }
        }
        fields.all = all;
        Ok(fields)
    }

    /// The field with an id.
    ///
    /// # Panics
    /// If the id belongs to another [`Fields`] with more fields.
    pub fn get(&self, id: FieldId) -> &Field {
        &self.all[usize::from(id.0)]
    }

    /// The field with a number, preferred or not.
    pub fn numbered(&self, number: OxmNumber) -> Option<FieldId> {
        self.by_number.get(&number).copied()
    }

    /// The field with a number of class `OFPXMC_OPENFLOW_BASIC`.
    pub fn basic(&self, field: u8) -> Option<FieldId> {
        self.numbered(OxmNumber { class: class::OPENFLOW_BASIC, field, experimenter: 0 })
    }

    /// The field with a name.
    pub fn named(&self, name: &str) -> Option<FieldId> {
        self.by_name.get(name).copied()
    }

    /// All fields in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (FieldId, &Field)> {
        self.all.iter().enumerate().map(|(i, field)| (FieldId(i as u16), field))
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
