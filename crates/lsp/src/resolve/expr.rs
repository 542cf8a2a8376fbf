//! Names in types and expressions, and the types that members and calls need.

use super::Resolver;
use crate::index::{DefId, DefKind, Index, Item, Site, Ty};
use base::Span;
use syntax::ast::{Argument, Expr, ExprKind, Name, TypeKind, TypeRef};

impl Resolver<'_> {
    pub(super) fn type_ref(&mut self, ty: &TypeRef) -> Ty {
        match &ty.kind {
            TypeKind::Bool
            | TypeKind::Error
            | TypeKind::MatchKind
            | TypeKind::String
            | TypeKind::Void
            | TypeKind::Int => Ty::Scalar,
            TypeKind::Bit(width) | TypeKind::IntN(width) | TypeKind::Varbit(width) => {
                self.expr(width);
                Ty::Scalar
            }
            TypeKind::Named { path, args } => {
                let args: Vec<Ty> = args.iter().map(|a| self.type_ref(a)).collect();
                let scope = self.scope();
                if self.note_site(&path.name, |_| Site::Type(scope)) {
                    return Ty::Unknown;
                }
                let found = self.find(&path.name.text, path.global);
                let Some(id) = found.into_iter().find(|id| self.index.def(*id).kind.is_type()) else {
                    return Ty::Unknown;
                };
                self.note_use(path.name.span, id);
                self.named(id, args)
            }
            TypeKind::Array(of, size) => {
                let of = self.type_ref(of);
                self.expr(size);
                Ty::Stack(Box::new(of))
            }
            TypeKind::Tuple(of) => {
                of.iter().for_each(|ty| {
                    self.type_ref(ty);
                });
                Ty::Tuple
            }
            TypeKind::List(of) => {
                self.type_ref(of);
                Ty::Tuple
            }
            TypeKind::DontCare => Ty::Unknown,
        }
    }

    /// The type that a declaration names; a typedef is replaced by its target.
    fn named(&self, id: DefId, args: Vec<Ty>) -> Ty {
        let def = self.index.def(id);
        if def.kind == DefKind::Typedef { def.ty.clone() } else { Ty::Named(id, args) }
    }

    /// [`Resolver::expr`] with an expected type, which determines the fields that the names of `{ a = 1 }` refer to.
    pub(super) fn expr_as(&mut self, expr: &Expr, expected: &Ty) -> Ty {
        let ExprKind::Record { fields, .. } = &expr.kind else { return self.expr(expr) };
        let items = self.index.members(expected);
        for field in fields {
            let item = items.iter().find(|item| item.def.is_some() && item.name == field.name.text);
            match item.and_then(|item| item.def.map(|id| (id, item.ty.clone()))) {
                Some((id, ty)) => {
                    self.note_use(field.name.span, id);
                    self.expr_as(&field.value, &ty);
                }
                None => {
                    self.expr(&field.value);
                }
            }
        }
        expected.clone()
    }

    pub(super) fn expr(&mut self, expr: &Expr) -> Ty {
        match &expr.kind {
            ExprKind::Bool(_) | ExprKind::Int(_) | ExprKind::String(_) => Ty::Scalar,
            ExprKind::DontCare | ExprKind::Default | ExprKind::InvalidHeader | ExprKind::Missing => Ty::Unknown,
            ExprKind::This => {
                let instance = self.owner.iter().rev().find(|id| self.index.def(**id).kind == DefKind::Instance);
                instance.map_or(Ty::Unknown, |id| self.index.def(*id).ty.clone())
            }
            ExprKind::Path(path) => self.path(&path.name, path.global),
            ExprKind::Type(ty) => match ty.kind {
                TypeKind::Error => Ty::Error,
                _ => Ty::Name(Box::new(self.type_ref(ty))),
            },
            ExprKind::Member(base, name) => {
                let base = self.expr(base);
                self.member(&base, name)
            }
            ExprKind::Index(base, index) => {
                let base = self.expr(base);
                self.expr(index);
                match base {
                    Ty::Stack(of) => *of,
                    _ => Ty::Unknown,
                }
            }
            ExprKind::Slice { base, high, low } => {
                for part in [base, high, low] {
                    self.expr(part);
                }
                Ty::Scalar
            }
            ExprKind::SliceFrom { base, low, width } => {
                for part in [base, low, width] {
                    self.expr(part);
                }
                Ty::Scalar
            }
            ExprKind::Unary(_, operand) => self.expr(operand),
            ExprKind::Binary(_, left, right) => {
                let left = self.expr(left);
                self.expr(right);
                left
            }
            ExprKind::Ternary { cond, then, otherwise } => {
                self.expr(cond);
                let then = self.expr(then);
                self.expr(otherwise);
                then
            }
            ExprKind::Cast(ty, operand) => {
                let ty = self.type_ref(ty);
                self.expr_as(operand, &ty);
                ty
            }
            ExprKind::Call { callee, type_args, args } => self.call(callee, type_args, args),
            ExprKind::List(items) => {
                for item in items {
                    self.expr(item);
                }
                Ty::Tuple
            }
            ExprKind::Record { fields, .. } => {
                for field in fields {
                    self.expr(&field.value);
                }
                Ty::Unknown
            }
        }
    }

    fn path(&mut self, name: &Name, global: bool) -> Ty {
        let scope = self.scope();
        if self.note_site(name, |_| Site::Value(scope)) {
            return Ty::Unknown;
        }
        let found = self.find(&name.text, global);
        let Some(id) = found.first().copied() else { return Ty::Unknown };
        self.note_use(name.span, id);
        let def = self.index.def(id);
        match def.kind {
            DefKind::Function | DefKind::Action => Ty::Callable(found, Vec::new()),
            kind if kind.is_type() => Ty::Name(Box::new(self.named(id, Vec::new()))),
            _ => def.ty.clone(),
        }
    }

    fn member(&mut self, base: &Ty, name: &Name) -> Ty {
        let items = self.index.members(base);
        if self.note_site(name, |_| Site::Members(items.clone())) {
            return Ty::Unknown;
        }
        let mut named = items.iter().filter(|item| item.name == name.text);
        let Some(first) = named.next() else { return Ty::Unknown };
        match (first.def, first.about) {
            (Some(id), _) => self.note_use(name.span, id),
            (None, Some((text, about))) => self.index.builtins.push((name.span, text, about)),
            (None, None) => {}
        }
        // All overloads are candidates until a call determines the number of arguments.
        match &first.ty {
            Ty::Callable(ids, by) => {
                let others = named.filter_map(|item: &Item| item.def);
                Ty::Callable(ids.iter().copied().chain(others).collect(), by.clone())
            }
            ty => ty.clone(),
        }
    }

    fn call(&mut self, callee: &Expr, type_args: &[TypeRef], args: &[Argument]) -> Ty {
        let target = self.expr(callee);
        let type_args: Vec<Ty> = type_args.iter().map(|ty| self.type_ref(ty)).collect();
        let place = match &callee.kind {
            ExprKind::Path(path) => Some(path.name.span),
            ExprKind::Member(_, name) => Some(name.span),
            _ => None,
        };
        match target {
            Ty::Callable(candidates, mut by) => {
                let Some(chosen) = self.overload(&candidates, args) else { return Ty::Unknown };
                if let Some(place) = place {
                    self.choose(place, &candidates, chosen);
                }
                let given = self.arguments(args, &[chosen]);
                let def = self.index.def(chosen);
                by.extend(def.type_params.iter().copied().zip(type_args));
                for (param, given) in def.params.iter().zip(&given) {
                    // An argument determines a type parameter.
                    if let Ty::Named(id, _) = &self.index.def(*param).ty
                        && self.index.def(*id).kind == DefKind::TypeParam
                        && !by.iter().any(|(known, _)| known == id)
                    {
                        by.push((*id, given.clone()));
                    }
                }
                match def.kind {
                    DefKind::Function | DefKind::Method => Index::substitute(&def.ty, &by),
                    _ => Ty::Scalar,
                }
            }
            Ty::Name(ty) => {
                let makers = self.constructors(&ty, args.len());
                self.arguments(args, &makers);
                match *ty {
                    Ty::Named(id, own) => Ty::Named(id, if own.is_empty() { type_args } else { own }),
                    ty => ty,
                }
            }
            Ty::ApplyOf(table) => {
                self.arguments(args, &[]);
                Ty::ApplyResult(table)
            }
            Ty::Builtin(result) => {
                self.arguments(args, &[]);
                *result
            }
            _ => {
                self.arguments(args, &[]);
                Ty::Unknown
            }
        }
    }

    /// The first overload that accepts this number of arguments with these names.
    fn overload(&self, candidates: &[DefId], args: &[Argument]) -> Option<DefId> {
        let fits = |id: &&DefId| {
            let params = &self.index.def(**id).params;
            let named = |arg: &Argument| {
                arg.name.as_ref().is_none_or(|n| params.iter().any(|p| self.index.def(*p).name == n.text))
            };
            params.len() == args.len() && args.iter().all(named)
        };
        candidates.iter().find(fits).or(candidates.first()).copied()
    }

    /// Changes the recorded use at a span to the chosen overload.
    fn choose(&mut self, place: Span, candidates: &[DefId], chosen: DefId) {
        let noted = self.index.uses.iter_mut().rev().find(|u| u.span == place && candidates.contains(&u.def));
        if let Some(noted) = noted {
            noted.def = chosen;
        }
    }

    /// The constructors of a type: the declarations whose parameters the arguments are for.
    pub(super) fn constructors(&self, ty: &Ty, count: usize) -> Vec<DefId> {
        let Ty::Named(id, _) = ty else { return Vec::new() };
        let def = self.index.def(*id);
        match def.kind {
            DefKind::Extern => {
                let makers = def.members.iter().copied().filter(|m| self.index.def(*m).kind == DefKind::Constructor);
                let (fitting, others): (Vec<_>, Vec<_>) =
                    makers.partition(|m| self.index.def(*m).params.len() == count);
                fitting.into_iter().chain(others).collect()
            }
            _ => vec![*id],
        }
    }

    /// Resolves arguments, and their names as parameters of the first of `callees` that has them; returns the argument
    /// types.
    pub(super) fn arguments(&mut self, args: &[Argument], callees: &[DefId]) -> Vec<Ty> {
        let mut types = Vec::new();
        for arg in args {
            if let Some(name) = &arg.name
                && !self.note_site(name, |_| Site::Argument(callees.to_vec()))
            {
                let param = callees.iter().find_map(|callee| {
                    let def = self.index.def(*callee);
                    let constructor = matches!(def.kind, DefKind::Parser | DefKind::Control).then_some(&def.members);
                    let all = def.params.iter().chain(constructor.into_iter().flatten());
                    all.copied().find(|p| self.index.def(*p).name == name.text)
                });
                if let Some(param) = param {
                    self.note_use(name.span, param);
                }
            }
            types.push(self.expr(&arg.value));
        }
        types
    }
}
