//! Protocol versions.

/// A protocol version; the discriminant is its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.3.
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
    /// OpenFlow 1.5.
    V15 = 6,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 4] = [Version::V10, Version::V13, Version::V14, Version::V15];

    /// The version with a wire number.
    pub fn numbered(number: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|version| *version as u8 == number)
    }
}
