//! P4Runtime over gRPC: the only crate with an async runtime.

pub mod proto;
