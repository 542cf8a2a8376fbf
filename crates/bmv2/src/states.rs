//! The parser: states, their operations, keys, transitions and value sets. And the deparser.
//!
//! Values and masks of transitions are the concatenated parts of the key, each padded with zeros to whole bytes.

use crate::codes;
use crate::expressions::hex;
use crate::model::{Expr, ExtractTo, KeyPart, ParserOp, ParserValue, State, Transition, TransitionOn, ValueSet};
use crate::names::{Names, Reader};
use crate::read::{At, Read};
use base::Bits;
use num_bigint::BigInt;

/// Size of a value set for which none is given.
const VALUE_SET_SIZE: u64 = 1024;
/// Most bits of a lookahead, and the largest offset.
const LOOKAHEAD_BITS_MAX: u32 = 1 << 16;

/// The one object of the list that simple_switch uses.
pub(crate) fn sole<'a>(root: &At<'a>, list: &str, name: &str) -> Read<Option<At<'a>>> {
    let objects = root.need(list)?.list()?;
    let mut names = Names::default();
    for (i, object) in objects.iter().enumerate() {
        names.add(list.trim_end_matches('s'), object, i)?;
    }
    if let Some(index) = names.get(name) {
        return Ok(objects.get(index).cloned());
    }
    match objects.first() {
        None => Ok(None),
        Some(other) => {
            let found = other.name()?;
            let message = format!(
                "`{found}` where simple_switch has `{name}`: JSON for another target, such as psa_switch, is not supported"
            );
            other.fail(codes::OTHER_FORMAT, message)
        }
    }
}

impl Reader {
    pub fn value_sets(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.list_of("parse_vsets")? {
            let index = self.m.value_sets.len();
            self.value_sets.add("value set", &object, index)?;
            let bits = object.need("compressed_bitwidth")?;
            let width = bits.number()?;
            if width == 0 || width > lower::WIDTH_LIMIT {
                return bits.fail(codes::RANGE, format!("a value set of {width} bits"));
            }
            let size = object.get("max_size").map(|s| s.number()).transpose()?;
            let size = size.filter(|s| *s > 0).map_or(VALUE_SET_SIZE, u64::from);
            self.m.value_sets.push(ValueSet { name: object.name()?.to_string(), width, size, ..ValueSet::default() });
        }
        Ok(())
    }

    pub fn parser(&mut self, root: &At<'_>) -> Read<()> {
        let Some(parser) = sole(root, "parsers", "parser")? else { return Ok(()) };
        let objects = parser.need("parse_states")?.list()?;
        let mut names = Names::default();
        for (i, object) in objects.iter().enumerate() {
            names.add("parser state", object, i)?;
        }
        for object in &objects {
            let state = self.state(object, &names)?;
            self.m.states.push(state);
        }
        self.m.first_state = match parser.get("init_state") {
            Some(state) => Some(names.named("parser state", &state)?),
            None => None,
        };
        Ok(())
    }

