//! Typed program to IR, one file per architecture.
