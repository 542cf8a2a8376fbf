//! Compiles the messages of `proto/` to Rust and all of it to a descriptor set, without `protoc`: `protox` is a protobuf
//! compiler in Rust, so that a build needs nothing but cargo. The services are compiled in `grpc`.

use protox::prost::Message;
use std::error::Error;
use std::path::PathBuf;

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
    std::fs::write(out.join("messages.fds"), descriptors.encode_to_vec())?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
