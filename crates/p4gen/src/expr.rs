//! Expressions of every type: values, operators at every width, reads of names in scope, calls.
//!
//! Every compound expression is in parentheses, so that a reducer can remove operands. Function arguments may modify
//! variables used elsewhere in the same expression, which makes the order of evaluation observable.

use crate::generator::Gen;
use crate::types::Type;

/// The maximum width of intermediate values.
const WIDTH_MAX: u32 = 400;

impl Gen {
    /// An expression of type `ty`. `depth` bounds its nesting.
    pub fn expr(&mut self, ty: &Type, depth: u32) -> String {
        self.cost += 1;
        if depth > 0
            && self.dice.one_in(9)
            && let Some(call) = self.call_of_type(ty, depth - 1)
        {
            return call;
        }
        if depth > 0
            && self.dice.one_in(10)
            && self.types.has_literals(ty)
            && !matches!(ty, Type::Header(_) | Type::Struct(_) | Type::Tuple(_))
        {
            let cond = self.bool_expr(depth - 1);
            let (a, b) = (self.expr(ty, depth - 1), self.expr(ty, depth - 1));
            if self.rewrites() {
                return format!("((!{cond}) ? {b} : {a})");
            }
            return format!("({cond} ? {a} : {b})");
        }
        match ty {
            Type::Bool => self.bool_expr(depth),
            Type::Bit(w) => self.bit_expr(*w, depth),
            Type::Int(w) => self.int_expr(*w, depth),
            _ => self.other_expr(ty, depth),
        }
    }

    /// A literal or constant of type `ty`.
    pub fn literal(&mut self, ty: &Type) -> String {
        match ty {
            Type::Bool => ["false", "true"][self.dice.index(2)].into(),
            Type::Bit(w) => self.bit_literal(*w),
            Type::Int(w) => self.int_literal(*w),
            Type::New(i) => {
                let (name, width) = self.types.news[*i].clone();
                format!("({name}){}", self.bit_literal(width))
            }
            Type::Enum(i) | Type::SerEnum(i) => {
                let decl = &self.types.enums[*i];
                format!("{}.{}", decl.name, self.dice.pick(&decl.members))
            }
            Type::Error => format!("error.{}", self.dice.pick(&self.types.errors)),
            Type::Struct(_)
            | Type::Header(_)
            | Type::Tuple(_)
            | Type::Stack(..)
            | Type::Union(_)
            | Type::Varbit(_)
            | Type::Hidden => self.compound(ty, 0),
        }
    }

    /// Random hexadecimal digits of at most `width` bits; boundary values are more frequent.
    pub fn digits(&mut self, width: u32) -> String {
        match self.dice.index(8) {
            0 => return "0".into(),
            1 => return "1".into(),
            2 | 3 => return self.dice.index(1 << width.min(4)).to_string(),
            4 => return self.hex(width, |_| true),
            5 => return self.hex(width, |i| i == width - 1),
            6 => return self.hex(width, |i| i != width - 1),
            _ => {}
        }
        let bits: Vec<bool> = (0..width).map(|_| self.dice.one_in(2)).collect();
        self.hex(width, |i| bits[i as usize])
    }

    /// The hexadecimal digits of a value given by its bits; bit 0 is the lowest.
    pub fn hex(&self, width: u32, bit: impl Fn(u32) -> bool) -> String {
        let mut text = String::from("0x");
        for nibble in (0..width.div_ceil(4)).rev() {
            let digit = (0..4).filter(|i| nibble * 4 + i < width && bit(nibble * 4 + i)).fold(0u32, |d, i| d | 1 << i);
            text.push(char::from_digit(digit, 16).unwrap_or('0'));
        }
        text
    }

    /// A literal of type `bit<W>`.
    pub fn bit_literal(&mut self, width: u32) -> String {
        format!("{width}w{}", self.digits(width))
    }

    fn int_literal(&mut self, width: u32) -> String {
        match self.dice.index(4) {
            0 if width > 1 => format!("(-{width}s{})", self.digits(width - 1)),
            1 if width > 1 => format!("{width}s{}", self.digits(width - 1)),
            2 if width > 1 => format!("((int<{width}>){})", self.digits(width - 1)),
            _ => format!("((int<{width}>){})", self.bit_literal(width)),
        }
    }

