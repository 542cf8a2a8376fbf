//! Compile-time values.
//!
//! A value does not carry its type; the surrounding expression, parameter or field does. So `bit<8>` and `int<8>`
//! values are both [`Value::Bits`], and a value of a serialisable enum or of a `type` is represented as the value of
//! its underlying type.

use crate::ids::InstanceId;
use base::Bits;
use num_bigint::BigInt;
use std::sync::Arc;

/// A compile-time value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// `bool`
    Bool(bool),
    /// `int`
    Int(BigInt),
    /// `bit<W>`, `int<W>`, a serialisable enum.
    Bits(Bits),
    /// `varbit<W>`: the bits at its current width.
    Varbit(Bits),
    /// `string`
    Str(Arc<str>),
    /// An enum without underlying type: the member's index.
    Enum(u32),
    /// `error`: index into [`crate::typed::Program::errors`].
    Error(u32),
    /// `match_kind`: index into [`crate::typed::Program::match_kinds`].
    MatchKind(u32),
    /// A struct, tuple, list or stack; for a header type, a valid header.
    Seq(Vec<Value>),
    /// An invalid header (all fields zero) or a header union without a valid member.
    Invalid,
    /// An instance of an extern, parser, control or package.
    Instance(InstanceId),
    /// The value of an `@optional` constructor parameter without an argument.
    Absent,
}

impl Value {
    /// The value as an unsigned 64-bit integer: an `int`, or fixed-width bits read as unsigned; `None` if it does not
    /// fit.
    pub fn to_u64(&self) -> Option<u64> {
        match self {
            Value::Int(v) => u64::try_from(v).ok(),
            Value::Bits(v) => v.to_u64(),
            _ => None,
        }
    }

    /// The boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The fixed-width bits.
    pub fn as_bits(&self) -> Option<&Bits> {
        match self {
            Value::Bits(b) => Some(b),
            _ => None,
        }
    }

    /// The string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The instance.
    pub fn as_instance(&self) -> Option<InstanceId> {
        match self {
            Value::Instance(id) => Some(*id),
            _ => None,
        }
    }
}
