//! The intermediate representation: types, text form, verifier, builder.
//!
//! ARCHITECTURE.md, "The IR", explains the design. An operation is defined once, in [`op::Op`]; exhaustive matches find
//! its users: `print`, `parse`, `verify`, `opt`, `interp`, `jit`, `lowering`.

pub mod atomicity;
pub mod bitset;
pub mod builder;
pub mod cost;
pub mod eval;
pub mod flow;
pub mod generate;
pub mod layout;
pub mod masked_sets;
pub mod op;
pub mod packet_bounds;
pub mod parse;
pub mod print;
pub mod program;
pub mod verify;

pub use atomicity::{Acquire, Acquisitions, Atomicity, Sharing};
pub use base::ids::{ActionId, BlockId, CalculationId, ExternId, HeaderId, SlotId, StageId, TableId};
pub use bitset::BitSet;
pub use builder::{Builder, FieldWidth};
pub use cost::STEPS_MAX;
pub use flow::Cfg;
pub use op::{
    Again, BinOp, CastKind, Fate, HashAlgorithm, Inst, Mark, Op, Operand, ReplicationPoint, Terminator, UnOp, Update,
};
pub use parse::parse;
pub use print::print;
pub use program::*;
pub use verify::verify;
