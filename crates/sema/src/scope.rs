//! The symbol table: names in scope.
//!
//! One table serves the whole check. Each name maps to a stack of its meanings, innermost last, so a look-up is one
//! hash probe at any nesting depth. Leaving a scope pops the declarations that a log records for it. P4 requires
//! declaration before use, so scopes are filled as declarations are checked; parser states and action labels of
//! `switch` are looked up elsewhere.
//!
//! Specification: P4_16, "Name resolution" and "Visibility".

use crate::typed::{ActionId, Expr, ExternFunctionId, InstanceRef, LocalId, TableId, ValueSetId};
use crate::types::{BlockTypeId, Type};
use base::Span;
use base::spelling::similar;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// The meaning of a name.
#[derive(Clone, Debug)]
pub(crate) enum Symbol {
    /// A type; a generic one needs type arguments.
    Type(TypeSymbol),
    /// A constant: its value, or its expression if it depends on constructor parameters.
    Const(Rc<Expr>),
    /// A variable or run-time parameter of frame number `.1`.
    Local(LocalId, u32),
    /// A constructor parameter that is a value, not an instance.
    CtorParam(u32, Type),
    /// An instance.
    Instance(InstanceRef, Type),
    /// An action.
    Action(ActionId),
    /// A table.
    Table(TableId),
    /// A value set.
    ValueSet(ValueSetId),
    /// The overloads of a function name.
    Functions(Rc<Vec<FunctionRef>>),
    /// A name whose declaration has errors; its uses are not reported.
    Broken,
}

/// The meaning of a type name.
#[derive(Clone, Debug)]
pub(crate) enum TypeSymbol {
    /// A type that takes no type arguments.
    Plain(Type),
    /// A generic struct, header or union: index into the checker's list.
    Generic(usize),
    /// A generic extern.
    Extern(crate::typed::ExternId),
    /// A generic parser, control or package type.
    Block(BlockTypeId),
    /// A parser or control with type parameters: index into the checker's list.
    GenericBlock(usize),
}

/// A candidate function of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FunctionRef {
    /// An extern function, without a body.
    Extern(ExternFunctionId),
    /// A function with a body: index into the checker's list.
    Declared(usize),
}

/// The meaning of a name, and the span and scope depth of its declaration.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub symbol: Symbol,
    pub span: Span,
    depth: u32,
}

/// All names in scope.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    table: HashMap<Arc<str>, Vec<Entry>>,
    log: Vec<Arc<str>>,
    marks: Vec<usize>,
}

impl Scopes {
    fn depth(&self) -> u32 {
        self.marks.len() as u32
    }

    /// Whether no scope but the global one is open.
    pub fn at_top(&self) -> bool {
        self.marks.is_empty()
    }

    /// Opens a scope.
    pub fn push(&mut self) {
        self.marks.push(self.log.len());
    }

    /// Closes the innermost scope.
    pub fn pop(&mut self) {
        let Some(mark) = self.marks.pop() else { return };
        for name in self.log.drain(mark..) {
            if let Some(entries) = self.table.get_mut(&name) {
                entries.pop();
            }
        }
    }

    /// Declares a name in the innermost scope.
    ///
    /// # Errors
    ///
    /// The span of an earlier declaration of the name in the same scope, which is kept.
    pub fn declare(&mut self, name: &Arc<str>, symbol: Symbol, span: Span) -> Result<(), Span> {
        let depth = self.depth();
        let entries = self.table.entry(name.clone()).or_default();
        if let Some(previous) = entries.last().filter(|e| e.depth == depth) {
            return Err(previous.span);
        }
        entries.push(Entry { symbol, span, depth });
        if depth > 0 {
            self.log.push(name.clone());
        }
        Ok(())
    }

    /// The innermost meaning of a name.
    pub fn lookup(&self, name: &str) -> Option<&Entry> {
        self.table.get(name)?.last()
    }

    /// The meaning of a name at top level.
    pub fn lookup_global(&self, name: &str) -> Option<&Entry> {
        self.table.get(name)?.first().filter(|e| e.depth == 0)
    }

    /// The entry of a name in the innermost scope, for adding an overload.
    pub fn innermost_mut(&mut self, name: &str) -> Option<&mut Entry> {
        let depth = self.depth();
        self.table.get_mut(name)?.last_mut().filter(|e| e.depth == depth)
    }

    /// The visible name closest in spelling to `name`, among the symbols that `accept` accepts.
    pub fn similar(&self, name: &str, accept: impl Fn(&Symbol) -> bool) -> Option<&str> {
        // Sorted, so that equally good candidates give the same message in every run.
        let mut visible: Vec<&str> = self
            .table
            .iter()
            .filter(|(_, entries)| entries.last().is_some_and(|e| accept(&e.symbol)))
            .map(|(name, _)| &**name)
            .collect();
        visible.sort_unstable();
        similar(name, visible.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_names_hide_outer_ones_until_their_scope_ends() {
        let mut scopes = Scopes::default();
        let name: Arc<str> = "x".into();
        let place = |n| Span::new(base::FileId(0), n, n + 1);
        scopes.declare(&name, Symbol::Broken, place(1)).unwrap();
        assert_eq!(scopes.declare(&name, Symbol::Broken, place(2)), Err(place(1)));
        scopes.push();
        scopes.declare(&name, Symbol::Broken, place(3)).unwrap();
        assert_eq!(scopes.lookup("x").unwrap().span, place(3));
        assert_eq!(scopes.lookup_global("x").unwrap().span, place(1));
        scopes.pop();
        assert_eq!(scopes.lookup("x").unwrap().span, place(1));
    }
}