    fn state(&mut self, object: &At<'_>, names: &Names) -> Read<State> {
        let mut ops = Vec::new();
        for op in object.list_of("parser_ops")? {
            ops.push(self.parser_op(&op)?);
        }
        let mut key = Vec::new();
        let mut key_names = Vec::new();
        for part in object.list_of("transition_key")? {
            if let Some((name, part)) = self.key_part(&part)? {
                key_names.push(name);
                key.push(part);
            }
        }
        if let Some(at) =
            object.get("transition_key").filter(|at| key.is_empty() && at.list().is_ok_and(|k| !k.is_empty()))
        {
            return at.fail(codes::UNSUPPORTED, "a key of 0 bits");
        }
        let (mut transitions, mut default) = (Vec::new(), None);
        for transition in object.list_of("transitions")? {
            let next = transition.get("next_state").map(|s| names.named("parser state", &s)).transpose()?;
            let value = transition.get("value");
            let kind = transition.get("type").map_or(Ok("hexstr"), |t| t.text())?;
            let old_default = value.as_ref().is_some_and(|v| v.text().is_ok_and(|t| t == "default"));
            match kind {
                "default" => default = next,
                "hexstr" if old_default => default = next,
                "hexstr" => {
                    let value = padded(&transition.need("value")?, &key)?;
                    let masks = transition.get("mask").map(|m| padded(&m, &key)).transpose()?;
                    let on = match masks {
                        None => value.into_iter().map(|v| (v, None)).collect(),
                        Some(masks) => value.into_iter().zip(masks).map(|(v, m)| (v.and(&m), Some(m))).collect(),
                    };
                    transitions.push(Transition { on: TransitionOn::Value(on), next });
                }
                "parse_vset" => {
                    let on = self.set_transition(&transition, &key, &key_names)?;
                    transitions.push(Transition { on, next });
                }
                other => {
                    return transition
                        .need("type")?
                        .fail(codes::UNSUPPORTED, format!("there is no transition `{other}`"));
                }
            }
        }
        // Without a key the default is taken, whatever other transitions there are.
        if key.is_empty() {
            transitions.clear();
        }
        let location = self.locations.of(object)?;
        Ok(State { name: object.name()?.to_string(), location, ops, key, transitions, default })
    }

    /// A transition on a value set. The first one for a set determines the parts of its values.
    fn set_transition(&mut self, transition: &At<'_>, key: &[KeyPart], names: &[String]) -> Read<TransitionOn> {
        let at = transition.need("value")?;
        let set = self.value_sets.named("value set", &at)?;
        let total: u64 = key.iter().map(|k| u64::from(k.width())).sum();
        let known = &mut self.m.value_sets[set];
        if total != u64::from(known.width) {
            let message = format!("a value set of {} bits with a key of {total}", known.width);
            return at.fail(codes::CONTRADICTION, message);
        }
        if known.parts.is_empty() {
            known.parts = match key {
                [sole] => vec![(known.name.clone(), sole.width())],
                parts => names.iter().cloned().zip(parts.iter().map(KeyPart::width)).collect(),
            };
        }
        let Some(mask) = transition.get("mask") else { return Ok(TransitionOn::Set(set, None)) };
        let whole = set_mask(&mask, key, known.width)?;
        if whole == Bits::ones(known.width) {
            return Ok(TransitionOn::Set(set, None));
        }
        let mut below = known.width;
        let part = |(_, width): &(String, u32)| {
            below -= width;
            whole.lshr(u64::from(below)).trunc(*width)
        };
        let masks: Vec<Bits> = known.parts.iter().map(part).collect();
        let index = known.masks.iter().position(|m| *m == masks).unwrap_or(known.masks.len());
        if index == known.masks.len() {
            known.masks.push(masks);
        }
        Ok(TransitionOn::Set(set, Some(index)))
    }

    fn lookahead(&self, value: &At<'_>) -> Read<(u32, u32)> {
        let [offset, width] = value.tuple()?;
        let (from, bits) = (offset.number()?, width.number()?);
        if bits == 0 || from > LOOKAHEAD_BITS_MAX || bits > LOOKAHEAD_BITS_MAX {
            return value.fail(codes::RANGE, format!("{bits} bits ahead at {from}"));
        }
        Ok((from, bits))
    }

