//! The outcomes of a random number: a tree of traces has one trace for each outcome, not for each number.
//!
//! Two numbers have the same outcome if the run makes the same decisions: parser states, actions, conditions, results
//! of lookups, output ports. A small range is tried number by number. In a large one, the numbers tried are those at
//! which the program may change its behaviour: the ends, the constants of the program and its entries, and their
//! neighbours. Between two numbers with different outcomes the boundary is found by bisection. An outcome that occurs
//! only between two tried numbers with equal outcomes is missed.
//!
//! Tests: at the end of the file; with a program in `live/tests.rs`.

use super::Traced;
use abi::state::PipelineState;
use base::entry::KeyMatch;
use base::ids::TableId;
use interp::State;
use interp::trace::Event;
use ir::{Operand, Program, Terminator};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most runs for one draw.
pub const RUNS_MAX: usize = 512;
/// The largest range, in numbers, that is tried number by number.
const ALL_MAX: u64 = 64;
/// The most constants that are tried.
const CONSTANTS_MAX: usize = 96;
/// The most entries of a table whose values count as constants.
const ENTRIES_MAX: usize = 64;

/// One outcome, and the numbers that lead to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The lowest of these that was tried.
    pub value: u64,
    /// The ranges that lead to it, as far as tried.
    pub ranges: Vec<(u64, u64)>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(low, high): &(u64, u64)| match low == high {
            true => low.to_string(),
            false => format!("{low} to {high}"),
        };
        let ranges: Vec<String> = self.ranges.iter().map(range).collect();
        f.write_str(&ranges.join(", "))
    }
}

/// Returns the decisions of a run, which distinguish outcomes.
pub fn outcome(traced: &Traced) -> Vec<String> {
    let mut outcome = Vec::new();
    for (entry, trace) in &traced.traces {
        outcome.push(entry.name().to_string());
        outcome.extend(trace.steps.iter().filter_map(|step| decision(&step.event)));
    }
    outcome.extend(traced.response.sent.iter().map(|sent| format!("port {}", sent.port)));
    outcome
}

fn decision(event: &Event) -> Option<String> {
    Some(match event {
        Event::Apply { table, entry, action, args, .. } => format!("{table}: {entry:?} {action} {args:?}"),
        Event::Condition { value, to, .. } => format!("{value} {to}"),
        // Only the target matters, not the value.
        Event::Select { to, .. } | Event::To(to) => to.clone(),
        Event::Stage { .. } | Event::State(_) | Event::Block(_) | Event::Action(_) => event.to_string(),
        Event::HasBits { .. } | Event::Valid { .. } | Event::AssertFailed(_) | Event::Fate(_) => event.to_string(),
        Event::Extract { header, .. } => header.clone(),
        Event::Advance { .. } | Event::Lookahead { .. } | Event::Change { .. } | Event::Emit { .. } => return None,
        Event::Extern { .. } | Event::Log(_) => return None,
        // Their consequences show in other steps.
        Event::Checksum { .. } | Event::Verified { .. } | Event::Decision { .. } => return None,
        Event::Statement | Event::Direct { .. } | Event::Exit | Event::OutOfRange { .. } => return None,
    })
}

/// Returns the constants that a program and its entries may compare a number with.
pub fn constants(program: &Program, state: &State) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut add = |value: &base::Bits| found.extend(value.to_u64());
    for block in program.stages.iter().flat_map(|stage| &stage.blocks) {
        for inst in &block.insts {
            inst.op.for_each_operand(|operand| {
                if let Operand::Const(value) = operand {
                    add(value);
                }
            });
        }
        if let Terminator::Switch { cases, .. } = &block.term {
            cases.iter().for_each(|(value, _)| add(value));
        }
    }
    for table in (0..program.tables.len()).map(TableId::from_index) {
        for entry in state.entries(table).into_iter().take(ENTRIES_MAX) {
            for key in &entry.entry.key {
                match key {
                    KeyMatch::Exact(value) | KeyMatch::Optional(Some(value)) => add(value),
                    KeyMatch::Range { low, high } => [low, high].into_iter().for_each(&mut add),
                    KeyMatch::Ternary { value, .. } | KeyMatch::Lpm { value, .. } => add(value),
                    KeyMatch::Optional(None) => {}
                }
            }
        }
    }
    found
}

