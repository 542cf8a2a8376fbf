//! The lines of `openflow { … }`.

use super::lex::Line;
use super::{Cursor, Reader, Result, Space};
use crate::program::{FieldPart, MatchField, OpenFlow};
use base::Span;
use base::diag::Diagnostic;
use base::ids::{StageId, TableId};
use std::collections::HashMap;

/// A prerequisite whose field is not known yet.
type Need = (String, Span, u128, Vec<u128>);

impl<'a> Reader<'a> {
    pub(super) fn openflow(&mut self, line: &'a Line) {
        self.with_line(line, |c| {
            c.at = 1;
            c.punct("{")
        });
        let mut openflow = OpenFlow::default();
        let mut needs = Vec::new();
        if line.opens() {
            self.body(line, |reader, line| {
                reader.with_line(line, |c| property(c, &mut openflow, &mut needs));
            });
        }
        let mut places = HashMap::new();
        for (i, field) in openflow.fields.iter().enumerate() {
            places.entry(field.name.clone()).or_insert(i as u32);
        }
        for (field, needs) in openflow.fields.iter_mut().zip(needs) {
            for (name, span, mask, values) in needs {
                match places.get(&name) {
                    Some(place) => field.prerequisites.push((*place, mask, values)),
                    None => {
                        let message = format!("there is no match field `{name}`");
                        self.diags.push(Diagnostic::error("E0703", span, message));
                    }
                }
            }
        }
        self.program.openflow = Some(openflow);
    }
}

fn property(c: &mut Cursor<'_>, openflow: &mut OpenFlow, needs: &mut Vec<Vec<Need>>) -> Result<()> {
    match c.word("a property of the OpenFlow model")? {
        "actions" => {
            let stage = StageId(c.known(Space::Stage)?);
            c.comma()?;
            openflow.actions = Some((stage, TableId(c.known(Space::Table)?)));
        }
        "reparse" => openflow.reparse = Some(c.slot()?),
        "ttl_exceeded" => openflow.ttl_exceeded = Some(c.slot()?),
        "field" => {
            let (field, field_needs) = field(c)?;
            openflow.fields.push(field);
            needs.push(field_needs);
        }
        _ => {
            c.at -= 1;
            return c.expected("`actions`, `reparse`, `ttl_exceeded` or `field`");
        }
    }
    Ok(())
}

fn field(c: &mut Cursor<'_>) -> Result<(MatchField, Vec<Need>)> {
    let name = c.name("the field's name")?;
    let parts = c.list(|c| Ok(FieldPart { slot: c.slot()?, lo: c.number()?, width: c.number()? }))?;
    c.keyword("numbers")?;
    let numbers = c.list(|c| Ok((c.number()?, c.number()?, c.number()?)))?;
    let maskable = c.eat_word("maskable");
    let writable = c.eat_word("writable");
    let is_metadata = c.eat_word("metadata");
    let need = |c: &mut Cursor<'_>| {
        let span = c.span();
        let name = c.name("the name of a match field")?;
        Ok((name, span, c.number()?, c.list(Cursor::number)?))
    };
    let needs = if c.eat_word("needs") { c.list(need)? } else { Vec::new() };
    let field = MatchField { name, parts, numbers, maskable, writable, is_metadata, prerequisites: Vec::new() };
    Ok((field, needs))
}
