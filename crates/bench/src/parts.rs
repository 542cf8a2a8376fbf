//! Cycles of `l2l3acl` by part: versions of the program that are cut short, each longer than the one before, and the
//! differences.
//!
//! - *nothing*: nothing is parsed and every frame goes to one port: the loop over the batch, receiving and sending.
//! - *parse*: all headers are parsed, and every field that the program matches on is read.
//! - *match*: all tables are applied, with actions that do only what other tables match on.
//! - *act and deparse*: the whole program. A write to a header is a store into the frame, and adding or removing a tag
//!   moves the frame's start: two steps of other switches are one here, so there is no boundary to measure at.
//!
//! The compiler sees each version as a program of its own and omits what it does not need. A part's cost is therefore
//! what it adds, not what it would take alone.

use crate::measure::{Ratio, Series};
use crate::rows::{Bar, Row, Settings, compared, timed};
use crate::source::Source;
use crate::subject;
use crate::workload::Workload;
use anyhow::{Context, Result, ensure};
use std::sync::Arc;

/// Replaces the text from `from` up to `to`, both of which must occur.
fn cut(text: &str, from: &str, to: &str, new: &str) -> Result<String> {
    let start = text.find(from).with_context(|| format!("l2l3acl has no `{from}`"))?;
    let end = start + text[start..].find(to).with_context(|| format!("l2l3acl has no `{to}` behind `{from}`"))?;
    Ok(format!("{}{new}{}", &text[..start], &text[end..]))
}

const INGRESS_BODY: (&str, &str) = ("    apply {\n        if (std.parser_error", "control MyEgress");
const EGRESS_BODY: (&str, &str) = ("    apply {\n        // Flooding", "control MyComputeChecksum");

/// The program with all tables and without any change to a header.
fn matching(full: &str) -> Result<String> {
    let mut text = cut(full, "        ipv4_forward(", "    }", "")?;
    text = cut(&text, "VerifyIpv4Checksum()", ", MyIngress()", "EmptyVerifyChecksum()")?;
    text = cut(&text, "        update_ipv4_checksum(", "    }\n}\n\nV1Switch", "")?;
    // Metadata that a later decision depends on records which action ran, so that no table becomes removable.
    text = cut(&text, "        vlan_push(", "    }\n\n    action untagged", "        meta.next_hop = 1;\n")?;
    text = cut(&text, "        vlan_pop(", "    }\n\n    table", "        meta.next_hop = 2;\n")?;
    cut(
        &text,
        "            vlan_egress.apply();",
        "        }\n    }\n}\n\ncontrol MyCompute",
        "            vlan_egress.apply();\n            if (meta.next_hop == 3) {\n                mark_to_drop(std);\n            }\n",
    )
}

/// The program's parser, and reads of the fields of its keys.
fn parsing(full: &str) -> Result<String> {
    let ingress = "    apply {
        bit<48> seen = hdr.ethernet.dstAddr ^ hdr.ethernet.srcAddr ^ (bit<48>)meta.vid ^
            (bit<48>)(hdr.ipv4.srcAddr ^ hdr.ipv4.dstAddr) ^ (bit<48>)hdr.ipv4.protocol ^
            (bit<48>)(meta.srcPort ^ meta.dstPort);
        std.egress_spec = 9;
        if (seen == 0x123456789abc) {
            drop();
        }
    }
}

";
    let text = cut(&matching(full)?, INGRESS_BODY.0, INGRESS_BODY.1, ingress)?;
    cut(&text, EGRESS_BODY.0, EGRESS_BODY.1, "    apply { }\n}\n\n")
}

/// Measures the parts.
///
/// # Errors
/// If the program's text has changed so that it cannot be cut, a version cannot be loaded or differs from the
/// interpreter, or the lock cannot be taken.
pub fn run(title: &str, workload: &Workload, settings: &Settings) -> Result<Row> {
    let Source::File(path) = &workload.source else { anyhow::bail!("only programs in files are cut") };
    let full = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parse = parsing(&full)?;
    let nothing = {
        let text = cut(&parse, "        bit<48> seen", "        std.egress_spec = 9;", "")?;
        let text = cut(&text, "        if (seen ==", "    }\n}\n\ncontrol MyEgress", "")?;
        cut(&text, "        packet.extract(hdr.ethernet);", "    }\n    state vlan", "        transition accept;\n")?
    };
    let mut subjects = Vec::new();
    let mut fates = [0; 3];
    for (name, text) in [("nothing", nothing), ("parse", parse), ("match", matching(&full)?), ("all", full)] {
        let cut = Workload { source: Source::Text(text), ..workload.same_but_frames() };
        let cut = if matches!(name, "match" | "all") {
            cut
        } else {
            Workload { kinds: &[], entries: Arc::new(|_| {}), ..cut }
        };
        let context = || format!("the cut after {name}");
        // Each version is a program of its own, which the interpreter runs, too.
        let subject = subject::sluice(name, &cut, &settings.options).with_context(context)?;
        let mut both = vec![subject, subject::interpreter(&cut, &settings.options)?];
        fates = compared(&context(), &mut both, workload, settings)?;
        subjects.extend(both.into_iter().next());
    }
    let series = timed(&mut subjects, workload, settings)?;
    ensure!(series.len() == 4, "four cuts");
    let difference = |name: &str, a: &Series, b: &Series| {
        let rounds: Vec<f64> = b.rounds.iter().zip(&a.rounds).map(|(b, a)| b - a).collect();
        let part = Series { name: name.to_string(), rounds };
        Bar::without(&format!("{name}, part of all"), Ratio::new(&part, &series[3]))
    };
    let bars = vec![
        Bar::without("batch loop, part of all", Ratio::new(&series[0], &series[3])),
        difference("parse", &series[0], &series[1]),
        difference("match", &series[1], &series[2]),
        difference("act and deparse", &series[2], &series[3]),
    ];
    Ok(Row { name: title.to_string(), series, bars, fates })
}
