//! P4 programs with their flow cache, beside the same without: cycles per received 64-byte packet, from the batch to
//! the ports' buffers ([`crate::engine`]).
//!
//! The tables, rules and traffic are those of the OpenFlow rows of the same shape ([`crate::openflow`]). First the sent
//! packets are compared with the interpreter's, while the cache is empty and when it has learned all flows. Without the
//! cache, code is specialised for the contents of the tables, as in a switch.

use crate::engine::{self, Subject};
use crate::frames::Frames;
use crate::measure::Ratio;
use crate::openflow::{TERNARY, Tuple, cycles, first, masks, tuple, tuples};
use crate::rows::{Bar, Row, Settings};
use crate::source::Source;
use anyhow::{Context, Result, ensure};
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use base::ids::TableId;
use datapath::{CacheUse, EngineKind, Pipeline};
use random::Random;
use std::fmt::Write;

/// Most frames that are played to the interpreter.
const ORACLE: usize = 2048;
/// Flows of the row in which every packet is of a flow that the cache does not hold: more than a cache holds.
const FRESH: usize = 1_000_000;

/// A row.
pub struct Cached {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title in tables.
    pub title: &'static str,
    flows: usize,
    is_fresh: bool,
    /// Most cycles per packet with the cache; for new flows, the highest ratio.
    bar: f64,
}

/// All rows.
pub const ALL: &[Cached] = &[
    Cached {
        name: "cached-15-ternary",
        title: "15 ternary P4 tables, 20 masks and 200 rules each, 64 flows",
        flows: 64,
        is_fresh: false,
        bar: 120.0,
    },
    Cached {
        name: "cached-15-ternary-100k",
        title: "15 ternary P4 tables, 20 masks and 200 rules each, 100k flows",
        flows: 100_000,
        is_fresh: false,
        bar: 250.0,
    },
    Cached {
        name: "cached-15-ternary-new",
        title: "15 ternary P4 tables, 20 masks and 200 rules each, every packet a new flow",
        flows: FRESH,
        is_fresh: true,
        bar: 1.2,
    },
];

/// Each table writes a metadata field; the XOR of these fields is written to the source address, so that no table can be
/// removed.
fn source() -> Source {
    let mut tables = String::new();
    let mut apply = String::new();
    for i in 0..TERNARY.0 {
        let send = |port: &str| if i == TERNARY.0 - 1 { format!(" std.egress_spec = {port};") } else { String::new() };
        let (hit, miss) = (send("port"), send("2"));
        let _ = write!(
            tables,
            "    action set{i}(bit<32> value, bit<9> port) {{ meta.reg{} = value;{hit} }}\n    action miss{i}() {{{miss} }}\n    \
             table t{i} {{\n        key = {{ hdr.ipv4.src: ternary; hdr.ipv4.dst: ternary; hdr.ipv4.protocol: ternary; \
             hdr.ports.src: ternary; hdr.ports.dst: ternary; }}\n        actions = {{ set{i}; miss{i}; }}\n        \
             default_action = miss{i}();\n        size = 1024;\n    }}\n",
            i % 8
        );
        let _ = writeln!(apply, "        t{i}.apply();");
    }
    let fields: String = (0..8).map(|i| format!(" bit<32> reg{i};")).collect();
    Source::Text(format!(
        "#include <core.p4>\n#include <v1model.p4>\nheader ethernet_t {{ bit<48> dst; bit<48> src; bit<16> etype; }}\n\
         header ipv4_t {{ bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<16> fragment; bit<8> ttl; \
         bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst; }}\nheader ports_t {{ bit<16> src; bit<16> dst; }}\n\
         struct headers {{ ethernet_t ethernet; ipv4_t ipv4; ports_t ports; }}\nstruct metadata {{{fields} }}\n\
         parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t std) {{\n\
         state start {{ pkt.extract(hdr.ethernet); transition select(hdr.ethernet.etype) {{ 0x800: ipv4; default: accept; }} }}\n\
         state ipv4 {{ pkt.extract(hdr.ipv4); transition select(hdr.ipv4.protocol) {{ 6: ports; 17: ports; default: accept; }} }}\n\
         state ports {{ pkt.extract(hdr.ports); transition accept; }}\n}}\n\
         control Check(inout headers hdr, inout metadata meta) {{ apply {{ }} }}\n\
         control In(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {{\n{tables}    apply {{\n{apply}        \
         hdr.ethernet.src[31:0] = meta.reg0 ^ meta.reg1 ^ meta.reg2 ^ meta.reg3 ^ meta.reg4 ^ meta.reg5 ^ meta.reg6 ^ meta.reg7;\n    \
         }}\n}}\ncontrol Out(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {{ apply {{ }} }}\n\
         control Sum(inout headers hdr, inout metadata meta) {{ apply {{ }} }}\n\
         control D(packet_out pkt, in headers hdr) {{ apply {{ pkt.emit(hdr.ethernet); pkt.emit(hdr.ipv4); \
         pkt.emit(hdr.ports); }} }}\nV1Switch(P(), Check(), In(), Out(), Sum(), D()) main;\n"
    ))
}

