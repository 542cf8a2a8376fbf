//! Parser value sets whose members are compared under a mask, which a transition in bmv2's JSON may specify.
//!
//! A lookup in an exact table compares all bits. So the members of a value set `S` under a mask are entries of another
//! table, whose name contains the set's name and a mask for each key: `S.$masked(8w0xf0)`. Packets look up masked keys
//! there. Writers of members of `S` (`control`, `stf`) also write them, masked, to these tables. Reads are of `S`,
//! which holds the members as they were given.

use crate::{Program, TableId};
use base::Bits;
use base::entry::KeyMatch;

/// The name of the table for the members of a value set under masks, one mask per key.
pub fn masked_name(set: &str, masks: &[Bits]) -> String {
    let masks: Vec<String> = masks.iter().map(Bits::to_string).collect();
    format!("{set}.$masked({})", masks.join(","))
}

/// The masks in the name of a table for `set`; `None` for all other tables.
fn masks_of(name: &str, set: &str) -> Option<Vec<Bits>> {
    let masks = name.strip_prefix(set)?.strip_prefix(".$masked(")?.strip_suffix(')')?;
    masks.split(',').map(|mask| Bits::parse(mask).ok()).collect()
}

impl Program {
    /// The tables for the members of a value set under masks, with their masks.
    pub fn masked_tables(&self, set: TableId) -> Vec<(TableId, Vec<Bits>)> {
        let set = &self.tables[set.index()];
        let tables = self.tables.iter().enumerate().filter(|(_, table)| set.value_set && table.value_set);
        let masked = tables.filter_map(|(i, table)| Some((TableId::from_index(i), masks_of(&table.name, &set.name)?)));
        masked.filter(|(_, masks)| masks.iter().map(Bits::width).eq(set.keys.iter().map(|key| key.width))).collect()
    }
}

/// A member's key under masks. Value sets with masks have only exact keys.
pub fn masked_key(key: &[KeyMatch], masks: &[Bits]) -> Vec<KeyMatch> {
    let under = |(key, mask): (&KeyMatch, &Bits)| match key {
        KeyMatch::Exact(value) => KeyMatch::Exact(value.and(mask)),
        other => other.clone(),
    };
    key.iter().zip(masks).map(under).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_masks() {
        let masks = [Bits::new(8, 0xf0), Bits::new(70, 1)];
        let name = masked_name("P.s", &masks);
        assert_eq!(name, "P.s.$masked(8w0xf0,70w0x1)");
        assert_eq!(masks_of(&name, "P.s").as_deref(), Some(&masks[..]));
        for (name, set) in
            [("P.s", "P.s"), ("P.st.$masked(8w0x1)", "P.s"), ("P.s.$masked(x)", "P.s"), ("Q.s.$masked(8w0x1)", "P.s")]
        {
            assert_eq!(masks_of(name, set), None, "{name}");
        }
    }
}
