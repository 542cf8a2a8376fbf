//! Evaluation of conditions for the values of an entry or an action call.

use crate::check::{Bool, Number, Order, Part};
use base::Bits;
use base::entry::KeyMatch;
use num_bigint::{BigInt, BigUint};
use num_traits::{One, Zero};
use std::borrow::Cow;

/// The values that a constraint is checked against, one for each name of its scope, in the same order.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// An entry's key and priority.
    Entry(&'a [KeyMatch], i32),
    /// An action's arguments.
    Call(&'a [Bits]),
}

impl Bool {
    pub(crate) fn holds(&self, values: Values) -> bool {
        match self {
            Bool::Const(value) => *value,
            Bool::Not(a) => !a.holds(values),
            Bool::And(a, b) => a.holds(values) && b.holds(values),
            Bool::Or(a, b) => a.holds(values) || b.holds(values),
            Bool::Same(a, b) => a.holds(values) == b.holds(values),
            Bool::Compare(order, a, b) => {
                let (a, b) = (a.value(values), b.value(values));
                match order {
                    Order::Equal => a == b,
                    Order::Less => a < b,
                    Order::LessOrEqual => a <= b,
                }
            }
        }
    }
}

impl Number {
    fn value(&self, values: Values) -> Cow<'_, BigInt> {
        match self {
            Number::Const(value) => Cow::Borrowed(value),
            Number::Negative(a) => Cow::Owned(-a.value(values).into_owned()),
            Number::Wrapped(width, a) => {
                let modulus = BigInt::one() << *width;
                let rest = a.value(values).into_owned() % &modulus;
                Cow::Owned(if rest < BigInt::zero() { rest + modulus } else { rest })
            }
            Number::Priority => Cow::Owned(match values {
                Values::Entry(_, priority) => BigInt::from(priority),
                Values::Call(_) => BigInt::zero(),
            }),
            Number::Part(at, part) => Cow::Owned(match values {
                // There is a value for each name; a missing one would be a bug and counts as zero.
                Values::Entry(key, _) => key.get(*at).map_or_else(BigInt::zero, |field| of_field(field, *part)),
                Values::Call(args) => args.get(*at).map_or_else(BigInt::zero, number),
            }),
        }
    }
}

fn number(bits: &Bits) -> BigInt {
    BigInt::from(bits.to_biguint())
}

fn of_field(field: &KeyMatch, part: Part) -> BigInt {
    match (field, part) {
        (KeyMatch::Exact(value), Part::Value) => number(value),
        (KeyMatch::Optional(Some(value)), Part::Value) => number(value),
        // All bits are significant.
        (KeyMatch::Optional(Some(value)), Part::Mask) => BigInt::from((BigUint::one() << value.width()) - 1u32),
        (KeyMatch::Lpm { value, .. } | KeyMatch::Ternary { value, .. }, Part::Value) => number(value),
        (KeyMatch::Lpm { prefix_len, .. }, Part::PrefixLength) => BigInt::from(*prefix_len),
        (KeyMatch::Ternary { mask, .. }, Part::Mask) => number(mask),
        (KeyMatch::Range { low, .. }, Part::Low) => number(low),
        (KeyMatch::Range { high, .. }, Part::High) => number(high),
        // `check` uses only the parts that a kind has; the remaining case is an absent optional field.
        _ => BigInt::zero(),
    }
}
