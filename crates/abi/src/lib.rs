//! The repr(C) contract between compiled pipelines and the runtime.
