//! The optimisations that are part of code generation, each with a switch.
//!
//! The passes of crate `opt` turn IR into IR and can be left out one by one. What makes compiled code fast beyond that is
//! how it is generated; [`Optimisation`] names those parts, so that the worth of each can be measured like a pass's.
//! Without one of them the code is slower and does the same. Names share one namespace with the passes'
//! (`datapath::Switches`).
//!
//! [`Without`] is a set of them, in `Options::without`.
//!
//! Tests: `tests/files/`, a file for each; `tests/packets.rs`; all tests of this crate with `JIT_WITHOUT=NAME,...`; crate `difftest` leaves each out.

/// A part of code generation that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Optimisation {
    /// The deparser edits packets where they stand. Without: it writes all headers anew, changed or not (PISCES, section
    /// 4.3, post-pipeline editing).
    EditMode,
    /// Fields are loaded where they are read, if they are. Without: the parser loads every field that it extracts
    /// (PISCES, parser specialisation).
    LazyFields,
    /// Neighbouring fields become one store. Without: each field is stored by itself (PISCES, action coalescing).
    WideStores,
    /// Slots live in registers. Without: each has a place of its own in memory (PVPP, reducing metadata access).
    RegisterSlots,
    /// Fields in memory that nothing reads on a path are not moved. Without: all are.
    DeadFields,
    /// Addresses of tables, registers and the runtime are constants in the code. Without: they are loaded from a list
    /// each time (PVPP, reducing pointer dereferences).
    BakedAddresses,
    /// Tables whose engine allows it are probed by the code itself. Without: their engines are called.
    InlineTables,
    /// What follows where paths join is copied for what is known on each path, lookups excepted. Without: it is asked again.
    SplitPaths,
    /// Packets with the deepest headers have code of their own from the parser to the end, lookups included. Without: they
    /// share it with all others, which forgets what the parser found.
    HotPaths,
    /// Checksums sum unchanged fields straight from the packet, many at a time. Without: field by field.
    PackedChecksum,
    /// A checksum that was verified is brought up to date for what changed (RFC 1624). Without: it is summed again.
    IncrementalChecksum,
    /// Hashes of bit strings of constant length are part of the code. Without: the runtime is called.
    InlineHashes,
    /// A key is compared with all keys of a bucket at once, where the processor has AVX-512. Without: two or four at a time.
    WideCompare,
    /// CRCs are products of polynomials, where the processor has VPCLMULQDQ and AVX-512. Without: a lookup for each byte.
    CarrylessCrc,
    /// Tables whose keys are what an earlier table's entries say are looked up when the code is made. Without: for each packet.
    JoinedTables,
    /// Hits and misses of tables are counted on the stack, and added to the tables' counters behind each batch. Without: each at once.
    BatchedCounts,
    /// Hits and misses that follow from others and the number of packets are not counted. Without: each lookup is.
    DerivedCounts,
}

use Optimisation as O;

impl Optimisation {
    /// All of them.
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

    /// Its name on the command line.
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

    /// What it does, in a line.
    pub fn about(self) -> &'static str {
        match self {
            O::EditMode => "edit packets where they stand instead of writing all headers anew",
            O::LazyFields => "load fields where they are read instead of all of them in the parser",
            O::WideStores => "store neighbouring fields at once instead of one by one",
            O::RegisterSlots => "keep slots in registers instead of memory",
            O::DeadFields => "move no fields in memory that nothing reads on a path",
            O::BakedAddresses => "have addresses of tables and state in the code instead of loading them",
            O::InlineTables => "probe exact and direct tables in the code instead of calling their engines",
            O::SplitPaths => "copy what follows where paths join for what is known on each, instead of asking again",
            O::HotPaths => "copy everything behind the parser for packets with the deepest headers, lookups too",
            O::PackedChecksum => "sum checksums by words of the packet instead of field by field",
            O::IncrementalChecksum => "bring a verified checksum up to date for what changed instead of summing again",
            O::InlineHashes => "compute CRCs, checksums and other hashes in the code instead of calling the runtime",
            O::CarrylessCrc => "compute CRCs by carry-less products, where the processor has them, instead of lookups",
            O::JoinedTables => {
                "look tables up once for each entry whose parameters are their keys, where these are known"
            }
            O::BatchedCounts => "add hits and misses of tables up once for each batch",
            O::DerivedCounts => "count packets where few go, and derive hits and misses where most do",
            O::WideCompare => "compare keys with all of a bucket at once, where the processor has AVX-512",
        }
    }
}

/// A set of optimisations that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without(u32);

impl Without {
    /// All of them.
    pub fn all() -> Without {
        Optimisation::ALL.into_iter().collect()
    }

    /// Leaves one more out.
    pub fn insert(&mut self, optimisation: Optimisation) {
        self.0 |= 1 << optimisation as u32;
    }

    /// Takes one back in.
    pub fn remove(&mut self, optimisation: Optimisation) {
        self.0 &= !(1 << optimisation as u32);
    }

    /// Whether one is left out.
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
