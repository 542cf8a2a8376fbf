//! Registers, and acquiring and releasing the locks of their cells ([`crate::locks`]).
//!
//! A variable for each lock rank has the address of the lock that the packet holds, or 0. Acquiring is one
//! compare-and-exchange; if the lock is taken, the packet waits in a call of the runtime.

use crate::build::{At, Lowering};
use crate::error::Error;
use crate::locks::lock_rank;
use crate::ssa::Var;
use abi::{ExternBinding, register_cell_bytes, register_stride_bytes};
use ir::{Acquire, ExternId, Operand, SlotId, Update};
use mir::{Access, Address, Atomic, Binary, Cast, Condition, Op, Region, Type, Value};

impl Lowering<'_> {
    /// Initialises the lock variables: a packet starts without locks.
    pub fn init_locks(&mut self) {
        for var in self.locks.held.values().copied().collect::<Vec<Var>>() {
            let none = self.word(0);
            self.write_var(var, none);
        }
    }

    /// Before an access of a register: acquires the lock of the cell at address `cell`, unless the packet holds it.
    fn acquire(&mut self, register: ExternId, cell: Value, width: u32) -> Result<(), Error> {
        let (position, block, inst) = self.current;
        let Some(acquire) = self.locks.acquisitions.at(position, block, inst) else { return Ok(()) };
        let rank = lock_rank(self.bindings, register);
        let Some(&held) = rank.and_then(|rank| self.locks.held.get(&rank)) else { return Ok(()) };
        match acquire {
            Acquire::Held => {}
            Acquire::Always => self.take_lock(held, cell, width),
            Acquire::IfFree => {
                let lock = self.read_var(held);
                let is_free = self.compare_imm(Condition::Eq, lock, 0);
                self.if_true(is_free, |l| {
                    l.take_lock(held, cell, width);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn take_lock(&mut self, held: Var, cell: Value, width: u32) {
        let at = self.add_imm(cell, register_cell_bytes(width).into());
        let [attempt, wait, taken] = [(); 3].map(|()| self.new_block());
        self.jump(attempt, Vec::new());
        self.switch_to_open(attempt);
        let (free, locked) = (self.constant(Type::I8, 0), self.constant(Type::I8, 1));
        let exchange = Op::CompareExchange(Region::State.into(), Address { base: at, offset: 0 }, free, locked);
        let before = self.value(Type::I8, exchange);
        let is_held = self.compare_imm(Condition::Ne, before, 0);
        self.end(mir::Terminator::Branch(is_held, mir::Edge::cold(wait), mir::Edge::new(taken, Vec::new())));
        self.switch_to(wait);
        let id = self.calls.wait_for_lock();
        self.call(id, vec![self.ctx, at]);
        self.jump(attempt, Vec::new());
        self.ssa.seal(attempt);
        self.switch_to(taken);
        self.write_var(held, at);
    }

    /// At the start of a block: releases the locks that are not needed on this path.
    pub fn release_at_start(&mut self) {
        let (position, block, _) = self.current;
        let released = self.locks.acquisitions.released_at_start(position, block).to_vec();
        self.release(&released);
    }

    /// After an access: releases the locks that are no longer needed.
    fn release_after(&mut self) {
        let (position, block, inst) = self.current;
        let released = self.locks.acquisitions.released_after(position, block, inst).to_vec();
        self.release(&released);
    }

    /// When the packet gets its fate: releases the locks that it may hold.
    pub fn release_at_end(&mut self) {
        let (position, block, _) = self.current;
        self.release(&self.locks.acquisitions.held_in(position, block).collect::<Vec<ExternId>>());
    }

    fn release(&mut self, registers: &[ExternId]) {
        for &register in registers {
            let rank = lock_rank(self.bindings, register);
            let Some(&var) = rank.and_then(|rank| self.locks.held.get(&rank)) else { continue };
            let held = self.read_var(var);
            let (free, next) = (self.new_block(), self.new_block());
            let truth = self.truth(held);
            self.branch(truth, free, next);
            self.switch_to(free);
            let zero = self.constant(Type::I8, 0);
            self.effect(Op::Release(Region::State.into(), Address { base: held, offset: 0 }, zero));
            self.jump(next, Vec::new());
            self.switch_to(next);
            let none = self.word(0);
            self.write_var(var, none);
        }
    }

    /// The address of a cell, whether the index is in range, and the register's width in bits.
    fn register_cell(&mut self, register: ExternId, index: &Operand) -> Result<(Value, Value, u32), Error> {
        let ExternBinding::Register { cells, size, width, lock_rank, .. } = self.extern_binding(register)? else {
            return Err(self.wrong_binding(register));
        };
        let index = self.read_saturated(index);
        let inside = self.compare_imm(Condition::Ult, index, size);
        let stride = register_stride_bytes(width, lock_rank.is_some());
        let offset = self.bin_imm(Binary::Mul, index, stride.into());
        let cells = self.word(cells as u64);
        Ok((self.add(cells, offset), inside, width))
    }

    pub fn register_read(&mut self, register: ExternId, dst: SlotId, index: &Operand) -> Result<(), Error> {
        let (cell, inside, width) = self.register_cell(register, index)?;
        let zeros = vec![self.word(0); width.div_ceil(64) as usize];
        let words = self.values_if(inside, zeros, |l| {
            l.acquire(register, cell, width)?;
            let bytes = register_cell_bytes(width);
            let piece = bytes.min(8);
            let word = |offset| l.load(Access::little(Region::State, piece as u8), At { base: cell, offset });
            Ok((0..bytes).step_by(8).map(word).collect())
        })?;
        self.write_words(dst, words);
        self.release_after();
        Ok(())
    }

    /// Reads a cell and changes it in one step.
    pub fn register_update(
        &mut self,
        register: ExternId,
        dst: SlotId,
        index: &Operand,
        update: Update,
        src: &Operand,
    ) -> Result<(), Error> {
        let (cell, inside, width) = self.register_cell(register, index)?;
        let src = self.read_words(src)[0];
        let is_stepped = matches!(self.extern_binding(register)?, ExternBinding::Register { is_stepped: true, .. });
        let zero = vec![self.word(0)];
        let words = self.values_if(inside, zero, |l| {
            let piece = register_cell_bytes(width) as u8;
            if is_stepped {
                let atomic = match update {
                    Update::Add => Atomic::Add,
                    Update::And => Atomic::And,
                    Update::Or => Atomic::Or,
                    Update::Xor => Atomic::Xor,
                    Update::Exchange => Atomic::Exchange,
                };
                let ty = Type::INTEGERS.into_iter().find(|ty| ty.bits() == 8 * u32::from(piece));
                let (ty, address) = (ty.expect("a cell is one word"), Address { base: cell, offset: 0 });
                let src = if ty == Type::I64 { src } else { l.narrow_to(src, ty) };
                let before = l.value(ty, Op::Atomic(atomic, Region::State.into(), address, src));
                let widen = |l: &mut Self| l.value(Type::I64, Op::Cast(Cast::Zext, before));
                return Ok(vec![if ty == Type::I64 { before } else { widen(l) }]);
            }
            l.acquire(register, cell, width)?;
            let before = l.load(Access::little(Region::State, piece), At { base: cell, offset: 0 });
            let after = match update {
                Update::Add => {
                    let sum = l.bin(Binary::Add, before, src);
                    l.mask_word(sum, width)
                }
                Update::And => l.bin(Binary::And, before, src),
                Update::Or => l.bin(Binary::Or, before, src),
                Update::Xor => l.bin(Binary::Xor, before, src),
                Update::Exchange => src,
            };
            l.store_le(Region::State, piece, cell, 0, after);
            Ok(vec![before])
        })?;
        self.write_words(dst, words);
        self.release_after();
        Ok(())
    }

    pub fn register_write(&mut self, register: ExternId, index: &Operand, src: &Operand) -> Result<(), Error> {
        let (cell, inside, width) = self.register_cell(register, index)?;
        let words = self.read_words(src);
        self.if_true(inside, |l| {
            l.acquire(register, cell, width)?;
            let piece = register_cell_bytes(width).min(8) as u8;
            for (i, word) in words.iter().enumerate() {
                l.store_le(Region::State, piece, cell, 8 * i as u32, *word);
            }
            Ok(())
        })?;
        self.release_after();
        Ok(())
    }
}
