//! The in-memory benchmark of pipelines: compiled P4 beside hand-written C for the same program.
//!
//! | module | holds |
//! | --- | --- |
//! | [`workload`] | entries and frames for each program, from a seed |
//! | [`entry`], [`frames`] | their form, the same for P4 and C |
//! | [`subject`] | what is measured: a loaded P4 program, or a C reference ([`mod@reference`]) |
//! | [`compare`] | the same frames through two subjects: equal fates, ports and bytes, or the run fails; beside C, or the interpreter |
//! | [`measure`] | the timed loop, with subjects in alternation; ratios, and whether their spread decides |
//! | [`rows`] | the rows of the benchmark's table; [`workers`] and [`parts`] have rows of their own |
//! | [`engine`] | the same through a worker's engine, for programs that replicate packets or use queues |
//! | [`copies`] | the cost of copied, resubmitted and recirculated packets |
//! | [`examples`] | rows of programs without a C version, most of which keep state |
//! | [`growth`] | curves over flows, entries, rules, tables, headers, fields; some with [`generated`] programs |
//! | [`cached`] | P4 tables with their flow cache, beside the same without |
//! | [`openflow`] | OpenFlow tables and their flow cache, beside compiled P4 |
//! | [`disturbance`] | OpenFlow tables under changes and hostile packets |
//! | [`changes`] | `l2l3acl` while one entry changes repeatedly |
//! | [`kinds`] | kinds of tables that no other row has |
//! | [`passes`] | each pass alone, and all passes but one |
//! | [`updates`] | insertion rate, memory, recompilation |
//! | [`contention`] | a simulation of more workers than the machine has processors, by itself |
//! | [`calibration`], [`projection`] | what sharing costs here; predictions beside measured rows, and for many workers |
//! | [`report`] | terminal, CSV, SVG; [`plot`] draws bars, [`csv_table`] reads CSV files |
//! | [`ports`] | plots of the readings of `bench/ports/run.py` |
//!
//! **Invariant:** every executor of batches is called by the same loop with the same buffers, frames and timing; only
//! the function differs. Nothing is timed whose output was not compared, in the code that is timed: code that is
//! recompiled for observed paths is compared again ([`rows::compared`]).
//!
//! The C sources are in `bench/reference/`; `build.rs` compiles them. Tests: `tests/quick.rs`.

pub mod cached;
pub mod calibration;
pub mod changes;
pub mod compare;
pub mod contention;
pub mod copies;
pub mod csv_table;
pub mod disturbance;
pub mod engine;
pub mod entry;
pub mod examples;
pub mod frames;
pub mod generated;
pub mod growth;
pub mod kinds;
pub mod learn;
pub mod measure;
pub mod openflow;
pub mod origin;
pub mod parts;
pub mod passes;
pub mod plot;
pub mod ports;
pub mod prefixes;
pub mod projection;
pub mod reference;
pub mod report;
pub mod rows;
pub mod source;
pub mod subject;
pub mod updates;
pub mod workers;
pub mod workload;
