//! P4_16 source text to syntax tree: preprocessor, lexer, parser.

pub mod ast;
pub mod loader;

pub use loader::{FileLoader, MemoryLoader, Options, SourceInput};
