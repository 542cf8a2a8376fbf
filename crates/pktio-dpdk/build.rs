//! Compiles the C shim with DPDK's own flags and links DPDK's shared libraries.
//!
//! Drivers are not linked: the EAL loads them from DPDK's plugin folder when it starts.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=shim");
    let library = pkg_config::Config::new().atleast_version("22.11").probe("libdpdk");
    if let Err(error) = library {
        panic!("DPDK 22.11 or later is needed to build this crate (Debian: apt install libdpdk-dev): {error}");
    }
    // The `pkg-config` crate understands -I and -D only; DPDK's headers also need `-include` and `-march`.
    let output =
        Command::new("pkg-config").args(["--cflags", "libdpdk"]).output().expect("pkg-config ran a moment ago");
    let flags = String::from_utf8(output.stdout).expect("compiler flags are text");
    let mut build = cc::Build::new();
    build
        .files(["shim/shim.c"])
        .define("ALLOW_EXPERIMENTAL_API", None)
        .opt_level(3)
        .warnings(true)
        .flag_if_supported("-Wno-address-of-packed-member");
    flags.split_whitespace().for_each(|flag| {
        build.flag(flag);
    });
    build.compile("sluice_dpdk_shim");
}
