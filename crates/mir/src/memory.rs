//! Memory for the interpreter: pieces at the addresses that compiled code would use, each in one region.
//!
//! Every access is checked: it must lie within one piece, in a region that it names, and must not write to immutable
//! memory. So a wrong region, which would silently break passes and compiled code, is detected at the instruction that
//! declares it.
//!
//! [`Storage`] is the interface that the interpreter needs, so that it can also run on the memory of a process.

use crate::types::{Region, Regions};
use std::collections::BTreeMap;

/// The address of the first stack slot; tests put no piece there.
const STACK: u64 = 0x6000_0000_0000_0000;
/// Distance between two slots in bytes.
const GAP: u64 = 64;
/// The bytes of a stack slot before they are written: undefined, so a value that hides no bugs.
const UNDEFINED: u8 = 0xa5;

/// The reason why a run stopped early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// An access outside all pieces, in a region that the instruction does not name, or a write to immutable memory.
    #[error("{bytes} bytes at {address:#x} are not in {regions}, or cannot be written")]
    Memory {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
        /// The regions that the access names.
        regions: Regions,
    },
    /// The run took more instructions than allowed.
    #[error("the run took more instructions than allowed")]
    Fuel,
    /// Too many functions are active; the limit.
    #[error("more than {0} functions are active")]
    Depth(usize),
    /// An [`Unreachable`](crate::op::Terminator::Unreachable) terminator was reached, in this function.
    #[error("function `{0}` reached an `unreachable` terminator")]
    Unreachable(String),
    /// The host cannot do what was requested; the reason.
    #[error("{0}")]
    Host(String),
}

/// The memory that a module runs on.
pub trait Storage {
    /// Loads an integer of up to 16 bytes, least significant byte first.
    ///
    /// # Errors
    ///
    /// [`Fault::Memory`] if the bytes are not in one of the regions.
    fn load(&mut self, regions: Regions, address: u64, bytes: u32) -> Result<u128, Fault>;

    /// Writes the lowest bytes of an integer, least significant byte first.
    ///
    /// # Errors
    ///
    /// [`Fault::Memory`] if the bytes are not in one of the regions, or are immutable.
    fn store(&mut self, regions: Regions, address: u64, bytes: u32, value: u128) -> Result<(), Fault>;

    /// Replaces an integer of up to 8 bytes atomically. Returns the old one.
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

    /// Allocates a stack slot and returns its address.
    ///
    /// # Errors
    ///
    /// A fault if there is no room.
    fn push(&mut self, bytes: u32, align: u32) -> Result<u64, Fault>;

    /// Number of stack slots.
    fn slots(&self) -> usize;

    /// Frees the newest stack slots until `slots` are left.
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
    /// [`Fault::Memory`] if they are not all in one of the regions, or are immutable.
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
