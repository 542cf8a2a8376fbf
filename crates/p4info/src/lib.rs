//! Typed program to P4Info: ids, annotations, documentation of the objects a controller sees.
//!
//! `build` walks the program, `model` is the result as plain values, `ids` numbers and names the objects, `text` prints them in the protobuf text
//! format. The crate knows no protobuf library: `messages::convert` makes messages of the model.

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