/// Returns the outcomes of a draw from `low` to `high`, both included, by lowest number. `outcome` runs the program with
/// a number and returns its decisions; it is called at most `budget` times.
pub fn outcomes<W: PartialEq>(
    low: u64,
    high: u64,
    constants: &BTreeSet<u64>,
    budget: usize,
    outcome: &mut impl FnMut(u64) -> W,
) -> Vec<Outcome> {
    let mut outcomes: Vec<W> = Vec::new();
    let mut left = budget;
    let mut tried: BTreeMap<u64, usize> = BTreeMap::new();
    let mut ask = |value: u64, outcomes: &mut Vec<W>, left: &mut usize| -> usize {
        *left = left.saturating_sub(1);
        let new = outcome(value);
        outcomes.iter().position(|old| *old == new).unwrap_or_else(|| {
            outcomes.push(new);
            outcomes.len() - 1
        })
    };
    let candidates: BTreeSet<u64> = match high - low < ALL_MAX {
        true => (low..=high).collect(),
        false => {
            let near = constants.iter().take(CONSTANTS_MAX);
            let near = near.flat_map(|c| [c.saturating_sub(1), *c, c.saturating_add(1)]);
            near.filter(|value| (low..=high).contains(value)).chain([low, high]).collect()
        }
    };
    for value in candidates {
        if left == 0 {
            break;
        }
        tried.insert(value, ask(value, &mut outcomes, &mut left));
    }
    // Bisect between neighbours with different outcomes.
    let mut gaps: Vec<(u64, u64)> = tried.keys().zip(tried.keys().skip(1)).map(|(a, b)| (*a, *b)).collect();
    while let Some((a, b)) = gaps.pop() {
        if b - a <= 1 || left == 0 || tried.get(&a) == tried.get(&b) {
            continue;
        }
        let middle = a + (b - a) / 2;
        tried.insert(middle, ask(middle, &mut outcomes, &mut left));
        gaps.extend([(a, middle), (middle, b)]);
    }
    let mut found: Vec<Outcome> = Vec::new();
    for at in 0..outcomes.len() {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut last = None;
        for (value, of) in &tried {
            if *of == at {
                match (ranges.last_mut(), last == Some(at)) {
                    (Some(range), true) => range.1 = *value,
                    _ => ranges.push((*value, *value)),
                }
            }
            last = Some(*of);
        }
        found.push(Outcome { value: ranges.first().map_or(low, |range| range.0), ranges });
    }
    found.sort_by_key(|outcome| outcome.value);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(low: u64, high: u64, constants: &[u64], outcome: fn(u64) -> u64) -> Vec<String> {
        let constants = constants.iter().copied().collect();
        outcomes(low, high, &constants, 200, &mut |value| outcome(value)).iter().map(Outcome::to_string).collect()
    }

    #[test]
    fn few_numbers_are_all_tried() {
        assert_eq!(all(3, 8, &[], |v| v % 3), ["3, 6", "4, 7", "5, 8"]);
        assert_eq!(all(5, 5, &[], |v| v), ["5"]);
    }

    #[test]
    fn of_many_the_place_where_the_way_changes_is_found() {
        assert_eq!(all(0, u64::MAX, &[], |v| u64::from(v > 12_345)), ["0 to 12345", "12346 to 18446744073709551615"]);
        // An outcome that neither end has is found through the program's constants.
        let ranges = ["0 to 499, 501 to 65535", "500"];
        assert_eq!(all(0, 65_535, &[500], |v| u64::from(v == 500)), ranges);
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut asked = 0;
        let found = outcomes(0, u64::MAX, &BTreeSet::new(), 50, &mut |value| {
            asked += 1;
            value
        });
        assert!(asked <= 50 && found.len() <= 50, "{asked} {}", found.len());
    }
}
