//! The messages as Rust types, generated at build time from `proto/`.
//!
//! Generated code only: `control` defines the semantics, and `convert` translates between the two. The module tree
//! mirrors the protobuf packages, because the generated code refers to siblings by relative path. Tests:
//! `tests/py/test_descriptors.py` compares the descriptors with the published ones.
#![allow(missing_docs, reason = "generated; the .proto files hold the comments")]
#![allow(clippy::all, reason = "generated")]

/// The compiled `.proto` files and all they import, as an encoded `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/messages.fds"));

pub mod google {
    pub mod rpc {
        include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
    }
}

pub mod p4 {
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/p4.v1.rs"));
    }
    pub mod config {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/p4.config.v1.rs"));
        }
    }
}

pub mod sluice {
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/sluice.v1.rs"));
    }
}
