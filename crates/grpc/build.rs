//! Compiles `proto/` to Rust and to a descriptor set, without `protoc`: `protox` is a protobuf compiler in Rust, so that
//! a build needs nothing but cargo.

use std::error::Error;
use std::path::PathBuf;

use protox::prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(
        [
            "p4/v1/p4runtime.proto",
            "sluice/v1/admin.proto",
            "sluice/v1/capabilities.proto",
            "sluice/v1/role.proto",
            "sluice/v1/state.proto",
        ],
        ["proto"],
    )?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("p4runtime.fds"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
