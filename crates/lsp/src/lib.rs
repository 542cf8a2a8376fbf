//! The language server for P4_16 (LSP 3.17, over standard input and output): diagnostics while typing, hover,
//! definitions, references, completion, document symbols, rename.
//!
//! ```text
//!   editor ──messages──▶ server ──text──▶ files (open documents over those on disk)
//!                           │                 │
//!                           │            analysis: frontend::compile_tree ──▶ diagnostics
//!                           │                 └── resolve ──▶ index (declarations, uses, scopes)
//!                           ◀──────── answers ────────┘
//! ```
//!
//! A document is analysed as part of the program that includes it, if one is open or in the workspace; otherwise as its
//! own program. Every change re-analyses the programs of the open documents, which takes milliseconds.
//!
//! **Invariant:** this is the only crate that knows the protocol, and it changes no files: edits are applied by the
//! editor.
//!
//! Tests: `tests/editor.rs`, a scripted client over all examples; `tests/py/test_lsp.py`, the command itself.

mod analysis;
mod answers;
mod files;
mod index;
mod resolve;
mod server;
mod text;
mod workspace;

pub use analysis::Settings;
pub use server::{Error, serve, serve_stdio};
