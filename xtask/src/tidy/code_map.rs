//! Each crate imports only crates above it in ARCHITECTURE.md's code map, its tests excepted; the map names every crate.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Adds a finding for every dependency that points downwards in the map, and for crates that are in one place only.
pub fn check(findings: &mut Vec<String>) -> Result<()> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let map = read(Path::new("ARCHITECTURE.md"))?;
    let workspace = read(Path::new("Cargo.toml"))?;
    let places: BTreeMap<&str, usize> = folders(&map).enumerate().map(|(place, folder)| (folder, place)).collect();
    let crates: BTreeMap<&str, &str> = workspace.lines().filter_map(own).collect();
    for (name, folder) in &crates {
        let Some(place) = places.get(folder) else {
            findings.push(format!("ARCHITECTURE.md: the code map does not name `{folder}`"));
            continue;
        };
        let manifest = Path::new(folder).join("Cargo.toml");
        for dependency in dependencies(&read(&manifest)?) {
            let Some(other) = crates.get(dependency) else { continue };
            if places.get(other).is_some_and(|other| other >= place) {
                let manifest = manifest.display();
                findings.push(format!(
                    "{manifest}: `{name}` depends on `{dependency}`, which is not above it in the code map"
                ));
            }
        }
    }
    Ok(())
}

/// Folders of crates in the rows of the code map, in order.
fn folders(architecture: &str) -> impl Iterator<Item = &str> {
    architecture.lines().filter_map(|line| {
        let folder = line.strip_prefix("| `")?.split('`').next()?;
        folder.strip_prefix("crates/").is_some_and(|name| !name.contains('/')).then_some(folder)
    })
}

/// Name and folder of a crate of ours in a line of the workspace's manifest.
fn own(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(" = { path = \"")?;
    Some((name, value.split('"').next()?))
}

/// Names in the `[dependencies]` and `[build-dependencies]` of a manifest.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut section = "";
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            section = line;
        }
        let name =
            line.split(['.', '=', ' ']).next().filter(|name| !name.is_empty() && !name.starts_with(['[', '#']))?;
        matches!(section, "[dependencies]" | "[build-dependencies]").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_dependencies_are_found() {
        let map =
            "| crate | what |\n| --- | --- |\n| `crates/a` | one |\n| limits | `crates/x` |\n| `crates/b` | two |\n";
        assert_eq!(folders(map).collect::<Vec<_>>(), ["crates/a", "crates/b"]);
        assert_eq!(own("a = { path = \"crates/a\" }"), Some(("a", "crates/a")));
        assert_eq!(own("csv = \"1\""), None);
        let manifest = "[package]\nname = \"b\"\n[dependencies]\na.workspace = true\n# c\nd = \"1\"\n[dev-dependencies]\ne = \"1\"\n";
        assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["a", "d"]);
    }
}
