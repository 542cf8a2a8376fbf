//! Ids of a program's objects, as assigned by bmv2's JSON: events refer to them, and so do some lines of the log.
//!
//! A program from source has the ids of its description (`bmv2::describe`). The description omits conditions and
//! checksums; these are numbered in program order, updated checksums first.
//!
//! Tests: below.

use ir::{Mark, Op, Program};
use serde_json::Value;
use std::collections::HashMap;

/// The kinds of objects, each with ids of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Header,
    Stack,
    Parser,
    Deparser,
    Pipeline,
    Table,
    Action,
    Condition,
    Checksum,
    LearnList,
}

/// The ids of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    ids: HashMap<(Kind, String), i32>,
    /// Ids of actions by table and action: an action has a different id in each table that lists it.
    actions: HashMap<(String, String), i32>,
}

/// The id of an unknown object.
pub const NONE: i32 = -1;

impl Numbers {
    /// Returns the ids of a program, from its JSON if there is one.
    pub fn new(json: Option<&Value>, program: &Program) -> Numbers {
        let mut numbers = Numbers::default();
        if let Some(json) = json {
            numbers.read(json);
        }
        numbers.count(program);
        numbers
    }

    fn read(&mut self, json: &Value) {
        for (list, kind) in [
            ("headers", Kind::Header),
            ("header_stacks", Kind::Stack),
            ("parsers", Kind::Parser),
            ("deparsers", Kind::Deparser),
            ("pipelines", Kind::Pipeline),
            ("actions", Kind::Action),
            ("checksums", Kind::Checksum),
            ("learn_lists", Kind::LearnList),
        ] {
            self.list(&json[list], kind);
        }
        let names: HashMap<i64, &str> =
            objects(&json["actions"]).filter_map(|a| Some((a["id"].as_i64()?, a["name"].as_str()?))).collect();
        for pipeline in objects(&json["pipelines"]) {
            self.list(&pipeline["tables"], Kind::Table);
            self.list(&pipeline["conditionals"], Kind::Condition);
            for table in objects(&pipeline["tables"]) {
                let ids = table["action_ids"].as_array().into_iter().flatten().filter_map(Value::as_i64);
                for id in ids {
                    if let (Some(table), Some(action)) = (table["name"].as_str(), names.get(&id)) {
                        self.actions.entry((table.to_string(), (*action).to_string())).or_insert(id as i32);
                    }
                }
            }
        }
    }

    fn list(&mut self, list: &Value, kind: Kind) {
        for object in objects(list) {
            if let (Some(name), Some(id)) = (object["name"].as_str(), object["id"].as_i64()) {
                self.ids.entry((kind, name.to_string())).or_insert(id as i32);
            }
        }
    }

    /// Assigns ids to checksums and digests that have none.
    fn count(&mut self, program: &Program) {
        let marks = || {
            let insts = program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts);
            insts.filter_map(|inst| if let Op::Mark(mark) = &inst.op { Some(mark) } else { None })
        };
        let checksums = |wanted: bool| {
            marks().filter_map(move |mark| match mark {
                Mark::Checksum { name, update } if *update == wanted => Some(name),
                _ => None,
            })
        };
        checksums(true).chain(checksums(false)).for_each(|name| _ = self.add(Kind::Checksum, name));
        let digests = program.externs.iter().filter(|e| matches!(e.kind, ir::program::ExternKind::Digest { .. }));
        for (at, digest) in (1..).zip(digests) {
            self.ids.entry((Kind::LearnList, digest.name.clone())).or_insert(at);
        }
    }

    /// Returns the id of an object; assigns the next free one if it has none.
    pub fn add(&mut self, kind: Kind, name: &str) -> i32 {
        if let Some(id) = self.find(kind, name) {
            return id;
        }
        let last = self.ids.iter().filter(|((of, _), _)| *of == kind).map(|(_, id)| *id).max();
        let id = last.map_or(0, |last| last.saturating_add(1));
        self.ids.insert((kind, name.to_string()), id);
        id
    }

    /// Returns the id of an object, if it has one.
    pub fn find(&self, kind: Kind, name: &str) -> Option<i32> {
        self.ids.get(&(kind, name.to_string())).copied()
    }

    /// Returns the id of an object, or [`NONE`].
    pub fn of(&self, kind: Kind, name: &str) -> i32 {
        self.find(kind, name).unwrap_or(NONE)
    }

    /// Returns the id of a table's action.
    pub fn action(&self, table: &str, action: &str) -> i32 {
        let listed = self.actions.get(&(table.to_string(), action.to_string())).copied();
        listed.unwrap_or_else(|| self.of(Kind::Action, action))
    }
}

fn objects(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_are_those_of_the_json() {
        let json = json!({
            "headers": [{ "name": "ethernet", "id": 3 }],
            "actions": [{ "name": "drop", "id": 0 }, { "name": "drop", "id": 1 }, { "name": "send", "id": 2 }],
            "pipelines": [{
                "name": "ingress", "id": 0,
                "tables": [{ "name": "a", "id": 0, "action_ids": [0] }, { "name": "b", "id": 1, "action_ids": [1, 2] }],
                "conditionals": [{ "name": "node_2", "id": 7 }],
            }],
            "learn_lists": [{ "name": "digest_t", "id": 1 }],
        });
        let mut b = ir::Builder::new("p");
        b.begin_stage("compute", ir::StageKind::Control);
        b.emit(Op::Mark(Mark::Checksum { name: "cksum".into(), update: true }));
        b.next_stage();
        b.end_stage();
        let mut numbers = Numbers::new(Some(&json), &b.finish());
        assert_eq!((numbers.of(Kind::Header, "ethernet"), numbers.of(Kind::Header, "ipv4")), (3, NONE));
        assert_eq!([("a", "drop"), ("b", "drop"), ("b", "send")].map(|(t, a)| numbers.action(t, a)), [0, 1, 2]);
        assert_eq!(numbers.of(Kind::Condition, "node_2"), 7);
        assert_eq!(numbers.of(Kind::Checksum, "cksum"), 0);
        assert_eq!(numbers.add(Kind::Condition, "hdr.ipv4.isValid()"), 8);
        assert_eq!(numbers.add(Kind::Condition, "hdr.ipv4.isValid()"), 8);
    }
}
