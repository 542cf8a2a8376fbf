//! The context, to which `r1` points at entry: `struct xdp_md` of `linux/bpf.h`, followed by the action's argument.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | `data` | address of the packet's first byte |
//! | 4 | 4 | `data_end` | address after the last byte |
//! | 8 | 4 | `data_meta` | equal to `data`: packets carry no metadata |
//! | 12 | 4 | `ingress_ifindex` | number of the ingress port |
//! | 16 | 4 | `rx_queue_index` | 0 |
//! | 20 | 4 | `egress_ifindex` | 0 |
//! | 24 | 8 | `argument` | the action's argument |
//!
//! As in Linux, a load of the 32-bit field `data`, `data_end` or `data_meta` gives a 64-bit address. The context is
//! read-only.

/// A field of the context.
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
    /// The field with this size and offset.
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
