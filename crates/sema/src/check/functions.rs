//! Functions with a body, and the instantiation of generic ones. Specification: P4_16, "Function declarations".
//!
//! The body of a generic function is checked once with its type parameters as opaque types (for messages), and once per
//! list of type arguments in use (for the typed program), from a work list that is processed after all declarations. A
//! function can call only functions declared above it, so the work list becomes empty; recursion is rejected.

use super::{Checker, FunctionDecl, Owner, Place, Sig};
use crate::codes;
use crate::scope::{FunctionRef, Symbol, TypeSymbol};
use crate::typed::*;
use crate::types::*;
use base::Diagnostic;
use std::rc::Rc;
use syntax::ast;

impl<'a> Checker<'a> {
    pub(super) fn function(&mut self, decl: &'a ast::Decl, function: &'a ast::FunctionDecl) {
        let sig = self.prototype_sig(&decl.name, &function.proto, "function");
        if let Type::Int | Type::String | Type::MatchKind | Type::Extern(..) | Type::Parser(_) | Type::Control(_) =
            sig.result
        {
            let message = format!("a function cannot return `{}`", self.show(&sig.result));
            self.error(codes::BAD_RESULT_TYPE, function.proto.result.span, message);
        }
        for param in &sig.params {
            if find_annotation(&param.annotations, "optional").is_some() {
                self.report(
                    Diagnostic::error(
                        codes::BAD_OPTIONAL,
                        param.span,
                        "a parameter of a function with a body cannot be `@optional`",
                    )
                    .help("give it a default value: T name = value"),
                );
            }
        }
        let generic = !sig.type_params.is_empty();
        let index = self.functions.len();
        self.functions.push(FunctionDecl { decl, ast: function, sig: sig.clone(), broken: false });
        if generic {
            let before = self.diags.len();
            let types: Vec<Type> = sig.type_params.iter().map(|v| Type::Var(*v)).collect();
            self.function_body(index, &types, None);
            self.functions[index].broken = base::diag::has_errors(&self.diags[before.min(self.diags.len())..]);
        } else {
            let id = self.reserve_function(index, &[]);
            self.function_body(index, &[], Some(id));
        }
        // Declared after the body is checked, so a function cannot call itself.
        self.declare_function(&decl.name, FunctionRef::Declared(index), &sig);
    }

    /// Adds a function to the overloads of its name.
    pub(super) fn declare_function(&mut self, name: &ast::Name, function: FunctionRef, sig: &Rc<Sig>) {
        let existing = match self.scopes.innermost_mut(&name.text) {
            Some(entry) => match &entry.symbol {
                Symbol::Functions(set) => Some(set.clone()),
                _ => None,
            },
            None => None,
        };
        let Some(set) = existing else {
            self.declare(name, Symbol::Functions(Rc::new(vec![function])));
            return;
        };
        for other in set.iter() {
            let other = match other {
                FunctionRef::Extern(id) => self.extern_function_sigs[id.index()].clone(),
                FunctionRef::Declared(index) => self.functions[*index].sig.clone(),
            };
            let same = other.params.len() == sig.params.len()
                && other.params.iter().zip(&sig.params).all(|(a, b)| a.name == b.name);
            if same {
                self.report(
                    Diagnostic::error(
                        codes::DECLARED_TWICE,
                        name.span,
                        format!("`{name}` is declared twice with the same parameters"),
                    )
                    .note(other.span, "first declared here")
                    .help("overloads differ in the number or the names of their parameters"),
                );
                return;
            }
        }
        let mut set = (*set).clone();
        set.push(function);
        if let Some(entry) = self.scopes.innermost_mut(&name.text) {
            entry.symbol = Symbol::Functions(Rc::new(set));
        }
    }

    /// The instantiation of a function for type arguments; `None` if its body has errors.
    pub(super) fn function_instance(&mut self, index: usize, type_args: &[Type]) -> Option<FunctionId> {
        let span = self.functions[index].decl.name.span;
        if type_args.iter().any(|t| self.bounded(t.clone(), span).is_unknown()) {
            return None;
        }
        if let Some(id) = self.function_instances.get(&(index, type_args.to_vec())) {
            return Some(*id);
        }
        // Nothing is instantiated from a body with opaque types, which is checked again with actual type arguments.
        if self.functions[index].broken || type_args.iter().any(|t| self.has_var(t)) {
            return None;
        }
        if self.prog.functions.len() >= super::limits::MAX_FUNCTIONS {
            if self.prog.functions.len() == super::limits::MAX_FUNCTIONS {
                let span = self.functions[index].decl.name.span;
                self.error(codes::TOO_LARGE, span, "the program has too many instantiations of generic functions");
                self.reserve_function(index, type_args);
            }
            return None;
        }
        let id = self.reserve_function(index, type_args);
        self.pending.push((id, index));
        Some(id)
    }