/// Inserts the rules of the OpenFlow row's tables.
fn prepare(pipeline: &Pipeline) -> Result<()> {
    let ternary = |width: u32, value: u128, mask: u128| KeyMatch::Ternary {
        value: Bits::new(width, value & mask),
        mask: Bits::new(width, mask),
    };
    for table in 0..TERNARY.0 {
        let name = format!("t{table}");
        let at = pipeline.program().tables.iter().position(|t| t.name.rsplit('.').next() == Some(&name));
        let id = TableId::from_index(at.with_context(|| format!("the program has no table `{name}`"))?);
        let mut random = Random::stream(9, table.into());
        for (i, (src, dst, sport, dport)) in masks(table).into_iter().enumerate() {
            for k in 0..TERNARY.2 {
                let about: Tuple = tuple(random.below(200_000));
                let number = 1 + i * TERNARY.2 + k;
                let entry = TableEntry {
                    key: vec![
                        ternary(32, about.src.into(), src.into()),
                        ternary(32, about.dst.into(), dst.into()),
                        ternary(8, about.protocol.into(), 0xff),
                        ternary(16, about.sport.into(), sport.into()),
                        ternary(16, about.dport.into(), dport.into()),
                    ],
                    priority: number as i32,
                    action: EntryAction::Call(ActionCall {
                        action: 0,
                        args: vec![Bits::new(32, number as u128), Bits::new(9, 3 + number as u128 % 8)],
                    }),
                    idle_timeout_ns: 0,
                };
                pipeline.state().insert(id, &entry).map_err(|error| anyhow::anyhow!("{name}: {error:?}"))?;
            }
        }
    }
    Ok(())
}

fn subject(name: &'static str, kind: EngineKind, use_: CacheUse, settings: &Settings) -> Result<Subject> {
    let subject = Subject::new(name, &source(), kind, 1, &prepare, settings)?;
    if let Some(cache) = subject.pipeline().flow_cache() {
        cache.set_use(use_)?;
    }
    Ok(subject)
}

/// Machine code with the cache, compared with the interpreter while the cache learns and afterwards.
fn compared(row: &Cached, use_: CacheUse, frames: &Frames, settings: &Settings) -> Result<(Subject, [u64; 3])> {
    let mut both = [
        subject("P4 with the flow cache", EngineKind::Machine, use_, settings)?,
        subject("interpreter", EngineKind::Interpreter, CacheUse::Never, settings)?,
    ];
    let mut fates = [0; 3];
    let few = first(frames, ORACLE);
    for turn in 0..3 {
        let [sent, dropped] = engine::compared(row.title, &mut both, &few, settings.batch)?;
        fates = [fates[0] + sent, fates[1] + dropped, fates[2] + few.len() as u64];
        if turn == 0 {
            both[0].settle(settings);
        }
        if let Some(cache) = both[0].pipeline().flow_cache() {
            cache.trace_waiting();
        }
    }
    let [machine, _] = both;
    Ok((machine, fates))
}

/// Plays all frames until nearly all have megaflows.
fn warm(subject: &mut Subject, frames: &Frames, settings: &Settings) -> Result<()> {
    let stats = |subject: &Subject| {
        let cache = subject.pipeline().flow_cache()?;
        cache.stats().first().map(|(_, stats)| (stats.hits, stats.misses))
    };
    for _ in 0..400 {
        let before = stats(subject).unwrap_or((0, 0));
        subject.learn(frames, settings.batch);
        let after = stats(subject).context("the program has no flow cache")?;
        let (hits, misses) = (after.0 - before.0, after.1 - before.1);
        if hits > 0 && misses * 200 <= hits {
            return Ok(());
        }
    }
    anyhow::bail!("the flow cache does not learn the flows: {:?}", stats(subject))
}

/// Measures a row.
///
/// # Errors
/// If the subjects differ or cannot be loaded.
pub fn run(row: &Cached, settings: &Settings) -> Result<Row> {
    let flows = if settings.quick { row.flows.min(500) } else { row.flows };
    let frames = tuples(flows);
    let use_ = if row.is_fresh { CacheUse::Auto } else { CacheUse::Always };
    let (mut cached, fates) = compared(row, use_, &frames, settings)?;
    ensure!(fates[0] > 0, "{}: every packet was dropped", row.title);
    if !row.is_fresh {
        warm(&mut cached, &frames, settings)?;
    }
    let without = subject("without", EngineKind::Machine, CacheUse::Never, settings)?;
    without.settle(settings);
    let mut both = [cached, without];
    let series = engine::timed(&mut both, &frames, settings)?;
    let ratio = Ratio::new(&series[0], &series[1]);
    let bars = match row.is_fresh {
        true => vec![Bar::with("as it pays / without", ratio, row.bar)],
        false => vec![
            Bar { unit: " cycles", ..Bar::with("a received packet", cycles(&series[0]), row.bar) },
            Bar::without("with / without", ratio),
        ],
    };
    Ok(Row { name: row.title.to_string(), series: series.to_vec(), bars, fates })
}
