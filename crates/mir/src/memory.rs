//! Memory for the interpreter: pieces at the addresses that compiled code would use, each of one region.
//!
//! Every access is checked: it lies within one piece, in a region that it names, and does not write what never changes.
//! So a wrong region, which would make passes and compiled code go wrong silently, is found where it is declared.
//!
//! [`Storage`] is what the interpreter asks of a memory, so that it can also run on the memory of a process.

use crate::types::{Region, Regions};
use std::collections::BTreeMap;

/// Where stack slots begin; no piece of a test lies there.
const STACK: u64 = 0x6000_0000_0000_0000;
/// Bytes between two slots.
const GAP: u64 = 64;
/// What a stack slot holds before it is written: undefined, so nothing that helps.
const UNDEFINED: u8 = 0xa5;

/// An access that is not allowed, or another reason to stop.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// No memory, other memory than the instruction says, or memory that never changes.
    #[error("{bytes} bytes at {address:#x} are not in {regions}, or cannot be written")]
    Memory {
        /// Its first byte.
        address: u64,
        /// How many.
        bytes: u64,
        /// Where they should have been.
        regions: Regions,
    },
    /// More instructions than allowed.
    #[error("the run took more instructions than allowed")]
    Fuel,
    /// More active functions than allowed.
    #[error("more than {0} functions are active")]
    Depth(usize),
    /// A block that says that it is never reached.
    #[error("function `{0}` reached what it says is unreachable")]
    Unreachable(String),
    /// The host cannot do what it was asked for.
    #[error("{0}")]
    Host(String),
}

/// What a module runs on.
pub trait Storage {
    /// An integer of up to 16 bytes, least significant byte first.
    ///
    /// # Errors
    ///
    /// [`Fault::Memory`] if the bytes are not in one of the regions.
    fn load(&mut self, regions: Regions, address: u64, bytes: u32) -> Result<u128, Fault>;

    /// Writes the lowest bytes of an integer, least significant byte first.
    ///
    /// # Errors
    ///
    /// [`Fault::Memory`] if the bytes are not in one of the regions, or never change.
    fn store(&mut self, regions: Regions, address: u64, bytes: u32, value: u128) -> Result<(), Fault>;

    /// Replaces an integer of up to 8 bytes in one step; the old one.
    ///
    /// # Errors
    ///
    /// As [`Storage::store`].
    fn change(
        &mut self,
        regions: Regions,
        address: u64,
        bytes: u32,
        change: &dyn Fn(u128) -> u128,
    ) -> Result<u128, Fault> {
        let old = self.load(regions, address, bytes)?;
        self.store(regions, address, bytes, change(old))?;
        Ok(old)
    }

    /// Makes a stack slot; its address.
    ///
    /// # Errors
    ///
    /// A fault if there is no room.
    fn push(&mut self, bytes: u32, align: u32) -> Result<u64, Fault>;

    /// Stack slots there are.
    fn slots(&self) -> usize;

    /// Takes stack slots away until so many are left.
    fn pop(&mut self, slots: usize);
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    region: Region,
    bytes: Vec<u8>,
}

/// Memory in pieces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// By first address.
    pieces: BTreeMap<u64, Piece>,
    /// Addresses of stack slots.
    stack: Vec<u64>,
}

impl Memory {
    /// Adds a piece, which must not overlap others.
    pub fn add(&mut self, address: u64, region: Region, bytes: Vec<u8>) {
        self.pieces.insert(address, Piece { region, bytes });
    }

    /// The bytes of the piece that begins at an address.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        self.pieces.get(&address).map(|piece| piece.bytes.as_slice())
    }

    fn piece(&mut self, regions: Regions, address: u64, bytes: u64) -> Result<(Region, &mut [u8]), Fault> {
        let fault = Fault::Memory { address, bytes, regions };
        let Some((start, piece)) = self.pieces.range_mut(..=address).next_back() else { return Err(fault) };
        let at = (address - start) as usize;
        match piece.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..bytes as usize)) {
            Some(found) if regions.contains(piece.region) => Ok((piece.region, found)),
            _ => Err(fault),
        }
    }

    /// Bytes at an address.
    ///
    /// # Errors
    ///
    /// [`Fault::Memory`] if they are not all in one of the regions.
    pub fn read(&mut self, regions: Regions, address: u64, bytes: u64) -> Result<&[u8], Fault> {
        self.piece(regions, address, bytes).map(|(_, found)| &*found)
    }

    /// Writes bytes to an address.
    ///
    /// # Errors
    ///
    /// [`Fault::Memory`] if they are not all in one of the regions, or never change.
    pub fn write(&mut self, regions: Regions, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (region, found) = self.piece(regions, address, bytes.len() as u64)?;
        if Regions::CONSTANT.contains(region) {
            return Err(Fault::Memory { address, bytes: bytes.len() as u64, regions });
        }
        found.copy_from_slice(bytes);
        Ok(())
    }
}

impl Storage for Memory {
    fn load(&mut self, regions: Regions, address: u64, bytes: u32) -> Result<u128, Fault> {
        let mut number = [0; 16];
        number[..bytes as usize].copy_from_slice(self.read(regions, address, bytes.into())?);
        Ok(u128::from_le_bytes(number))
    }

    fn store(&mut self, regions: Regions, address: u64, bytes: u32, value: u128) -> Result<(), Fault> {
        self.write(regions, address, &value.to_le_bytes()[..bytes as usize])
    }

    fn push(&mut self, bytes: u32, align: u32) -> Result<u64, Fault> {
        let end = match self.stack.last() {
            Some(last) => last + self.pieces[last].bytes.len() as u64 + GAP,
            None => STACK,
        };
        let address = end.next_multiple_of(u64::from(align.max(1)));
        self.stack.push(address);
        self.add(address, Region::Stack, vec![UNDEFINED; bytes as usize]);
        Ok(address)
    }

    fn slots(&self) -> usize {
        self.stack.len()
    }

    fn pop(&mut self, slots: usize) {
        for address in self.stack.drain(slots..) {
            self.pieces.remove(&address);
        }
    }
}
