//! The reader of a program: the model as far as it is read, and the names that the rest of the JSON refers to.

use crate::codes;
use crate::model::{Field, Model};
use crate::places::Places;
use crate::read::{At, Read};
use std::collections::HashMap;

/// Indices of objects of one kind by name and by id.
#[derive(Default, Debug)]
pub(crate) struct Names {
    by_name: HashMap<String, usize>,
    by_id: HashMap<u32, usize>,
}

impl Names {
    /// Adds an object's name and id, which no other of its kind may have.
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

    /// Adds a name; what had it before is found no more.
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

    /// The object whose id a value is.
    pub fn with_id(&self, what: &str, value: &At<'_>) -> Read<usize> {
        let id = value.number()?;
        match self.by_id.get(&id) {
            Some(index) => Ok(*index),
            None => value.fail(codes::UNKNOWN, format!("there is no {what} with id {id}")),
        }
    }
}

/// Reads a program.
#[derive(Default, Debug)]
pub(crate) struct Reader {
    pub m: Model,
    pub places: Places,
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
    /// By header type: indices of fields.
    pub fields: Vec<HashMap<String, usize>>,
    /// By stack of unions: the element type's member names, with the header types.
    pub union_members: Vec<Vec<(String, usize)>>,
    /// How many values [`Expr::Local`](crate::model::Expr::Local) can name where the reader is.
    pub locals: usize,
}

impl Reader {
    /// The field of a header type that a value names.
    pub fn field_of(&self, ty: usize, value: &At<'_>) -> Read<usize> {
        let name = value.text()?;
        match self.fields[ty].get(name) {
            Some(index) => Ok(*index),
            None => {
                let ty = &self.m.header_types[ty].name;
                value.fail(codes::UNKNOWN, format!("header type `{ty}` has no field `{name}`"))
            }
        }
    }

    /// The field that a pair of header and field names; no validity.
    pub fn field(&self, value: &At<'_>) -> Read<Field> {
        let [header, field] = value.tuple()?;
        let header = self.headers.named("header", &header)?;
        Ok(Field { header, field: self.field_of(self.m.headers[header].ty, &field)? })
    }

    /// A field that has a fixed width.
    pub fn fixed_field(&self, value: &At<'_>) -> Read<Field> {
        let field = self.field(value)?;
        if self.m.field(field).varbit {
            let name = self.m.field_name(field);
            return value.fail(codes::UNSUPPORTED, format!("`{name}` has variable length: it cannot be used here"));
        }
        Ok(field)
    }
}

impl Reader {
    /// Objects that the control plane sees have different names, also those of different kinds that are kept together.
    pub fn check_names(&self, root: &At<'_>) -> Read<()> {
        let m = &self.m;
        let counters = m.counters.iter().map(|c| ("counter_arrays", &c.name));
        let meters = m.meters.iter().map(|c| ("meter_arrays", &c.name));
        let registers = m.registers.iter().map(|c| ("register_arrays", &c.name));
        let digests = m.learn_lists.iter().map(|c| ("learn_lists", &c.name));
        let profiles = m.profiles.iter().map(|p| ("pipelines", &p.name));
        let mut known = HashMap::new();
        for (list, name) in counters.chain(meters).chain(registers).chain(digests).chain(profiles) {
            if let Some(other) = known.insert(name, list) {
                let message = format!("`{name}` is also the name of an object of `{other}`");
                return root.need(list)?.fail(codes::TWICE, message);
            }
        }
        Ok(())
    }
}
