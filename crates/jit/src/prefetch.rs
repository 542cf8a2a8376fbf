//! Prefetch instructions, which Cranelift lacks.
//!
//! [`Translator::prefetch`] makes a load whose result is unused: one byte, sign-extended to 64 bits (a form that no
//! other load of this compiler has), and allowed to trap with [`TAG`], so that it is neither removed nor merged with a
//! real load. It is a placeholder ([`crate::placeholder`]) for `prefetcht0 m8`, which has the same length and the same
//! operand.
//!
//! [`Translator::prefetch_to_write`] is the same for `prefetchw m8`, with a tag of its own.
//!
//! ```text
//! REX.W 0F BE /r   movsx r64, m8
//! REX   0F 18 /1   prefetcht0 m8        REX.X and REX.B, which belong to the address, stay
//! REX   0F 0D /1   prefetchw m8
//! ```
//!
//! Any other instruction at such a place is an error: the prefetched address may be one that must not be read. Only
//! x86-64 code has prefetches.
//!
//! Tests: at the end of the file; a tagged load that cannot be patched fails every test that stages an inlined table.

use crate::placeholder::Encoded;
use crate::translate::Translator;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, TrapCode, Value};

/// The trap code of loads that are patched into prefetches for a read.
const TAG: TrapCode = TrapCode::unwrap_user(0x51);
/// The trap code of loads that are patched into prefetches for a write (`prefetchw`).
const TAG_WRITE: TrapCode = TrapCode::unwrap_user(0x60);

/// The second opcode bytes of the prefetches.
const READ: u8 = 0x18;
const WRITE: u8 = 0x0d;

impl Translator<'_, '_> {
    /// Prefetches the cache line at an address, which need not be readable.
    pub fn prefetch(&mut self, address: Value) {
        self.tagged_load(TAG, address);
    }

    /// As [`Translator::prefetch`], for writing: takes the line from other processors' caches.
    pub fn prefetch_to_write(&mut self, address: Value) {
        self.tagged_load(TAG_WRITE, address);
    }

    fn tagged_load(&mut self, tag: TrapCode, address: Value) {
        if cfg!(target_arch = "x86_64") {
            let flags = MemFlagsData::new().with_trap_code(Some(tag));
            self.b.ins().sload8(I64, flags, address, 0);
        }
    }
}

/// The prefetch for a placeholder at the beginning of `code`. The outer option is `None` if the tag is another one's,
/// the inner one if the code is unexpected.
pub(crate) fn made(tag: TrapCode, code: &[u8]) -> Option<Option<Encoded>> {
    let opcode = match tag {
        TAG => READ,
        TAG_WRITE => WRITE,
        _ => return None,
    };
    let load = code.first_chunk::<4>().copied();
    Some(load.and_then(|load| prefetch_of(opcode, load)).map(|bytes| (bytes.to_vec(), bytes.len())))
}

/// Turns the first four bytes of `movsx r64, m8` into those of a prefetch; `None` for other instructions.
fn prefetch_of(prefetch: u8, [rex, escape, opcode, modrm]: [u8; 4]) -> Option<[u8; 4]> {
    let (wide, memory) = (rex & 0xf8 == 0x48, modrm >> 6 != 3);
    let is_load = wide && memory && (escape, opcode) == (0x0f, 0xbe);
    is_load.then_some([0x40 | (rex & 3), 0x0f, prefetch, (modrm & 0xc7) | 1 << 3])
}

#[cfg(test)]
mod tests {
    use super::{READ, WRITE, prefetch_of};

    #[test]
    fn only_the_tagged_kind_of_load_becomes_a_prefetch() {
        // movsx r10, byte [r13 + ..] and movsx rax, byte [rcx]
        assert_eq!(prefetch_of(READ, [0x4d, 0x0f, 0xbe, 0x55]), Some([0x41, 0x0f, 0x18, 0x4d]));
        assert_eq!(prefetch_of(READ, [0x48, 0x0f, 0xbe, 0x01]), Some([0x40, 0x0f, 0x18, 0x09]));
        assert_eq!(prefetch_of(WRITE, [0x48, 0x0f, 0xbe, 0x01]), Some([0x40, 0x0f, 0x0d, 0x09]));
        // with an index: REX.X stays
        assert_eq!(prefetch_of(READ, [0x4b, 0x0f, 0xbe, 0x04]), Some([0x43, 0x0f, 0x18, 0x0c]));
        for other in [[0x48, 0x0f, 0xb6, 0x01], [0x48, 0x0f, 0xbe, 0xc1], [0x0f, 0xbe, 0x01, 0], [0x40, 0x0f, 0xbe, 1]]
        {
            assert_eq!(prefetch_of(READ, other), None, "{other:02x?}");
        }
    }
}