    /// A part of a key, and its name; `None` if it has 0 bits.
    fn key_part(&self, part: &At<'_>) -> Read<Option<(String, KeyPart)>> {
        let value = part.need("value")?;
        let ty = part.need("type")?;
        Ok(Some(match ty.text()? {
            "field" | "stack_field" => {
                let (expr, _) = self.expression(part)?;
                let (name, width) = match &expr {
                    Expr::Field(field) => (self.m.field_name(*field), self.m.field(*field).width),
                    Expr::LastField(stack, field) => {
                        let stack = &self.m.stacks[*stack];
                        let field = &self.m.header_types[stack.ty].fields[*field];
                        (format!("{}.last.{}", stack.name, field.name), field.width)
                    }
                    Expr::ValidField(header) => (format!("{}.$valid$", self.m.headers[*header].name), 1),
                    Expr::Number(_) => return Ok(None),
                    _ => return value.fail(codes::UNSUPPORTED, "this cannot be a key"),
                };
                (name, KeyPart::Expr { value: expr, width })
            }
            "union_stack_field" => {
                let [stack, member, field] = value.tuple()?;
                let stack = self.union_stacks.named("header union stack", &stack)?;
                let (member_index, header_type) = self.union_member(stack, &member)?;
                let Some(field_index) = self.field_of(header_type, &field)? else { return Ok(None) };
                let ty = &self.m.header_types[header_type].fields[field_index];
                if ty.varbit {
                    return field.fail(codes::UNSUPPORTED, "a field of variable length cannot be used here");
                }
                let name = format!("{}.last.{}", self.m.union_stacks[stack].name, ty.name);
                let expr = Expr::LastMemberField(stack, member_index, field_index);
                (name, KeyPart::Expr { value: expr, width: ty.width })
            }
            "lookahead" => {
                let (offset, width) = self.lookahead(&value)?;
                (format!("lookahead({offset}, {width})"), KeyPart::Lookahead(offset, width))
            }
            other => return ty.fail(codes::UNSUPPORTED, format!("a value of type `{other}` cannot be a key")),
        }))
    }

    fn union_member(&self, stack: usize, member: &At<'_>) -> Read<(usize, usize)> {
        let name = member.text()?;
        match self.union_members[stack].iter().position(|(n, _)| n == name) {
            Some(index) => Ok((index, self.union_members[stack][index].1)),
            None => member.fail(codes::UNKNOWN, format!("the union has no member `{name}`")),
        }
    }

    fn parser_op(&mut self, op: &At<'_>) -> Read<ParserOp> {
        let (name, params) = (op.need("op")?, op.need("parameters")?);
        Ok(match name.text()? {
            "extract" => {
                let [what] = params.tuple()?;
                let (to, header_type) = self.extract_to(&what)?;
                let ty = &self.m.header_types[header_type];
                let varbit = ty.fields.iter().any(|f| f.varbit);
                if varbit && ty.length.is_none() {
                    let message = format!("a header of type `{}` is extracted with `extract_VL`", ty.name);
                    return what.fail(codes::CONTRADICTION, message);
                }
                ParserOp::Extract { to, length: None }
            }
            "extract_VL" => {
                let [what, length] = params.tuple()?;
                let (to, header_type) = self.extract_to(&what)?;
                let ty = &self.m.header_types[header_type];
                if !ty.fields.iter().any(|f| f.varbit) {
                    let message = format!("header type `{}` has no field of variable length", ty.name);
                    return what.fail(codes::CONTRADICTION, message);
                }
                ParserOp::Extract { to, length: Some(self.number(&length)?) }
            }
            "set" => {
                let [to, value] = params.tuple()?;
                let ty = to.need("type")?;
                if ty.text()? != "field" {
                    return ty.fail(codes::UNSUPPORTED, "a parser sets fields only");
                }
                let to = self.fixed_or_empty(&to.need("value")?)?;
                let value = match value.need("type")?.text()? {
                    "lookahead" => {
                        let (offset, width) = self.lookahead(&value.need("value")?)?;
                        ParserValue::Lookahead(offset, width)
                    }
                    _ => ParserValue::Expr(self.number(&value)?),
                };
                ParserOp::Set { to, value }
            }
            "verify" => {
                let [condition, error] = params.tuple()?;
                let number = match error.is_number() {
                    true => Expr::Number(BigInt::from(error.number()?)),
                    false => self.number(&error)?,
                };
                if let Expr::Number(n) = &number
                    && usize::try_from(n).ok().is_none_or(|n| n >= self.m.errors.len())
                {
                    return error.fail(codes::RANGE, format!("there is no error {n}"));
                }
                ParserOp::Verify { condition: self.condition(&condition)?, error: number }
            }
            "shift" => {
                let [bytes] = params.tuple()?;
                ParserOp::Advance(Expr::Number(BigInt::from(bytes.number()?) * 8))
            }
            "advance" => {
                let [bits] = params.tuple()?;
                ParserOp::Advance(self.number(&bits)?)
            }
            "primitive" => {
                let [call] = params.tuple()?;
                ParserOp::Primitive(call.need("op")?.text()?.to_string(), self.call(&call, 0)?)
            }
            other => return name.fail(codes::UNSUPPORTED, format!("there is no parser operation `{other}`")),
        })
    }