    /// A read of a variable of type `ty`.
    pub fn read(&mut self, ty: &Type) -> Option<String> {
        let known = self.only_constants;
        let fit: Vec<usize> =
            (0..self.scope.len()).filter(|&i| self.scope[i].ty == *ty && (self.scope[i].constant || !known)).collect();
        if fit.is_empty() {
            return None;
        }
        let path = self.scope[*self.dice.pick(&fit)].path.clone();
        Some(self.with_index(path))
    }

    /// An assignable variable of type `ty`.
    pub fn lvalue(&mut self, ty: &Type) -> Option<String> {
        let fit: Vec<usize> =
            (0..self.scope.len()).filter(|&i| self.scope[i].writable && self.scope[i].ty == *ty).collect();
        if fit.is_empty() {
            return None;
        }
        let path = self.scope[*self.dice.pick(&fit)].path.clone();
        Some(self.with_index(path))
    }

    /// Chooses the stack index where a path leaves it open.
    pub fn with_index(&mut self, path: String) -> String {
        if !path.contains('@') {
            return path;
        }
        let width = *self.dice.pick(&[1, 2, 2, 3, 8, 32]);
        let index = self.varying(width);
        let index = if self.dice.one_in(2) { index } else { format!("({index} & {})", (1 << width.min(2)) - 1) };
        path.replacen('@', &index, 1)
    }

    /// An index expression whose value is not known at compile time, when it would have to be in range.
    pub fn varying(&mut self, width: u32) -> String {
        let fit: Vec<usize> = (0..self.scope.len())
            .filter(|&i| {
                let v = &self.scope[i];
                !v.constant && !v.path.contains('@') && matches!(v.ty, Type::Bit(_)) && !self.fixed.contains(&v.path)
            })
            .collect();
        if fit.is_empty() {
            return "0".into();
        }
        let var = &self.scope[*self.dice.pick(&fit)];
        let read = if var.ty == Type::Bit(width) { var.path.clone() } else { format!("((bit<{width}>){})", var.path) };
        if self.dice.one_in(2) {
            return read;
        }
        let op = *self.dice.pick(&["+", "^", "|", "-"]);
        format!("({} {op} {read})", self.expr(&Type::Bit(width), 1))
    }

    fn leaf(&mut self, ty: &Type) -> String {
        if self.dice.one_in(4) {
            return self.literal(ty);
        }
        if let Some(path) = self.read(ty) {
            return path;
        }
        // A variable of a type that can be cast.
        let target = match ty {
            Type::Bit(w) => Some(*w),
            _ => None,
        };
        if let Some(width) = target {
            let known = self.only_constants;
            let fit: Vec<usize> = (0..self.scope.len())
                .filter(|&i| matches!(self.scope[i].ty, Type::Bit(_)) && (self.scope[i].constant || !known))
                .collect();
            if !fit.is_empty() {
                let path = self.scope[*self.dice.pick(&fit)].path.clone();
                let path = self.with_index(path);
                return format!("((bit<{width}>){path})");
            }
        }
        self.literal(ty)
    }

    fn bit_expr(&mut self, width: u32, depth: u32) -> String {
        let ty = Type::Bit(width);
        if depth == 0 {
            return self.leaf(&ty);
        }
        let d = depth - 1;
        match self.dice.index(24) {
            0..=3 => self.leaf(&ty),
            4..=10 => self.arithmetic(&ty, d),
            11 | 12 => self.shift(&ty, d),
            13 | 14 => self.slice(width, d),
            15 => self.concat(width, false, d),
            16 | 17 => self.cast_to_bit(width, d),
            18 => format!("(~{})", self.expr(&ty, d)),
            19 => {
                let a = self.expr(&ty, d);
                if self.rewrites() { format!("({width}w0 - {a})") } else { format!("(-{a})") }
            }
            20 => {
                let op = *self.dice.pick(&["/", "%"]);
                let divisor = loop {
                    let digits = self.digits(width);
                    if digits.trim_start_matches("0x").chars().any(|c| c != '0') {
                        break digits;
                    }
                };
                let divisor =
                    if self.only_constants { None } else { self.read_variable(&ty).filter(|_| self.dice.one_in(2)) }
                        .unwrap_or(format!("{width}w{divisor}"));
                format!("({} {op} {divisor})", self.expr(&ty, d))
            }
            21 => {
                // A number without a width takes the width of the other operand.
                let number = self.digits(width);
                format!("({} + {number})", self.expr(&ty, d))
            }
            22 if self.dice.one_in(3) => {
                let header = self.dice.index(self.types.headers.len().max(1));
                match self.types.headers.get(header) {
                    Some(h) if self.types.varbit(header).is_none() && !self.only_constants => {
                        let what = ["minSizeInBits", "minSizeInBytes"][self.dice.index(2)];
                        let name = h.name.clone();
                        match self.scope.iter().find(|v| v.ty == Type::Header(header) && !v.path.contains('@')) {
                            Some(v) => format!("((bit<{width}>){}.{what}())", v.path),
                            None => format!("((bit<{width}>){name}.{what}())"),
                        }
                    }
                    _ => self.int_constant(width),
                }
            }
            22 => self.int_constant(width),
            _ => self.packet_value(width).unwrap_or_else(|| self.leaf(&ty)),
        }
    }

