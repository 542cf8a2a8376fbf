//! Functions that programs declare but cannot define in P4, and that the reference compiler's repository implements as
//! C modules for its back ends. They are recognised by name and signature and behave as in those modules.
//!
//! | function | result |
//! | --- | --- |
//! | `bool verify_ipv4_checksum(in H header)` | whether the header's Internet checksum is correct |
//! | `bit<16> incremental_checksum(in bit<16> csum, in bit<32> old, in bit<32> new)` | as `csum_replace4` |
//! | `bit<16> compute_hash(in bit<32> a, in bit<32> b)` | a CRC-16 of the arguments |
//! | `bool tcp_conntrack(in S headers)` | whether a TCP segment is allowed in its connection's state ([`Conntrack`]) |
//!
//! `compute_hash` is the CRC-16 with polynomial 0x1021 and initial value 0xffff, over the four bytes of `a` and the
//! lower three of `b`, each number least significant byte first.
//!
//! A function with such a name but another signature is unresolved.

use super::externs::{checksum_after, internet_checksum};
use crate::arch::ExternCall;
use crate::context::Lowerer;
use crate::tree::Tree;
use base::Bits;
use ir::{BinOp, ExternKind, HashAlgorithm, Op, Operand};
use sema::Type;

/// Number of bytes that `compute_hash` reads of its eight.
const HASHED_BYTES: u32 = 7;

impl Lowerer<'_> {
    /// Emits a call of a function that a module implements; `None` if no module has it.
    pub(super) fn module_function(&mut self, name: &str, call: &ExternCall<'_>) -> Option<Tree> {
        let types: Vec<&Type> = call.call.args.iter().map(|a| &a.ty).collect();
        let widths: Vec<Option<u32>> = types.iter().map(|ty| self.scalar_width(ty)).collect();
        let result = self.scalar_width(&call.call.result)?;
        match (name, widths.as_slice(), result) {
            ("verify_ipv4_checksum", [None], 1) if self.is_header(types[0]) => {
                let mut data = Vec::new();
                call.value(0).for_each_wire_leaf(&mut |value, _| data.push(value.clone()));
                let sum = internet_checksum(self, data);
                Some(self.b.bin(BinOp::Eq, sum, Bits::zero(16)).into())
            }
            ("incremental_checksum", [Some(16), Some(32), Some(32)], 16) => {
                let [sum, old, new] = [0, 1, 2].map(|i| call.value(i).operand());
                Some(checksum_after(self, sum, old, new))
            }
            ("compute_hash", [Some(32), Some(32)], 16) => {
                let [a, b] = [0, 1].map(|i| call.value(i).operand());
                Some(self.compute_hash(&a, &b).into())
            }
            ("tcp_conntrack", [None], 1) => self.tcp_conntrack(call),
            _ => None,
        }
    }

    fn is_header(&self, ty: &Type) -> bool {
        let same_bits = self.p.types.width_bits(ty, true) == self.p.types.width_bits(ty, false);
        matches!(self.p.types.underlying(ty), Type::Header(_)) && same_bits
    }

    /// The CRC, byte by byte, computed without a table.
    fn compute_hash(&mut self, a: &Operand, b: &Operand) -> Operand {
        let mut crc = Operand::Const(Bits::ones(16));
        for i in 0..HASHED_BYTES {
            let (word, low) = (if i < 4 { a } else { b }, i % 4 * 8);
            let byte = self.slice(word.clone(), low + 7, low);
            let high = self.slice(crc.clone(), 15, 8);
            let x = self.b.bin(BinOp::Xor, high, byte);
            let shifted = self.b.bin(BinOp::Lshr, x, Bits::new(8, 4));
            let x = self.b.bin(BinOp::Xor, x, shifted);
            let x = self.b.resize_u(16, x);
            let mut next = self.b.bin(BinOp::Shl, crc, Bits::new(8, 8));
            for bits in [12, 5, 0] {
                let moved = self.b.bin(BinOp::Shl, x.clone(), Bits::new(8, bits));
                next = self.b.bin(BinOp::Xor, next, moved);
            }
            crc = next.into();
        }
        crc
    }
}

/// Number of cells of the connection table.
const CONNECTIONS: u64 = 1 << 14;
/// Name of the register that holds them; no instance of a program can have it.
const CONNECTION_CELLS: &str = "$connections";
/// Width in bits of both addresses and both ports.
const KEY_WIDTH: u32 = 96;
/// States of a connection; 0 is no connection.
const SYN_SENT: u128 = 1;
const SYN_ACKED: u128 = 2;
const ESTABLISHED: u128 = 3;

/// The contents of a connection's cell: `key ++ server ++ state`. The key is hashed to a cell; a new connection
/// replaces another one there.
struct Conntrack {
    known: Operand,
    server: Operand,
    state: Operand,
}

