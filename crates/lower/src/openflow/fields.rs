//! Match fields, declared by annotations.
//!
//! One walk over the parameters' types collects the declarations ([`Declared`]). Then compositions are assembled and
//! prerequisites are closed transitively: each field lists all that it needs, the outermost protocol first.
//!
//! Annotations: `openflow_model.p4`. OXM and NXM numbers: OpenFlow 1.3.5, 7.2.3; ovs-fields(7).

use crate::codes;
use crate::context::Lowerer;
use crate::tree::{HeaderTree, Tree};
use base::Span;
use base::diag::Diagnostic;
use ir::{FieldPart, MatchField, Operand, SlotId};
use num_traits::ToPrimitive;
use sema::typed::{Annotation, Param};
use sema::types::{FieldInfo, StructId};
use sema::{Type, Value};
use std::collections::HashMap;

/// OXM class of the fields that OpenFlow defines.
const OPENFLOW_BASIC: u16 = 0x8000;
/// OXM class of experimenters' fields.
const EXPERIMENTER: u16 = 0xffff;
/// The greatest field number in a class: seven bits (OpenFlow 1.3.5, 7.2.3.2).
const NUMBER_MAX: u8 = 127;
/// Maximum width of a match field, in bits.
const WIDTH_MAX: u32 = 128;
/// Maximum number of consecutive zero bits in a match field.
const ZEROS_MAX: u32 = 64;
/// Maximum number of match fields of a program.
const FIELDS_MAX: usize = 4096;

/// A match field as declared.
struct Declared {
    field: MatchField,
    span: Span,
    /// The pieces of a composition; `None` for other fields.
    pieces: Option<Vec<Piece>>,
    /// Number of zero bits in front of it.
    pad: u32,
    /// Prerequisites: field name, mask (`None` for all bits), and allowed values.
    needs: Vec<(String, Option<u128>, Vec<u128>)>,
}

/// A piece of a composition: a field, or a number of zero bits.
enum Piece {
    Field(String),
    Zeros(u32),
}

/// State of the walk.
struct Collector<'a, 'p> {
    cx: &'a mut Lowerer<'p>,
    all: Vec<Declared>,
    /// By header type with match fields: the path of its instance.
    headers: HashMap<StructId, String>,
    zeros: Option<SlotId>,
}

/// Collects the match fields of parameters; each parameter comes with its storage.
pub(super) fn collect(cx: &mut Lowerer<'_>, params: &[(&Param, &Tree)]) -> Vec<MatchField> {
    let mut c = Collector { cx, all: Vec::new(), headers: HashMap::new(), zeros: None };
    for (param, tree) in params {
        c.walk(&param.name, &param.ty, tree, None);
    }
    c.finish()
}

impl Collector<'_, '_> {
    fn refuse(&mut self, span: Span, message: impl Into<String>) {
        self.cx.report(Diagnostic::error(codes::MATCH_FIELD, span, message));
    }

    /// Visits the fields of a struct or header; `header` is the enclosing header.
    fn walk(&mut self, path: &str, ty: &Type, tree: &Tree, header: Option<&HeaderTree>) {
        let p = self.cx.p;
        match (p.types.underlying(ty), tree) {
            (Type::Struct(id), Tree::Struct(children)) => self.fields(path, id, children, header),
            (Type::Header(id), Tree::Header(h)) => {
                if self.has_match_fields(&Type::Header(id))
                    && let Some(other) = self.headers.insert(id, path.to_string())
                {
                    let span = p.types.fields_of(id).span;
                    let message =
                        format!("`{other}` and `{path}` have one type, so its match fields would be in two places");
                    return self.refuse(span, message);
                }
                self.fields(path, id, &h.fields, Some(h));
            }
            (Type::HeaderUnion(id), Tree::Union(children)) => self.fields(path, id, children, None),
            (Type::Stack(element, _), _) if self.has_match_fields(&element) => {
                let span = element.fields_id().map_or(Span::NONE, |id| p.types.fields_of(id).span);
                self.refuse(
                    span,
                    format!("`{path}` has several elements, so their match fields would be in several places"),
                );
            }
            _ => {}
        }
    }

