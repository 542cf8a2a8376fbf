//! Files as the editor sees them: open documents override files on disk.
//!
//! Names of files are absolute paths without `.` and `..`, so that each file has one name; embedded files are
//! `<core.p4>`.

use frontend::DiskLoader;
use lsp_types::Url;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use syntax::FileLoader;

/// A path without `.` and `..`, as text.
pub fn normal(path: &Path) -> String {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out.display().to_string()
}

/// The open documents, by name.
#[derive(Clone, Debug, Default)]
pub struct Files {
    open: BTreeMap<String, Document>,
}

/// An open document.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its URI in the editor.
    pub uri: Url,
    /// Its version number, assigned by the editor.
    pub version: i32,
    /// Its text.
    pub text: Arc<str>,
}

/// The name of the file that a URI refers to; `None` if it is not a file.
pub fn name_of(uri: &Url) -> Option<String> {
    uri.to_file_path().ok().map(|path| normal(&path))
}

impl Files {
    /// Opens a document, or changes an open one.
    pub fn set(&mut self, name: String, document: Document) {
        self.open.insert(name, document);
    }

    /// Closes a document: the file on disk is used from now on.
    pub fn close(&mut self, name: &str) {
        self.open.remove(name);
    }

    /// An open document.
    pub fn get(&self, name: &str) -> Option<&Document> {
        self.open.get(name)
    }

    /// The names of the open documents.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.open.keys()
    }

    /// The text of a file: the open document's, else that on disk.
    pub fn text(&self, name: &str) -> Option<Arc<str>> {
        self.read(name).ok().flatten()
    }

    /// The URI of a file: the editor's own if it is open.
    pub fn uri(&self, name: &str) -> Option<Url> {
        match self.open.get(name) {
            Some(document) => Some(document.uri.clone()),
            None => Url::from_file_path(name).ok(),
        }
    }
}

impl FileLoader for Files {
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String> {
        let name = normal(Path::new(path));
        match self.open.get(&name) {
            Some(document) => Ok(Some(document.text.clone())),
            None => DiskLoader.read(path),
        }
    }

    fn embedded(&self, name: &str) -> Option<Arc<str>> {
        DiskLoader.embedded(name)
    }

    fn names(&self, dir: Option<&str>) -> Vec<String> {
        DiskLoader.names(dir)
    }
}