    /// A variable, not a constant: for divisors, which must not be known to be 0.
    fn read_variable(&mut self, ty: &Type) -> Option<String> {
        let fit: Vec<usize> = (0..self.scope.len())
            .filter(|&i| {
                self.scope[i].ty == *ty && !self.scope[i].constant && !self.fixed.contains(&self.scope[i].path)
            })
            .collect();
        if fit.is_empty() {
            return None;
        }
        let path = self.scope[*self.dice.pick(&fit)].path.clone();
        Some(self.with_index(path))
    }

    fn int_expr(&mut self, width: u32, depth: u32) -> String {
        let ty = Type::Int(width);
        if depth == 0 {
            return self.leaf(&ty);
        }
        let d = depth - 1;
        match self.dice.index(16) {
            0 | 1 => self.leaf(&ty),
            2..=7 => self.arithmetic(&ty, d),
            8 | 9 => self.shift(&ty, d),
            10 | 11 => format!("((int<{width}>){})", self.expr(&Type::Bit(width), d)),
            12 => {
                let from = self.types.width(&mut self.dice);
                format!("((int<{width}>){})", self.expr(&Type::Int(from), d))
            }
            13 => self.concat(width, true, d),
            14 => format!("(~{})", self.expr(&ty, d)),
            _ => format!("(-{})", self.expr(&ty, d)),
        }
    }

    fn arithmetic(&mut self, ty: &Type, depth: u32) -> String {
        let op = *self.dice.pick(&["+", "-", "*", "&", "|", "^", "|+|", "|-|", "+", "-", "&"]);
        let (a, b) = (self.expr(ty, depth), self.expr(ty, depth));
        match op {
            "+" | "-" | "&" | "|" if !self.rewrites() => {}
            "+" => return format!("({a} - (-{b}))"),
            "-" => return format!("({a} + (-{b}))"),
            "&" => return format!("(~((~{a}) | (~{b})))"),
            "|" => return format!("(~((~{a}) & (~{b})))"),
            _ => {}
        }
        format!("({a} {op} {b})")
    }

    fn shift(&mut self, ty: &Type, depth: u32) -> String {
        let op = *self.dice.pick(&["<<", ">>"]);
        let value = self.expr(ty, depth);
        let width = self.types.size(ty);
        let amount = match self.dice.index(6) {
            0 => self.dice.range(0, width + 2).to_string(),
            1 => (*self.dice.pick(&[1, 31, 32, 63, 64, 127, 128, 300, 100_000])).to_string(),
            2 => {
                let w = self.types.width(&mut self.dice);
                self.expr(&Type::Bit(w), depth)
            }
            _ => {
                let w = *self.dice.pick(&[2, 3, 4, 5, 6, 7, 8]);
                self.expr(&Type::Bit(w), depth)
            }
        };
        format!("({value} {op} {amount})")
    }

