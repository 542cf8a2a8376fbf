//! Loads, stores and atomic operations.
//!
//! Sizes that the machine does not support are made of two accesses. These may overlap in bytes for which both load or
//! store the same value.

use crate::lower::Lowering;
use crate::type_of;
use cranelift_codegen::ir::types::{I8, I16, I32, I64, I128, Type};
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, Value};
use mir::{Access, Address, Atomic, ByteOrder, Region, Regions};

/// The integer type of `bytes` bytes: 1, 2, 4, 8 or 16.
fn of_bytes(bytes: u32) -> Type {
    match bytes {
        1 => I8,
        2 => I16,
        4 => I32,
        8 => I64,
        _ => I128,
    }
}

/// The machine accesses that make up an access of `bytes` bytes, as offset and size in bytes. They may overlap.
fn pieces(bytes: u8) -> &'static [(u32, u32)] {
    match bytes {
        1 => &[(0, 1)],
        2 => &[(0, 2)],
        3 => &[(0, 2), (2, 1)],
        4 => &[(0, 4)],
        5 => &[(0, 4), (4, 1)],
        6 => &[(0, 4), (4, 2)],
        7 => &[(0, 4), (3, 4)],
        8 => &[(0, 8)],
        _ => &[(0, 16)],
    }
}

/// The position of a piece in the whole integer, in bits.
fn shift(access: Access, (offset, bytes): (u32, u32)) -> i64 {
    8 * i64::from(match access.order {
        ByteOrder::Little => offset,
        ByteOrder::Big => u32::from(access.bytes) - offset - bytes,
    })
}

impl Lowering<'_, '_> {
    /// The base of an address and the offset of a piece, as Cranelift requires them.
    fn place(&mut self, address: Address, offset: u32) -> (Value, i32) {
        let base = self.get(address.base);
        match address.offset.checked_add(offset as i32) {
            Some(offset) => (base, offset),
            None => (self.b.ins().iadd_imm_s(base, i64::from(address.offset)), offset as i32),
        }
    }

    fn swapped(&mut self, access: Access, value: Value) -> Value {
        match access.order {
            ByteOrder::Big if self.b.func.dfg.value_type(value) != I8 => self.b.ins().bswap(value),
            _ => value,
        }
    }

    pub(crate) fn load(&mut self, access: Access, address: Address, ty: mir::Type) -> Value {
        let flags = self.flags.of(access.regions);
        let to = type_of(ty);
        let mut whole = None;
        for &piece in pieces(access.bytes) {
            let (base, offset) = self.place(address, piece.0);
            let value = self.b.ins().load(of_bytes(piece.1), flags, base, offset);
            let value = self.swapped(access, value);
            let value = self.resize(value, to);
            let value = match shift(access, piece) {
                0 => value,
                shift => self.b.ins().ishl_imm_u(value, shift),
            };
            whole = Some(match whole {
                Some(whole) => self.b.ins().bor(whole, value),
                None => value,
            });
        }
        whole.expect("an access has at least one piece")
    }

    pub(crate) fn store(&mut self, access: Access, address: Address, value: Value) {
        let flags = self.flags.of(access.regions);
        for &piece in pieces(access.bytes) {
            let part = match shift(access, piece) {
                0 => value,
                shift => self.b.ins().ushr_imm_u(value, shift),
            };
            let part = self.resize(part, of_bytes(piece.1));
            let part = self.swapped(access, part);
            let (base, offset) = self.place(address, piece.0);
            self.b.ins().store(flags, part, base, offset);
        }
    }

    fn whole_address(&mut self, address: Address) -> Value {
        let base = self.get(address.base);
        match address.offset {
            0 => base,
            offset => self.b.ins().iadd_imm_s(base, i64::from(offset)),
        }
    }

    pub(crate) fn atomic(
        &mut self,
        op: Atomic,
        regions: Regions,
        address: Address,
        value: mir::Value,
        ty: mir::Type,
    ) -> Value {
        let op = match op {
            Atomic::Add => AtomicRmwOp::Add,
            Atomic::And => AtomicRmwOp::And,
            Atomic::Or => AtomicRmwOp::Or,
            Atomic::Xor => AtomicRmwOp::Xor,
            Atomic::Exchange => AtomicRmwOp::Xchg,
        };
        let (flags, address, value) =
            (self.flags.of(regions).with_aligned(), self.whole_address(address), self.get(value));
        self.b.ins().atomic_rmw(type_of(ty), flags, op, address, value)
    }

    pub(crate) fn compare_exchange(
        &mut self,
        regions: Regions,
        address: Address,
        expected: mir::Value,
        new: mir::Value,
    ) -> Value {
        let (flags, address) = (self.flags.of(regions).with_aligned(), self.whole_address(address));
        let (expected, new) = (self.get(expected), self.get(new));
        self.b.ins().atomic_cas(flags, address, expected, new)
    }

    pub(crate) fn release(&mut self, regions: Regions, address: Address, value: mir::Value) {
        let (flags, address, value) =
            (self.flags.of(regions).with_aligned(), self.whole_address(address), self.get(value));
        self.b.ins().atomic_store(flags, value, address);
    }

    pub(crate) fn count(&mut self, address: Address, value: mir::Value) {
        let flags = self.flags.of(Region::Counter.into());
        let (base, value) = (self.get(address.base), self.get(value));
        let old = self.b.ins().load(I64, flags, base, address.offset);
        let new = self.b.ins().iadd(old, value);
        self.b.ins().store(flags, new, base, address.offset);
    }

    pub(crate) fn prefetch(&mut self, address: Address, write: bool) {
        if let Some(flags) = crate::prefetch::flags(write) {
            let base = self.get(address.base);
            self.b.ins().sload8(I64, flags, base, address.offset);
        }
    }
}
