//! Compiles the C references as somebody who wants them fast would: clang if it is there, `-O3 -march=native`, whatever
//! the profile of the Rust code.

use std::path::Path;
use std::process::Command;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/reference");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut build = cc::Build::new();
    let has_clang = Command::new("clang").arg("--version").output().is_ok_and(|o| o.status.success());
    if std::env::var_os("CC").is_none() && has_clang {
        build.compiler("clang");
    }
    let mut sources: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    sources.sort();
    build.files(&sources).opt_level(3).flag("-march=native").flag("-std=gnu11").warnings(true).extra_warnings(true);
    build.flag_if_supported("-Wno-unused-function");
    let version = Command::new(build.get_compiler().path()).arg("--version").output();
    let version = version.map(|o| String::from_utf8_lossy(&o.stdout).lines().next().unwrap_or_default().to_string());
    println!("cargo:rustc-env=C_COMPILER={}", version.unwrap_or_default());
    build.compile("sluice_references");
}
