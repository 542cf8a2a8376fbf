//! Sources of measured programs.

use std::path::Path;

/// The source of a program.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file of this repository, or any other.
    File(std::path::PathBuf),
    /// Generated text.
    Text(String),
}

impl Source {
    /// The program's text, without its includes.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn text(&self) -> std::io::Result<String> {
        match self {
            Source::File(path) => std::fs::read_to_string(path),
            Source::Text(text) => Ok(text.clone()),
        }
    }
}

/// A program of `examples/` for another architecture than v1model.
pub fn example_for(name: &str, architecture: &str) -> Source {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    Source::File(root.join(name).join(format!("{name}_{architecture}.p4")))
}

/// A program of `examples/`.
pub fn example(name: &str) -> Source {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    Source::File(root.join(name).join(format!("{name}.p4")))
}
