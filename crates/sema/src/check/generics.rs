//! Inference and substitution of type arguments. Specification: P4_16, "Type specialization".
//!
//! Matching is one-sided: the pattern is a declared type with [`Type::Var`]s to be solved, the other side is the ground
//! type of an argument. An `int` literal binds weakly: a later argument of fixed width replaces the binding.

use super::Checker;
use crate::types::*;
use std::sync::Arc;

/// A substitution: type variables and their bindings so far.
pub(crate) struct Subst {
    vars: Vec<TypeVar>,
    bound: Vec<Option<Type>>,
    /// Whether a type that was matched is unknown because of an error elsewhere.
    met_unknown: bool,
}

impl Subst {
    /// The empty substitution.
    pub fn none() -> Subst {
        Subst { vars: Vec::new(), bound: Vec::new(), met_unknown: false }
    }

    /// The substitution of `types` for `vars`.
    pub fn of(vars: &[TypeVar], types: &[Type]) -> Subst {
        Subst { vars: vars.to_vec(), bound: types.iter().cloned().map(Some).collect(), met_unknown: false }
    }

    /// Adds variables, bound or unbound.
    pub fn extend(&mut self, vars: &[TypeVar], types: impl Iterator<Item = Option<Type>>) {
        self.vars.extend_from_slice(vars);
        self.bound.extend(types);
        self.bound.resize(self.vars.len(), None);
    }

    fn position(&self, var: TypeVar) -> Option<usize> {
        self.vars.iter().position(|v| *v == var)
    }

    /// The binding of a variable; `None` if it is unbound, the variable itself if it does not belong to this
    /// substitution.
    pub fn get(&self, var: TypeVar) -> Option<Type> {
        match self.position(var) {
            Some(i) => self.bound[i].clone(),
            None => Some(Type::Var(var)),
        }
    }

    /// Whether a type that was matched is unknown because of an error elsewhere; then unbound variables are not an
    /// error.
    pub fn met_unknown(&self) -> bool {
        self.met_unknown
    }

    /// Whether a variable is still unbound.
    pub fn unfinished(&self) -> bool {
        self.bound.iter().any(Option::is_none)
    }

    /// Binds all unbound variables to a type.
    pub fn bind_rest(&mut self, ty: &Type) {
        for bound in &mut self.bound {
            bound.get_or_insert_with(|| ty.clone());
        }
    }

    /// The bound variables with their types.
    pub fn found(&self) -> Vec<(TypeVar, Type)> {
        self.vars.iter().zip(&self.bound).filter_map(|(v, t)| Some((*v, t.clone()?))).collect()
    }

    /// The bindings of the variables of a signature; [`Type::Unknown`] for unbound ones.
    pub fn args(&self, vars: &[TypeVar]) -> Vec<Type> {
        vars.iter().map(|v| self.get(*v).unwrap_or(Type::Unknown)).collect()
    }
}

