//! The reader of a program: the model read so far, and the names that the rest of the JSON refers to.

use crate::codes;
use crate::locations::Locations;
use crate::model::{Field, Model, Node};
use crate::read::{At, Read};
use p4info::ids::numbered;
use std::collections::{HashMap, HashSet};

/// Indices of the objects of one kind, by name and by id.
#[derive(Default, Debug)]
pub(crate) struct Names {
    by_name: HashMap<String, usize>,
    by_id: HashMap<u32, usize>,
}

impl Names {
    /// Adds an object's name and id, which must be unique in its kind.
    pub fn add(&mut self, what: &str, object: &At<'_>, index: usize) -> Read<()> {
        let name = object.name()?;
        if self.by_name.insert(name.to_string(), index).is_some() {
            return object.fail(codes::TWICE, format!("there is another {what} `{name}`"));
        }
        self.add_id(what, object, index)
    }

    pub fn add_id(&mut self, what: &str, object: &At<'_>, index: usize) -> Read<()> {
        let Some(id) = object.get("id") else { return Ok(()) };
        let number = id.number()?;
        match self.by_id.insert(number, index) {
            Some(_) => id.fail(codes::TWICE, format!("there is another {what} with id {number}")),
            None => Ok(()),
        }
    }

    /// Adds a name; an older object of the same name is no longer found.
    pub fn add_name(&mut self, name: &str, index: usize) {
        self.by_name.insert(name.to_string(), index);
    }

    pub fn get(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The object that a value names.
    pub fn named(&self, what: &str, value: &At<'_>) -> Read<usize> {
        let name = value.text()?;
        match self.get(name) {
            Some(index) => Ok(index),
            None => value.fail(codes::UNKNOWN, format!("there is no {what} `{name}`")),
        }
    }

    /// The object whose id is given by a value.
    pub fn with_id(&self, what: &str, value: &At<'_>) -> Read<usize> {
        let id = value.number()?;
        match self.by_id.get(&id) {
            Some(index) => Ok(*index),
            None => value.fail(codes::UNKNOWN, format!("there is no {what} with id {id}")),
        }
    }
}

/// The index of a field in the model's header type; `None` for a field of 0 bits, which the model does not have.
pub(crate) type FieldAt = Option<usize>;

/// Reads a program.
#[derive(Default, Debug)]
pub(crate) struct Reader {
    pub m: Model,
    pub locations: Locations,
    pub header_types: Names,
    pub headers: Names,
    pub stacks: Names,
    pub unions: Names,
    pub union_stacks: Names,
    pub value_sets: Names,
    pub counters: Names,
    pub meters: Names,
    pub registers: Names,
    pub calculations: Names,
    pub actions: Names,
    pub profiles: Names,
    pub learn_lists: Names,
    pub field_lists: Names,
    /// By header type: the fields' indices in the model, by name.
    pub fields: Vec<HashMap<String, FieldAt>>,
    /// The same, by position.
    pub positions: Vec<Vec<FieldAt>>,
    /// By stack of unions: the element type's member names, with their header types.
    pub union_members: Vec<Vec<(String, usize)>>,
    /// The number of values that [`Expr::Local`](crate::model::Expr::Local) can name at the reader's position.
    pub locals: usize,
}

impl Reader {
    /// The field of a header type that a value names.
    pub fn field_of(&self, ty: usize, value: &At<'_>) -> Read<FieldAt> {
        let name = value.text()?;
        match self.fields[ty].get(name) {
            Some(index) => Ok(*index),
            None => {
                let ty = &self.m.header_types[ty].name;
                value.fail(codes::UNKNOWN, format!("header type `{ty}` has no field `{name}`"))
            }
        }
    }

    /// The field that a pair of header and field names refers to; `None` if it has 0 bits. The validity is not
    /// accepted.
    pub fn field(&self, value: &At<'_>) -> Read<Option<Field>> {
        let [header, field] = value.tuple()?;
        let header = self.headers.named("header", &header)?;
        let index = self.field_of(self.m.headers[header].ty, &field)?;
        Ok(index.map(|field| Field { header, field }))
    }

    /// A field of fixed width; `None` if it has 0 bits.
    pub fn fixed_or_empty(&self, value: &At<'_>) -> Read<Option<Field>> {
        let Some(field) = self.field(value)? else { return Ok(None) };
        if self.m.field(field).varbit {
            let name = self.m.field_name(field);
            return value.fail(codes::UNSUPPORTED, format!("`{name}` has variable length: it cannot be used here"));
        }
        Ok(Some(field))
    }

    /// A field of fixed, nonzero width.
    pub fn fixed_field(&self, value: &At<'_>) -> Read<Field> {
        match self.fixed_or_empty(value)? {
            Some(field) => Ok(field),
            None => value.fail(codes::UNSUPPORTED, "a field of 0 bits cannot be used here"),
        }
    }
}

impl Reader {
    /// Renames objects that have the same name in the JSON and would collide in one namespace of the control plane:
    /// arrays, learn lists and profiles of different kinds, value sets and tables, and learn lists whose fields have
    /// different widths.
    pub fn number_names(&mut self) {
        let m = &mut self.m;
        let mut taken = UsedNames::default();
        m.counters.iter_mut().for_each(|c| taken.rename(&mut c.name));
        m.meters.iter_mut().for_each(|c| taken.rename(&mut c.name));
        m.registers.iter_mut().for_each(|c| taken.rename(&mut c.name));
        m.profiles.iter_mut().for_each(|p| taken.rename(&mut p.name));
        let types: Vec<Vec<u32>> =
            m.learn_lists.iter().map(|list| list.fields.iter().map(|f| m.field(*f).width).collect()).collect();
        let mut digests: HashMap<(String, &[u32]), String> = HashMap::new();
        for (list, widths) in m.learn_lists.iter_mut().zip(&types) {
            let name = digests.entry((list.name.clone(), widths)).or_insert_with(|| {
                let mut name = list.name.clone();
                taken.rename(&mut name);
                name
            });
            list.name.clone_from(name);
        }
        let mut tables = UsedNames::default();
        for node in m.ingress.nodes.iter_mut().chain(&mut m.egress.nodes) {
            if let Node::Table(table) = node {
                tables.rename(&mut table.name);
            }
        }
        m.value_sets.iter_mut().for_each(|set| tables.rename(&mut set.name));
    }
}

/// Names in use.
#[derive(Default)]
struct UsedNames(HashSet<String>);

impl UsedNames {
    /// Changes the name to a free one if it is in use.
    fn rename(&mut self, name: &mut String) {
        let free = |taken: &Self| (2..).map(|n| numbered(name, n)).find(|other| !taken.0.contains(other));
        if self.0.contains(name)
            && let Some(other) = free(self)
        {
            *name = other;
        }
        self.0.insert(name.clone());
    }
}
