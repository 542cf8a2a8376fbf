//! Compiles the C programs of `tests/programs`, where there is a clang that can.

use bpf::Object;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bytes of the object that clang makes of a program; `None`, with a line that says so, if there is no clang.
pub fn compile(name: &str, flags: &[&str]) -> Option<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source: PathBuf = root.join("tests/programs").join(name).with_extension("c");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("program.o");
    let mut missing = Vec::new();
    for clang in ["clang", "clang-14", "clang-16", "clang-19"] {
        let mut command = Command::new(clang);
        command.args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-I"]).arg(root.join("include"));
        match command.args(flags).arg("-c").arg(&source).arg("-o").arg(&output).output() {
            Ok(done) => {
                let errors = String::from_utf8_lossy(&done.stderr);
                assert!(done.status.success(), "{clang} refuses {name}: {errors}");
                return Some(std::fs::read(&output).expect("clang wrote the object"));
            }
            Err(_) => missing.push(clang),
        }
    }
    println!("skipped {name}: none of {} is installed", missing.join(", "));
    None
}

/// As `compile`, and reads the object.
pub fn object(name: &str, flags: &[&str]) -> Option<Object> {
    Some(Object::read(&compile(name, flags)?).unwrap_or_else(|e| panic!("{name}: {e}")))
}
