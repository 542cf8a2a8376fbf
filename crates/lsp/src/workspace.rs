//! The programs of the workspace that include a file, found by its name in their `#include` lines.
//!
//! Lines are scanned as text, so the result is an over-approximation: it has programs that include a file of the same
//! name in another folder, or in a group that `#if` excludes. The caller analyses the candidates. Nothing is cached,
//! since files change while an editor runs.
//!
//! Tests: `tests/editor.rs`.

use crate::files::{Files, normal};
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of workspace files that are read, and their maximum size in bytes.
const FILES_MAX: usize = 2_000;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// File name extensions of P4 programs and the files that they include.
pub const ENDINGS: [&str; 4] = ["p4", "h", "p4h", "inc"];

/// The files that include a file, directly or indirectly, and may declare `main`; the nearest first, without the file
/// itself.
pub fn programs_with(folders: &[PathBuf], files: &Files, name: &str) -> Vec<String> {
    let sources = sources(folders, files);
    let mut programs = Vec::new();
    let mut seen = BTreeSet::from([name]);
    let mut queue = VecDeque::from([name]);
    while let Some(included) = queue.pop_front() {
        let Some(included) = Path::new(included).file_name().and_then(|n| n.to_str()) else { continue };
        for (path, text) in &sources {
            if includes(text, included) && seen.insert(path) {
                queue.push_back(path);
                if text.contains("main") {
                    programs.push(path.clone());
                }
            }
        }
    }
    programs
}

/// Whether a text has a line that includes a file of this name, in any folder.
fn includes(text: &str, file: &str) -> bool {
    text.contains(file)
        && text.lines().any(|line| {
            let directive = line.trim_start().strip_prefix('#').map(str::trim_start);
            let named =
                directive.and_then(|d| d.strip_prefix("include")).and_then(|rest| rest.split(['"', '<', '>']).nth(1));
            named.is_some_and(|path| path.rsplit('/').next() == Some(file))
        })
}

/// The files of the workspace with their texts, sorted by name.
fn sources(folders: &[PathBuf], files: &Files) -> Vec<(String, Arc<str>)> {
    let mut found = BTreeSet::new();
    let mut folders: Vec<PathBuf> = folders.to_vec();
    'all: while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let source = path.extension().is_some_and(|e| ENDINGS.iter().any(|ending| e == *ending));
            if kind.is_dir() && !hidden {
                folders.push(path);
            } else if source && entry.metadata().is_ok_and(|m| m.is_file() && m.len() <= FILE_BYTES_MAX) {
                if found.len() == FILES_MAX {
                    tracing::warn!(
                        "only {FILES_MAX} files of the workspace are searched for programs that include a file"
                    );
                    break 'all;
                }
                found.insert(normal(&path));
            }
        }
    }
    found.into_iter().filter_map(|path| files.text(&path).map(|text| (path, text))).collect()
}
