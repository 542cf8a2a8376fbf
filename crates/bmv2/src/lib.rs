//! bmv2's JSON: what p4c writes for `simple_switch`, as a front end to the IR, and a description of a compiled program in
//! the same form for tools that read it.

pub mod describe;
