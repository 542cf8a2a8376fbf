//! Functions, actions, and calls of them with every kind of argument.
//!
//! There is no recursion: a body calls only what was declared before. `out` and `inout` arguments may be the same
//! variable twice, stack elements or slices, so that copy-in and copy-out are observable.

use crate::declared::{Callable, Dir, Param, Place, Var};
use crate::generator::Gen;
use crate::types::Type;

impl Gen {
    /// Declares a function.
    pub fn function(&mut self) {
        let mark = self.scope.len();
        let result = if self.dice.one_in(4) { None } else { Some(self.variable_type()) };
        let name = self.name("fn");
        let count = self.dice.range(0, 4);
        let params = self.params(count, true);
        let list = self.param_list(&params);
        let text = result.clone().map_or("void".to_string(), |t| self.ty(&t));
        self.open(format!("{text} {name}({list}) {{"));
        let outer = std::mem::replace(&mut self.place, Place::Function(result.clone()));
        let (outer_calls, outer_cost) = (std::mem::replace(&mut self.calls, true), std::mem::take(&mut self.cost));
        let inner = self.scope.len();
        self.block = inner;
        for _ in 0..self.dice.range(1, 2 + self.size / 2) {
            self.statement(2);
        }
        if let Some(ty) = &result {
            let value = self.expr(ty, 3);
            self.line(format!("return {value};"));
        }
        self.forget(inner);
        self.close("}");
        self.place = outer;
        self.calls = outer_calls;
        let cost = std::mem::replace(&mut self.cost, outer_cost);
        self.forget(mark);
        self.functions.push(Callable { name, result, params, cost, table: None });
    }

    /// Declares an action in the current control. It begins with the statements `first`.
    pub fn action(&mut self, first: &[String], table: Option<String>) {
        let mark = self.scope.len();
        let name = self.name("a");
        let count = [0, 0, 1, 2][self.dice.index(4)];
        let mut params = self.params(count, false);
        for _ in 0..self.dice.index(3) {
            let ty = loop {
                let ty = self.scalar();
                if !matches!(ty, Type::Error | Type::Enum(_)) {
                    break ty;
                }
            };
            let name = self.name("d");
            self.declare(&name, &ty, false);
            params.push(Param { dir: Dir::None, ty, name, default: false });
        }
        let list = self.param_list(&params);
        self.open(format!("action {name}({list}) {{"));
        let outer = std::mem::replace(&mut self.place, Place::Action);
        let outer_cost = std::mem::take(&mut self.cost);
        let inner = self.scope.len();
        self.block = inner;
        for line in first {
            self.line(line);
        }
        for _ in 0..self.dice.range(0, 2 + self.size / 3) {
            self.statement(1);
        }
        self.forget(inner);
        self.close("}");
        self.place = outer;
        let cost = std::mem::replace(&mut self.cost, outer_cost);
        self.forget(mark);
        self.actions.push(Callable { name, result: None, params, cost, table });
    }

    /// Generates parameters and adds them to the scope.
    pub fn params(&mut self, count: u32, defaults: bool) -> Vec<Param> {
        let mut params = Vec::new();
        for _ in 0..count {
            let ty = self.variable_type();
            let dir = *self.dice.pick(&[Dir::In, Dir::In, Dir::Out, Dir::InOut, Dir::InOut]);
            let name = self.name("p");
            let default = defaults
                && dir == Dir::In
                && self.dice.one_in(5)
                && matches!(ty, Type::Bit(_) | Type::Int(_) | Type::Bool);
            self.declare(&name, &ty, dir != Dir::In);
            params.push(Param { dir, ty, name, default });
        }
        params
    }

    /// The declaration of parameters.
    pub fn param_list(&mut self, params: &[Param]) -> String {
        let list: Vec<String> = params
            .iter()
            .map(|p| {
                let ty = self.ty(&p.ty);
                let dir = match p.dir {
                    Dir::None => "",
                    Dir::In => "in ",
                    Dir::Out => "out ",
                    Dir::InOut => "inout ",
                };
                let default = if p.default { format!(" = {}", self.literal(&p.ty)) } else { String::new() };
                format!("{dir}{ty} {}{default}", p.name)
            })
            .collect();
        list.join(", ")
    }

    /// Arguments for a call, sometimes named; `None` if nothing in scope fits an `out` parameter.
    pub fn arguments(&mut self, params: &[Param], depth: u32) -> Option<String> {
        self.some_arguments(params, false, true, depth)
    }

    /// Positional arguments; without action data if `directed`.
    pub fn positional(&mut self, params: &[Param], directed: bool, depth: u32) -> Option<String> {
        self.some_arguments(params, directed, false, depth)
    }

