//! Limits of one compilation, and the options of a switch that set them.

use std::time::Duration;

/// The default memory limit of a child, in MB: four times what the largest program of p4c's corpus takes, and enough
/// for the largest program that the compiler's own limits accept.
pub const MEMORY_MB_DEFAULT: u64 = 2048;
/// The smallest memory limit, in MB: less does not hold the executable, its libraries and a stack.
pub const MEMORY_MB_MIN: u64 = 256;
/// The default time limit for a program, in seconds; switch.p4 takes 0.2.
pub const TIME_S_DEFAULT: u64 = 30;

/// Limits of one compilation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The child's address space, in bytes.
    pub memory_bytes: u64,
    /// Elapsed time; the limit of processor time is slightly larger.
    pub time: Duration,
}

/// The options of a switch.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct LimitArgs {
    /// Megabytes that compiling a program may take.
    #[arg(long, value_name = "MB", default_value_t = MEMORY_MB_DEFAULT, value_parser = clap::value_parser!(u64).range(MEMORY_MB_MIN..=1 << 20))]
    compile_memory: u64,
    /// Seconds that compiling a program may take, and as many that making machine code of it may take.
    #[arg(long, value_name = "SECONDS", default_value_t = TIME_S_DEFAULT, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    compile_time: u64,
    /// Megabytes that counters, meters and registers of all programs may take, that the switch may have in use when an entry is added, and
    /// that flows, groups and meters of a bridge may take; half of the memory by default.
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    state_memory: Option<u64>,
}

impl LimitArgs {
    /// Returns the memory limit of programs' state, in bytes.
    pub fn state_bytes(&self) -> u64 {
        self.state_memory.map_or_else(datapath::memory::half_of_memory, |mb| mb << 20)
    }

    /// Returns the limits of a compilation.
    pub fn limits(&self) -> Limits {
        Limits { memory_bytes: self.compile_memory << 20, time: Duration::from_secs(self.compile_time) }
    }
}
