//! Typed program to P4Info: ids, annotations, documentation of the objects a controller sees.
//!
//! `model` is the result as plain values, `ids` numbers and names the objects, `text` prints them in the protobuf text
//! format. The crate knows no protobuf library: `grpc::convert` makes messages of the model.

pub mod ids;
pub mod model;
pub mod text;

pub use model::*;
