//! Match fields: what a program declares with `@oxm` and `@nxm`.

use std::collections::HashMap;

/// A field's place in its [`Fields`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FieldId(pub u16);

/// OXM classes (OpenFlow 1.3.5, 7.2.3.2).
pub mod class {
    /// Nicira's fields that have equals in OpenFlow 1.0.
    pub const NXM_0: u16 = 0x0000;
    /// Nicira's other fields.
    pub const NXM_1: u16 = 0x0001;
    /// OpenFlow's own.
    pub const OPENFLOW_BASIC: u16 = 0x8000;
    /// OpenFlow 1.5's packet registers.
    pub const PACKET_REGISTERS: u16 = 0x8001;
    /// An experimenter's: a header of four bytes more says whose.
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// A number by which a field goes on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OxmNumber {
    /// The class.
    pub class: u16,
    /// The field in it, at most 127.
    pub field: u8,
    /// The experimenter; 0 unless the class is [`class::EXPERIMENTER`].
    pub experimenter: u32,
}

/// What another field must be for a field to be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prerequisite {
    /// The other field.
    pub field: FieldId,
    /// The bits that count.
    pub mask: u128,
    /// What they must be: one of these.
    pub values: Vec<u128>,
}

/// A match field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// As users write it, `eth_dst`, `reg0`.
    pub name: String,
    /// Bits, 1 to 128.
    pub width: u32,
    /// Its numbers, the preferred one first. OXM ones come before NXM ones.
    pub numbers: Vec<OxmNumber>,
    /// Whether a match may mask it.
    pub maskable: bool,
    /// Whether actions may write it.
    pub writable: bool,
    /// What must hold for it to be there: all of these.
    pub prerequisites: Vec<Prerequisite>,
}

impl Field {
    /// A value with all of its bits.
    pub fn full(&self) -> u128 {
        if self.width >= 128 { u128::MAX } else { (1 << self.width) - 1 }
    }

    /// Bytes of a value on the wire: those of its width if that is whole bytes, else those of the next larger integer, as an
    /// MPLS label's 20 bits take four (OpenFlow 1.3.5, 7.2.3.7).
    pub fn bytes(&self) -> usize {
        let bytes = self.width.div_ceil(8) as usize;
        if self.width.is_multiple_of(8) { bytes } else { bytes.next_power_of_two() }
    }
}

/// The match fields of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    all: Vec<Field>,
    by_number: HashMap<OxmNumber, FieldId>,
    by_name: HashMap<String, FieldId>,
}

/// Why fields cannot be told apart.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FieldsError {
    /// Two fields have one number.
    #[error("`{0}` and `{1}` have the same OXM number")]
    Number(String, String),
    /// Two fields have one name.
    #[error("two fields are named `{0}`")]
    Name(String),
}

impl Fields {
    /// These fields; a field's id is its place.
    ///
    /// # Errors
    /// If two have the same name or number.
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

    /// A field.
    ///
    /// # Panics
    /// If the id is another [`Fields`]'.
    pub fn get(&self, id: FieldId) -> &Field {
        &self.all[usize::from(id.0)]
    }

    /// By any of its numbers.
    pub fn numbered(&self, number: OxmNumber) -> Option<FieldId> {
        self.by_number.get(&number).copied()
    }

    /// By a number of OpenFlow's own class.
    pub fn basic(&self, field: u8) -> Option<FieldId> {
        self.numbered(OxmNumber { class: class::OPENFLOW_BASIC, field, experimenter: 0 })
    }

    /// By its name.
    pub fn named(&self, name: &str) -> Option<FieldId> {
        self.by_name.get(name).copied()
    }

    /// All, in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (FieldId, &Field)> {
        self.all.iter().enumerate().map(|(i, field)| (FieldId(i as u16), field))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