    fn extract_to(&self, what: &At<'_>) -> Read<(ExtractTo, usize)> {
        let (ty, value) = (what.need("type")?, what.need("value")?);
        Ok(match ty.text()? {
            "regular" => {
                let header = self.headers.named("header", &value)?;
                if self.m.headers[header].metadata {
                    return value.fail(codes::UNSUPPORTED, "metadata cannot be extracted");
                }
                (ExtractTo::Header(header), self.m.headers[header].ty)
            }
            "stack" => {
                let stack = self.stacks.named("header stack", &value)?;
                (ExtractTo::Stack(stack), self.m.stacks[stack].ty)
            }
            "union_stack" => {
                let [stack, member] = value.tuple()?;
                let stack = self.union_stacks.named("header union stack", &stack)?;
                let (member, header_type) = self.union_member(stack, &member)?;
                (ExtractTo::UnionStack(stack, member), header_type)
            }
            other => return ty.fail(codes::UNSUPPORTED, format!("nothing of type `{other}` can be extracted")),
        })
    }

    pub fn deparser(&mut self, root: &At<'_>) -> Read<()> {
        let Some(deparser) = sole(root, "deparsers", "deparser")? else { return Ok(()) };
        for call in deparser.list_of("primitives")? {
            let call = self.call(&call, 0)?;
            self.m.deparser.calls.push(call);
        }
        for name in deparser.need("order")?.list()? {
            let header = self.headers.named("header", &name)?;
            if self.m.headers[header].metadata {
                return name.fail(codes::UNSUPPORTED, "metadata cannot be emitted");
            }
            self.m.deparser.order.push(header);
        }
        Ok(())
    }
}

/// Bytes of a hexadecimal number, leading zeros included.
fn bytes(value: &At<'_>) -> Read<usize> {
    let text = value.text()?;
    Ok(text.strip_prefix("0x").unwrap_or(text).len().div_ceil(2))
}

/// The mask of a value set's values, over all their bits. Its parts are padded like those of other masks; since bmv2
/// reads files in which they are not, a mask without padding is accepted, too.
fn set_mask(mask: &At<'_>, key: &[KeyPart], width: u32) -> Read<Bits> {
    let given = bytes(mask)?;
    let padded_bytes: usize = key.iter().map(|k| k.width().div_ceil(8) as usize).sum();
    if given != padded_bytes && given == width.div_ceil(8) as usize {
        let number = hex(mask)?;
        if number >= BigInt::ZERO {
            return Ok(Bits::from_bigint(width, &number));
        }
    }
    let parts = padded(mask, key)?;
    Ok(parts.into_iter().reduce(|high, low| high.concat(&low)).unwrap_or(Bits::zero(width)))
}

/// The parts of a value in which each part is padded to whole bytes.
fn padded(value: &At<'_>, key: &[KeyPart]) -> Read<Vec<Bits>> {
    let number = hex(value)?;
    let total: usize = key.iter().map(|k| k.width().div_ceil(8) as usize).sum();
    if number < BigInt::ZERO || bytes(value)? != total {
        return value.fail(codes::RANGE, format!("a value of {} bytes for a key of {total}", bytes(value)?));
    }
    if total == 0 {
        return Ok(Vec::new());
    }
    let mut rest = Bits::from_bigint(8 * total as u32, &number);
    let mut parts = Vec::new();
    for part in key {
        let padded = part.width().div_ceil(8) * 8;
        let top = rest.width() - padded;
        let value = rest.slice(rest.width() - 1, top);
        parts.push(value.trunc(part.width()));
        if top == 0 {
            break;
        }
        rest = rest.slice(top - 1, 0);
    }
    Ok(parts)
}
