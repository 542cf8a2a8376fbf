//! Match engines: one writer, many lock-free readers.
