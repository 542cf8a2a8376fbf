//! Ids and aliases of objects (P4Runtime specification, "ID Allocation for P4Info Objects" and "Preamble Message").
//!
//! An id is the prefix byte of the kind and 24 bits: the author's `@id`, else a hash of the fully qualified name. The
//! hash is Bob Jenkins's one-at-a-time, collisions are resolved by linear probing, and names are inserted in
//! alphabetical order. This is the reference compiler's scheme, so that a controller built with its P4Info finds the
//! same ids here. The result depends only on the set of names, not on the order of declaration.
//!

use crate::model::ObjectKind;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const SUFFIX: u32 = 0x00ff_ffff;

/// Collects names and then allocates ids and aliases.
#[derive(Default, Debug)]
pub struct Allocator {
    /// The names of each kind, with the author's id including its prefix.
    names: BTreeMap<ObjectKind, BTreeMap<String, Option<u32>>>,
    /// The name that owns each of the author's ids; ids of different kinds differ in their prefix.
    owners: HashMap<u32, String>,
}

/// The ids and aliases of all names.
#[derive(Debug)]
pub struct Allocation {
    ids: HashMap<(ObjectKind, String), u32>,
    /// The number of distinct names that end in each suffix.
    suffixes: HashMap<String, u32>,
}

/// Why an `@id` is rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdError {
    /// The top byte is the prefix of another kind.
    WrongPrefix {
        /// The prefix of the object's kind.
        expected: u8,
    },
    /// Another object of the kind has the same id.
    Taken {
        /// That object's name.
        by: String,
    },
    /// The id is zero, which means "no object".
    Zero,
}

impl std::fmt::Display for IdError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IdError::WrongPrefix { expected } => write!(f, "the top byte of `@id` must be 0 or {expected:#04x} here"),
            IdError::Taken { by } => write!(f, "`{by}` has the same `@id`"),
            IdError::Zero => write!(f, "`@id` must not be 0"),
        }
    }
}

impl Allocator {
    /// Adds a name, with the author's `@id` if there is one. The same name of the same kind may be added again.
    ///
    /// # Errors
    ///
    /// The `@id` has the wrong prefix, belongs to another object, or is zero.
    pub fn add(&mut self, kind: ObjectKind, name: &str, id: Option<u32>) -> Result<(), IdError> {
        let names = self.names.entry(kind).or_default();
        if names.get(name).is_some_and(|earlier| earlier.is_some() || id.is_none()) {
            return Ok(());
        }
        let id = id.map(|id| with_prefix(kind, id)).transpose()?;
        if let Some(id) = id {
            let owner = self.owners.entry(id).or_insert_with(|| name.to_string());
            if owner != name {
                return Err(IdError::Taken { by: owner.clone() });
            }
        }
        names.insert(name.to_string(), id);
        Ok(())
    }

    /// Allocates an id for every name.
    pub fn allocate(self) -> Allocation {
        let mut taken: BTreeSet<u32> =
            self.names.values().flat_map(|names| names.values().flatten()).copied().collect();
        let mut allocation = Allocation { ids: HashMap::new(), suffixes: HashMap::new() };
        let all_names: BTreeSet<&String> = self.names.values().flat_map(|names| names.keys()).collect();
        for name in all_names {
            for suffix in suffixes(name) {
                *allocation.suffixes.entry(suffix.to_string()).or_default() += 1;
            }
        }
        for (kind, names) in self.names {
            for (name, id) in names {
                let id = id.unwrap_or_else(|| free_id(kind, &name, &taken));
                taken.insert(id);
                allocation.ids.insert((kind, name), id);
            }
        }
        allocation
    }
}

impl Allocation {
    /// The id of a name that was added.
    pub fn id(&self, kind: ObjectKind, name: &str) -> Option<u32> {
        self.ids.get(&(kind, name.to_string())).copied()
    }

    /// The shortest suffix that only this name has; the whole name if every suffix is shared.
    pub fn alias<'a>(&self, name: &'a str) -> &'a str {
        suffixes(name).find(|suffix| self.suffixes.get(*suffix) == Some(&1)).unwrap_or(name)
    }
}

/// The name of an object that is not the first of its name, which other languages than P4 allow: `name#2`.
pub fn numbered(name: &str, number: usize) -> String {
    format!("{name}#{number}")
}

/// A name without the number that [`numbered`] gives.
pub fn plain(name: &str) -> &str {
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit());
    name.rsplit_once('#').filter(|(_, end)| is_number(end)).map_or(name, |(plain, _)| plain)
}

fn with_prefix(kind: ObjectKind, id: u32) -> Result<u32, IdError> {
    let prefix = u32::from(kind.prefix()) << 24;
    if id & SUFFIX == 0 {
        Err(IdError::Zero)
    } else if id & !SUFFIX != 0 && id & !SUFFIX != prefix {
        Err(IdError::WrongPrefix { expected: kind.prefix() })
    } else {
        Ok(prefix | id)
    }
}

/// Linear probing: the first free id from the name's hash on.
fn free_id(kind: ObjectKind, name: &str, taken: &BTreeSet<u32>) -> u32 {
    let prefix = u32::from(kind.prefix()) << 24;
    let hash = one_at_a_time(name.as_bytes());
    (0..=SUFFIX)
        .map(|i| prefix | (hash.wrapping_add(i) & SUFFIX))
        .find(|id| !taken.contains(id))
        .expect("a program has fewer than 2^24 objects of a kind")
}