    fn has_match_fields(&self, ty: &Type) -> bool {
        let p = self.cx.p;
        match p.types.underlying(ty) {
            Type::Stack(element, _) => self.has_match_fields(&element),
            Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => {
                let mut fields = p.types.fields_of(id).fields.iter();
                fields.any(|f| f.annotations.iter().any(is_number) || self.has_match_fields(&f.ty))
            }
            _ => false,
        }
    }

    fn fields(&mut self, path: &str, id: StructId, children: &[Tree], header: Option<&HeaderTree>) {
        let p = self.cx.p;
        for (field, tree) in p.types.fields_of(id).fields.iter().zip(children) {
            let path = format!("{path}.{}", field.name);
            if field.annotations.iter().any(is_number) {
                self.declare(&path, field, tree, header);
            } else {
                self.walk(&path, &field.ty, tree, header);
            }
        }
    }

    /// Evaluates the annotations of a field.
    fn declare(&mut self, path: &str, info: &FieldInfo, tree: &Tree, header: Option<&HeaderTree>) {
        let Tree::Leaf(Operand::Slot(slot)) = tree else {
            return self.refuse(info.span, format!("`{path}` cannot be a match field: it is not a number"));
        };
        let whole = FieldPart { slot: *slot, lo: 0, width: self.cx.b.program().width(*slot) };
        let first = self.all.len();
        for annotation in &info.annotations {
            let arguments = annotation.values().unwrap_or_default();
            if is_number(annotation) {
                self.number(first, info, whole, annotation, arguments);
                continue;
            }
            let known = ["bits", "parts", "pad", "present", "exact", "readonly", "metadata", "prereq", "prereq_mask"];
            if !known.contains(&&*annotation.name) {
                continue;
            }
            if self.all.len() == first {
                let message = format!("`@{}` must follow the `@oxm` or `@nxm` of its match field", annotation.name);
                self.refuse(annotation.span, message);
            } else if self.condition(annotation, arguments, header).is_none() {
                let message =
                    format!("`@{}` does not have these arguments (openflow_model.p4 says which)", annotation.name);
                self.refuse(annotation.span, message);
            }
        }
    }

    /// `@oxm(…)` or `@nxm(…)`: another number of the current match field, or the first number of a new one. The match
    /// fields of this declaration begin at index `first`.
    fn number(
        &mut self,
        first: usize,
        info: &FieldInfo,
        whole: FieldPart,
        annotation: &Annotation,
        arguments: &[Value],
    ) {
        let (name, rest) = match arguments {
            [Value::Str(name), rest @ ..] => (Some(name.to_string()), rest),
            rest => (None, rest),
        };
        let Some(number) = read_number(&annotation.name, rest) else {
            let message = format!(
                "this is not the number of a match field: `@oxm(N)`, `@{}(CLASS, N)` or `@oxm(0xffff, N, EXPERIMENTER)`, N at most {NUMBER_MAX}",
                annotation.name
            );
            return self.refuse(annotation.span, message);
        };
        let current = self.all[first..].last().map(|d| d.field.name.clone());
        if let Some(other) = self.all.iter().find(|d| d.field.numbers.contains(&number)) {
            let (class, place, _) = number;
            let message = format!("{class:#x}:{place} is the number of match field `{}` already", other.field.name);
            self.cx.report(
                Diagnostic::error(codes::MATCH_FIELD, annotation.span, message).note(other.span, "declared here"),
            );
        }
        if current.is_some() && (name.is_none() || name == current) {
            return self.all.last_mut().expect("there is a current one").field.numbers.push(number);
        }
        let name = name.unwrap_or_else(|| info.name.to_string());
        if let Some(other) = self.all.iter().find(|d| d.field.name == name) {
            let message = format!("two match fields are named `{name}`");
            self.cx.report(
                Diagnostic::error(codes::MATCH_FIELD, annotation.span, message).note(other.span, "the other is here"),
            );
        }
        if self.all.len() == FIELDS_MAX {
            return self.refuse(annotation.span, format!("there are more than {FIELDS_MAX} match fields"));
        }
        let field = MatchField {
            name,
            parts: vec![whole],
            numbers: vec![number],
            maskable: true,
            writable: true,
            is_metadata: false,
            prerequisites: Vec::new(),
        };
        self.all.push(Declared { field, span: annotation.span, pieces: None, pad: 0, needs: Vec::new() });
    }

