//! What a program gets in `r1`: `struct xdp_md` of `linux/bpf.h`, followed by the argument of the action that runs it.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | `data` | address of the packet's first byte |
//! | 4 | 4 | `data_end` | address behind the last byte |
//! | 8 | 4 | `data_meta` | equal to `data`: packets carry no metadata |
//! | 12 | 4 | `ingress_ifindex` | number of the port that the packet came from |
//! | 16 | 4 | `rx_queue_index` | 0 |
//! | 20 | 4 | `egress_ifindex` | 0 |
//! | 24 | 8 | `argument` | the action's argument |
//!
//! As in Linux, a load of `data`, `data_end` or `data_meta` gives an address of 64 bits though the field has 32. The
//! context cannot be written.

/// A field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    Data,
    DataEnd,
    DataMeta,
    IngressPort,
    Queue,
    EgressPort,
    Argument,
}

impl Field {
    /// The field of a size at an offset.
    pub(crate) fn at(off: i64, size: usize) -> Option<Field> {
        Some(match (off, size) {
            (0, 4) => Field::Data,
            (4, 4) => Field::DataEnd,
            (8, 4) => Field::DataMeta,
            (12, 4) => Field::IngressPort,
            (16, 4) => Field::Queue,
            (20, 4) => Field::EgressPort,
            (24, 8) => Field::Argument,
            _ => return None,
        })
    }
}
