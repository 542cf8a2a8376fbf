//! P4_16 source text to syntax tree: preprocessor, lexer, parser.

pub mod ast;
pub mod codes;
pub mod lexer;
pub mod loader;
pub mod preprocess;
mod spelling;
pub mod token;

pub use loader::{FileLoader, MemoryLoader, Options, SourceInput};
