//! P4 programs generated for one measurement each: how cost grows with the number of tables, headers or fields.
//!
//! Every program sends its packets to port 1. What it computes is written to the frame, so that no pass may remove it.

use std::fmt::Write as _;

const FRONT: &str = "#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dstAddr; bit<48> srcAddr; bit<16> etherType; }
header vlan_t { bit<3> pcp; bit<1> dei; bit<12> vid; bit<16> etherType; }
header mpls_t { bit<20> label; bit<3> tc; bit<1> bos; bit<8> ttl; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> diffserv; bit<16> totalLen; bit<16> identification; bit<3> flags;
    bit<13> fragOffset; bit<8> ttl; bit<8> protocol; bit<16> hdrChecksum; bit<32> srcAddr; bit<32> dstAddr;
}
header ipv6_t { bit<64> rest; bit<128> srcAddr; bit<128> dstAddr; }
header tcp_t {
    bit<16> srcPort; bit<16> dstPort; bit<32> seq; bit<32> ack; bit<16> flags; bit<16> window; bit<16> checksum;
    bit<16> urgent;
}
header udp_t { bit<16> srcPort; bit<16> dstPort; bit<16> length; bit<16> checksum; }
header vxlan_t { bit<8> flags; bit<24> reserved; bit<24> vni; bit<8> reserved2; }
";

/// A program of headers, metadata, parser states, ingress (with its locals) and emitted headers.
fn program(headers: &str, metadata: &str, parser: &str, ingress: &str, emitted: &str) -> String {
    format!(
        "{FRONT}
struct metadata_t {{ {metadata} }}
struct headers_t {{ {headers} }}
parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {{
{parser}}}
control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {{
    action drop() {{ mark_to_drop(std); }}
{ingress}}}
control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {{ apply {{ }} }}
control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control MyDeparser(packet_out packet, in headers_t hdr) {{ apply {{ {emitted} }} }}
V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
"
    )
}

const ETHERNET: &str = "    state start { packet.extract(hdr.ethernet); transition accept; }\n";
const TUPLE: &str = "    state start { packet.extract(hdr.ethernet); packet.extract(hdr.ipv4); packet.extract(hdr.tcp); transition accept; }\n";

/// One table `t` with the action `forward`, keyed by destination address: `exact` on Ethernet's, `lpm` on IPv4's,
/// `ternary` on the IPv4 5-tuple.
pub fn one_table(kind: &str, size: usize) -> String {
    let key = match kind {
        "exact" => "hdr.ethernet.dstAddr: exact;",
        "lpm" => "hdr.ipv4.dstAddr: lpm;",
        _ => {
            "hdr.ipv4.srcAddr: ternary; hdr.ipv4.dstAddr: ternary; hdr.ipv4.protocol: ternary; hdr.tcp.srcPort: ternary; \
             hdr.tcp.dstPort: ternary;"
        }
    };
    let ingress = format!(
        "    action forward(bit<9> port) {{ std.egress_spec = port; }}
    table t {{ key = {{ {key} }} actions = {{ forward; drop; }} default_action = drop(); size = {size}; }}
    apply {{ t.apply(); }}\n"
    );
    let (headers, parser) = match kind {
        "exact" => ("ethernet_t ethernet;", ETHERNET),
        _ => ("ethernet_t ethernet; ipv4_t ipv4; tcp_t tcp;", TUPLE),
    };
    program(headers, "", parser, &ingress, "packet.emit(hdr);")
}

/// One table `t` with these keys of Ethernet and IPv6; its action writes a MAC address and a type.
pub fn addressed(keys: &str, size: usize) -> String {
    let ingress = format!(
        "    action forward(bit<48> mac, bit<16> tag) {{
        std.egress_spec = 1;
        hdr.ethernet.dstAddr = mac;
        hdr.ethernet.etherType = tag;
    }}
    table t {{ key = {{ {keys} }} actions = {{ forward; drop; }} default_action = drop(); size = {size}; }}
    apply {{ t.apply(); }}\n"
    );
    let parser = "    state start { packet.extract(hdr.ethernet); packet.extract(hdr.ipv6); transition accept; }\n";
    program("ethernet_t ethernet; ipv6_t ipv6;", "", parser, &ingress, "packet.emit(hdr);")
}

