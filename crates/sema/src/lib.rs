//! Syntax tree to typed program: names, types, constants, instances.
//!
//! The result, [`typed::Program`], is what `lower` and `p4info` read; its module text states the shape.

pub mod consteval;
pub mod typed;
pub mod types;
pub mod value;

pub use typed::Program as TypedProgram;
pub use types::Type;
pub use value::Value;
