//! Generates the services of `crates/messages/proto`; their messages are types of `messages`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let proto = "../messages/proto";
    println!("cargo::rerun-if-changed={proto}");
    let descriptors = protox::compile(["p4/v1/p4runtime.proto", "sluice/v1/admin.proto"], [proto])?;
    tonic_prost_build::configure()
        .extern_path(".p4", "::messages::p4")
        .extern_path(".google.rpc", "::messages::google::rpc")
        .extern_path(".sluice", "::messages::sluice")
        .compile_fds(descriptors)?;
    Ok(())
}
