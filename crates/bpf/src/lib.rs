//! BPF programs: a loader for object files that `clang -target bpf` produces, a verifier, a compiler and an
//! interpreter.
//!
//! A program is an action of the packet pipeline, as in P4rt-OVS (Osiński et al., 2020, section IV): it may read and
//! change a packet's bytes and length, keeps state in maps that the control plane can access, and decides the packet's
//! fate. [`Object::read`] reads a file, [`Program::load`] links and verifies a program of it, [`Program::run`] runs it
//! on a packet.
//!
//! The calling convention is that of XDP: `int program(struct xdp_md *ctx)`. `context.rs` describes the context,
//! [`Verdict`] the results, [`Helper`] the helpers; `include/sluice_bpf.h` declares all of them for C.
//!
//! - `instruction` decodes instructions; `alu` defines their arithmetic.
//! - `object` reads files: `object/btf.rs` map definitions, `object/link.rs` functions and relocations.
//! - `verifier` checks programs (`verified` holds the result); `lower` translates them to machine-level IR ([`mir`]),
//!   `compile` that to machine code, which `code` owns and runs; `interpreter` is the oracle.
//! - `map` is memory shared by programs and the control plane; `run` implements the helpers.
//!
//! Object files are untrusted. Memory is little endian, as in the object files.

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
