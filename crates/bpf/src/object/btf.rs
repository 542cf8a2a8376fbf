//! BTF, the type information of section `.BTF`, as far as it describes maps.
//!
//! A map of section `.maps` is a variable of a structure type. Members `type`, `max_entries`, `map_flags`, `key_size`
//! and `value_size` are pointers to arrays, whose length is the value; `key` and `value` are pointers to the types of
//! keys and values. Format: "BPF Type Format (BTF)" in the Linux kernel's documentation.

use crate::error::Error;
use std::collections::HashMap;

/// The maximum number of typedefs and qualifiers between a BTF type and the type that has its size, as in Linux
/// (`MAX_RESOLVE_DEPTH`). A longer chain may be a cycle.
const DEPTH_MAX: u32 = 32;

/// A type, reduced to what maps need.
#[derive(Clone, Debug)]
enum Type {
    /// A type of this size in bytes.
    Sized(u64),
    /// Pointer.
    Pointer(u32),
    /// Array of elements.
    Array { element: u32, count: u32 },
    /// Structure or union.
    Structure { size: u64, members: Vec<(u32, u32)> },
    /// Typedef or qualifier.
    Alias(u32),
    /// Variable.
    Variable(u32),
    /// Not the type of a value.
    Other,
}

/// The types of an object.
pub(super) struct Btf<'a> {
    types: Vec<Type>,
    strings: &'a [u8],
    variables: HashMap<&'a str, u32>,
}

/// A map definition from a `.maps` variable.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct MapDescription {
    pub(super) kind: Option<u32>,
    pub(super) key_size: Option<u64>,
    pub(super) value_size: Option<u64>,
    pub(super) max_entries: Option<u32>,
    pub(super) flags: u32,
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Parses section `.BTF`.
    pub(super) fn read(data: &'a [u8]) -> Result<Btf<'a>, Error> {
        let bad = |what: &str| Error::new(format!("section `.BTF`: {what}; compile again with `clang -g`"));
        let short = || bad("it ends early");
        if data.get(..2) != Some(&[0x9f, 0xeb]) {
            return Err(bad("it does not begin with the magic number 0xeb9f in little endian"));
        }
        let at = |index: usize| word(data, index).map(|w| w as usize).ok_or_else(short);
        let (header, type_off, type_len, string_off, string_len) = (at(4)?, at(8)?, at(12)?, at(16)?, at(20)?);
        let part = |off: usize, len: usize| {
            let start = header.checked_add(off)?;
            data.get(start..start.checked_add(len)?)
        };
        let strings = part(string_off, string_len).ok_or_else(short)?;
        let records = part(type_off, type_len).ok_or_else(short)?;
        let mut btf = Btf { types: vec![Type::Sized(0)], strings, variables: HashMap::new() };
        let mut place = 0;
        while place < records.len() {
            let at = |index: usize| word(records, place + index).ok_or_else(short);
            let (name, info, size_or_type) = (at(0)?, at(4)?, at(8)?);
            let count = (info & 0xffff) as usize;
            let mut len = 12;
            let kind = match info >> 24 & 0x1f {
                1 => {
                    len += 4;
                    Type::Sized(size_or_type.into())
                }
                2 => Type::Pointer(size_or_type),
                3 => {
                    len += 12;
                    Type::Array { element: at(12)?, count: at(20)? }
                }
                4 | 5 => {
                    len += 12 * count;
                    let member = |i: usize| Ok::<_, Error>((at(12 + 12 * i)?, at(16 + 12 * i)?));
                    let members = (0..count).map(member).collect::<Result<_, _>>()?;
                    Type::Structure { size: size_or_type.into(), members }
                }
                6 => {
                    len += 8 * count;
                    Type::Sized(size_or_type.into())
                }
                7 | 12 => Type::Other,
                8..=11 | 18 => Type::Alias(size_or_type),
                13 => {
                    len += 8 * count;
                    Type::Other
                }
                14 => {
                    len += 4;
                    if let Some(name) = btf.string(name) {
                        btf.variables.insert(name, btf.types.len() as u32);
                    }
                    Type::Variable(size_or_type)
                }
                15 => {
                    len += 12 * count;
                    Type::Other
                }
                16 => Type::Sized(size_or_type.into()),
                17 => {
                    len += 4;
                    Type::Other
                }
                19 => {
                    len += 12 * count;
                    Type::Sized(size_or_type.into())
                }
                other => return Err(bad(&format!("type {} has the unknown kind {other}", btf.types.len()))),
            };
            btf.types.push(kind);
            place += len;
        }
        match place == records.len() {
            true => Ok(btf),
            false => Err(short()),
        }
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let rest = self.strings.get(offset as usize..)?;
        std::str::from_utf8(rest.split(|b| *b == 0).next()?).ok()
    }

    fn resolve(&self, mut id: u32) -> Option<&Type> {
        for _ in 0..DEPTH_MAX {
            match self.types.get(id as usize)? {
                Type::Alias(to) => id = *to,
                found => return Some(found),
            }
        }
        None
    }

    /// The size of a type in bytes.
    fn size(&self, id: u32) -> Option<u64> {
        let mut id = id;
        let mut elements = 1u64;
        for _ in 0..DEPTH_MAX {
            match self.resolve(id)? {
                Type::Sized(size) | Type::Structure { size, .. } => return elements.checked_mul(*size),
                Type::Pointer(_) => return elements.checked_mul(8),
                Type::Array { element, count } => {
                    elements = elements.checked_mul(u64::from(*count))?;
                    id = *element;
                }
                _ => return None,
            }
        }
        None
    }

    /// The map definition of the variable `name` in section `.maps`.
    pub(super) fn map(&self, name: &str) -> Result<MapDescription, Error> {
        let bad = |what: String| Error::new(format!("map `{name}` in section `.maps`: {what}"));
        let variable = self.variables.get(name).and_then(|id| self.types.get(*id as usize));
        let Some(Type::Variable(id)) = variable else {
            return Err(bad("section `.BTF` does not describe it; compile with `clang -g`".to_string()));
        };
        let Some(Type::Structure { members, .. }) = self.resolve(*id) else {
            return Err(bad("it is not a structure".to_string()));
        };
        let mut map = MapDescription::default();
        for (member, id) in members {
            let member = self.string(*member).unwrap_or("");
            let target = match self.resolve(*id) {
                Some(Type::Pointer(target)) => *target,
                _ => return Err(bad(format!("member `{member}` is not a pointer (`__uint` or `__type`)"))),
            };
            let number = || match self.resolve(target) {
                Some(Type::Array { count, .. }) => Ok(*count),
                _ => Err(bad(format!("member `{member}` is not of the form `__uint({member}, …)`"))),
            };
            let size = || self.size(target).ok_or_else(|| bad(format!("the type of member `{member}` has no size")));
            match member {
                "type" => map.kind = Some(number()?),
                "max_entries" => map.max_entries = Some(number()?),
                "map_flags" => map.flags = number()?,
                "key_size" => map.key_size = Some(number()?.into()),
                "value_size" => map.value_size = Some(number()?.into()),
                "key" => map.key_size = Some(size()?),
                "value" => map.value_size = Some(size()?),
                // Where to pin the map, and an allocation hint: both concern the kernel only.
                "pinning" | "numa_node" => {}
                other => return Err(bad(format!("member `{other}` is not supported"))),
            }
        }
        Ok(map)
    }
}
