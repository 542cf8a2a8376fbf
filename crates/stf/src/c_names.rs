//! Names of the C code that the reference compiler's eBPF and uBPF back ends generate, as used in scripts for them.
//!
//! | in C | here |
//! | --- | --- |
//! | `pipe_Check_ip` (tables, actions) | `pipe.Check_ip` |
//! | `_NoAction` | `NoAction` |
//! | `key.field0`, `key.field1`, … (eBPF) | the key field at this index |
//! | `key.headers_ipv4_srcAddr` (uBPF) | `headers.ipv4.srcAddr` |
//!
//! Values follow the C code, too: omitted parameters are 0, and the number of an `lpm` key called `key.field0` is what
//! a little-endian processor stores, so its first byte is the least significant one (`0x010a/16` is 10.1.0.0/16).

use base::Bits;
use base::entry::MatchKind;

/// The C variable that holds the key.
const KEY: &str = "key.";

/// Whether a written name is the C name of a table or action.
pub(crate) fn is_of(written: &str, name: &str) -> bool {
    let written = written.strip_prefix('_').unwrap_or(written);
    written.len() == name.len() && name.replace('.', "_") == written
}

/// The index of a key field.
pub(crate) fn key(table: &ir::Table, written: &str) -> Option<usize> {
    let numbered = number(written).filter(|at| *at < table.keys.len());
    let written = written.strip_prefix(KEY).unwrap_or(written);
    let mut named = (0..table.keys.len()).filter(|at| is_of(written, &table.keys[*at].name));
    let first = named.next();
    numbered.or(first.filter(|_| named.next().is_none()))
}

/// Whether the bytes of a key's number are in the opposite order.
pub(crate) fn is_swapped(written: &str, key: &ir::Key) -> bool {
    let numbered = number(written).is_some() && !key.name.ends_with(written.trim_start_matches(KEY));
    numbered && key.kind == MatchKind::Lpm && key.width.is_multiple_of(8)
}

/// The number with its bytes reversed.
pub(crate) fn swapped(bits: &Bits) -> String {
    let digits: String = bits.to_bytes_be().iter().rev().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

/// The index in a field's C name.
fn number(written: &str) -> Option<usize> {
    written.strip_prefix(KEY)?.strip_prefix("field")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(name: &str, kind: MatchKind) -> ir::Key {
        ir::Key { name: name.to_string(), width: 32, kind }
    }

    #[test]
    fn names_differ_in_dots_only() {
        assert!(is_of("pipe_c1_Reject", "pipe.c1.Reject"));
        assert!(is_of("_NoAction", "NoAction"));
        assert!(!is_of("pipe_c1", "pipe.c1.Reject"));
        assert!(!is_of("pipe.t_1", "pipe_t.1"));
    }

    #[test]
    fn only_the_prefix_of_a_numbered_field_is_swapped() {
        let lpm = key_of("h.a", MatchKind::Lpm);
        assert!(is_swapped("key.field0", &lpm));
        assert!(!is_swapped("key.h_a", &lpm));
        assert!(!is_swapped("key.field0", &key_of("h.a", MatchKind::Exact)));
        assert!(!is_swapped("key.field0", &key_of("h.field0", MatchKind::Lpm)));
        assert_eq!(swapped(&Bits::new(32, 0x010a)), "0x0a010000");
    }
}