impl Checker<'_> {
    /// Applies a substitution to a type; unbound variables remain.
    pub fn subst(&mut self, ty: &Type, s: &Subst) -> Type {
        if s.vars.is_empty() {
            return ty.clone();
        }
        match ty {
            Type::Var(var) => s.get(*var).unwrap_or_else(|| ty.clone()),
            Type::Stack(element, n) => Type::Stack(Arc::new(self.subst(element, s)), *n),
            Type::List(element) => Type::List(Arc::new(self.subst(element, s))),
            Type::Set(element) => Type::Set(Arc::new(self.subst(element, s))),
            Type::Tuple(types) => Type::Tuple(types.iter().map(|t| self.subst(t, s)).collect()),
            Type::Extern(id, args) => Type::Extern(*id, args.iter().map(|t| self.subst(t, s)).collect()),
            Type::Block(id, args) => Type::Block(*id, args.iter().map(|t| self.subst(t, s)).collect()),
            Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => {
                let Some(origin) = self.struct_origin[id.index()] else { return ty.clone() };
                let args = self.prog.types.structs[id.index()].args.clone();
                if !args.iter().any(|t| self.has_var(t)) {
                    return ty.clone();
                }
                let args = args.iter().map(|t| self.subst(t, s)).collect();
                self.instantiate_struct(origin, args)
            }
            _ => ty.clone(),
        }
    }

    /// Whether a type contains a variable.
    pub fn has_var(&self, ty: &Type) -> bool {
        match ty {
            Type::Var(_) => true,
            Type::Stack(element, _) | Type::List(element) | Type::Set(element) => self.has_var(element),
            Type::Tuple(types) => types.iter().any(|t| self.has_var(t)),
            Type::Extern(_, args) | Type::Block(_, args) => args.iter().any(|t| self.has_var(t)),
            Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => {
                self.prog.types.structs[id.index()].args.iter().any(|t| self.has_var(t))
            }
            _ => false,
        }
    }

    /// Whether a type contains the variable `var`.
    pub fn mentions(&self, ty: &Type, var: TypeVar) -> bool {
        match ty {
            Type::Var(v) => *v == var,
            Type::Stack(element, _) | Type::List(element) | Type::Set(element) => self.mentions(element, var),
            Type::Tuple(types) | Type::Extern(_, types) | Type::Block(_, types) => {
                types.iter().any(|t| self.mentions(t, var))
            }
            Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => {
                self.prog.types.structs[id.index()].args.iter().any(|t| self.mentions(t, var))
            }
            _ => false,
        }
    }

    /// Whether a type contains an unbound variable.
    pub fn unfinished(&self, ty: &Type, s: &Subst) -> bool {
        self.unbound_in(ty, s).is_some()
    }

    /// The first unbound variable in a type.
    pub fn unbound_in(&self, ty: &Type, s: &Subst) -> Option<TypeVar> {
        match ty {
            Type::Var(var) => s.get(*var).is_none().then_some(*var),
            Type::Stack(element, _) | Type::List(element) | Type::Set(element) => self.unbound_in(element, s),
            Type::Tuple(types) | Type::Extern(_, types) | Type::Block(_, types) => {
                types.iter().find_map(|t| self.unbound_in(t, s))
            }
            Type::Struct(id) | Type::Header(id) | Type::HeaderUnion(id) => {
                self.prog.types.structs[id.index()].args.iter().find_map(|t| self.unbound_in(t, s))
            }
            _ => None,
        }
    }

    /// Binds variables of `pattern` by matching it against `ty`. The returned compatibility is approximate: the
    /// conversion that follows reports mismatches.
    pub fn match_types(&mut self, s: &mut Subst, pattern: &Type, ty: &Type) -> bool {
        match (pattern, ty) {
            (Type::Unknown, _) | (_, Type::Unknown) => {
                s.met_unknown = true;
                true
            }
            (Type::Var(var), _) => match s.position(*var) {
                None => pattern == ty,
                Some(i) => match s.bound[i].take() {
                    None => {
                        s.bound[i] = Some(ty.clone());
                        true
                    }
                    Some(bound) => {
                        let joined = self.join(&bound, ty);
                        let agree = joined.is_some();
                        s.bound[i] = Some(joined.unwrap_or(bound));
                        agree
                    }
                },
            },
            (Type::Stack(a, n), Type::Stack(b, m)) => n == m && self.match_types(s, a, b),
            (Type::List(a), Type::List(b)) | (Type::Set(a), Type::Set(b)) => self.match_types(s, a, b),
            (Type::List(a), Type::Tuple(types)) => {
                let mut agree = true;
                for t in types.iter() {
                    agree &= self.match_types(s, a, t);
                }
                agree
            }
            (Type::Tuple(a), Type::Tuple(b)) => a.len() == b.len() && self.match_all(s, a, b),
            (Type::Extern(a, x), Type::Extern(b, y)) => a == b && self.match_all(s, x, y),
            (Type::Block(a, x), Type::Block(b, y)) => {
                if a == b {
                    self.match_all(s, x, y)
                } else {
                    self.match_block(s, pattern, ty)
                }
            }
            (Type::Block(..), Type::Parser(_) | Type::Control(_)) => self.match_block(s, pattern, ty),
            _ => self.match_named(s, pattern, ty),
        }
    }

    fn match_all(&mut self, s: &mut Subst, patterns: &[Type], types: &[Type]) -> bool {
        let mut agree = patterns.len() == types.len();
        for (p, t) in patterns.iter().zip(types) {
            agree &= self.match_types(s, p, t);
        }
        agree
    }

    /// Matches structs, headers and header unions by their type arguments, or field by field against a list or record.
    fn match_named(&mut self, s: &mut Subst, pattern: &Type, ty: &Type) -> bool {
        let Some(id) = pattern.fields_id() else { return pattern == ty };
        if !self.has_var(pattern) {
            return pattern == ty;
        }
        let info = self.prog.types.structs[id.index()].clone();
        match ty {
            Type::Tuple(types) => {
                let fields: Vec<Type> = info.fields.iter().map(|f| f.ty.clone()).collect();
                self.match_all(s, &fields, types)
            }
            Type::Struct(other) | Type::Header(other) | Type::HeaderUnion(other) => {
                let other_info = self.prog.types.structs[other.index()].clone();
                if self.struct_origin[id.index()] == self.struct_origin[other.index()] {
                    return self.match_all(s, &info.args, &other_info.args);
                }
                let mut agree = other_info.name.is_empty();
                for field in &other_info.fields {
                    if let Some((_, f)) = info.field(&field.name) {
                        agree &= self.match_types(s, &f.ty, &field.ty);
                    }
                }
                agree
            }
            _ => false,
        }
    }

    /// Matches a parser, control or package type against a parser, a control, or another such type, parameter by
    /// parameter.
    pub fn match_block(&mut self, s: &mut Subst, pattern: &Type, ty: &Type) -> bool {
        let (Some((kind, wanted)), Some((other_kind, given))) = (self.block_params(pattern), self.block_params(ty))
        else {
            return false;
        };
        if kind != other_kind || kind == BlockKind::Package {
            return false;
        }
        let mut agree = true;
        let same_length = given.len() == wanted.len();
        let mut given = given.iter().peekable();
        for want in &wanted {
            match given.peek() {
                Some(have) if !want.optional || have.name == want.name || same_length => {
                    agree &= have.direction == want.direction && self.match_types(s, &want.ty, &have.ty);
                    given.next();
                }
                _ => agree &= want.optional,
            }
        }
        agree && given.next().is_none()
    }

    /// Kind and run-time parameters (or a package's constructor parameters) of a parser, control or package type.
    pub fn block_params(&mut self, ty: &Type) -> Option<(BlockKind, Vec<crate::typed::SigParam>)> {
        match ty {
            Type::Parser(id) => Some((BlockKind::Parser, self.parser_sigs[id.index()].0.params.clone())),
            Type::Control(id) => Some((BlockKind::Control, self.control_sigs[id.index()].0.params.clone())),
            Type::Block(id, args) => {
                let info = self.prog.types.block_types[id.index()].clone();
                let s = Subst::of(&info.type_params, args);
                let mut params = info.params;
                for p in &mut params {
                    p.ty = self.subst(&p.ty, &s);
                }
                Some((info.kind, params))
            }
            _ => None,
        }
    }

    /// The common type of two operands: `int` is converted to a fixed width, also inside tuples. `None` if there is
    /// none.
    pub fn join(&mut self, a: &Type, b: &Type) -> Option<Type> {
        match (a, b) {
            _ if a == b => Some(a.clone()),
            (Type::Unknown, _) => Some(b.clone()),
            (_, Type::Unknown) => Some(a.clone()),
            (Type::Int, Type::Bits { .. }) => Some(b.clone()),
            (Type::Bits { .. }, Type::Int) => Some(a.clone()),
            (Type::Int, Type::Newtype(_)) if matches!(self.prog.types.underlying(b), Type::Bits { .. }) => {
                Some(b.clone())
            }
            (Type::Newtype(_), Type::Int) => self.join(b, a),
            (Type::SerEnum(id), Type::Bits { .. } | Type::Int) => {
                let repr = self.prog.types.enums[id.index()].repr.clone()?;
                self.join(&repr, b)
            }
            (Type::Bits { .. } | Type::Int, Type::SerEnum(_)) => self.join(b, a),
            (Type::SerEnum(x), Type::SerEnum(y)) => {
                let (x, y) =
                    (self.prog.types.enums[x.index()].repr.clone()?, self.prog.types.enums[y.index()].repr.clone()?);
                self.join(&x, &y)
            }
            (Type::Tuple(x), Type::Tuple(y)) if x.len() == y.len() => {
                let types: Option<Vec<Type>> = x.iter().zip(y.iter()).map(|(a, b)| self.join(a, b)).collect();
                Some(Type::Tuple(types?.into()))
            }
            (Type::Tuple(x), Type::Struct(id) | Type::Header(id))
                if x.len() == self.prog.types.structs[id.index()].fields.len() =>
            {
                Some(b.clone())
            }
            (Type::Struct(_) | Type::Header(_), Type::Tuple(_)) => self.join(b, a),
            (Type::Struct(x), Type::Struct(y)) => {
                // An anonymous record takes the named type.
                let (x, y) = (&self.prog.types.structs[x.index()], &self.prog.types.structs[y.index()]);
                if x.name.is_empty() && !y.name.is_empty() {
                    Some(b.clone())
                } else if y.name.is_empty() && !x.name.is_empty() {
                    Some(a.clone())
                } else {
                    None
                }
            }
            (Type::Struct(x), Type::Header(_)) if self.prog.types.structs[x.index()].name.is_empty() => Some(b.clone()),
            (Type::Header(_), Type::Struct(y)) if self.prog.types.structs[y.index()].name.is_empty() => Some(a.clone()),
            (Type::Tuple(_), Type::List(_) | Type::Stack(..)) => Some(b.clone()),
            (Type::List(_) | Type::Stack(..), Type::Tuple(_)) => Some(a.clone()),
            _ => None,
        }
    }
}
