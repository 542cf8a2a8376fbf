//! Prefetch instructions, which Cranelift lacks.
//!
//! A prefetch is emitted as a load of one byte, sign-extended to 64 bits. This crate emits no other such load. It has a
//! trap code of its own and may trap, so it is neither removed nor merged with a real load. In the finished code,
//! [`patch`] overwrites it with the prefetch instruction, which has the same length and the same operand (Intel SDM 2B,
//! "PREFETCHh", "PREFETCHW"):
//!
//! ```text
//! REX.W 0F BE /r   movsx r64, m8
//! REX   0F 18 /1   prefetcht0 m8        REX.X and REX.B, which belong to the address, stay
//! REX   0F 0D /1   prefetchw m8
//! ```
//!
//! Any other instruction at such a place is an error, because an address that is prefetched may not be readable. On
//! processors other than x86-64 nothing is prefetched.

use crate::Error;
use cranelift_codegen::MachTrap;
use cranelift_codegen::ir::{MemFlagsData, TrapCode};

/// The trap code of loads that are patched into prefetches for a read.
const TAG: TrapCode = TrapCode::unwrap_user(0x51);
/// The trap code of loads that are patched into prefetches for a write (`prefetchw`).
const TAG_WRITE: TrapCode = TrapCode::unwrap_user(0x60);

/// The flags of the load that is patched into a prefetch; `None` if the machine has no prefetch.
pub(crate) fn flags(write: bool) -> Option<MemFlagsData> {
    let tag = if write { TAG_WRITE } else { TAG };
    cfg!(target_arch = "x86_64").then(|| MemFlagsData::new().with_trap_code(Some(tag)))
}

/// Replaces the marked loads by prefetches.
pub(crate) fn patch(code: &mut [u8], traps: &[MachTrap]) -> Result<(), Error> {
    for trap in traps {
        let opcode = match trap.code {
            TAG => 0x18,
            TAG_WRITE => 0x0d,
            _ => continue,
        };
        let at = trap.offset as usize;
        let load = code.get_mut(at..).and_then(|code| code.first_chunk_mut::<4>());
        match load {
            Some(load) if is_load(load) => {
                let [rex, _, _, modrm] = *load;
                *load = [0x40 | (rex & 3), 0x0f, opcode, (modrm & 0xc7) | 1 << 3];
            }
            _ => return Err(Error::Codegen(format!("no load at {at:#x} that a prefetch could be made of"))),
        }
    }
    Ok(())
}

/// Whether these bytes are the beginning of `movsx r64, m8`.
fn is_load([rex, escape, opcode, modrm]: &[u8; 4]) -> bool {
    rex & 0xf8 == 0x48 && modrm >> 6 != 3 && (*escape, *opcode) == (0x0f, 0xbe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(code: TrapCode, bytes: [u8; 4]) -> Option<[u8; 4]> {
        let mut bytes = bytes;
        patch(&mut bytes, &[MachTrap { offset: 0, code }]).ok().map(|()| bytes)
    }

    #[test]
    fn only_marked_loads_of_a_byte_become_prefetches() {
        // movsx r10, byte [r13 + ..] and movsx rax, byte [rcx]
        assert_eq!(patched(TAG, [0x4d, 0x0f, 0xbe, 0x55]), Some([0x41, 0x0f, 0x18, 0x4d]));
        assert_eq!(patched(TAG, [0x48, 0x0f, 0xbe, 0x01]), Some([0x40, 0x0f, 0x18, 0x09]));
        assert_eq!(patched(TAG_WRITE, [0x48, 0x0f, 0xbe, 0x01]), Some([0x40, 0x0f, 0x0d, 0x09]));
        // With an index register: REX.X is kept.
        assert_eq!(patched(TAG, [0x4b, 0x0f, 0xbe, 0x04]), Some([0x43, 0x0f, 0x18, 0x0c]));
        for other in [[0x48, 0x0f, 0xb6, 0x01], [0x48, 0x0f, 0xbe, 0xc1], [0x0f, 0xbe, 0x01, 0], [0x40, 0x0f, 0xbe, 1]]
        {
            assert_eq!(patched(TAG, other), None, "{other:02x?}");
        }
        let other = [0x48, 0x0f, 0xb6, 0x01];
        assert_eq!(patched(TrapCode::HEAP_OUT_OF_BOUNDS, other), Some(other));
    }
}
