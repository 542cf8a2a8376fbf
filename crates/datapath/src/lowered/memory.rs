//! Process memory for the interpreter of machine-level IR, with bounds checks where the layout is known.
//!
//! The addresses of a run's descriptors, frames, records, worker context and stack slots are known: an access there
//! must name that region and stay within it. Everything else (tables, entries, counters, registers) belongs to the
//! state: an access there must name one of the state's regions and is otherwise trusted.

use abi::WorkerCtx;
use abi::packet::Batch;
use mir::{Fault, Region, Regions, STACK_BYTES_MAX, Storage};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Guard bytes between two stack slots.
const GAP: u64 = 64;
/// The byte that fills a stack slot before it is written: undefined contents, so a value that does not hide errors.
const UNDEFINED: u8 = 0xa5;

/// Process memory with its known ranges.
pub(super) struct ProcessMemory {
    /// First byte, end and region of each known range, sorted by address.
    known: Vec<(u64, u64, Region)>,
    /// Memory for stack slots.
    arena: Vec<u8>,
    /// Address and size of each stack slot.
    slots: Vec<(u64, u64)>,
}

impl ProcessMemory {
    pub fn new() -> ProcessMemory {
        ProcessMemory { known: Vec::new(), arena: vec![0; 2 * STACK_BYTES_MAX as usize], slots: Vec::new() }
    }

    /// Replaces the known ranges by those of a batch.
    ///
    /// # Safety
    /// The batch's descriptors are as `abi::packet` demands, and records have `record_words` words.
    pub unsafe fn know(&mut self, ctx: *const WorkerCtx, batch: *mut Batch, record_words: usize) {
        self.known.clear();
        let mut add = |first: u64, bytes: usize, region| self.known.push((first, first + bytes as u64, region));
        add(ctx.expose_provenance() as u64, size_of::<WorkerCtx>(), Region::Context);
        add(batch.expose_provenance() as u64, size_of::<Batch>(), Region::Descriptor);
        // SAFETY: the caller's promise.
        let batch = unsafe { &*batch };
        for packet in &batch.packets[..batch.count as usize] {
            let buffer = packet.data.expose_provenance() as u64 - u64::from(packet.headroom);
            add(buffer, (packet.headroom + packet.len + packet.tailroom) as usize, Region::Frame);
            if !packet.record.is_null() {
                add(packet.record.expose_provenance() as u64, 8 * record_words, Region::Record);
            }
        }
        self.known.sort_unstable_by_key(|(first, ..)| *first);
    }

    /// The pointer to an address, if its bytes may be accessed as one of the regions.
    fn check(&self, regions: Regions, address: u64, bytes: u32, is_written: bool) -> Result<*mut u8, Fault> {
        let fault = || Fault::Memory { address, bytes: bytes.into(), regions };
        let end = address.checked_add(bytes.into()).ok_or_else(fault)?;
        let arena = self.arena.as_ptr().expose_provenance() as u64;
        let is_right = if (arena..arena + self.arena.len() as u64).contains(&address) {
            let within = |(first, bytes): &(u64, u64)| *first <= address && end <= first + bytes;
            regions.contains(Region::Stack) && self.slots.iter().rev().any(within)
        } else {
            let at = self.known.partition_point(|(first, ..)| *first <= address);
            match at.checked_sub(1).map(|at| self.known[at]).filter(|(_, end, _)| address < *end) {
                Some((_, known_end, region)) => regions.contains(region) && end <= known_end,
                None => regions.iter().any(|region| {
                    !matches!(region, Region::Frame | Region::Record | Region::Descriptor | Region::Stack)
                }),
            }
        };
        let is_constant = regions.without(Regions::CONSTANT).is_empty();
        match is_right && !(is_written && is_constant) {
            true => Ok(ptr::with_exposed_provenance_mut(address as usize)),
            false => Err(fault()),
        }
    }
}