    fn some_arguments(&mut self, params: &[Param], directed: bool, by_name: bool, depth: u32) -> Option<String> {
        let fits = |p: &Param, g: &Gen| {
            !matches!(p.dir, Dir::Out | Dir::InOut) || g.scope.iter().any(|v| v.writable && v.ty == p.ty)
        };
        // A slice of a wider value is also a `bit` argument.
        let sliced = |p: &Param, g: &Gen| match p.ty {
            Type::Bit(w) => g.scope.iter().any(|v| v.writable && matches!(v.ty, Type::Bit(x) if x > w)),
            _ => false,
        };
        if params.iter().any(|p| !fits(p, self) && !sliced(p, self)) {
            return None;
        }
        let mut named = by_name && self.dice.one_in(4);
        let shuffled = named;
        if by_name && !named && self.rewrites() {
            named = true;
        }
        let mut list = Vec::new();
        for p in params {
            if directed && p.dir == Dir::None {
                continue;
            }
            if shuffled && p.default && self.dice.one_in(2) {
                continue;
            }
            let value = match p.dir {
                Dir::In | Dir::None => self.expr(&p.ty, depth),
                Dir::Out if !directed && self.dice.one_in(12) => "_".into(),
                Dir::Out | Dir::InOut => {
                    let plain = fits(p, self) && !(sliced(p, self) && self.dice.one_in(5));
                    if plain { self.lvalue(&p.ty)? } else { self.slice_lvalue(self.types.size(&p.ty))? }
                }
            };
            list.push(if named { format!("{} = {value}", p.name) } else { value });
        }
        if shuffled && self.dice.one_in(2) {
            self.dice.shuffle(&mut list);
        }
        Some(list.join(", "))
    }

    fn slice_lvalue(&mut self, width: u32) -> Option<String> {
        let wide: Vec<(usize, u32)> = (0..self.scope.len())
            .filter(|&i| self.scope[i].writable)
            .filter_map(|i| match self.scope[i].ty {
                Type::Bit(w) if w > width => Some((i, w)),
                _ => None,
            })
            .collect();
        if wide.is_empty() {
            return None;
        }
        let (i, w) = *self.dice.pick(&wide);
        let path = self.scope[i].path.clone();
        let low = self.dice.range(0, w - width);
        Some(format!("{}[{}:{low}]", self.with_index(path), low + width - 1))
    }

    /// A call of a function with a result of type `ty`.
    pub fn call_of_type(&mut self, ty: &Type, depth: u32) -> Option<String> {
        if !self.calls || self.only_constants {
            return None;
        }
        if self.dice.one_in(4) {
            return self.generic_call(ty, depth.min(1));
        }
        let fit: Vec<usize> = (0..self.functions.len())
            .filter(|&i| self.functions[i].result.as_ref() == Some(ty) && self.affords(self.functions[i].cost))
            .collect();
        if fit.is_empty() {
            return None;
        }
        let function = self.functions[*self.dice.pick(&fit)].clone();
        let args = self.arguments(&function.params, depth.min(1))?;
        self.cost += function.cost;
        Some(format!("{}({args})", function.name))
    }

    /// A call of one of the two generic functions of every program.
    fn generic_call(&mut self, ty: &Type, depth: u32) -> Option<String> {
        if !self.affords(8) || matches!(ty, Type::Varbit(_) | Type::Hidden) {
            return None;
        }
        self.cost += 8;
        let of = |g: &mut Gen, ty: &Type| if g.dice.one_in(2) { format!("<{}>", g.ty(ty)) } else { String::new() };
        if *ty == Type::Bool && self.dice.one_in(2) {
            let ty = self.scalar();
            let (a, b) = (self.lvalue(&ty)?, self.lvalue(&ty)?);
            return Some(format!("swap{}({a}, {b})", of(self, &ty)));
        }
        let args = of(self, ty);
        let (a, b, c) = (self.expr(ty, depth), self.expr(ty, depth), self.bool_expr(depth));
        Some(format!("pick{args}({a}, {b}, {c})"))
    }

    /// A call statement of a function, or of an action where that is allowed.
    pub fn call_statement(&mut self) -> bool {
        if !self.calls {
            return false;
        }
        let actions = matches!(self.place, Place::Action | Place::Apply);
        let mut all: Vec<Callable> = self.functions.clone();
        if actions {
            all.extend(self.actions.iter().filter(|a| a.table.is_none()).cloned());
        }
        all.retain(|f| self.affords(f.cost));
        if all.is_empty() {
            return false;
        }
        let callee = self.dice.pick(&all).clone();
        let Some(args) = self.arguments(&callee.params, 2) else { return false };
        self.cost += callee.cost;
        self.line(format!("{}({args});", callee.name));
        true
    }

    /// Adds a read-only name whose value is known only once the control is instantiated.
    pub fn declare_fixed(&mut self, name: &str, ty: &Type) {
        self.scope.push(Var { path: name.into(), ty: ty.clone(), writable: false, constant: false });
        self.fixed.push(name.into());
    }
}
