//! The language server for P4_16 (LSP 3.17, over standard input and output): diagnostics as one types, hover, definitions,
//! references, completion, document symbols, rename.
//!
//! ```text
//!   editor ──messages──▶ server ──text──▶ files (open documents over those on disk)
//!                           │                 │
//!                           │            analysis: frontend::compile_tree ──▶ diagnostics
//!                           │                 └── resolve ──▶ index (declarations, uses, scopes)
//!                           ◀──────── answers ────────┘
//! ```
//!
//! A document is analysed as a part of the program that includes it, if one is open or lies in the workspace; otherwise as a
//! program of its own. Every change analyses the programs of the open documents anew, which takes milliseconds.
//!
//! **Invariant:** the only crate that knows the protocol; nothing in it changes a file: edits are the editor's.
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
