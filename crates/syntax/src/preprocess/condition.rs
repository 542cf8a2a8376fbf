//! The expressions of `#if` and `#elif`: C's integer constant expressions on 64 bits, with `defined`.
//!
//! Names that are not macros are 0, as in C. `&&`, `||` and `?:` short-circuit, so that `defined(X) && 1 / X` is not an
//! error.

use super::*;

/// Maximum nesting of parentheses and prefix operators.
const DEPTH_MAX: usize = 128;

impl Preprocessor<'_> {
    /// Evaluates a condition; errors are reported and count as false.
    pub(super) fn evaluate(&mut self, span: Span, args: &[Token]) -> bool {
        let replaced = self.replace_defined(args);
        let tokens = self.expand_all(&replaced);
        if self.stopped {
            return false;
        }
        let mut parser = Evaluator { tokens: &tokens, pos: 0, span, depth: 0 };
        let value = parser.ternary(true).and_then(|value| match parser.peek() {
            None => Ok(value),
            Some(extra) => Err((extra.span, format!("unexpected `{}` in the condition", extra.spelling()))),
        });
        match value {
            Ok(value) => value != 0,
            Err((span, message)) => {
                self.error(codes::BAD_CONDITION, span, message);
                false
            }
        }
    }

    /// Replaces `defined X` and `defined(X)` before macros are expanded.
    fn replace_defined(&self, args: &[Token]) -> Vec<Token> {
        let mut out = Vec::with_capacity(args.len());
        let mut pos = 0;
        while let Some(token) = args.get(pos) {
            let (name, used) = match (token.text(), args.get(pos + 1..).unwrap_or_default()) {
                ("defined", [open, name, close, ..])
                    if open.kind == TokenKind::LParen && close.kind == TokenKind::RParen && name.kind.is_word() =>
                {
                    (name, 4)
                }
                ("defined", [name, ..]) if name.kind.is_word() => (name, 2),
                _ => {
                    out.push(token.clone());
                    pos += 1;
                    continue;
                }
            };
            let value = if self.is_defined(name.text()) { "1" } else { "0" };
            out.push(Token { kind: TokenKind::Int, text: Some(value.into()), ..token.clone() });
            pos += used;
        }
        out
    }
}

type Value = Result<i64, (Span, String)>;

struct Evaluator<'t> {
    tokens: &'t [Token],
    pos: usize,
    span: Span,
    depth: usize,
}

impl<'t> Evaluator<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.pos)
    }

    fn eat(&mut self, kind: TokenKind) -> bool {
        let found = self.peek().is_some_and(|t| t.kind == kind);
        self.pos += usize::from(found);
        found
    }

    /// The next binary operator: `(symbol, precedence, number of tokens)`.
    fn operator(&self) -> Option<(&'static str, u8, usize)> {
        use TokenKind::*;
        let kind = self.peek()?.kind;
        let next = self.tokens.get(self.pos + 1);
        Some(match kind {
            Star => ("*", 10, 1),
            Slash => ("/", 10, 1),
            Percent => ("%", 10, 1),
            Plus => ("+", 9, 1),
            Minus => ("-", 9, 1),
            Shl => ("<<", 8, 1),
            Gt if next.is_some_and(|t| t.kind == Gt && !t.space_before) => (">>", 8, 2),
            Lt => ("<", 7, 1),
            Gt => (">", 7, 1),
            LtEq => ("<=", 7, 1),
            GtEq => (">=", 7, 1),
            EqEq => ("==", 6, 1),
            NotEq => ("!=", 6, 1),
            And => ("&", 5, 1),
            Caret => ("^", 4, 1),
            Or => ("|", 3, 1),
            AndAnd => ("&&", 2, 1),
            OrOr => ("||", 1, 1),
            _ => return None,
        })
    }

    /// Evaluates `?:` and everything below; `live` is false where C does not evaluate the operand.
    fn ternary(&mut self, live: bool) -> Value {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err((self.span, format!("condition is nested more than {DEPTH_MAX} deep")));
        }
        let cond = self.binary(1, live)?;
        let value = if self.eat(TokenKind::Question) {
            let then = self.ternary(live && cond != 0)?;
            if !self.eat(TokenKind::Colon) {
                return Err((self.span, "expected `:` in the condition".into()));
            }
            let otherwise = self.ternary(live && cond == 0)?;
            if cond != 0 { then } else { otherwise }
        } else {
            cond
        };
        self.depth -= 1;
        Ok(value)
    }

    fn binary(&mut self, weakest: u8, live: bool) -> Value {
        let mut left = self.unary(live)?;
        while let Some((op, strength, used)) = self.operator().filter(|o| o.1 >= weakest) {
            let span = self.peek().map_or(self.span, |t| t.span);
            self.pos += used;
            let live_right = match op {
                "&&" => live && left != 0,
                "||" => live && left == 0,
                _ => live,
            };
            let right = self.binary(strength + 1, live_right)?;
            let shift = right.clamp(0, 63) as u32;
            left = match op {
                "*" => left.wrapping_mul(right),
                "/" | "%" if right == 0 => {
                    if live {
                        return Err((span, "division by zero in the condition".into()));
                    }
                    0
                }
                "/" => left.wrapping_div(right),
                "%" => left.wrapping_rem(right),
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                "<<" => left.wrapping_shl(shift),
                ">>" => left.wrapping_shr(shift),
                "<" => (left < right).into(),
                ">" => (left > right).into(),
                "<=" => (left <= right).into(),
                ">=" => (left >= right).into(),
                "==" => (left == right).into(),
                "!=" => (left != right).into(),
                "&" => left & right,
                "^" => left ^ right,
                "|" => left | right,
                "&&" => (left != 0 && right != 0).into(),
                _ => (left != 0 || right != 0).into(),
            };
        }
        Ok(left)
    }

    fn unary(&mut self, live: bool) -> Value {
        let Some(token) = self.peek() else {
            return Err((self.span, "the condition is incomplete".into()));
        };
        self.pos += 1;
        use TokenKind::*;
        match token.kind {
            Not | Minus | Plus | Tilde => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err((self.span, format!("condition is nested more than {DEPTH_MAX} deep")));
                }
                let value = self.unary(live)?;
                self.depth -= 1;
                Ok(match token.kind {
                    Not => (value == 0).into(),
                    Minus => value.wrapping_neg(),
                    Plus => value,
                    _ => !value,
                })
            }
            LParen => {
                let value = self.ternary(live)?;
                if self.eat(RParen) {
                    Ok(value)
                } else {
                    Err((token.span, "`(` in the condition is not closed".into()))
                }
            }
            Int => integer(token.text())
                .ok_or_else(|| (token.span, format!("`{}` is not an integer of 64 bits", token.text()))),
            True => Ok(1),
            kind if kind.is_word() => {
                if self.peek().is_some_and(|t| t.kind == LParen && !t.space_before) {
                    return Err((token.span, format!("`{}` is not a macro with arguments", token.text())));
                }
                Ok(0)
            }
            _ => Err((token.span, format!("unexpected `{}` in the condition", token.spelling()))),
        }
    }
}

/// A C integer: hexadecimal, octal, binary or decimal, with suffix letters; also P4's `0o`.
fn integer(text: &str) -> Option<i64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(['u', 'l']);
    let value = if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if let Some(octal) = digits.strip_prefix("0o") {
        u64::from_str_radix(octal, 8)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(&digits[1..], 8)
    } else {
        digits.parse::<u64>()
    };
    value.ok().map(|v| v as i64)
}
