//! The benchmark of pipelines from memory: compiled P4 beside C that does the same by hand.
//!
//! | module | holds |
//! | --- | --- |
//! | [`workload`] | entries and frames for each program, from a seed |
//! | [`entry`], [`frames`] | how both are written down, for P4 and C alike |
//! | [`subject`] | what is measured: a loaded P4 program, or a C reference ([`mod@reference`]) |
//! | [`compare`] | the same frames through two subjects: the same fates, ports and bytes, or the run ends; beside C, or the interpreter |
//! | [`measure`] | the timed loop, turn by turn; ratios and whether their spread hides the answer |
//! | [`rows`] | the table of the benchmark; [`workers`] and [`parts`] have rows of their own |
//! | [`engine`] | the same through a worker's engine, for programs that replicate packets or have queues |
//! | [`copies`] | what packets cost that are copied or go round |
//! | [`examples`] | rows of programs without a C version, most of which keep state |
//! | [`growth`] | curves: flows, entries, rules, tables, headers, fields; some over [`generated`] programs |
//! | [`cached`] | P4 tables and their flow cache, beside the same without |
//! | [`openflow`] | OpenFlow tables and their flow cache, beside compiled P4 |
//! | [`unrest`] | OpenFlow tables that change, and hostile packets |
//! | [`changes`] | `l2l3acl` while one entry changes again and again |
//! | [`kinds`] | kinds of tables that the other rows have none of |
//! | [`passes`] | each pass alone, and left out |
//! | [`updates`] | inserting, memory, compiling again |
//! | [`report`] | terminal, CSV, SVG; [`plot`] draws bars, [`sheet`] reads what was written |
//! | [`ports`] | plots of what `bench/ports/run.py` has measured |
//!
//! **Invariant:** whatever runs batches is called by one loop with the same buffers, frames and timing; only the function
//! differs. Nothing is timed whose output was not compared, in the code that is timed: what is compiled again for where packets
//! went is compared again ([`rows::compared`]).
//!
//! The C sources are in `bench/reference/`; `build.rs` compiles them. Tests: `tests/quick.rs`.

pub mod cached;
pub mod changes;
pub mod compare;
pub mod copies;
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
pub mod reference;
pub mod report;
pub mod rows;
pub mod sheet;
pub mod source;
pub mod subject;
pub mod unrest;
pub mod updates;
pub mod workers;
pub mod workload;
