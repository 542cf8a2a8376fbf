//! The protobuf messages of P4Runtime, of the admin service and of the state directory, and their conversion to and from
//! the control plane's values.
//!
//! Messages are what controllers send (`grpc`), what the state directory holds (`store`) and what the command line shows
//! (`entities`). The crate knows no transport: services are generated in `grpc`.

pub mod convert;
mod proto;

pub use proto::{FILE_DESCRIPTOR_SET, google, p4, sluice};
