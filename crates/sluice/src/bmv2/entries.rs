//! A program's own table entries as a P4Runtime WriteRequest, as p4c writes it with `--p4runtime-entries-files`.
//!
//! Tables are in P4Info's order, entries in the program's. Values have all bytes of their width, as in p4c's output,
//! and don't-care matches are omitted, as P4Runtime requires. Of constant entries the first has the highest priority
//! and the last has priority 1. Other priorities are those that a controller reads: where the program says that the
//! smallest priority wins, they are inverted, which p4c does not do.

use ::p4info::model::{MatchField, P4Info, Table};
use ::p4info::text::quoted;
use anyhow::{Context, Result};
use base::Bits;
use base::entry::{ActionCall, EntryAction, KeyMatch, TableEntry};
use messages::FILE_DESCRIPTOR_SET;
use messages::p4::v1 as pb;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use std::fmt::Write;

/// Returns the entries of all tables.
pub fn request(info: &P4Info, program: &ir::Program) -> pb::WriteRequest {
    let mut updates = Vec::new();
    for table in &info.tables {
        let Some(of) = program.tables.iter().find(|of| of.name == table.preamble.name) else { continue };
        let needs_priority = of.keys.iter().any(|key| key.kind.needs_priority());
        for (number, entry) in of.entries.iter().enumerate() {
            let EntryAction::Call(call) = &entry.action else { continue };
            let priority = match () {
                () if !needs_priority => 0,
                () if of.const_entries => i32::try_from(of.entries.len() - number).unwrap_or(i32::MAX),
                () => entry.priority,
            };
            let entry = pb::TableEntry {
                table_id: table.preamble.id,
                r#match: matches(table, entry),
                action: action(info, program, of, call),
                priority,
                is_const: of.const_entries || table.const_entries.get(number).copied().unwrap_or(false),
                ..pb::TableEntry::default()
            };
            let entity = pb::Entity { entity: Some(pb::entity::Entity::TableEntry(entry)) };
            updates.push(pb::Update { r#type: pb::update::Type::Insert as i32, entity: Some(entity) });
        }
    }
    pb::WriteRequest { updates, ..pb::WriteRequest::default() }
}

fn matches(table: &Table, entry: &TableEntry) -> Vec<pb::FieldMatch> {
    let of = |(field, key): (&MatchField, &KeyMatch)| {
        let field_match_type = Some(match_type(key)?);
        Some(pb::FieldMatch { field_id: field.id, field_match_type })
    };
    table.match_fields.iter().zip(&entry.key).filter_map(of).collect()
}

/// Returns a key's match; `None` for a don't-care match.
fn match_type(key: &KeyMatch) -> Option<pb::field_match::FieldMatchType> {
    use pb::field_match as f;
    let bytes = Bits::to_bytes_be;
    Some(match key {
        KeyMatch::Exact(value) => f::FieldMatchType::Exact(f::Exact { value: bytes(value) }),
        KeyMatch::Lpm { value, prefix_len } => {
            let prefix_len = i32::try_from(*prefix_len).ok().filter(|length| *length > 0)?;
            f::FieldMatchType::Lpm(f::Lpm { value: bytes(value), prefix_len })
        }
        KeyMatch::Ternary { mask, .. } if mask.is_zero() => return None,
        KeyMatch::Ternary { value, mask } => {
            f::FieldMatchType::Ternary(f::Ternary { value: bytes(value), mask: bytes(mask) })
        }
        KeyMatch::Range { low, high } if low.is_zero() && *high == Bits::ones(high.width()) => return None,
        KeyMatch::Range { low, high } => f::FieldMatchType::Range(f::Range { low: bytes(low), high: bytes(high) }),
        KeyMatch::Optional(value) => f::FieldMatchType::Optional(f::Optional { value: bytes(value.as_ref()?) }),
    })
}

fn action(info: &P4Info, program: &ir::Program, table: &ir::Table, call: &ActionCall) -> Option<pb::TableAction> {
    let listed = table.actions.get(call.action as usize)?;
    let name = &program.actions[listed.action.index()].name;
    let action = info.actions.iter().find(|action| action.preamble.name == *name)?;
    let param = |(param, value): (&::p4info::model::Param, &Bits)| pb::action::Param {
        param_id: param.id,
        value: value.to_bytes_be(),
    };
    let params = action.params.iter().zip(&call.args).map(param).collect();
    let action = pb::Action { action_id: action.preamble.id, params };
    Some(pb::TableAction { r#type: Some(pb::table_action::Type::Action(action)) })
}

/// Returns the request in protobuf's JSON form.
///
/// # Errors
/// If the message does not match the embedded descriptors, which is a bug.
pub fn json(request: &pb::WriteRequest) -> Result<serde_json::Value> {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET)?;
    let of = pool.get_message_by_name("p4.v1.WriteRequest").context("WriteRequest is not described")?;
    Ok(serde_json::to_value(DynamicMessage::decode(of, request.encode_to_vec().as_slice())?)?)
}

/// Returns the request in the protobuf text format, with the header lines that name the schema.
pub fn text(request: &pb::WriteRequest) -> String {
    let mut out =
        Text { text: "# proto-file: p4/v1/p4runtime.proto\n# proto-message: p4.v1.WriteRequest\n\n".into(), depth: 0 };
    for update in &request.updates {
        out.message("updates", |out| {
            out.line("type", "INSERT");
            if let Some(pb::entity::Entity::TableEntry(entry)) = update.entity.as_ref().and_then(|e| e.entity.as_ref())
            {
                out.message("entity", |out| out.message("table_entry", |out| out.entry(entry)));
            }
        });
    }
    out.text
}

struct Text {
    text: String,
    depth: usize,
}

impl Text {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        _ = writeln!(self.text, "{:1$}{name}: {value}", "", self.depth * 2);
    }

    fn message(&mut self, name: &str, body: impl FnOnce(&mut Text)) {
        _ = writeln!(self.text, "{:1$}{name} {{", "", self.depth * 2);
        self.depth += 1;
        body(self);
        self.depth -= 1;
        _ = writeln!(self.text, "{:1$}}}", "", self.depth * 2);
    }

    fn entry(&mut self, entry: &pb::TableEntry) {
        self.line("table_id", entry.table_id);
        for field in &entry.r#match {
            self.message("match", |out| {
                out.line("field_id", field.field_id);
                if let Some(of) = &field.field_match_type {
                    out.field(of);
                }
            });
        }
        if let Some(pb::table_action::Type::Action(action)) = entry.action.as_ref().and_then(|a| a.r#type.as_ref()) {
            self.message("action", |out| out.message("action", |out| out.action(action)));
        }
        if entry.priority != 0 {
            self.line("priority", entry.priority);
        }
        if entry.is_const {
            self.line("is_const", true);
        }
    }

    fn field(&mut self, field: &pb::field_match::FieldMatchType) {
        use pb::field_match::FieldMatchType as F;
        match field {
            F::Exact(m) => self.message("exact", |out| out.line("value", quoted(&m.value))),
            F::Ternary(m) => self.message("ternary", |out| {
                out.line("value", quoted(&m.value));
                out.line("mask", quoted(&m.mask));
            }),
            F::Lpm(m) => self.message("lpm", |out| {
                out.line("value", quoted(&m.value));
                out.line("prefix_len", m.prefix_len);
            }),
            F::Range(m) => self.message("range", |out| {
                out.line("low", quoted(&m.low));
                out.line("high", quoted(&m.high));
            }),
            F::Optional(m) => self.message("optional", |out| out.line("value", quoted(&m.value))),
            F::Other(_) => {}
        }
    }

    fn action(&mut self, action: &pb::Action) {
        self.line("action_id", action.action_id);
        for param in &action.params {
            self.message("params", |out| {
                out.line("param_id", param.param_id);
                out.line("value", quoted(&param.value));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use frontend::{Input, Options, Until};

    const PROGRAM: &str = "#include <v1model.p4>
        header h_t { bit<8> a; bit<12> b; bit<4> c; }
        struct H { h_t h; }
        struct M {}
        parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
            state start { p.extract(h.h); transition accept; }
        }
        control V(inout H h, inout M m) { apply {} }
        control I(inout H h, inout M m, inout standard_metadata_t s) {
            action go(bit<9> port, bit<8> a) { s.egress_spec = port; h.h.a = a; }
            action stop() { mark_to_drop(s); }
            table one {
                key = { h.h.a: exact; h.h.b: lpm; }
                actions = { go; stop; }
                const entries = { (1, 0x120 &&& 0xff0): go(2, 3); (2, _): stop(); }
            }
            table two {
                key = { h.h.b: ternary; h.h.a: range; h.h.c: optional; }
                actions = { go; stop; }
                largest_priority_wins = true;
                entries = {
                    const priority = 10: (0x012 &&& 0x0ff, _, 3): go(1, 1);
                    priority = 20: (_, 5..9, _): stop();
                }
            }
            apply { one.apply(); two.apply(); }
        }
        control E(inout H h, inout M m, inout standard_metadata_t s) { apply {} }
        control C(inout H h, inout M m) { apply {} }
        control D(packet_out p, in H h) { apply { p.emit(h.h); } }
        V1Switch(P(), V(), I(), E(), C(), D()) main;";

    #[test]
    fn entries_are_those_that_p4c_writes() {
        let input = Input::Text { name: "x.p4", text: PROGRAM };
        let compiled = frontend::compile(input, &Options::default(), Until::Ir).unwrap();
        assert!(!compiled.failed(), "{}", compiled.render(false));
        let request = request(&compiled.p4info.unwrap(), &compiled.raw.unwrap());
        expect![[r##"
            # proto-file: p4/v1/p4runtime.proto
            # proto-message: p4.v1.WriteRequest

            updates {
              type: INSERT
              entity {
                table_entry {
                  table_id: 45304231
                  match {
                    field_id: 1
                    exact {
                      value: "\001"
                    }
                  }
                  match {
                    field_id: 2
                    lpm {
                      value: "\001 "
                      prefix_len: 8
                    }
                  }
                  action {
                    action {
                      action_id: 27104238
                      params {
                        param_id: 1
                        value: "\000\002"
                      }
                      params {
                        param_id: 2
                        value: "\003"
                      }
                    }
                  }
                  is_const: true
                }
              }
            }
            updates {
              type: INSERT
              entity {
                table_entry {
                  table_id: 45304231
                  match {
                    field_id: 1
                    exact {
                      value: "\002"
                    }
                  }
                  action {
                    action {
                      action_id: 30229413
                    }
                  }
                  is_const: true
                }
              }
            }
            updates {
              type: INSERT
              entity {
                table_entry {
                  table_id: 35966986
                  match {
                    field_id: 1
                    ternary {
                      value: "\000\022"
                      mask: "\000\377"
                    }
                  }
                  match {
                    field_id: 3
                    optional {
                      value: "\003"
                    }
                  }
                  action {
                    action {
                      action_id: 27104238
                      params {
                        param_id: 1
                        value: "\000\001"
                      }
                      params {
                        param_id: 2
                        value: "\001"
                      }
                    }
                  }
                  priority: 10
                  is_const: true
                }
              }
            }
            updates {
              type: INSERT
              entity {
                table_entry {
                  table_id: 35966986
                  match {
                    field_id: 2
                    range {
                      low: "\005"
                      high: "\t"
                    }
                  }
                  action {
                    action {
                      action_id: 30229413
                    }
                  }
                  priority: 20
                }
              }
            }
        "##]]
        .assert_eq(&text(&request));
        let json = json(&request).unwrap();
        assert_eq!(json["updates"][0]["entity"]["tableEntry"]["match"][1]["lpm"]["prefixLen"], 8);
        assert_eq!(json["updates"][0]["entity"]["tableEntry"]["isConst"], true);
    }
}