    fn slice(&mut self, width: u32, depth: u32) -> String {
        let above = self.dice.range(0, 9);
        let low = *self.dice.pick(&[0, 0, 1, 3, 7, 8, 13, 32, 64]);
        let from = (width + above + low).min(WIDTH_MAX);
        let low = from - width - above.min(from - width);
        // A variable that is wide enough, if there is one.
        let known = self.only_constants;
        let wide: Vec<(usize, u32)> = (0..self.scope.len())
            .filter(|&i| self.scope[i].constant || !known)
            .filter_map(|i| match self.scope[i].ty {
                Type::Bit(w) | Type::Int(w) if w >= width => Some((i, w)),
                _ => None,
            })
            .collect();
        let (base, from, low, signed) = if !wide.is_empty() && self.dice.index(3) != 0 {
            let (i, w) = *self.dice.pick(&wide);
            let path = self.scope[i].path.clone();
            let low = self.dice.range(0, w - width);
            let signed = matches!(self.scope[i].ty, Type::Int(_));
            (self.with_index(path), w, low, signed)
        } else {
            let ty = if self.dice.one_in(4) { Type::Int(from) } else { Type::Bit(from) };
            (self.expr(&ty, depth), from, low, matches!(ty, Type::Int(_)))
        };
        debug_assert!(low + width <= from);
        match self.dice.index(4) {
            0 => format!("{base}[{low}+:{width}]"),
            1 if !self.only_constants && self.dice.one_in(3) => {
                let index = self.varying(8);
                if !signed && self.rewrites() {
                    return format!("((bit<{width}>)({base} >> {index}))");
                }
                format!("{base}[{index}+:{width}]")
            }
            _ if !signed && self.rewrites() => format!("((bit<{width}>)({base} >> {low}))"),
            _ => format!("{base}[{}:{low}]", low + width - 1),
        }
    }

    fn concat(&mut self, width: u32, signed: bool, depth: u32) -> String {
        if width < 2 {
            return self.leaf(&if signed { Type::Int(width) } else { Type::Bit(width) });
        }
        let left = self.dice.range(1, width - 1);
        let right_width = width - left;
        let a = if signed { Type::Int(left) } else { Type::Bit(left) };
        let b = if self.dice.one_in(4) { Type::Int(width - left) } else { Type::Bit(width - left) };
        let plain = !signed && matches!(b, Type::Bit(_));
        let (a, b) = (self.expr(&a, depth), self.expr(&b, depth));
        if plain && self.rewrites() {
            return format!("((((bit<{width}>){a}) << {right_width}) | ((bit<{width}>){b}))");
        }
        format!("({a} ++ {b})")
    }

    fn cast_to_bit(&mut self, width: u32, depth: u32) -> String {
        let from = match self.dice.index(8) {
            0 => Type::Int(width),
            1 if width == 1 => Type::Bool,
            2 | 3 => {
                let same = |t: &Type| match t {
                    Type::New(i) => self.types.news[*i].1 == width,
                    Type::SerEnum(i) => self.types.enums[*i].repr == Some((width, false)),
                    _ => false,
                };
                let news = (0..self.types.news.len()).map(Type::New);
                let all: Vec<Type> =
                    news.chain((0..self.types.enums.len()).map(Type::SerEnum)).filter(|t| same(t)).collect();
                if all.is_empty() { Type::Int(width) } else { self.dice.pick(&all).clone() }
            }
            _ => Type::Bit(self.types.width(&mut self.dice)),
        };
        let value = self.expr(&from, depth);
        match from {
            Type::Bit(w) if w > width && self.rewrites() => format!("{value}[{}:0]", width - 1),
            _ => format!("((bit<{width}>){value})"),
        }
    }

    /// An arithmetic expression of numbers without a width.
    fn int_constant(&mut self, width: u32) -> String {
        let mut text = self.dice.index(1000).to_string();
        for _ in 0..self.dice.index(3) {
            let n = 1 + self.dice.index(40);
            let op = *self.dice.pick(&["+", "*", "<<", "-"]);
            text = format!("({text} {op} {n})");
        }
        format!("((bit<{width}>){text})")
    }

    /// A value that only parsers can read, or a size.
    fn packet_value(&mut self, width: u32) -> Option<String> {
        if self.only_constants {
            return None;
        }
        let text = match self.place.is_parser() {
            true if self.calls => match self.dice.index(3) {
                0 if width <= 200 => return Some(format!("pkt.lookahead<bit<{width}>>()")),
                1 => "pkt.length()".to_string(),
                _ => {
                    let stacks: Vec<String> = self.stacks().into_iter().map(|(p, _, _)| p).collect();
                    if stacks.is_empty() {
                        return None;
                    }
                    format!("{}.lastIndex", self.dice.pick(&stacks))
                }
            },
            _ => {
                let stacks: Vec<String> = self.stacks().into_iter().map(|(p, _, _)| p).collect();
                if stacks.is_empty() {
                    return None;
                }
                format!("{}.size", self.dice.pick(&stacks))
            }
        };
        Some(if width == 32 { text } else { format!("((bit<{width}>){text})") })
    }
}
