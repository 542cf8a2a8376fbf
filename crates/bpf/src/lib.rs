//! BPF programs: object files as `clang -target bpf` makes them, a verifier, and what runs them on packets.
//!
//! A program is an action of the packet pipeline, as in P4rt-OVS (Osiński et al., 2020, section IV): it may read and
//! change a packet's bytes and length, keeps state in maps that the control plane reads and writes, and says whether the
//! packet goes on. [`Object::read`] reads a file, [`Program::load`] links and verifies a program of it,
//! [`Program::run`] runs it on a packet.
//!
//! The calling convention is that of XDP: `int program(struct xdp_md *ctx)`. The context is described in `context.rs`, the
//! results at [`Verdict`], the helpers at [`Helper`]; `include/sluice_bpf.h` declares all of them for C.
//!
//! - `instruction` decodes instructions; `alu` says what they compute.
//! - `object` reads files: `object/btf.rs` descriptions of maps, `object/link.rs` functions and relocations.
//! - `verifier` checks programs (`verified` is one that passed); `lower` makes machine-level IR of them ([`mir`]) and
//!   `compile` machine code of that, which `code` owns and runs; `interpreter` runs them too, as the oracle.
//! - `map` is memory that programs and control plane share; `run` is what helpers do.
//!
//! Everything that comes from a file is untrusted. Memory is little endian, as in the object files.

mod alu;
mod code;
mod compile;
mod context;
mod error;
mod helper;
mod instruction;
mod interpreter;
mod lower;
mod map;
mod object;
mod program;
mod run;
mod verified;
mod verifier;

pub use error::{Error, MapError, VerifyError};
pub use helper::Helper;
pub use instruction::code as encoding;
pub use instruction::{
    Alu, Atomic, Condition, Constant, FRAME_POINTER, INSTRUCTION_BYTES, Instruction, Op, Operand, REGISTERS, Size,
};
pub use map::{KEY_BYTES_MAX, MAP_BYTES_MAX, Map, MapKind, MapSpec, Update, VALUE_BYTES_MAX};
pub use object::{MAPS_MAX, OBJECT_BYTES_MAX, Object, ProgramName};
pub use program::{BUDGET, Maps, Options, Program};
pub use run::{Abort, Frame, LOG_LINES_MAX, PACKET_BYTES_MIN, Verdict};
pub use verifier::{COMPLEXITY_MAX, DEPTH_MAX, STACK_BYTES};
