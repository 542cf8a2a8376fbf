//! What the tests of this folder share.

use std::path::{Path, PathBuf};

/// All programs with a script of the same name, below `examples/` and `tests/stf/`.
pub fn programs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut folders = vec![root.join("examples"), root.join("tests/stf")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "p4") && path.with_extension("stf").exists() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
