//! STF scripts: reader and runner.