/// One table `t` with the action `forward`, by ranges of both TCP ports.
pub fn ranges(size: usize) -> String {
    let ingress = format!(
        "    action forward(bit<9> port) {{ std.egress_spec = port; }}
    table t {{
        key = {{ hdr.tcp.srcPort: range @name(\"from\"); hdr.tcp.dstPort: range @name(\"to\"); }}
        actions = {{ forward; drop; }} default_action = drop(); size = {size};
    }}
    apply {{ t.apply(); }}\n"
    );
    program("ethernet_t ethernet; ipv4_t ipv4; tcp_t tcp;", "", TUPLE, &ingress, "packet.emit(hdr);")
}

/// Parses at most `n` MPLS labels up to the bottom of the stack, pops the first and emits the others.
pub fn stack(n: usize) -> String {
    let parser = "    state start { packet.extract(hdr.ethernet); transition labels; }
    state labels {
        packet.extract(hdr.mpls.next);
        transition select(hdr.mpls.last.bos) { 0: labels; default: accept; }
    }\n";
    let ingress = "    apply { hdr.mpls.pop_front(1); std.egress_spec = 1; }\n";
    program(&format!("ethernet_t ethernet; mpls_t[{n}] mpls;"), "", parser, ingress, "packet.emit(hdr);")
}

/// `n` exact tables `t0`, `t1`, ... on the destination address; the action of each adds a number.
pub fn tables(n: usize) -> String {
    let mut ingress = String::new();
    for i in 0..n {
        let _ = writeln!(
            ingress,
            "    action a{i}(bit<16> v) {{ meta.sum = meta.sum + v; }}
    table t{i} {{ key = {{ hdr.ethernet.dstAddr: exact; }} actions = {{ a{i}; drop; }} default_action = drop(); size = 1024; }}"
        );
    }
    let applied: String = (0..n).map(|i| format!("t{i}.apply(); ")).collect();
    let _ = writeln!(ingress, "    apply {{ std.egress_spec = 1; {applied}hdr.ethernet.srcAddr[15:0] = meta.sum; }}");
    program("ethernet_t ethernet;", "bit<16> sum;", ETHERNET, &ingress, "packet.emit(hdr.ethernet);")
}

/// Headers in their order in a frame: type, name and a field that is read.
const STACK: [(&str, &str, &str); 8] = [
    ("ethernet_t", "ethernet", "etherType"),
    ("vlan_t", "vlan", "etherType"),
    ("ipv4_t", "ipv4", "identification"),
    ("udp_t", "udp", "srcPort"),
    ("vxlan_t", "vxlan", "vni[15:0]"),
    ("ethernet_t", "inner_ethernet", "etherType"),
    ("ipv4_t", "inner_ipv4", "identification"),
    ("tcp_t", "inner_tcp", "srcPort"),
];
/// The field and value by which the header at this index announces the next one.
const NEXT: [(&str, &str); 7] = [
    ("etherType", "0x8100"),
    ("etherType", "0x0800"),
    ("protocol", "17"),
    ("dstPort", "4789"),
    ("flags", "8"),
    ("etherType", "0x0800"),
    ("protocol", "6"),
];

/// Parses the first `n` of eight headers, and sums a field of each.
pub fn parse(n: usize) -> String {
    let n = n.clamp(1, STACK.len());
    let headers: String = STACK[..n].iter().map(|(t, name, _)| format!("{t} {name}; ")).collect();
    let mut parser = String::new();
    for (i, (_, name, _)) in STACK[..n].iter().enumerate() {
        let state = if i == 0 { "start" } else { name };
        let next = if i + 1 == n {
            "transition accept;".to_string()
        } else {
            let (field, value) = NEXT[i];
            format!("transition select(hdr.{name}.{field}) {{ {value}: {}; default: accept; }}", STACK[i + 1].1)
        };
        let _ = writeln!(parser, "    state {state} {{ packet.extract(hdr.{name}); {next} }}");
    }
    let sum: Vec<String> = STACK[..n].iter().map(|(_, name, field)| format!("hdr.{name}.{field}")).collect();
    let ingress = format!("    apply {{ std.egress_spec = 1; hdr.ethernet.srcAddr[15:0] = {}; }}\n", sum.join(" + "));
    program(&headers, "", &parser, &ingress, "packet.emit(hdr);")
}

/// Fields that can be set, and their widths.
const FIELDS: [(&str, u32); 16] = [
    ("ethernet.dstAddr", 48),
    ("ipv4.diffserv", 8),
    ("tcp.srcPort", 16),
    ("ipv4.dstAddr", 32),
    ("ethernet.srcAddr", 48),
    ("ipv4.identification", 16),
    ("tcp.dstPort", 16),
    ("ipv4.srcAddr", 32),
    ("tcp.seq", 32),
    ("ipv4.ttl", 8),
    ("tcp.window", 16),
    ("tcp.ack", 32),
    ("ipv4.totalLen", 16),
    ("tcp.checksum", 16),
    ("ipv4.hdrChecksum", 16),
    ("tcp.urgent", 16),
];

/// Parameters `v0` to `v7` of 48 bits.
fn parameters() -> String {
    (0..8).map(|i| format!("bit<48> v{i}")).collect::<Vec<_>>().join(", ")
}

/// One table whose action sets `n` fields of Ethernet, IPv4 and TCP to its entry's values.
pub fn set(n: usize) -> String {
    let body: String = FIELDS[..n.clamp(1, 16)]
        .iter()
        .enumerate()
        .map(|(i, (field, width))| format!("hdr.{field} = (bit<{width}>)v{}; ", i % 8))
        .collect();
    let ingress = format!(
        "    action write({}) {{ {body} }}
    table t {{ key = {{ std.ingress_port: exact; }} actions = {{ write; drop; }} default_action = drop(); size = 512; }}
    apply {{ std.egress_spec = 1; t.apply(); }}\n",
        parameters()
    );
    program("ethernet_t ethernet; ipv4_t ipv4; tcp_t tcp;", "", TUPLE, &ingress, "packet.emit(hdr);")
}

/// One table whose action inserts `n` MPLS labels after Ethernet.
pub fn add(n: usize) -> String {
    let mut body = String::new();
    for i in 0..n {
        let _ = write!(
            body,
            "hdr.mpls[{i}].setValid(); hdr.mpls[{i}].label = (bit<20>)v{}; hdr.mpls[{i}].tc = 0; hdr.mpls[{i}].bos = {}; \
             hdr.mpls[{i}].ttl = 64; ",
            i % 8,
            u8::from(i + 1 == n)
        );
    }
    let ingress = format!(
        "    action push({}) {{ hdr.ethernet.etherType = 0x8847; {body} }}
    table t {{ key = {{ std.ingress_port: exact; }} actions = {{ push; drop; }} default_action = drop(); size = 512; }}
    apply {{ std.egress_spec = 1; t.apply(); }}\n",
        parameters()
    );
    program("ethernet_t ethernet; mpls_t[16] mpls;", "", ETHERNET, &ingress, "packet.emit(hdr);")
}

/// Parses `n` MPLS labels after Ethernet and removes them.
pub fn remove(n: usize) -> String {
    let (extracts, invalid): (String, String) =
        (0..n).map(|i| (format!("packet.extract(hdr.mpls[{i}]); "), format!("hdr.mpls[{i}].setInvalid(); "))).unzip();
    let parser = format!("    state start {{ packet.extract(hdr.ethernet); {extracts} transition accept; }}\n");
    let ingress = format!(
        "    action pop({}) {{ hdr.ethernet.etherType = (bit<16>)v0; {invalid} }}
    table t {{ key = {{ std.ingress_port: exact; }} actions = {{ pop; drop; }} default_action = drop(); size = 512; }}
    apply {{ std.egress_spec = 1; t.apply(); }}\n",
        parameters()
    );
    program("ethernet_t ethernet; mpls_t[16] mpls;", "", &parser, &ingress, "packet.emit(hdr);")
}
