//! Derives assumptions about a program from a table's entries.

use abi::table::KeyField;
use abi::{EntryShape, KeyLayout, Rule, TableShape};
use opt::Assumed;
use std::collections::{BTreeMap, BTreeSet};

/// The assumptions that hold for all lookups in a table of this shape; `None` if its entries are not known.
pub(super) fn assumed(shape: &TableShape, key: &KeyLayout) -> Option<Assumed> {
    let Some((rules, default)) = shape.possible() else {
        let results = shape.results.as_ref()?;
        return Some(agreed(&results.entries.iter().chain([&shape.default]).collect::<Vec<_>>()));
    };
    let hit = match (rules.is_empty(), default.is_none()) {
        (true, _) => Some(false),
        (_, true) => Some(true),
        _ => None,
    };
    let entries: Vec<&EntryShape> = rules.iter().map(|rule| &rule.entry).chain(default).collect();
    let is_read = |field: &KeyField| rules.iter().any(|rule| reads(rule, field));
    let fields = key.fields.iter().enumerate();
    let unread_keys = fields.filter(|(_, field)| !is_read(field)).map(|(i, _)| i).collect();
    Some(Assumed { hit, unread_keys, ..agreed(&entries) })
}

/// What all entries that a lookup can return have in common.
fn agreed(entries: &[&EntryShape]) -> Assumed {
    let calls: Option<Vec<_>> = entries.iter().map(|entry| entry.call.as_ref()).collect();
    let actions: Option<BTreeSet<u32>> = calls.as_ref().map(|calls| calls.iter().map(|call| call.action).collect());
    let mut args = BTreeMap::new();
    let mut differ = BTreeSet::new();
    for call in calls.into_iter().flatten() {
        for (i, value) in call.args.iter().enumerate() {
            let place = (call.action, i as u32);
            if args.entry(place).or_insert_with(|| value.clone()) != value {
                differ.insert(place);
            }
        }
    }
    args.retain(|place, _| !differ.contains(place));
    Assumed { hit: None, actions: actions.map(|a| a.into_iter().collect()), args, unread_keys: Vec::new() }
}

/// Whether a rule's mask covers any bit of a field.
fn reads(rule: &Rule, field: &KeyField) -> bool {
    let first = field.offset as usize / 8;
    if field.bytes >= 8 {
        return rule.mask[first..][..field.bytes as usize / 8].iter().any(|word| *word != 0);
    }
    let bits = (1u64 << (8 * field.bytes)) - 1;
    rule.mask[first] >> (field.offset % 8 * 8) & bits != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Bits;
    use base::entry::{ActionCall, MatchKind};

    fn entry(action: u32, args: &[u128]) -> EntryShape {
        let args = args.iter().map(|v| Bits::new(9, *v)).collect();
        EntryShape { entry: std::ptr::null(), call: Some(ActionCall { action, args }) }
    }

    fn table(rules: Vec<(u64, EntryShape)>, default: EntryShape) -> TableShape {
        let rule = |(mask, entry)| Rule { mask: vec![mask], value: vec![0], entry };
        let rules = Some(rules.into_iter().map(rule).collect());
        TableShape { snapshot: std::ptr::null(), words: Vec::new(), default, rules, results: None, prefilter: None }
    }

    fn key() -> KeyLayout {
        KeyLayout::new([(32, MatchKind::Ternary), (16, MatchKind::Ternary)])
    }

    #[test]
    fn an_empty_table_runs_its_default() {
        let found = assumed(&table(Vec::new(), entry(2, &[7])), &key());
        let args = BTreeMap::from([((2, 0), Bits::new(9, 7))]);
        assert_eq!(found, Some(Assumed { hit: Some(false), actions: Some(vec![2]), args, unread_keys: vec![0, 1] }));
    }

    #[test]
    fn what_entries_agree_on_is_known() {
        let rules = vec![(0xff, entry(0, &[1, 5])), (0xf, entry(0, &[2, 5])), (0, entry(1, &[]))];
        let found = assumed(&table(rules, entry(2, &[])), &key());
        let args = BTreeMap::from([((0, 1), Bits::new(9, 5))]);
        // A rule that matches everything hides the default.
        assert_eq!(found, Some(Assumed { hit: Some(true), actions: Some(vec![0, 1]), args, unread_keys: vec![1] }));
    }

    #[test]
    fn unknown_entries_say_nothing() {
        let shape = TableShape { rules: None, ..table(Vec::new(), entry(0, &[])) };
        assert_eq!(assumed(&shape, &key()), None);
    }
}
