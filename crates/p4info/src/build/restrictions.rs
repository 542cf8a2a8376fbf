//! `@entry_restriction` of tables and `@action_restriction` of actions (p4-constraints). They are parsed once, here, so
//! that an invalid one is an error of the program and not of the first write. A clause that does not fit its table or
//! action is a warning and is not enforced, because the reference compiler accepts such programs.
//!
//! Names are those that controllers see, widths those of the data plane.

use super::{BAD_RESTRICTION, Builder, RESTRICTION_MISFIT};
use crate::model::{MatchField, MatchType, Param};
use base::{Diagnostic, Span};
use constraints::{Constraint, Operand, Scope};
use sema::typed::{Annotation, AnnotationBody, AnnotationToken, AnnotationTokenKind, find_annotation};
use sema::types::Type;
use std::ops::Range;

impl Builder<'_> {
    /// The constraint on the entries of a table with these match fields; `types` are the fields' types.
    pub(super) fn entry_restriction<'t>(
        &mut self,
        source: &[Annotation],
        fields: &[MatchField],
        types: impl Iterator<Item = &'t Type>,
    ) -> Option<Constraint> {
        let names = fields.iter().zip(types).filter_map(|(field, ty)| match field.match_type {
            MatchType::Known(kind) => Some((field.name.clone(), Operand::Field(kind, self.data_width(ty)))),
            MatchType::Other(_) => None,
        });
        let scope = Scope { names: names.collect(), has_priority: true };
        self.restriction(find_annotation(source, "entry_restriction")?, &scope)
    }

    /// The constraint on the arguments of an action with these parameters; `types` are the parameters' types.
    pub(super) fn action_restriction<'t>(
        &mut self,
        source: &[Annotation],
        params: &[Param],
        types: impl Iterator<Item = &'t Type>,
    ) -> Option<Constraint> {
        let names = params.iter().zip(types).map(|(p, ty)| (p.name.clone(), Operand::Param(self.data_width(ty))));
        let scope = Scope { names: names.collect(), has_priority: false };
        self.restriction(find_annotation(source, "action_restriction")?, &scope)
    }

    fn data_width(&self, ty: &Type) -> u32 {
        let width = self.program.types.width_bits(ty, true);
        width.and_then(|width| u32::try_from(width).ok()).unwrap_or(0)
    }

    fn restriction(&mut self, annotation: &Annotation, scope: &Scope) -> Option<Constraint> {
        let name = &annotation.name;
        let Some((text, pieces)) = text(annotation) else {
            let message = format!("`@{name}` takes a constraint as a string");
            let help = format!("write @{name}(\"…\")");
            self.diags.push(Diagnostic::error(BAD_RESTRICTION, annotation.span, message).help(help));
            return None;
        };
        let mut report = |code: &'static str, error: constraints::Error, what: &str| {
            let span = place(&pieces, &error.place).unwrap_or(annotation.span);
            let message = format!("`@{name}`: {}{what}", error.message);
            let diagnostic = match code.starts_with('W') {
                true => Diagnostic::warning(code, span, message),
                false => Diagnostic::error(code, span, message),
            };
            self.diags.push(match error.help {
                Some(help) => diagnostic.help(help),
                None => diagnostic,
            });
        };
        match Constraint::fitting(&text, scope) {
            Ok((constraint, misfits)) => {
                let what = "; this clause is not enforced";
                misfits.into_iter().for_each(|misfit| report(RESTRICTION_MISFIT, misfit, what));
                Some(constraint)
            }
            Err(error) => {
                report(BAD_RESTRICTION, error, "");
                None
            }
        }
    }
}

/// The concatenated strings of an annotation, and the offset at which each begins; `None` if it contains other tokens.
fn text(annotation: &Annotation) -> Option<(String, Vec<(usize, &AnnotationToken)>)> {
    let AnnotationBody::Unstructured { tokens, .. } = &annotation.body else { return None };
    if tokens.is_empty() || tokens.iter().any(|token| token.kind != AnnotationTokenKind::String) {
        return None;
    }
    let mut text = String::new();
    let mut pieces = Vec::new();
    for token in tokens {
        pieces.push((text.len(), token));
        text.push_str(&token.text);
    }
    Some((text, pieces))
}

/// The source span of a byte range of the text.
fn place(pieces: &[(usize, &AnnotationToken)], part: &Range<usize>) -> Option<Span> {
    let (begin, token) = pieces.iter().rev().find(|(begin, _)| *begin <= part.start)?;
    let span = token.span;
    // With escapes, or in a macro, the source text differs: the span is then the whole string.
    if (span.end - span.start) as usize != token.text.len() + 2 {
        return Some(span);
    }
    let offset =
        |at: usize| span.start + 1 + u32::try_from(at.saturating_sub(*begin).min(token.text.len())).unwrap_or(0);
    Some(Span { start: offset(part.start), end: offset(part.end), ..span })
}
