//! Annotations of the typed program as P4Info lists them.
//!
//! `@name`, `@id`, `@brief` and `@description` have their own fields and are omitted from the list, as are those that
//! have a field in an object's message (`@max_group_size` of a selector, …). Structured annotations are listed
//! separately.

use crate::model::{Annotations, Documentation, Expression, SourceLocation, StructuredAnnotation, StructuredBody};
use base::SourceMap;
use sema::Value;
use sema::typed::{Annotation, AnnotationBody, AnnotationToken, AnnotationTokenKind, find_annotation};

/// Annotations with a field in every message.
const COMMON: [&str; 4] = ["name", "id", "brief", "description"];

/// All annotations except [`COMMON`] and `spelled_out`.
pub(crate) fn annotations(source: &[Annotation], spelled_out: &[&str], sources: &SourceMap) -> Annotations {
    let mut result = Annotations::default();
    for annotation in source {
        let at = location(annotation, sources);
        match structured(annotation, at.clone()) {
            Some(structured) => result.structured.push(structured),
            None if COMMON.contains(&&*annotation.name) || spelled_out.contains(&&*annotation.name) => {}
            None => {
                result.plain.push(plain(annotation));
                result.plain_at.push(at);
            }
        }
    }
    result
}

/// The source location of an annotation (its original file with `#line`); unknown without a span.
fn location(annotation: &Annotation, sources: &SourceMap) -> SourceLocation {
    let place = sources.origin(annotation.span).zip(sources.locate(annotation.span));
    place.map_or_else(SourceLocation::default, |((file, line), (_, _, column))| SourceLocation {
        file: file.to_string(),
        line,
        column,
    })
}

/// The documentation from `@brief` and `@description`.
pub(crate) fn documentation(source: &[Annotation]) -> Option<Documentation> {
    let text = |name| find_annotation(source, name).and_then(Annotation::as_str);
    let (brief, description) = (text("brief"), text("description"));
    if brief.is_none() && description.is_none() {
        return None;
    }
    Some(Documentation {
        brief: brief.unwrap_or_default().to_string(),
        description: description.unwrap_or_default().to_string(),
    })
}

fn structured(annotation: &Annotation, at: SourceLocation) -> Option<StructuredAnnotation> {
    let body = match &annotation.body {
        AnnotationBody::List(values) if values.is_empty() => StructuredBody::Empty,
        AnnotationBody::List(values) => StructuredBody::Expressions(values.iter().filter_map(expression).collect()),
        AnnotationBody::KeyValues(pairs) => StructuredBody::KeyValues(
            pairs.iter().filter_map(|(key, value)| Some((key.to_string(), expression(value)?))).collect(),
        ),
        AnnotationBody::Empty | AnnotationBody::Unstructured { .. } => return None,
    };
    Some(StructuredAnnotation { name: annotation.name.to_string(), body, at })
}

/// A value in a structured annotation, which can hold strings, booleans and integers only (P4_16, "Bodies of Structured
/// annotations"); `None` for integers above 64 bits, which the message cannot represent.
fn expression(value: &Value) -> Option<Expression> {
    match value {
        Value::Str(text) => Some(Expression::String(text.to_string())),
        Value::Bool(value) => Some(Expression::Bool(*value)),
        Value::Int(value) => i64::try_from(value).ok().map(Expression::Int64),
        Value::Bits(value) => value.to_u64().and_then(|v| i64::try_from(v).ok()).map(Expression::Int64),
        _ => None,
    }
}

/// The pairs of `@name(k = "x", l = 3)` or `@name[k = "x", l = 3]`.
pub(crate) fn key_values(annotation: &Annotation) -> Option<Vec<(String, Value)>> {
    let tokens = match &annotation.body {
        AnnotationBody::KeyValues(pairs) => {
            return Some(pairs.iter().map(|(key, value)| (key.to_string(), value.clone())).collect());
        }
        AnnotationBody::Unstructured { tokens, .. } => tokens,
        AnnotationBody::Empty | AnnotationBody::List(_) => return None,
    };
    let pair = |tokens: &[AnnotationToken]| match tokens {
        [key, equals, value] if key.kind == AnnotationTokenKind::Word && &*equals.text == "=" => {
            let value = match value.kind {
                AnnotationTokenKind::String => Value::Str(value.text.clone()),
                AnnotationTokenKind::Int => Value::Int(value.text.parse().ok()?),
                AnnotationTokenKind::Word | AnnotationTokenKind::Symbol => return None,
            };
            Some((key.text.to_string(), value))
        }
        _ => None,
    };
    tokens.split(|token| &*token.text == ",").map(pair).collect()
}

fn plain(annotation: &Annotation) -> String {
    match &annotation.body {
        AnnotationBody::Unstructured { tokens, .. } => format!("@{}({})", annotation.name, spelled(tokens)),
        _ => format!("@{}", annotation.name),
    }
}

/// The text of the tokens, with one space after commas and between words.
fn spelled(tokens: &[AnnotationToken]) -> String {
    let mut text = String::new();
    let mut last: Option<&AnnotationToken> = None;
    for token in tokens {
        let word = |t: &AnnotationToken| t.kind != AnnotationTokenKind::Symbol;
        if last.is_some_and(|last| &*last.text == "," || (word(last) && word(token))) {
            text.push(' ');
        }
        if token.kind == AnnotationTokenKind::String {
            text.push('"');
            text.push_str(&token.text);
            text.push('"');
        } else {
            text.push_str(&token.text);
        }
        last = Some(token);
    }
    text
}
