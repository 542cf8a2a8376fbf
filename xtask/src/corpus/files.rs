//! Which files of the checkout are programs, and what they include.
//!
//! Includes are read from the text, without a preprocessor: one in a comment or in an untaken `#if` counts. That errs towards
//! leaving a program out only when the include names an architecture that is not ours.

use anyhow::{Context, Result};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// The architecture files that come with the compiler, and which architecture each is of.
const OURS: [(&str, &str); 11] = [
    ("core.p4", "none"),
    ("v1model.p4", "v1model"),
    ("psa.p4", "psa"),
    ("bmv2/psa.p4", "psa"),
    ("dpdk/psa.p4", "psa"),
    ("pna.p4", "pna"),
    ("bmv2/pna.p4", "pna"),
    ("dpdk/pna.p4", "pna"),
    ("ebpf_model.p4", "ebpf_model"),
    ("xdp_model.p4", "xdp_model"),
    ("ubpf_model.p4", "ubpf_model"),
];

/// All files below `dir` with this extension, sorted.
pub fn below(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The programs among the samples: every file of the top folder, as p4c's own tests have it, and in folders below those that
/// instantiate `main` (the others there are parts of programs).
pub fn programs(samples: &Path) -> Result<Vec<PathBuf>> {
    let mut all = below(samples, "p4")?;
    all.retain(|p| p.parent() == Some(samples) || instantiates_main(p));
    Ok(all)
}

/// Whether the text has `) main;`.
fn instantiates_main(program: &Path) -> bool {
    let text = read(program);
    text.match_indices("main")
        .any(|(at, word)| text[..at].trim_end().ends_with(')') && text[at + word.len()..].trim_start().starts_with(';'))
}

/// Names of the files that a program includes, itself or through its own files, and that do not lie in the checkout's folder
/// beside it.
pub fn architectures(program: &Path, samples: &Path) -> BTreeSet<String> {
    let mut seen = HashSet::new();
    let mut todo = vec![program.to_path_buf()];
    let mut outside = BTreeSet::new();
    while let Some(file) = todo.pop() {
        if !seen.insert(file.clone()) {
            continue;
        }
        for name in includes(&file) {
            let places = [file.with_file_name(&name), samples.join(&name)];
            match places.into_iter().find(|p| p.exists()) {
                Some(own) => todo.push(own),
                None => _ = outside.insert(name),
            }
        }
    }
    outside
}

/// Whether a program needs no architecture file but ours (it may declare an architecture itself).
pub fn needs_only_ours(program: &Path, samples: &Path) -> bool {
    architectures(program, samples).iter().all(|name| architecture_of(name).is_some())
}

/// The architecture of ours that a program is for: that of a file that it includes; `none` if there is no such file.
pub fn architecture(program: &Path, samples: &Path) -> &'static str {
    let included = architectures(program, samples);
    let mut known = included.iter().filter_map(|name| architecture_of(name));
    known.find(|architecture| *architecture != "none").unwrap_or("none")
}

fn architecture_of(file: &str) -> Option<&'static str> {
    OURS.iter().find(|(name, _)| *name == file).map(|(_, architecture)| *architecture)
}

fn includes(file: &Path) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let close = match rest.chars().next()? {
            '<' => '>',
            '"' => '"',
            _ => return None,
        };
        rest[1..].split_once(close).map(|(name, _)| name.to_string())
    };
    read(file).lines().filter_map(name).collect()
}

/// A file's text; old programs have comments that are no UTF-8.
pub fn read(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_ours_if_all_its_files_are() {
        let dir = std::env::temp_dir().join(format!("sluice-corpus-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        write("part.p4", "# include<core.p4>\n");
        write("ours.p4", "#include \"part.p4\"\n#include <v1model.p4>\n");
        write("theirs.p4", "#include \"sub/part.p4\"\n");
        write("sub/part.p4", "#include <tna.p4>\n");
        write("psa.p4", "#include \"bmv2/psa.p4\"\n");
        write("sub/main.p4", "#include \"../part.p4\"\nP() main ;\n");
        assert!(needs_only_ours(&dir.join("ours.p4"), &dir));
        assert!(!needs_only_ours(&dir.join("theirs.p4"), &dir));
        let of = |name: &str| architecture(&dir.join(name), &dir);
        assert_eq!([of("ours.p4"), of("psa.p4"), of("part.p4")], ["v1model", "psa", "none"]);
        let names: Vec<PathBuf> =
            ["ours.p4", "part.p4", "psa.p4", "sub/main.p4", "theirs.p4"].map(|n| dir.join(n)).to_vec();
        assert_eq!(programs(&dir).unwrap(), names);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
