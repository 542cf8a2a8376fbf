//! What controllers see as other values than the data plane has: `@p4runtime_translation(uri, string)`, and `bit<W>` with more bits than
//! the data plane's.
//!
//! The protocol leaves the rule to the switch. Here every type has a table of its own, filled as names come up: the empty
//! string is 0 (the value of what nobody set), a decimal number stands for itself if it is free, any other name gets the
//! smallest free number from 1. A number that the data plane sends first is its decimal form. A name keeps its number
//! as long as the program runs. Of numbers with more bits those that fit stand for themselves, if they are free; others get the largest
//! free number that is not all ones (which v1model's port type has a meaning for), so that small numbers stay themselves.

use crate::error::{Error, Result};
use base::Bits;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of one type.
#[derive(Debug)]
pub struct Names {
    /// For messages.
    pub type_name: String,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    numbers: HashMap<String, u128>,
    names: HashMap<u128, String>,
    /// All below are taken.
    next: u128,
    /// The number that a wide number may get next, downwards; `None` before the first.
    next_wide: Option<u128>,
}

impl Tables {
    fn keep(&mut self, name: &str, number: u128) {
        self.numbers.insert(name.to_string(), number);
        self.names.insert(number, name.to_string());
    }
}

impl Names {
    /// None but the empty one yet.
    pub fn new(type_name: &str) -> Names {
        let mut tables = Tables { next: 1, ..Tables::default() };
        tables.keep("", 0);
        Names { type_name: type_name.to_string(), tables: Mutex::new(tables) }
    }

    /// Of a type of numbers, each of which is its decimal form.
    pub fn of_numbers(type_name: &str) -> Names {
        Names { type_name: type_name.to_string(), tables: Mutex::new(Tables::default()) }
    }

    /// The data plane's value for a number, which may have more bits.
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
        // Both maps are complete before anything can panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data plane's value for a name.
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

    /// The name of a data plane's value.
    pub fn name(&self, value: &Bits) -> Vec<u8> {
        let Some(number) = value.to_u128() else { return value.to_biguint().to_string().into_bytes() };
        let mut tables = self.lock();
        if let Some(name) = tables.names.get(&number) {
            return name.clone().into_bytes();
        }
        let name = number.to_string();
        // The decimal form may be another number's name by now; then this value has no way back.
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
