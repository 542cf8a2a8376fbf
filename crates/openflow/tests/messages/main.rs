//! Messages' wire formats: what is written is read as it was, bytes are those that Open vSwitch reads and writes, and damaged
//! messages are refused without panics.

mod bytes;
mod damage;
mod generate;
mod replies;
mod round_trip;

use openflow::field::{Field, Fields, OxmNumber, class};

/// A few fields of OpenFlow's and of Nicira's classes.
fn fields() -> Fields {
    let oxm = |field| OxmNumber { class: class::OPENFLOW_BASIC, field, experimenter: 0 };
    let nxm = |class, field| OxmNumber { class, field, experimenter: 0 };
    let field = |name: &str, width, numbers: &[OxmNumber]| Field {
        name: name.to_string(),
        width,
        numbers: numbers.to_vec(),
        maskable: true,
        writable: true,
        prerequisites: Vec::new(),
    };
    let all = vec![
        field("in_port", 32, &[oxm(0), nxm(0, 0)]),
        field("metadata", 64, &[oxm(2)]),
        field("eth_dst", 48, &[oxm(3), nxm(0, 1)]),
        field("eth_src", 48, &[oxm(4), nxm(0, 2)]),
        field("eth_type", 16, &[oxm(5), nxm(0, 3)]),
        field("ip_proto", 8, &[oxm(10), nxm(0, 6)]),
        field("ipv4_src", 32, &[oxm(11), nxm(0, 7)]),
        field("ipv4_dst", 32, &[oxm(12), nxm(0, 8)]),
        field("tunnel_id", 64, &[oxm(38), nxm(1, 16)]),
        field("reg0", 32, &[nxm(1, 0)]),
    ];
    Fields::new(all).expect("the fields differ")
}
