//! Translated values: types whose values controllers see in another form than the data plane, by
//! `@p4runtime_translation(uri, string)` or with `bit<W>` wider than the data plane's type.
//!
//! The protocol leaves the mapping to the switch. Here every type has a table of its own, which is filled as values
//! first occur. Strings: the empty string is 0 (the value of a field that was never set), a decimal number maps to
//! itself if it is free, and any other string gets the smallest free number from 1. A number that occurs first in the
//! data plane maps to its decimal form. A mapping is valid as long as the program runs. Wider numbers: one that fits
//! maps to itself if it is free; others get the largest free number below all ones (which has a meaning in v1model's
//! port type), so that small numbers keep mapping to themselves.

use crate::error::{Error, Result};
use base::Bits;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The mapping of one type's values.
#[derive(Debug)]
pub struct Names {
    /// The type's name, for messages.
    pub type_name: String,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    numbers: HashMap<String, u128>,
    names: HashMap<u128, String>,
    /// All numbers below are taken.
    next: u128,
    /// The last number that a wider number got; the next candidate is below it. `None` before the first.
    next_wide: Option<u128>,
}

impl Tables {
    fn keep(&mut self, name: &str, number: u128) {
        self.numbers.insert(name.to_string(), number);
        self.names.insert(number, name.to_string());
    }
}

impl Names {
    /// A mapping of strings that has only the empty one.
    pub fn new(type_name: &str) -> Names {
        let mut tables = Tables { next: 1, ..Tables::default() };
        tables.keep("", 0);
        Names { type_name: type_name.to_string(), tables: Mutex::new(tables) }
    }

    /// A mapping of wider numbers, which are represented by their decimal form.
    pub fn of_numbers(type_name: &str) -> Names {
        Names { type_name: type_name.to_string(), tables: Mutex::new(Tables::default()) }
    }

    /// The data plane's value of a controller's number, which may be wider.
    ///
    /// # Errors
    ///
    /// RESOURCE_EXHAUSTED if no number is free; the message names `what`.
    pub fn narrowed(&self, wide: &Bits, width: u32, what: impl Display) -> Result<Bits> {
        let name = wide.to_biguint().to_string();
        let mut tables = self.lock();
        if let Some(number) = tables.numbers.get(&name) {
            return Ok(Bits::new(width, *number));
        }
        let max = Bits::ones(width).to_u128().unwrap_or(u128::MAX);
        let itself = wide.to_u128().filter(|n| n <= &max && !tables.names.contains_key(n));
        let number = match itself {
            Some(number) => number,
            None => {
                let mut next = tables.next_wide.or(max.checked_sub(1));
                while next.is_some_and(|n| tables.names.contains_key(&n)) {
                    next = next.and_then(|n| n.checked_sub(1));
                }
                let Some(number) = next else {
                    let message = format!("{what}: all numbers of type `{}` stand for others already", self.type_name);
                    return Err(Error::exhausted(message));
                };
                tables.next_wide = Some(number);
                number
            }
        };
        tables.keep(&name, number);
        Ok(Bits::new(width, number))
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Both maps are consistent before anything can panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data plane's value of a string.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT if it is not UTF-8, RESOURCE_EXHAUSTED if no number is free; the message names `what`.
    pub fn number(&self, name: &[u8], width: u32, what: impl Display) -> Result<Bits> {
        let name = std::str::from_utf8(name).map_err(|_| {
            Error::invalid(format!("{what}: the value must be a string (its type is `{}`)", self.type_name))
        })?;
        let mut tables = self.lock();
        if let Some(number) = tables.numbers.get(name) {
            return Ok(Bits::new(width, *number));
        }
        let max = Bits::ones(width).to_u128().unwrap_or(u128::MAX);
        let itself = name.parse::<u128>().ok().filter(|n| n.to_string() == name && *n <= max);
        let number = match itself.filter(|n| !tables.names.contains_key(n)) {
            Some(number) => number,
            None => {
                while tables.names.contains_key(&tables.next) {
                    tables.next += 1;
                }
                tables.next
            }
        };
        if number > max {
            let message = format!("{what}: all numbers of type `{}` stand for names already", self.type_name);
            return Err(Error::exhausted(message));
        }
        tables.keep(name, number);
        Ok(Bits::new(width, number))
    }

    /// The string (or decimal number) of a data plane's value.
    pub fn name(&self, value: &Bits) -> Vec<u8> {
        let Some(number) = value.to_u128() else { return value.to_biguint().to_string().into_bytes() };
        let mut tables = self.lock();
        if let Some(name) = tables.names.get(&number) {
            return name.clone().into_bytes();
        }
        let name = number.to_string();
        // The decimal form may already be mapped to another number; then this value cannot be translated back.
        if !tables.numbers.contains_key(&name) {
            tables.keep(&name, number);
        }
        name.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn names_get_numbers_and_keep_them() {
        let names = Names::new("vrf_t");
        let number = |name: &str| names.number(name.as_bytes(), 8, "x").map(|b| b.to_u64().unwrap());
        assert_eq!(number(""), Ok(0));
        assert_eq!(number("red"), Ok(1));
        assert_eq!(number("2"), Ok(2));
        assert_eq!(number("blue"), Ok(3));
        assert_eq!(number("red"), Ok(1));
        assert_eq!(number("1"), Ok(4), "1 is red's");
        assert_eq!(number("007"), Ok(5), "not a number's own form");
        assert_eq!(names.name(&Bits::new(8, 3)), b"blue");
        assert_eq!(names.name(&Bits::new(8, 200)), b"200");
        assert_eq!(number("200"), Ok(200));
    }

    #[test]
    fn numbers_that_do_not_fit_get_others_and_keep_them() {
        let names = Names::of_numbers("port_t");
        let narrow =
            |wide: u128| names.narrowed(&Bits::new(32, wide), 2, "x").map(|b| b.to_u64().unwrap()).map_err(|e| e.code);
        assert_eq!(narrow(0x1_0000), Ok(2));
        assert_eq!(narrow(1), Ok(1));
        assert_eq!(narrow(0x1_0000), Ok(2));
        assert_eq!(narrow(2), Ok(0), "2 stands for another");
        assert_eq!(narrow(3), Ok(3));
        assert_eq!(names.name(&Bits::new(2, 2)), b"65536");
        assert_eq!(narrow(4).unwrap_err(), Code::ResourceExhausted);
    }

    #[test]
    fn a_narrow_type_runs_out_of_numbers() {
        let names = Names::new("t");
        for name in ["a", "b", "c"] {
            names.number(name.as_bytes(), 2, "x").unwrap();
        }
        assert_eq!(names.number(b"d", 2, "x").unwrap_err().code, Code::ResourceExhausted);
        assert_eq!(names.number(&[0xff], 2, "x").unwrap_err().code, Code::InvalidArgument);
    }
}
