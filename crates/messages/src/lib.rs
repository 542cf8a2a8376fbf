//! The protobuf messages of P4Runtime, of the admin service and of the state directory, and their conversion to and
//! from the control plane's values.
//!
//! Controllers exchange these messages (`grpc`), the state directory stores them (`store`), and the command line prints
//! them (`entities`). The crate knows no transport: the services are generated in `grpc`.

pub mod convert;
mod proto;

pub use proto::{FILE_DESCRIPTOR_SET, google, p4, sluice};
