//! Expressions of type `bool`, and of types that are neither numbers nor `bool`.

use crate::generator::Gen;
use crate::types::Type;

impl Gen {
    /// A `bool` expression.
    pub fn bool_expr(&mut self, depth: u32) -> String {
        self.cost += 1;
        if depth == 0 {
            return self.simple_bool();
        }
        let d = depth - 1;
        match self.dice.index(14) {
            0 | 1 => self.simple_bool(),
            2..=4 => self.comparison(d),
            5 | 6 => {
                let (a, b) = (self.bool_expr(d), self.bool_expr(d));
                if self.rewrites() { format!("({a} ? {b} : false)") } else { format!("({a} && {b})") }
            }
            7 | 8 => {
                let (a, b) = (self.bool_expr(d), self.bool_expr(d));
                if self.rewrites() { format!("({a} ? true : {b})") } else { format!("({a} || {b})") }
            }
            9 => {
                let a = self.bool_expr(d);
                if self.rewrites() { format!("({a} ? false : true)") } else { format!("(!{a})") }
            }
            10 => {
                let a = self.expr(&Type::Bit(1), d);
                if self.rewrites() { format!("({a} == 1)") } else { format!("((bool){a})") }
            }
            11 => self.whole_comparison(d),
            12 => self.table_hit().unwrap_or_else(|| self.comparison(d)),
            _ => match self.call_of_type(&Type::Bool, d) {
                Some(call) => call,
                None => self.comparison(d),
            },
        }
    }

    fn simple_bool(&mut self) -> String {
        if !self.only_constants && self.dice.one_in(2) {
            let headers: Vec<usize> = (0..self.scope.len())
                .filter(|&i| matches!(self.scope[i].ty, Type::Header(_) | Type::Union(_)))
                .collect();
            if !headers.is_empty() {
                let path = self.scope[*self.dice.pick(&headers)].path.clone();
                return format!("{}.isValid()", self.with_index(path));
            }
        }
        match self.read(&Type::Bool) {
            Some(path) if !self.dice.one_in(3) => path,
            _ if self.dice.one_in(6) => self.literal(&Type::Bool),
            _ => self.comparison(0),
        }
    }

    fn comparison(&mut self, depth: u32) -> String {
        let ty = self.scalar();
        let ops: &[&str] = match ty {
            Type::Bit(_) | Type::Int(_) => &["==", "!=", "<", "<=", ">", ">="],
            _ => &["==", "!="],
        };
        let op = *self.dice.pick(ops);
        // A small number on one side: comparisons of wide random values would nearly always have the same result.
        let (a, b) = (self.expr(&ty, depth), self.expr(&ty, depth.min(1)));
        if self.rewrites() { opposite(op, &a, &b) } else { format!("({a} {op} {b})") }
    }

    /// `==` and `!=` on structs, headers, tuples, stacks and unions.
    fn whole_comparison(&mut self, depth: u32) -> String {
        let whole: Vec<Type> = self
            .scope
            .iter()
            .filter(|v| {
                matches!(v.ty, Type::Struct(_) | Type::Header(_) | Type::Tuple(_) | Type::Stack(..) | Type::Union(_))
            })
            .filter(|v| v.constant || !self.only_constants)
            .map(|v| v.ty.clone())
            .collect();
        if whole.is_empty() {
            return self.comparison(depth);
        }
        let ty = self.dice.pick(&whole).clone();
        let op = *self.dice.pick(&["==", "!="]);
        let (a, b) = (self.expr(&ty, depth), self.expr(&ty, depth));
        if !self.rewrites() {
            return format!("({a} {op} {b})");
        }
        // Field by field, where reading twice makes no difference.
        let fields = self.types.fields(&ty).to_vec();
        let plain = |text: &str| !text.contains(['(', '{']);
        if matches!(ty, Type::Struct(_)) && plain(&a) && plain(&b) && !fields.is_empty() {
            let all: Vec<String> = fields.iter().map(|(f, _)| format!("({a}.{f} == {b}.{f})")).collect();
            return format!("({}({}))", if op == "==" { "" } else { "!" }, all.join(" && "));
        }
        opposite(op, &a, &b)
    }

    /// Expressions of enum, error, `type`, struct, header, tuple, stack and union types.
    pub fn other_expr(&mut self, ty: &Type, depth: u32) -> String {
        let wants_literal = self.dice.one_in(3) && self.types.has_literals(ty);
        match (ty, depth) {
            (Type::New(i), 1..) if self.dice.one_in(3) => {
                let (name, width) = self.types.news[*i].clone();
                return format!("(({name}){})", self.expr(&Type::Bit(width), depth - 1));
            }
            (Type::SerEnum(i), 1..) if self.dice.one_in(3) => {
                let name = self.types.enums[*i].name.clone();
                let (width, signed) = self.types.enums[*i].repr.unwrap_or((8, false));
                let ty = if signed { Type::Int(width) } else { Type::Bit(width) };
                return format!("(({name}){})", self.expr(&ty, depth - 1));
            }
            _ => {}
        }
        if !wants_literal && let Some(path) = self.read(ty) {
            return path;
        }
        match ty {
            Type::Struct(_) | Type::Header(_) | Type::Tuple(_) | Type::Stack(..) | Type::Union(_) => {
                self.compound(ty, depth)
            }
            _ => self.literal(ty),
        }
    }

    /// An expression or list of a structured type.
    pub fn compound(&mut self, ty: &Type, depth: u32) -> String {
        let d = depth.saturating_sub(1);
        let name = self.ty(ty);
        match ty {
            Type::Header(_) | Type::Union(_) if !self.types.has_literals(ty) || self.dice.one_in(5) => {
                format!("({name}){{#}}")
            }
            Type::Struct(_) | Type::Header(_) => {
                let fields = self.types.fields(ty).to_vec();
                let named = self.dice.one_in(2) || fields.is_empty();
                let shuffled = named && self.dice.one_in(3);
                let named = if named && !shuffled && !fields.is_empty() && self.rewrites() { false } else { named };
                let mut values: Vec<String> = fields
                    .iter()
                    .map(|(field, t)| {
                        let value = self.expr(t, d);
                        if named { format!("{field} = {value}") } else { value }
                    })
                    .collect();
                if shuffled {
                    self.dice.shuffle(&mut values);
                }
                if fields.is_empty() {
                    return format!("({name}){{}}");
                }
                format!("({name}){{ {} }}", values.join(", "))
            }
            Type::Tuple(list) => {
                let values: Vec<String> = list.clone().iter().map(|t| self.expr(t, d)).collect();
                format!("({name}){{ {} }}", values.join(", "))
            }
            Type::Stack(element, n) => {
                let values: Vec<String> = (0..*n).map(|_| self.expr(element, d)).collect();
                format!("({name}){{ {} }}", values.join(", "))
            }
            _ => self.literal(ty),
        }
    }
}

/// A comparison, written with the opposite operator.
fn opposite(op: &str, a: &str, b: &str) -> String {
    let other = match op {
        "==" => "!=",
        "!=" => "==",
        "<" => ">=",
        "<=" => ">",
        ">" => "<=",
        _ => "<",
    };
    format!("(!({a} {other} {b}))")
}
