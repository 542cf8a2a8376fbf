//! Helper functions that programs may call, and their signatures.
//!
//! Numbers, arguments and results are those of `linux/bpf.h`, so that programs need no other header. `run` implements
//! the helpers.

/// A helper function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// `void *map_lookup_elem(map, key)`: address of the value, or null.
    MapLookup,
    /// `long map_update_elem(map, key, value, flags)`.
    MapUpdate,
    /// `long map_delete_elem(map, key)`.
    MapDelete,
    /// `u64 ktime_get_ns(void)`: the time at which the packet's batch began.
    Time,
    /// `long trace_printk(format, format_size, ...)`: adds a line to the program's log.
    Trace,
    /// `u32 get_prandom_u32(void)`.
    Random,
    /// `long redirect(ifindex, flags)`: sets the output port; the program then returns `XDP_REDIRECT`.
    Redirect,
    /// `s64 csum_diff(from, from_size, to, to_size, seed)`.
    ChecksumDifference,
    /// `long xdp_adjust_head(ctx, delta)`: a negative delta adds zero bytes at the front, a positive one removes bytes.
    AdjustHead,
    /// `long xdp_adjust_tail(ctx, delta)`: a positive delta adds zero bytes at the end, a negative one removes bytes.
    AdjustTail,
}

/// The type of an argument register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Argument {
    /// Any number.
    Number,
    /// The program's context.
    Context,
    /// The handle of a map.
    Map,
    /// Readable memory of the map's key size.
    Key,
    /// Readable memory of the map's value size.
    Value,
    /// Readable memory of the size in the next register.
    Memory,
    /// As `Memory`, or null if the size is zero.
    MemoryOrNull,
    /// The size in bytes, at least one, of the memory in the previous register.
    MemorySize,
    /// As `MemorySize`, or zero.
    MemorySizeOrZero,
}

/// The type of the result in `r0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Returns {
    /// Any number.
    Number,
    /// A number below 2³².
    Word,
    /// A value of the map, or null.
    ValueOrNull,
}

impl Helper {
    /// All helpers.
    pub const ALL: [Helper; 10] = [
        Helper::MapLookup,
        Helper::MapUpdate,
        Helper::MapDelete,
        Helper::Time,
        Helper::Trace,
        Helper::Random,
        Helper::Redirect,
        Helper::ChecksumDifference,
        Helper::AdjustHead,
        Helper::AdjustTail,
    ];

    /// The helper with a number in `linux/bpf.h`.
    pub fn of(number: i32) -> Option<Helper> {
        Helper::ALL.into_iter().find(|helper| helper.number() == number)
    }

    /// Its number in `linux/bpf.h`.
    pub fn number(self) -> i32 {
        match self {
            Helper::MapLookup => 1,
            Helper::MapUpdate => 2,
            Helper::MapDelete => 3,
            Helper::Time => 5,
            Helper::Trace => 6,
            Helper::Random => 7,
            Helper::Redirect => 23,
            Helper::ChecksumDifference => 28,
            Helper::AdjustHead => 44,
            Helper::AdjustTail => 65,
        }
    }

    /// Its name in `linux/bpf.h`.
    pub fn name(self) -> &'static str {
        match self {
            Helper::MapLookup => "map_lookup_elem",
            Helper::MapUpdate => "map_update_elem",
            Helper::MapDelete => "map_delete_elem",
            Helper::Time => "ktime_get_ns",
            Helper::Trace => "trace_printk",
            Helper::Random => "get_prandom_u32",
            Helper::Redirect => "redirect",
            Helper::ChecksumDifference => "csum_diff",
            Helper::AdjustHead => "xdp_adjust_head",
            Helper::AdjustTail => "xdp_adjust_tail",
        }
    }

    /// The types of `r1` and the following registers. `trace_printk` takes up to three more numbers, which the verifier
    /// counts by the registers that are set.
    pub(crate) fn arguments(self) -> &'static [Argument] {
        use Argument::*;
        match self {
            Helper::MapLookup | Helper::MapDelete => &[Map, Key],
            Helper::MapUpdate => &[Map, Key, Value, Number],
            Helper::Time | Helper::Random => &[],
            Helper::Trace => &[Memory, MemorySize],
            Helper::Redirect => &[Number, Number],
            Helper::ChecksumDifference => &[MemoryOrNull, MemorySizeOrZero, MemoryOrNull, MemorySizeOrZero, Number],
            Helper::AdjustHead | Helper::AdjustTail => &[Context, Number],
        }
    }

    pub(crate) fn returns(self) -> Returns {
        match self {
            Helper::MapLookup => Returns::ValueOrNull,
            Helper::Random => Returns::Word,
            _ => Returns::Number,
        }
    }

    /// Whether the helper may move the packet in its buffer, which invalidates pointers into the packet.
    pub(crate) fn moves_packet(self) -> bool {
        matches!(self, Helper::AdjustHead | Helper::AdjustTail)
    }

    /// Names and numbers of all helpers, for messages.
    pub(crate) fn known() -> String {
        Helper::ALL.map(|helper| format!("{} ({})", helper.name(), helper.number())).join(", ")
    }
}