    /// Any other annotation, which applies to the last match field; `None` if its arguments are wrong.
    fn condition(&mut self, annotation: &Annotation, arguments: &[Value], header: Option<&HeaderTree>) -> Option<()> {
        let declared = self.all.last_mut()?;
        match (&*annotation.name, arguments) {
            ("bits", [hi, lo]) => {
                let (hi, lo) = (u32::try_from(hi.to_u64()?).ok()?, u32::try_from(lo.to_u64()?).ok()?);
                let part = declared.field.parts.last_mut()?;
                (lo <= hi && hi < part.width).then_some(())?;
                (part.lo, part.width) = (lo, hi - lo + 1);
            }
            ("parts", [_, ..]) => {
                let piece = |value: &Value| match value {
                    Value::Str(name) => Some(Piece::Field(name.to_string())),
                    number => zeros(number).map(Piece::Zeros),
                };
                declared.pieces = Some(arguments.iter().map(piece).collect::<Option<_>>()?);
            }
            ("pad", [bits]) => declared.pad = zeros(bits)?,
            ("present", []) => {
                let Operand::Slot(valid) = header?.valid else { return None };
                declared.field.parts.insert(0, FieldPart { slot: valid, lo: 0, width: 1 });
            }
            ("exact", []) => declared.field.maskable = false,
            ("readonly", []) => declared.field.writable = false,
            ("metadata", []) => declared.field.is_metadata = true,
            ("prereq", [Value::Str(name), values @ ..]) if !values.is_empty() => {
                let values = values.iter().map(number).collect::<Option<_>>()?;
                declared.needs.push((name.to_string(), None, values));
            }
            ("prereq_mask", [Value::Str(name), mask, values @ ..]) if !values.is_empty() => {
                let values = values.iter().map(number).collect::<Option<_>>()?;
                declared.needs.push((name.to_string(), Some(number(mask)?), values));
            }
            _ => return None,
        }
        Some(())
    }

    fn finish(mut self) -> Vec<MatchField> {
        let names: HashMap<String, usize> =
            self.all.iter().enumerate().rev().map(|(i, d)| (d.field.name.clone(), i)).collect();
        for i in 0..self.all.len() {
            self.compose(i, &names);
        }
        let direct: Vec<Vec<(u32, u128, Vec<u128>)>> = (0..self.all.len()).map(|i| self.direct(i, &names)).collect();
        for i in 0..self.all.len() {
            let (name, span, bits) = (self.all[i].field.name.clone(), self.all[i].span, width(&self.all[i].field));
            if !(1..=WIDTH_MAX).contains(&bits) {
                self.refuse(span, format!("match field `{name}` has {bits} bits; at most {WIDTH_MAX} are possible"));
            }
            match followed(i, &direct) {
                Some(needs) => self.all[i].field.prerequisites = needs,
                None => {
                    self.refuse(
                        span,
                        format!("match field `{name}` can never be present: its prerequisites contradict each other"),
                    );
                }
            }
        }
        self.all.into_iter().map(|d| d.field).collect()
    }

    /// Assembles a composition from fields that are not compositions themselves, and adds the padding.
    fn compose(&mut self, i: usize, names: &HashMap<String, usize>) {
        let span = self.all[i].span;
        if let Some(pieces) = self.all[i].pieces.take() {
            let mut parts = Vec::new();
            for piece in &pieces {
                match piece {
                    Piece::Zeros(bits) => parts.push(self.zeros(*bits)),
                    Piece::Field(name) => match names.get(name) {
                        Some(&of) if of < i => parts.extend(self.all[of].field.parts.iter().copied()),
                        _ => self.refuse(span, format!("no match field `{name}` is declared before this one")),
                    },
                }
            }
            self.all[i].field.parts = parts;
        }
        if self.all[i].pad > 0 {
            let zeros = self.zeros(self.all[i].pad);
            self.all[i].field.parts.insert(0, zeros);
        }
    }

    /// A part of `bits` zero bits, of a slot that is never written.
    fn zeros(&mut self, bits: u32) -> FieldPart {
        let slot = *self.zeros.get_or_insert_with(|| self.cx.b.metadata("$zeros", ZEROS_MAX));
        FieldPart { slot, lo: 0, width: bits }
    }

