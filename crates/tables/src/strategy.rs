//! The choice of a table's engine, made once from its key fields and size.
//!
//! | keys | engine |
//! | --- | --- |
//! | none | none: always a miss |
//! | exact fields of at most 16 bits together, or of up to 22 if the table is large | [`crate::direct`] |
//! | exact fields otherwise | [`crate::exact`], which stores the entries itself |
//! | one lpm field of at most 128 bits and exact fields of at most 16 bytes | [`crate::lpm`] |
//! | everything else | [`crate::ternary`] |
//!
//! Tests: `tests/properties.rs` runs every engine against a linear scan.

use crate::engine::Engine;
use crate::key::KeyShape;
use crate::ternary::Rule;
use crate::{SpecError, TableSpec, direct, lpm, ternary};
use base::entry::MatchKind;

/// Whether a table of this size with keys of this shape stores its entries in buckets ([`crate::exact`]).
pub(crate) fn in_buckets(shape: &KeyShape, size: u64) -> bool {
    let fields = &shape.layout().fields;
    !fields.is_empty() && fields.iter().all(|f| f.kind == MatchKind::Exact) && !direct::fits(shape, size)
}

/// The engine for any other table; `None` if it has no keys.
///
/// # Errors
/// [`SpecError::SeveralLpmKeys`] if there are several `lpm` keys and no field that needs a priority.
pub(crate) fn engine(spec: &TableSpec, shape: &KeyShape) -> Result<Option<Box<dyn Engine>>, SpecError> {
    if spec.keys.is_empty() {
        return Ok(None);
    }
    let has = |wanted: fn(MatchKind) -> bool| spec.keys.iter().filter(|(_, kind)| wanted(*kind)).count();
    let prioritised = has(MatchKind::needs_priority) > 0;
    let prefixes = has(|kind| kind == MatchKind::Lpm);
    if !prioritised && prefixes > 1 {
        return Err(SpecError::SeveralLpmKeys);
    }
    let engine = if prioritised {
        ternary::engine(shape, Rule::Priority)
    } else if prefixes == 1 {
        lpm::engine(shape, spec.size).unwrap_or_else(|| ternary::engine(shape, Rule::PrefixLength))
    } else {
        direct::engine(shape, spec.size).unwrap_or_else(|| ternary::engine(shape, Rule::Priority))
    };
    Ok(Some(engine))
}
