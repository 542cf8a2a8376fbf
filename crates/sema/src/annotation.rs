//! Annotations with their expressions evaluated.

use crate::value::Value;
use base::Span;
use std::sync::Arc;
use syntax::ast::AnnotationToken;

/// An annotation with its expressions evaluated.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// The name after `@`.
    pub name: Arc<str>,
    /// The body after the name.
    pub body: AnnotationBody,
    /// Span of the whole construct.
    pub span: Span,
}

/// The body of an annotation.
#[derive(Clone, Debug)]
pub enum AnnotationBody {
    /// `@name`
    Empty,
    /// `@name(...)`
    Unstructured {
        /// The tokens as written.
        tokens: Vec<AnnotationToken>,
        /// The values, if the body parses as a list of compile-time known expressions.
        values: Option<Vec<Value>>,
    },
    /// `@name[a, b]`
    List(Vec<Value>),
    /// `@name[k = a, l = b]`
    KeyValues(Vec<(Arc<str>, Value)>),
}

impl Annotation {
    /// The values of `@name(a, b)` or `@name[a, b]`.
    pub fn values(&self) -> Option<&[Value]> {
        match &self.body {
            AnnotationBody::Unstructured { values, .. } => values.as_deref(),
            AnnotationBody::List(values) => Some(values),
            AnnotationBody::Empty => Some(&[]),
            AnnotationBody::KeyValues(_) => None,
        }
    }

    /// The single string of `@name("text")`.
    pub fn as_str(&self) -> Option<&str> {
        match self.values()? {
            [Value::Str(s)] => Some(s),
            _ => None,
        }
    }

    /// The single integer of `@name(3)`.
    pub fn as_u64(&self) -> Option<u64> {
        match self.values()? {
            [value] => value.to_u64(),
            _ => None,
        }
    }
}