    /// The prerequisites in a field's own annotations.
    fn direct(&mut self, i: usize, names: &HashMap<String, usize>) -> Vec<(u32, u128, Vec<u128>)> {
        let mut direct = Vec::new();
        let span = self.all[i].span;
        for (name, mask, values) in std::mem::take(&mut self.all[i].needs) {
            let Some(&of) = names.get(&name) else {
                self.refuse(span, format!("it needs match field `{name}`, which does not exist"));
                continue;
            };
            let bits = width(&self.all[of].field).min(WIDTH_MAX);
            let full = if bits == WIDTH_MAX { u128::MAX } else { (1 << bits) - 1 };
            let mask = mask.unwrap_or(full);
            if mask & !full != 0 || mask == 0 || values.iter().any(|value| value & !mask != 0) {
                self.refuse(span, format!("match field `{name}` can have no such value"));
            }
            direct.push((of as u32, mask, values));
        }
        direct
    }
}

/// The transitive closure of a field's prerequisites, each after those that it needs itself. `None` if they contradict
/// each other or form a cycle.
fn followed(field: usize, direct: &[Vec<(u32, u128, Vec<u128>)>]) -> Option<Vec<(u32, u128, Vec<u128>)>> {
    let mut needs: Vec<(u32, u128, Vec<u128>)> = Vec::new();
    // Depth-first traversal; the flag is set once an entry's own prerequisites are in the list.
    let mut stack: Vec<(u32, u128, &[u128], bool)> = Vec::new();
    let push = |stack: &mut Vec<_>, of: usize| {
        stack.extend(direct[of].iter().rev().map(|(other, mask, values)| (*other, *mask, values.as_slice(), false)));
    };
    let mut followed = vec![false; direct.len()];
    followed[field] = true;
    push(&mut stack, field);
    while let Some((other, mask, values, is_followed)) = stack.pop() {
        if other as usize == field {
            return None;
        }
        if !is_followed {
            stack.push((other, mask, values, true));
            if !std::mem::replace(&mut followed[other as usize], true) {
                push(&mut stack, other as usize);
            }
            continue;
        }
        match needs.iter_mut().find(|(o, m, _)| (*o, *m) == (other, mask)) {
            Some((_, _, known)) => known.retain(|value| values.contains(value)),
            None => needs.push((other, mask, values.to_vec())),
        }
    }
    needs.iter().all(|(_, _, values)| !values.is_empty()).then_some(needs)
}

fn width(field: &MatchField) -> u32 {
    field.parts.iter().fold(0, |sum, part| sum.saturating_add(part.width))
}

fn is_number(annotation: &Annotation) -> bool {
    matches!(&*annotation.name, "oxm" | "nxm")
}

/// Class, field number and experimenter of an `@oxm` or `@nxm` annotation.
fn read_number(annotation: &str, arguments: &[Value]) -> Option<(u16, u8, u32)> {
    let all: Vec<u64> = arguments.iter().map(Value::to_u64).collect::<Option<_>>()?;
    let (class, place, experimenter) = match (annotation, all.as_slice()) {
        ("oxm", [place]) => (OPENFLOW_BASIC, *place, 0),
        (_, [class, place]) => (u16::try_from(*class).ok().filter(|class| *class != EXPERIMENTER)?, *place, 0),
        ("oxm", [class, place, experimenter]) => {
            let class = u16::try_from(*class).ok().filter(|class| *class == EXPERIMENTER)?;
            (class, *place, u32::try_from(*experimenter).ok()?)
        }
        _ => return None,
    };
    let place = u8::try_from(place).ok().filter(|place| *place <= NUMBER_MAX)?;
    Some((class, place, experimenter))
}

fn number(value: &Value) -> Option<u128> {
    match value {
        Value::Int(value) => value.to_u128(),
        Value::Bits(value) => Some(value.to_u64()?.into()),
        _ => None,
    }
}

fn zeros(value: &Value) -> Option<u32> {
    value.to_u64().and_then(|bits| u32::try_from(bits).ok()).filter(|bits| (1..=ZEROS_MAX).contains(bits))
}
