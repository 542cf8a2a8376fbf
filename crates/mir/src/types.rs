//! Types of values, ids, and memory regions.

use std::fmt;
use std::ops::{BitAnd, BitOr};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
            pub struct $name(pub u32);

            impl $name {
                /// The index in the list that holds these.
                pub fn index(self) -> usize {
                    self.0 as usize
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, concat!($prefix, "{}"), self.0)
                }
            }
        )*
    };
}

ids! {
    /// An SSA value of a function.
    Value "v";
    /// A basic block of a function.
    Block "b";
    /// A stack slot of a function.
    Slot "s";
    /// A table of a module.
    TableId "table";
    /// A runtime function of a module.
    RuntimeId "runtime";
    /// A function of a module.
    FunctionId "fn";
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// A truth value.
    I1,
    /// An integer of 8 bits. Integers are neither signed nor unsigned; operations are.
    I8,
    /// 16 bits.
    I16,
    /// 32 bits.
    I32,
    /// 64 bits; also addresses.
    I64,
    /// 128 bits.
    I128,
    /// A lookup in progress in a table.
    Probe(TableId),
}

impl Type {
    /// All integer types, from narrow to wide.
    pub const INTEGERS: [Type; 6] = [Type::I1, Type::I8, Type::I16, Type::I32, Type::I64, Type::I128];

    /// Width of an integer in bits; 0 for other types.
    pub fn bits(self) -> u32 {
        match self {
            Type::I1 => 1,
            Type::I8 => 8,
            Type::I16 => 16,
            Type::I32 => 32,
            Type::I64 => 64,
            Type::I128 => 128,
            Type::Probe(_) => 0,
        }
    }

    /// Whether it is an integer.
    pub fn is_integer(self) -> bool {
        self.bits() != 0
    }

    /// An integer with all bits of the type set.
    pub fn mask(self) -> u128 {
        low_bits(self.bits())
    }

    /// The integer type of this width, if there is one.
    pub fn of_bits(bits: u32) -> Option<Type> {
        Type::INTEGERS.into_iter().find(|ty| ty.bits() == bits)
    }
}

/// A number whose lowest `bits` bits are set; `bits` is at most 128.
pub fn low_bits(bits: u32) -> u128 {
    match bits {
        0 => 0,
        _ => u128::MAX >> (128 - bits.min(128)),
    }
}

/// A part of memory, for alias analysis. Regions are disjoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Region {
    /// The packets' bytes, including headroom and tailroom.
    Frame,
    /// The packets' records: slots that outlive an entry point.
    Record,
    /// The batch and its descriptors, and other memory private to one run of the code.
    Descriptor,
    /// Memory that never changes while the code runs: the worker's context.
    Context,
    /// Match engines: snapshots, buckets, directories.
    Table,
    /// Published entries, which are immutable while the code may hold one.
    Entry,
    /// Registers, meters, locks and the runtime's private data.
    State,
    /// Counters, to which the code only adds.
    Counter,
    /// Values of maps that programs share with the control plane.
    Value,
    /// Stack slots.
    Stack,
}

impl Region {
    /// All regions.
    pub const ALL: [Region; 10] = [
        Region::Frame,
        Region::Record,
        Region::Descriptor,
        Region::Context,
        Region::Table,
        Region::Entry,
        Region::State,
        Region::Counter,
        Region::Value,
        Region::Stack,
    ];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Region::Frame => "frame",
            Region::Record => "record",
            Region::Descriptor => "descriptor",
            Region::Context => "context",
            Region::Table => "table",
            Region::Entry => "entry",
            Region::State => "state",
            Region::Counter => "counter",
            Region::Value => "value",
            Region::Stack => "stack",
        }
    }
}

/// A set of regions. An access names all regions that it may touch; two accesses can alias only if their sets
/// intersect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Regions(u16);

impl Regions {
    /// No region.
    pub const NONE: Regions = Regions(0);
    /// All regions.
    pub const ALL: Regions = Regions((1 << Region::ALL.len()) - 1);
    /// Regions whose contents never change while the code runs.
    pub const CONSTANT: Regions = Regions(1 << Region::Context as u16 | 1 << Region::Entry as u16);
    /// Regions that other threads may change at any time.
    pub const SHARED: Regions =
        Regions(1 << Region::Table as u16 | 1 << Region::State as u16 | 1 << Region::Value as u16);

    /// Whether a region is in the set.
    pub fn contains(self, region: Region) -> bool {
        self.0 >> region as u16 & 1 == 1
    }

    /// Whether `other` is a subset.
    pub fn covers(self, other: Regions) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether the sets intersect.
    pub fn meets(self, other: Regions) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no region is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Set difference.
    pub fn without(self, other: Regions) -> Regions {
        Regions(self.0 & !other.0)
    }

    /// The regions of the set.
    pub fn iter(self) -> impl Iterator<Item = Region> {
        Region::ALL.into_iter().filter(move |region| self.contains(*region))
    }
}

impl From<Region> for Regions {
    fn from(region: Region) -> Regions {
        Regions(1 << region as u16)
    }
}

impl<T: Into<Regions>> BitOr<T> for Regions {
    type Output = Regions;

    fn bitor(self, other: T) -> Regions {
        Regions(self.0 | other.into().0)
    }
}

impl BitAnd for Regions {
    type Output = Regions;

    fn bitand(self, other: Regions) -> Regions {
        Regions(self.0 & other.0)
    }
}

impl<T: Into<Regions>> BitOr<T> for Region {
    type Output = Regions;

    fn bitor(self, other: T) -> Regions {
        Regions::from(self) | other
    }
}

impl fmt::Display for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, region) in self.iter().enumerate() {
            let bar = if i == 0 { "" } else { "|" };
            write!(f, "{bar}{}", region.name())?;
        }
        if self.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// The order of an integer's bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first: network order.
    Big,
}

/// The effects of a call or an instruction on memory and control.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Effects {
    /// Regions that may be read.
    pub reads: Regions,
    /// Regions that may be written.
    pub writes: Regions,
    /// Whether processing of the packet may end there: no observable effect moves across it.
    pub ends: bool,
}

impl Effects {
    /// No effects: the result depends on the operands alone.
    pub const PURE: Effects = Effects { reads: Regions::NONE, writes: Regions::NONE, ends: false };
    /// All effects.
    pub const ANY: Effects =
        Effects { reads: Regions::ALL, writes: Regions(Regions::ALL.0 & !Regions::CONSTANT.0), ends: true };

    /// Whether an instruction with these effects is dead code if its result has no uses.
    pub fn is_removable(self) -> bool {
        self.writes.is_empty() && !self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_sets() {
        let both = Region::Frame | Region::Stack;
        assert!(both.contains(Region::Stack) && !both.contains(Region::Value));
        assert!(both.covers(Region::Frame.into()) && !Regions::from(Region::Frame).covers(both));
        assert!(both.meets(Region::Frame.into()) && !both.meets(Region::Record | Region::Entry));
        assert_eq!(both.to_string(), "frame|stack");
        assert_eq!(Regions::NONE.to_string(), "none");
        assert_eq!(Regions::ALL.iter().count(), Region::ALL.len());
        assert!(!Effects::ANY.writes.meets(Regions::CONSTANT));
    }

    #[test]
    fn masks() {
        assert_eq!((Type::I1.mask(), Type::I64.mask(), Type::I128.mask()), (1, u64::MAX.into(), u128::MAX));
        assert_eq!(low_bits(9), 0x1ff);
    }
}
