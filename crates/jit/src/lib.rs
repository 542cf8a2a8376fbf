//! Optimised IR to machine code with Cranelift.
