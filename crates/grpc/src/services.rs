//! Clients and servers of the two services, generated at build time from `crates/messages/proto`.
#![allow(missing_docs, reason = "generated; the .proto files hold the comments")]
#![allow(clippy::all, reason = "generated")]

/// P4Runtime.
pub mod p4runtime {
    tonic::include_proto!("p4.v1");
}

/// Administration of this switch.
pub mod admin {
    tonic::include_proto!("sluice.v1");
}
