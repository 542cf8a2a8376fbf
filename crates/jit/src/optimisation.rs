//! The optimisations of code generation, each with a switch.
//!
//! The passes of crate `opt` transform IR and can be left out one by one. [`Optimisation`] names further optimisations,
//! which are part of code generation, so that the worth of each can be measured like a pass's. Code without them is
//! slower and has the same effect. Names share one namespace with the passes' (`datapath::Switches`).
//!
//! [`Without`] is a set of optimisations that are switched off, in `Options::without`.
//!
//! PISCES: Shahbaz et al., SIGCOMM 2016.
//!
//! Tests: `tests/files/`, a file for each; `tests/packets.rs`; all tests of this crate with `JIT_WITHOUT=NAME,...`;
//! crate `difftest` leaves each out.

/// An optimisation of code generation that can be switched off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Optimisation {
    /// The deparser edits packets in place. Without: it writes all headers anew, changed or not (PISCES, section 4.3,
    /// post-pipeline editing).
    EditMode,
    /// Fields are loaded where they are read. Without: the parser loads every field that it extracts (PISCES, parser
    /// specialisation).
    LazyFields,
    /// Adjacent fields are stored together. Without: each field has its own store (PISCES, action coalescing).
    WideStores,
    /// Slots live in registers. Without: each slot lives in memory (PVPP, reducing metadata access).
    RegisterSlots,
    /// Loads and stores of fields in memory that are dead on a path are left out. Without: all are made.
    DeadFields,
    /// Addresses of tables, registers and runtime functions are constants of the code. Without: they are loaded from a
    /// list at each use (PVPP, reducing pointer dereferences).
    BakedAddresses,
    /// The code itself probes tables whose engine allows it. Without: it calls their engines.
    InlineTables,
    /// Code after joins is duplicated by what is known on each path (tail duplication), lookups excepted. Without:
    /// branches on what was known are evaluated again.
    SplitPaths,
    /// Packets with the deepest headers have code of their own from the parser to the end, lookups included. Without:
    /// they share it with all others, and what the parser found out is lost.
    HotPaths,
    /// Checksums sum unchanged fields straight from the packet, in wide words. Without: field by field.
    PackedChecksum,
    /// A verified checksum is updated for the changed words (RFC 1624). Without: it is summed again.
    IncrementalChecksum,
    /// Hashes of bit strings of constant length are computed inline. Without: the runtime is called.
    InlineHashes,
    /// A key is compared with all keys of a bucket at once, if the processor has AVX-512. Without: two or four at a
    /// time.
    WideCompare,
    /// CRCs are computed by carry-less multiplication, if the processor has VPCLMULQDQ and AVX-512. Without: by a
    /// lookup per byte.
    CarrylessCrc,
    /// Tables whose keys are action parameters of an earlier table are looked up at compile time (materialised joins).
    /// Without: for each packet.
    JoinedTables,
    /// Hits and misses of tables are counted on the stack and added to the tables' counters after each batch. Without:
    /// at each lookup.
    BatchedCounts,
    /// Hits and misses that follow from other counts and the number of packets are derived. Without: each lookup is
    /// counted.
    DerivedCounts,
}

use Optimisation as O;

impl Optimisation {
    /// All optimisations.
    pub const ALL: [Optimisation; 17] = [
        O::EditMode,
        O::LazyFields,
        O::WideStores,
        O::RegisterSlots,
        O::DeadFields,
        O::BakedAddresses,
        O::InlineTables,
        O::SplitPaths,
        O::HotPaths,
        O::PackedChecksum,
        O::IncrementalChecksum,
        O::InlineHashes,
        O::WideCompare,
        O::CarrylessCrc,
        O::JoinedTables,
        O::BatchedCounts,
        O::DerivedCounts,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            O::EditMode => "edit_mode",
            O::LazyFields => "lazy_fields",
            O::WideStores => "wide_stores",
            O::RegisterSlots => "register_slots",
            O::DeadFields => "dead_fields",
            O::BakedAddresses => "baked_addresses",
            O::InlineTables => "inline_tables",
            O::SplitPaths => "split_paths",
            O::HotPaths => "hot_paths",
            O::PackedChecksum => "packed_checksum",
            O::IncrementalChecksum => "incremental_checksum",
            O::InlineHashes => "inline_hashes",
            O::WideCompare => "wide_compare",
            O::CarrylessCrc => "carryless_crc",
            O::JoinedTables => "joined_tables",
            O::BatchedCounts => "batched_counts",
            O::DerivedCounts => "derived_counts",
        }
    }

    /// What it does, in one line.
    pub fn about(self) -> &'static str {
        match self {
            O::EditMode => "modify headers in place instead of deparsing into a new frame",
            O::LazyFields => "load fields where they are read, not in the parser",
            O::WideStores => "combine stores of adjacent fields",
            O::RegisterSlots => "keep slots in registers, not in memory",
            O::DeadFields => "eliminate moves of dead fields",
            O::BakedAddresses => "embed addresses of tables and state as constants",
            O::InlineTables => "inline lookups in exact and direct tables",
            O::SplitPaths => "duplicate code after joins, specialised for the facts of each path",
            O::HotPaths => "duplicate the pipeline, lookups included, for packets with the most headers",
            O::PackedChecksum => "sum checksums by words of the packet, not field by field",
            O::IncrementalChecksum => "update a verified checksum incrementally (RFC 1624)",
            O::InlineHashes => "inline CRCs, checksums and other hashes",
            O::CarrylessCrc => "compute CRCs by carry-less multiplication where the processor has it",
            O::JoinedTables => "materialise joins of tables whose keys are parameters of another table's entries",
            O::BatchedCounts => "add hit and miss counters once per batch",
            O::DerivedCounts => "derive hit and miss counts of the main path from counts of the other paths",
            O::WideCompare => "compare a key with a whole bucket at once where the processor has AVX-512",
        }
    }
}

/// A set of optimisations that are switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without(u32);

impl Without {
    /// The set of all optimisations.
    pub fn all() -> Without {
        Optimisation::ALL.into_iter().collect()
    }

    /// Switches one more off.
    pub fn insert(&mut self, optimisation: Optimisation) {
        self.0 |= 1 << optimisation as u32;
    }

    /// Switches one on again.
    pub fn remove(&mut self, optimisation: Optimisation) {
        self.0 &= !(1 << optimisation as u32);
    }

    /// Whether one is switched off.
    pub fn contains(self, optimisation: Optimisation) -> bool {
        self.0 >> optimisation as u32 & 1 != 0
    }
}

impl FromIterator<Optimisation> for Without {
    fn from_iter<I: IntoIterator<Item = Optimisation>>(all: I) -> Without {
        let mut set = Without::default();
        all.into_iter().for_each(|o| set.insert(o));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_optimisation_is_listed_once_and_has_a_bit_of_its_own() {
        let all = Optimisation::ALL;
        for (i, o) in all.into_iter().enumerate() {
            assert_eq!(o as usize, i, "{} is listed elsewhere than it is declared", o.name());
            let one: Without = [o].into_iter().collect();
            assert_eq!(all.into_iter().filter(|o| one.contains(*o)).collect::<Vec<_>>(), [o]);
        }
        assert!(all.into_iter().all(|o| Without::all().contains(o)));
    }
}