/// Suffixes of whole components, shortest first: `c`, `b.c`, `a.b.c`.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    let starts = name.rmatch_indices('.').map(|(at, _)| at + 1).chain([0]);
    starts.map(|start| &name[start..])
}

/// Jenkins's one-at-a-time hash.
fn one_at_a_time(bytes: &[u8]) -> u32 {
    let mut hash: u32 = 0;
    for &byte in bytes {
        hash = hash.wrapping_add(u32::from(byte));
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// Allocates ids of a table's match fields, an action's parameters or a header's fields: `@id` where given, else 1, 2,
/// … in order, skipping those that are given.
///
/// # Errors
///
/// The position and the value of an id that is a duplicate or zero.
pub fn field_ids(given: &[Option<u32>]) -> Result<Vec<u32>, (usize, u32)> {
    let mut taken = BTreeSet::new();
    for (i, id) in given.iter().enumerate() {
        match id {
            Some(id) if *id == 0 || !taken.insert(*id) => return Err((i, *id)),
            _ => {}
        }
    }
    let mut next = 1;
    let ids = given.iter().map(|id| match id {
        // A given id also advances the count, so that its neighbours keep the ids that they would have without it.
        Some(id) => {
            next += 1;
            *id
        }
        None => {
            while !taken.insert(next) {
                next += 1;
            }
            next
        }
    });
    Ok(ids.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(names: &[(ObjectKind, &str, Option<u32>)]) -> Allocation {
        let mut allocator = Allocator::default();
        for (kind, name, id) in names {
            allocator.add(*kind, name, *id).unwrap();
        }
        allocator.allocate()
    }

    #[test]
    fn ids_are_the_ones_other_compilers_give() {
        use ObjectKind::*;
        let all = allocate(&[
            (Action, "NoAction", None),
            (Action, "IngressI.drop", None),
            (Table, "IngressI.indirect_ws", None),
            (Table, "MyIngress.ipv4_lpm", None),
            (ActionProfile, "IngressI.as", None),
        ]);
        assert_eq!(all.id(Action, "NoAction"), Some(21257015));
        assert_eq!(all.id(Action, "IngressI.drop"), Some(23455883));
        assert_eq!(all.id(Table, "IngressI.indirect_ws"), Some(38116258));
        assert_eq!(all.id(Table, "MyIngress.ipv4_lpm"), Some(37375156));
        assert_eq!(all.id(ActionProfile, "IngressI.as"), Some(291652621));
        assert_eq!(all.id(Table, "NoAction"), None);
    }

    #[test]
    fn given_ids_win_and_hashes_move_out_of_their_way() {
        let hashed = allocate(&[(ObjectKind::Table, "c.t", None)]).id(ObjectKind::Table, "c.t").unwrap();
        let all = allocate(&[
            (ObjectKind::Table, "c.t", None),
            (ObjectKind::Table, "c.z", Some(hashed)),
            (ObjectKind::Table, "c.y", Some(7)),
            (ObjectKind::Action, "c.a", Some(7)),
        ]);
        assert_eq!(all.id(ObjectKind::Table, "c.z"), Some(hashed));
        assert_eq!(all.id(ObjectKind::Table, "c.t"), Some(hashed + 1));
        assert_eq!(all.id(ObjectKind::Table, "c.y"), Some(0x0200_0007));
        assert_eq!(all.id(ObjectKind::Action, "c.a"), Some(0x0100_0007));
    }

    #[test]
    fn wrong_ids_are_refused() {
        let mut allocator = Allocator::default();
        assert_eq!(allocator.add(ObjectKind::Table, "a", Some(0)), Err(IdError::Zero));
        assert_eq!(allocator.add(ObjectKind::Table, "a", Some(0x0100_0001)), Err(IdError::WrongPrefix { expected: 2 }));
        assert_eq!(allocator.add(ObjectKind::Table, "a", Some(0x0200_0001)), Ok(()));
        assert_eq!(allocator.add(ObjectKind::Table, "a", Some(0x0200_0001)), Ok(()));
        assert_eq!(allocator.add(ObjectKind::Table, "b", Some(1)), Err(IdError::Taken { by: "a".into() }));
    }

    #[test]
    fn aliases_are_as_short_as_they_can_be() {
        let names = ["s.c1.t", "s.c2.t", "s.c1.u", "c1.t", "v", "x.v"];
        let all = allocate(&names.map(|name| (ObjectKind::Table, name, None)));
        assert_eq!(names.map(|name| all.alias(name)), ["s.c1.t", "c2.t", "u", "c1.t", "v", "x.v"]);
        // An action and a table with the same name count as one name.
        let all = allocate(&[(ObjectKind::Table, "c.x", None), (ObjectKind::Action, "c.x", None)]);
        assert_eq!(all.alias("c.x"), "x");
    }

    #[test]
    fn field_ids_count_from_one_around_the_given_ones() {
        assert_eq!(field_ids(&[None, None, None]), Ok(vec![1, 2, 3]));
        assert_eq!(field_ids(&[Some(7), None, None]), Ok(vec![7, 2, 3]));
        assert_eq!(field_ids(&[Some(2), None, None]), Ok(vec![2, 3, 4]));
        assert_eq!(field_ids(&[None, Some(1), None]), Ok(vec![2, 1, 3]));
        assert_eq!(field_ids(&[Some(3), None, Some(3)]), Err((2, 3)));
        assert_eq!(field_ids(&[Some(0)]), Err((0, 0)));
        assert_eq!(field_ids(&[]), Ok(vec![]));
    }
}