    fn reserve_function(&mut self, index: usize, type_args: &[Type]) -> FunctionId {
        let id = FunctionId::from_index(self.prog.functions.len());
        let decl = &self.functions[index];
        self.prog.functions.push(Function {
            name: decl.decl.name.text.clone(),
            type_args: type_args.to_vec(),
            frame: FrameId(0),
            params: Vec::new(),
            result: Type::Void,
            body: Block::default(),
            annotations: Vec::new(),
            span: decl.decl.name.span,
        });
        self.function_instances.insert((index, type_args.to_vec()), id);
        id
    }

    /// Checks the bodies of generic functions that were called, and of parsers and controls with type parameters that
    /// were instantiated.
    pub(super) fn instantiate_bodies(&mut self) {
        loop {
            while let Some((id, index)) = self.pending.pop() {
                let types = self.prog.functions[id.index()].type_args.clone();
                self.function_body(index, &types, Some(id));
            }
            if !self.next_generic_block() {
                return;
            }
        }
    }

    fn function_body(&mut self, index: usize, types: &[Type], id: Option<FunctionId>) {
        let (decl, function) = (self.functions[index].decl, self.functions[index].ast);
        let outer = self.enter_body(Place::Function, Owner::Program);
        self.scopes.push();
        for (param, ty) in function.proto.type_params.iter().zip(types) {
            self.declare(&param.name, Symbol::Type(TypeSymbol::Plain(ty.clone())));
        }
        let (params, result, block) = self.signature_and_statements(decl, function);
        self.scopes.pop();
        let body = self.leave_body(outer);
        let Some(id) = id else { return };
        let annotations = self.annotations(&decl.annotations);
        let frame = self.add_frame(body.frame);
        let slot = &mut self.prog.functions[id.index()];
        (slot.frame, slot.params, slot.result, slot.body, slot.annotations) =
            (frame, params, result, block, annotations);
    }

    /// Checks the parameters, return type and statements of a function.
    fn signature_and_statements(
        &mut self,
        decl: &'a ast::Decl,
        function: &'a ast::FunctionDecl,
    ) -> (Vec<Param>, Type, Block) {
        let result = self.resolve_type(&function.proto.result);
        self.body.result = Some(result.clone());
        let params = self.runtime_params(&function.proto.params);
        let block = self.block(&function.body);
        if !matches!(result, Type::Void | Type::Unknown) && !super::stmts::always_returns(&block) {
            let message = format!("`{}` does not return a value on every path", decl.name);
            self.report(
                Diagnostic::error(codes::NO_RETURN, decl.name.span, message)
                    .help(format!("it returns `{}`", self.show(&result))),
            );
        }
        (params, result, block)
    }

    /// Checks the implementation of an abstract method. In a parser or control it sees the declarations there, as an
    /// action does, and its variables are in the block's frame.
    pub(super) fn method_body(
        &mut self,
        decl: &'a ast::Decl,
        function: &'a ast::FunctionDecl,
        this: Type,
    ) -> FunctionId {
        let (frame, (params, result, block)) = match self.body.owner {
            Owner::Program => {
                let outer = self.enter_body(Place::Function, Owner::Program);
                self.body.this = Some(this);
                self.scopes.push();
                let checked = self.signature_and_statements(decl, function);
                self.scopes.pop();
                let body = self.leave_body(outer);
                (self.add_frame(body.frame), checked)
            }
            owner @ (Owner::Parser(_) | Owner::Control(_)) => {
                let place = std::mem::replace(&mut self.body.place, Place::Function);
                let outer_this = self.body.this.replace(this);
                let loops = std::mem::take(&mut self.body.loops);
                self.scopes.push();
                let checked = self.signature_and_statements(decl, function);
                self.scopes.pop();
                (self.body.place, self.body.this, self.body.loops) = (place, outer_this, loops);
                self.body.result = None;
                (self.frame_of(owner), checked)
            }
        };
        let annotations = self.annotations(&decl.annotations);
        self.prog.functions.push(Function {
            name: decl.name.text.clone(),
            type_args: Vec::new(),
            frame,
            params,
            result,
            body: block,
            annotations,
            span: decl.name.span,
        });
        FunctionId::from_index(self.prog.functions.len() - 1)
    }

    fn frame_of(&self, owner: Owner) -> FrameId {
        match owner {
            Owner::Parser(id) => self.prog.parsers[id.index()].frame,
            Owner::Control(id) => self.prog.controls[id.index()].frame,
            Owner::Program => FrameId(0),
        }
    }
}
