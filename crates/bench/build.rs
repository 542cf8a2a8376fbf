//! Compiles the C references for speed, as their author would: with clang if it is installed, and `-O3 -march=native`,
//! regardless of the profile of the Rust code. Also records the commit of the sources, since the program may run elsewhere,
//! and later.

use std::path::Path;
use std::process::Command;

/// The output of a git command in the sources' checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Tells the crate its commit, and cargo when that may change: when the checkout's head has moved and, for `-dirty`,
/// when a source has changed.
fn stamp() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = git(&["describe", "--always", "--dirty"]).unwrap_or_else(|| "unknown".to_string());
    println!("cargo:rustc-env=SLUICE_SOURCES={sources}");
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let places = ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref());
    // Git's paths of these files, which differ in a worktree. A path that does not exist would count as changed each
    // time.
    let files = places.filter_map(|place| git(&["rev-parse", "--git-path", place]));
    let files = files.map(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    let folders = ["crates", "examples", "Cargo.lock"].map(|name| root.join(name));
    for path in files.chain(folders).filter(|path| path.exists()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

fn main() {
    stamp();
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
