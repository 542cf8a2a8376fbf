//! Generic parsers and controls.
//!
//! As with functions, the body is checked once with its type parameters as opaque types (for messages), and once per
//! list of type arguments in use (for the typed program), from a work list that is processed after all declarations. An
//! instantiation has its signature immediately, so it can be applied before its body is checked. A block is declared
//! after its body, so no chain of instantiations leads back to it.
//!
//! Type arguments are explicit (`p<bit<8>>()`), inferred from constructor arguments, or inferred from the type of the
//! parameter that the new block is an argument for.
//!
//! The specification has no type parameters on parser and control declarations; the reference compiler accepts them.

use super::Checker;
use super::Sig;
use super::generics::Subst;
use crate::codes;
use crate::scope::{Symbol, TypeSymbol};
use crate::types::*;
use base::{Diagnostic, Span};
use std::rc::Rc;
use syntax::ast;

/// The maximum number of instantiations of generic parsers and controls.
const MAX_BLOCKS: usize = 10_000;

/// A generic parser or control.
pub(super) struct GenericBlock<'a> {
    decl: &'a ast::Decl,
    type_params: Vec<TypeVar>,
    /// The signatures of `apply` and of the constructor, in terms of the type parameters.
    sigs: (Rc<Sig>, Rc<Sig>),
    /// Whether its body has errors; then it is not instantiated.
    broken: bool,
}

impl<'a> Checker<'a> {
    /// Declares a generic parser or control.
    pub(super) fn generic_block(&mut self, decl: &'a ast::Decl, type_params: &'a [ast::TypeParam]) {
        let before = self.diags.len();
        self.scopes.push();
        let vars = self.type_params(type_params);
        let sigs = self.block_sigs_of(decl);
        for param in sigs.0.params.iter().chain(&sigs.1.params) {
            if let Some(first) = type_params.iter().find(|t| t.name.text == param.name) {
                let message = format!("`{}` is declared twice in one scope", param.name);
                let diag = Diagnostic::error(codes::DECLARED_TWICE, param.span, message);
                self.report(diag.note(first.name.span, "first declared here").help("rename one of them"));
            }
        }
        let ty = self.reserve_block(decl, sigs.clone());
        self.block_body(&ty, decl);
        self.scopes.pop();
        let broken = base::diag::has_errors(&self.diags[before.min(self.diags.len())..]);
        let index = self.generic_blocks.len();
        self.generic_blocks.push(GenericBlock { decl, type_params: vars, sigs, broken });
        self.declare(&decl.name, Symbol::Type(TypeSymbol::GenericBlock(index)));
    }

    /// The number of type parameters of a generic block.
    pub(super) fn generic_block_params(&self, index: usize) -> usize {
        self.generic_blocks[index].type_params.len()
    }

    /// The name of a generic block.
    pub(super) fn generic_block_name(&self, index: usize) -> &'a str {
        &self.generic_blocks[index].decl.name.text
    }

    /// The constructor's signature, and the type arguments inferred from the expected type.
    pub(super) fn generic_block_constructor(
        &mut self,
        index: usize,
        type_args: &[ast::TypeRef],
        expected: Option<&Type>,
    ) -> (Sig, Subst) {
        let block = &self.generic_blocks[index];
        let (vars, run, ctor) = (block.type_params.clone(), block.sigs.0.clone(), block.sigs.1.clone());
        let mut subst = Subst::none();
        if !type_args.is_empty() {
            return (Sig { type_params: vars, ..(*ctor).clone() }, subst);
        }
        subst.extend(&vars, std::iter::empty());
        if let Some((_, wanted)) = expected.and_then(|ty| self.block_params(ty))
            && wanted.len() == run.params.len()
        {
            for (have, want) in run.params.iter().zip(&wanted) {
                self.match_types(&mut subst, &have.ty, &want.ty);
            }
        }
        ((*ctor).clone(), subst)
    }

    /// The type of an instantiation, once the constructor arguments have been checked.
    pub(super) fn generic_block_type(&mut self, index: usize, subst: &Subst, span: Span) -> Type {
        let block = &self.generic_blocks[index];
        let (vars, place) = (block.type_params.clone(), block.decl.name.span);
        let sigs = block.sigs.clone();
        let args = subst.args(&vars);
        // A type parameter that neither signature mentions can be any type.
        let mentioned = |checker: &Self, var: TypeVar| {
            let params = sigs.0.params.iter().chain(&sigs.1.params);
            params.into_iter().any(|p| checker.mentions(&p.ty, var))
        };
        if let Some(i) = (0..args.len()).find(|&i| args[i] == Type::Void && mentioned(self, vars[i])) {
            let name = self.prog.types.vars[vars[i].index()].clone();
            let what = self.generic_block_name(index);
            let message = format!("the type argument `{name}` of `{what}` is not known");
            let help = format!("write the type arguments: {what}<…>(…)");
            self.report(Diagnostic::error(codes::NOT_INFERRED, span, message).note(place, "declared here").help(help));
            return Type::Unknown;
        }
        self.block_instance(index, args, span)
    }

    /// The instantiation of a generic block for type arguments; created on first use.
    pub(super) fn block_instance(&mut self, index: usize, args: Vec<Type>, span: Span) -> Type {
        if self.generic_blocks[index].broken || args.iter().any(Type::is_unknown) {
            return Type::Unknown;
        }
        let key = (index, args);
        if let Some(ty) = self.block_instances.get(&key) {
            return ty.clone();
        }
        if self.block_instances.len() >= MAX_BLOCKS {
            let message = format!("the program has more than {MAX_BLOCKS} instantiations of generic blocks");
            self.error(codes::TOO_LARGE, span, message);
            return Type::Unknown;
        }
        let block = &self.generic_blocks[index];
        let (decl, sigs) = (block.decl, block.sigs.clone());
        let subst = Subst::of(&block.type_params, &key.1);
        let run = self.subst_sig(&sigs.0, &subst);
        let ctor = self.subst_sig(&sigs.1, &subst);
        let ty = self.reserve_block(decl, (run, ctor));
        // Nothing is queued from a body with opaque types, which is checked again with actual type arguments.
        if !key.1.iter().any(|t| self.has_var(t)) {
            self.pending_blocks.push((ty.clone(), index, key.1.clone()));
        }
        self.block_instances.insert(key, ty.clone());
        ty
    }

    fn subst_sig(&mut self, sig: &Sig, subst: &Subst) -> Rc<Sig> {
        let mut sig = sig.clone();
        for param in &mut sig.params {
            param.ty = self.subst(&param.ty, subst);
        }
        Rc::new(sig)
    }

    /// Checks one pending body; `false` if there is none.
    pub(super) fn next_generic_block(&mut self) -> bool {
        let Some((ty, index, args)) = self.pending_blocks.pop() else { return false };
        let decl = self.generic_blocks[index].decl;
        let (ast::DeclKind::Parser(ast::ParserDecl { type_params, .. })
        | ast::DeclKind::Control(ast::ControlDecl { type_params, .. })) = &decl.kind
        else {
            return true;
        };
        self.scopes.push();
        for (param, arg) in type_params.iter().zip(args) {
            self.declare(&param.name, Symbol::Type(TypeSymbol::Plain(arg)));
        }
        self.block_body(&ty, decl);
        self.scopes.pop();
        true
    }
}
