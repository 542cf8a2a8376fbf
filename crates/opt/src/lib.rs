//! IR to IR, one pass per file.