impl Storage for ProcessMemory {
    fn load(&mut self, regions: Regions, address: u64, bytes: u32) -> Result<u128, Fault> {
        let at = self.check(regions, address, bytes, false)?;
        // SAFETY: it is memory of the run, or of the state that the module was made for, which has been verified. Words that
        // other workers write are read whole.
        unsafe {
            Ok(match bytes {
                1 => at.read().into(),
                2 => at.cast::<u16>().read_unaligned().into(),
                4 => at.cast::<u32>().read_unaligned().into(),
                8 => at.cast::<u64>().read_unaligned().into(),
                _ => {
                    let mut number = [0; 16];
                    ptr::copy_nonoverlapping(at, number.as_mut_ptr(), bytes as usize);
                    u128::from_le_bytes(number)
                }
            })
        }
    }

    fn store(&mut self, regions: Regions, address: u64, bytes: u32, value: u128) -> Result<(), Fault> {
        let at = self.check(regions, address, bytes, true)?;
        // SAFETY: as in `load`; no other thread writes there at the same time, except where the program allows it.
        unsafe {
            match bytes {
                1 => at.write(value as u8),
                2 => at.cast::<u16>().write_unaligned(value as u16),
                4 => at.cast::<u32>().write_unaligned(value as u32),
                8 => at.cast::<u64>().write_unaligned(value as u64),
                _ => ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at, bytes as usize),
            }
        }
        Ok(())
    }

    fn change(
        &mut self,
        regions: Regions,
        address: u64,
        bytes: u32,
        change: &dyn Fn(u128) -> u128,
    ) -> Result<u128, Fault> {
        let at = self.check(regions, address, bytes, true)?;
        macro_rules! replace {
            ($atomic:ident, $number:ty) => {{
                // SAFETY: as in `store`; cells that are changed atomically are aligned.
                let cell = unsafe { $atomic::from_ptr(at.cast()) };
                let change = |old: $number| Some(change(old.into()) as $number);
                let old = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
                old.unwrap_or_else(|old| old).into()
            }};
        }
        Ok(match bytes {
            1 => replace!(AtomicU8, u8),
            2 => replace!(AtomicU16, u16),
            4 => replace!(AtomicU32, u32),
            _ => replace!(AtomicU64, u64),
        })
    }

    fn push(&mut self, bytes: u32, align: u32) -> Result<u64, Fault> {
        let arena = self.arena.as_ptr().expose_provenance() as u64;
        let next = self.slots.last().map_or(arena, |(first, bytes)| first + bytes + GAP);
        let address = next.next_multiple_of(align.max(1).into());
        let at = (address - arena) as usize;
        let room = self.arena.get_mut(at..).and_then(|rest| rest.get_mut(..bytes as usize));
        let Some(room) = room else { return Err(Fault::Host("no room for stack slots".to_string())) };
        room.fill(UNDEFINED);
        self.slots.push((address, bytes.into()));
        Ok(address)
    }

    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn pop(&mut self, slots: usize) {
        self.slots.truncate(slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    #[test]
    fn accesses_name_the_region_that_they_are_in() {
        let (frame, other) = (UnsafeCell::new([7u8; 64]), UnsafeCell::new(5u64));
        let mut batch = Batch::new();
        batch.count = 1;
        (batch.packets[0].data, batch.packets[0].len) = (frame.get().cast(), 60);
        let batch: *mut Batch = &mut batch;
        let mut memory = ProcessMemory::new();
        // SAFETY: the descriptor has the frame's bytes, and no record.
        unsafe { memory.know(ptr::null(), batch, 0) };
        let at = frame.get().expose_provenance() as u64;
        assert_eq!(memory.load(Region::Frame.into(), at + 59, 1), Ok(7));
        assert!(memory.load(Region::Frame.into(), at + 59, 2).is_err(), "beyond the frame");
        assert!(memory.load(Region::State.into(), at, 1).is_err(), "another region");
        let slot = memory.push(8, 8).expect("room");
        assert_eq!(memory.store(Region::Stack.into(), slot, 8, 9), Ok(()));
        assert!(memory.load(Region::Stack.into(), slot + 8, 1).is_err(), "beyond the slot");
        let at = other.get().expose_provenance() as u64;
        assert_eq!(memory.change(Region::State.into(), at, 8, &|old| old + 1), Ok(5));
        assert_eq!(memory.load(Region::Table.into(), at, 8), Ok(6));
        assert!(memory.load(Region::Record.into(), at, 8).is_err(), "no record");
        assert!(memory.store(Region::Entry.into(), at, 8, 0).is_err(), "entries never change");
    }
}
