//! Which names are types: all that the parser must know about declarations (see the documentation of `parser`).

use std::collections::HashMap;
use std::sync::Arc;

/// What a name was declared as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameKind {
    /// A type, type parameter, parser, control, package or extern.
    Type,
    /// Anything else.
    Value,
}

/// Scopes from the global one inwards.
#[derive(Default)]
pub(super) struct Scopes {
    global: HashMap<Arc<str>, NameKind>,
    inner: Vec<HashMap<Arc<str>, NameKind>>,
}

impl Scopes {
    pub(super) fn push(&mut self) {
        self.inner.push(HashMap::new());
    }

    pub(super) fn pop(&mut self) {
        self.inner.pop();
    }

    pub(super) fn declare(&mut self, name: Arc<str>, kind: NameKind) {
        self.inner.last_mut().unwrap_or(&mut self.global).insert(name, kind);
    }

    pub(super) fn lookup(&self, name: &str, global: bool) -> Option<NameKind> {
        let local = if global { None } else { self.inner.iter().rev().find_map(|scope| scope.get(name)) };
        local.or_else(|| self.global.get(name)).copied()
    }
}
