//! The caller's input to the preprocessor: options, and access to included files.
//!
//! The crate itself opens no files and embeds none: the binary reads the disk, `sema` owns `core.p4` and the
//! architecture files, tests use a map. Search order (implemented in `preprocess`) for `#include "x"`: directory of the
//! including file, include directories in order, embedded; for `#include <x>`: include directories in order, embedded.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How to preprocess and parse a program.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories of `-I`, in order.
    pub include_dirs: Vec<String>,
    /// `-D name=value`, in order. The value is used unchanged: for `-D name` the caller passes `1`, as C compilers do.
    pub defines: Vec<(String, String)>,
}

/// Provides the texts of included files.
pub trait FileLoader {
    /// The text of the file at a path (relative to the working directory or absolute); `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// A message that says why an existing file is not read: it is a device, or too long.
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String>;

    /// The text of a file embedded in the compiler, by the name in `#include <name>`.
    fn embedded(&self, name: &str) -> Option<Arc<str>>;

    /// Names of the files in a directory, or with `None` of the embedded files; used only for suggestions.
    fn names(&self, _dir: Option<&str>) -> Vec<String> {
        Vec::new()
    }
}

/// Files kept in memory, for tests and for programs that arrive as text.
#[derive(Clone, Debug, Default)]
pub struct MemoryLoader {
    /// Files by path.
    pub files: BTreeMap<String, Arc<str>>,
    /// Embedded files by name.
    pub embedded: BTreeMap<String, Arc<str>>,
}

impl FileLoader for MemoryLoader {
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String> {
        Ok(self.files.get(path).cloned())
    }

    fn embedded(&self, name: &str) -> Option<Arc<str>> {
        self.embedded.get(name).cloned()
    }

    fn names(&self, dir: Option<&str>) -> Vec<String> {
        let Some(dir) = dir else { return self.embedded.keys().cloned().collect() };
        let in_folder = |path: &String| {
            let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
            (folder == dir).then(|| file.to_string())
        };
        self.files.keys().filter_map(in_folder).collect()
    }
}

/// The main file.
#[derive(Clone, Debug)]
pub struct SourceInput {
    /// Its path as given; its directory is where `#include "x"` looks first.
    pub name: String,
    /// Its text.
    pub text: Arc<str>,
}