impl Lowerer<'_> {
    /// Tracks TCP connections by the three-way handshake. Returns whether the segment is allowed; the state changes
    /// only if it is. A FIN with ACK from the client ends an established connection. The argument has `ipv4`
    /// (`srcAddr`, `dstAddr`) and `tcp` (`srcPort`, `dstPort`, `syn`, `ack`, `fin`).
    fn tcp_conntrack(&mut self, call: &ExternCall<'_>) -> Option<Tree> {
        let (ty, headers) = (&call.call.args[0].ty, call.value(0));
        let field = |cx: &Self, header: &str, name: &str, width: u32| {
            let (at, outer) = cx.p.types.struct_info(ty)?.field(header)?;
            let (inside, _) = cx.p.types.struct_info(&outer.ty)?.field(name)?;
            let value = headers.child(at).child(inside).operand();
            (cx.width(&value) == width).then_some(value)
        };
        let (from, to) = (field(self, "ipv4", "srcAddr", 32)?, field(self, "ipv4", "dstAddr", 32)?);
        let (sport, dport) = (field(self, "tcp", "srcPort", 16)?, field(self, "tcp", "dstPort", 16)?);
        let flags = ["syn", "ack", "fin"].map(|name| field(self, "tcp", name, 1));
        let [Some(syn), Some(ack), Some(fin)] = flags else { return None };

        let register = self.conntrack_register(call.call.span);
        let (addresses, ports) = (self.sorted(from.clone(), to.clone()), self.sorted(sport, dport));
        let key: Operand = self.b.concat(addresses, ports).into();
        let index = self.b.temp(64);
        let (base, max) = (Operand::new_const(64, 0), Some(Operand::new_const(64, u128::from(CONNECTIONS))));
        let (algorithm, data) = (HashAlgorithm::Crc32, vec![key.clone()]);
        self.b.emit(Op::Hash { algorithm, dst: index, base, max, data, varbits: Vec::new(), payload: false });
        let cell = self.b.temp(KEY_WIDTH + 34);
        self.b.emit(Op::RegisterRead { register, dst: cell, index: index.into(), peek: false });
        let found = self.conntrack(cell.into(), &key);

        let is = |cx: &mut Self, state: u128| -> Operand {
            let same = cx.b.bin(BinOp::Eq, found.state.clone(), Bits::new(2, state)).into();
            cx.and(found.known.clone(), same)
        };
        let (sent, acked, established) = (is(self, SYN_SENT), is(self, SYN_ACKED), is(self, ESTABLISHED));
        let of_server: Operand = self.b.bin(BinOp::Eq, from, found.server.clone()).into();
        let of_client = self.not(of_server.clone());
        let (no_syn, no_ack, new) = (self.not(syn.clone()), self.not(ack.clone()), self.not(found.known.clone()));
        let opens = self.and(syn.clone(), no_ack);
        let all = |cx: &mut Self, conditions: [&Operand; 4]| {
            let [first, others @ ..] = conditions;
            others.into_iter().fold(first.clone(), |all, one| cx.and(all, one.clone()))
        };
        let yes = Self::bit(true);
        // The conditions under which the segment is allowed, each with the state after it.
        let begins = all(self, [&new, &opens, &yes, &yes]);
        let answers = all(self, [&sent, &of_server, &syn, &ack]);
        let confirms = all(self, [&acked, &of_client, &no_syn, &ack]);
        let again = self.not(opens);
        let again: Operand = self.b.bin(BinOp::Or, of_server, again).into();
        let goes_on = all(self, [&established, &again, &yes, &yes]);
        let ends = all(self, [&goes_on, &of_client, &fin, &ack]);
        let mut next = Operand::new_const(2, 0);
        let mut allowed = Self::bit(false);
        for (cond, state) in
            [(&begins, SYN_SENT), (&answers, SYN_ACKED), (&confirms, ESTABLISHED), (&goes_on, ESTABLISHED)]
        {
            next = self.b.select(cond.clone(), Bits::new(2, state), next).into();
            allowed = self.b.bin(BinOp::Or, allowed, cond.clone()).into();
        }
        let next = self.b.select(ends, Bits::zero(2), next);
        let server = self.b.select(begins, to, found.server);
        let made = self.b.concat(key, server);
        let made = self.b.concat(made, next);
        let src = self.b.select(allowed.clone(), made, cell).into();
        self.b.emit(Op::RegisterWrite { register, index: index.into(), src });
        Some(allowed.into())
    }

    /// The two values concatenated, the smaller one first, so that both directions of a connection have the same key.
    fn sorted(&mut self, a: Operand, b: Operand) -> Operand {
        let less: Operand = self.b.bin(BinOp::Ult, a.clone(), b.clone()).into();
        let (low, high) = (self.b.select(less.clone(), a.clone(), b.clone()), self.b.select(less, b, a));
        self.b.concat(low, high).into()
    }

    fn conntrack(&mut self, cell: Operand, key: &Operand) -> Conntrack {
        let known = self.slice(cell.clone(), KEY_WIDTH + 33, 34);
        let state = self.slice(cell.clone(), 1, 0);
        let same: Operand = self.b.bin(BinOp::Eq, known, key.clone()).into();
        let lives = self.b.bin(BinOp::Ne, state.clone(), Bits::zero(2)).into();
        Conntrack { known: self.and(same, lives), server: self.slice(cell, 33, 2), state }
    }

    /// The register of connections, which all calls share.
    fn conntrack_register(&mut self, span: base::Span) -> ir::ExternId {
        let program = self.b.program();
        if let Some(known) = program.extern_named(CONNECTION_CELLS) {
            return known;
        }
        let width = KEY_WIDTH + 34;
        let kind = ExternKind::Register { size: CONNECTIONS, width, initial: Bits::zero(width) };
        self.b.extern_instance(ir::Extern { name: CONNECTION_CELLS.to_string(), span, kind })
    }
}
