//! P4Info generation: ids, annotations and documentation of the objects that a controller sees.
//!
//! `build` traverses the typed program, `model` holds the result as plain values, `ids` allocates ids and aliases,
//! `text` prints the protobuf text format. The crate uses no protobuf library: `messages::convert` turns the model into
//! messages.

mod annotations;
mod build;
mod digests;
pub mod ids;
pub mod model;
mod reach;
pub mod text;
mod types;

pub use build::build;

pub use model::*;
