//! Values of whole conditions, for programs from source: the interpreter reports the operands of `&&` and `||` one by
//! one, as far as they are evaluated, while bmv2 logs the condition of an `if` once its value is known.
//!
//! The condition is found in the source text around an operand. Its operators and parentheses are parsed again;
//! operands that were not evaluated have no value, and none is needed (short-circuit evaluation).
//!
//! Tests: below.

use base::{SourceMap, Span};

/// The condition of an `if`, some of whose operands have been evaluated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whole {
    /// The whole condition, without its parentheses.
    pub span: Span,
    parts: Vec<(Span, bool)>,
}

impl Whole {
    /// Returns the condition that an operand belongs to; `None` outside an `if`.
    pub fn around(sources: &SourceMap, part: Span) -> Option<Whole> {
        let text = &sources.get(part.file)?.text;
        let bytes = text.as_bytes();
        let mut depth = 0usize;
        let mut at = part.start as usize;
        let open = loop {
            at = at.checked_sub(1)?;
            match *bytes.get(at)? {
                b')' => depth += 1,
                b'(' if depth > 0 => depth -= 1,
                b'(' if ends_with_if(text.get(..at)?) => break at,
                b';' | b'{' | b'}' => return None,
                _ => {}
            }
        };
        let (mut depth, mut end) = (0usize, open);
        loop {
            match *bytes.get(end)? {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            end += 1;
        }
        let span = Span::new(part.file, open as u32 + 1, end as u32);
        (part.end <= span.end).then(|| Whole { span, parts: Vec::new() })
    }

    /// Adds the value of an operand; returns the value of the condition once it is known.
    pub fn take(&mut self, sources: &SourceMap, part: Span, value: bool) -> Option<bool> {
        self.parts.push((part, value));
        let text = &sources.get(self.span.file)?.text;
        let mut reader = Reader {
            text: text.get(..self.span.end as usize)?.as_bytes(),
            at: self.span.start as usize,
            parts: &self.parts,
        };
        let value = reader.any()?;
        reader.space();
        (reader.at == reader.text.len()).then_some(value).flatten()
    }
}

fn ends_with_if(text: &str) -> bool {
    let before = text.trim_end().strip_suffix("if");
    before.is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    parts: &'a [(Span, bool)],
}

/// A value: the outer `None` is a parse error, the inner one an operand that was not evaluated.
type Value = Option<Option<bool>>;

impl Reader<'_> {
    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn takes(&mut self, word: &[u8]) -> bool {
        self.space();
        let there = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word));
        self.at += if there { word.len() } else { 0 };
        there
    }

    fn any(&mut self) -> Value {
        let mut value = self.all()?;
        while self.takes(b"||") {
            value = match (value, self.all()?) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            };
        }
        Some(value)
    }

    fn all(&mut self) -> Value {
        let mut value = self.one()?;
        while self.takes(b"&&") {
            value = match (value, self.one()?) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            };
        }
        Some(value)
    }

    fn one(&mut self) -> Value {
        self.space();
        let found = self.parts.iter().rev().find(|(part, _)| part.start as usize == self.at);
        if let Some((part, value)) = found {
            self.at = part.end as usize;
            return Some(Some(*value));
        }
        let begin = self.at;
        if self.text.get(self.at) == Some(&b'!') {
            self.at += 1;
            return Some(self.one()?.map(|value| !value));
        }
        if self.takes(b"(") {
            let inner = self.any();
            // After parentheses of an arithmetic operand another operator follows.
            if let Some(value) = inner
                && self.takes(b")")
                && self.ends()
            {
                return Some(value);
            }
            self.at = begin;
        }
        self.skip()
    }

    /// Whether an operand ends here.
    fn ends(&mut self) -> bool {
        self.space();
        let rest = self.text.get(self.at..).unwrap_or_default();
        rest.is_empty() || [&b"&&"[..], b"||", b")"].iter().any(|after| rest.starts_with(after))
    }

    /// Skips an operand that has no value.
    fn skip(&mut self) -> Value {
        let mut depth = 0usize;
        let begin = self.at;
        while self.at < self.text.len() {
            if depth == 0 && self.ends() {
                break;
            }
            match self.text.get(self.at)? {
                b'(' => depth += 1,
                b')' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            self.at += 1;
        }
        (self.at > begin).then_some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates the operands in this order. Returns the condition's text and value, and after how many operands it was
    /// known.
    fn value(text: &str, parts: &[(&str, bool)]) -> Option<(String, bool, usize)> {
        let mut sources = SourceMap::new();
        let file = sources.add("x.p4", text);
        let mut whole: Option<Whole> = None;
        for (count, (part, value)) in (1..).zip(parts) {
            let start = text.find(part).expect("it is there") as u32;
            let span = Span::new(file, start, start + part.len() as u32);
            let mut now = whole.take().or_else(|| Whole::around(&sources, span))?;
            if let Some(value) = now.take(&sources, span, *value) {
                return Some((sources.text(now.span)?.to_string(), value, count));
            }
            whole = Some(now);
        }
        None
    }

    #[test]
    fn conditions_have_the_value_of_what_was_evaluated() {
        let told = |text: &str, parts: &[(&str, bool)], expected: bool| {
            let (_, value, count) = value(text, parts).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((value, count), (expected, parts.len()), "{text}");
        };
        told("if (a == 1) { }", &[("a == 1", true)], true);
        told("x = 1; if (a && b) { }", &[("a", false)], false);
        told("if (a && b) { }", &[("a", true), ("b", true)], true);
        told("if (a || b && c) { }", &[("a", false), ("b", true), ("c", false)], false);
        told("if (a || b && c) { }", &[("a", true)], true);
        told("if (!(p || q) && r) { }", &[("p", true)], false);
        told("if (!(p || q) && r) { }", &[("p", false), ("q", false), ("r", true)], true);
        told("if ((x + 1) * 2 == 4 && y) { }", &[("(x + 1) * 2 == 4", true), ("y", false)], false);
        told("if (y || (x + 1) * 2 == 4) { }", &[("y", true)], true);
        told("if (!h.isValid()) { }", &[("h.isValid()", true)], false);
        told("if (!h.isValid()) { }", &[("!h.isValid()", true)], true);
        told("if (t.apply().hit && f(1, (2))) { }", &[("t.apply().hit", false)], false);
    }

    #[test]
    fn the_text_is_what_is_in_the_parentheses() {
        let (text, ..) = value("else if  (a &&\n  (b)) { if (c) {} }", &[("a", false)]).unwrap();
        assert_eq!(text, "a &&\n  (b)");
        let (text, ..) = value("if (a) { if (c) {} }", &[("c", true)]).unwrap();
        assert_eq!(text, "c");
    }

    #[test]
    fn what_is_no_condition_of_an_if_has_none() {
        assert_eq!(value("x = (a ? 1 : 2);", &[("a", true)]), None);
        assert_eq!(value("notif(a);", &[("a", true)]), None);
        assert_eq!(value("if (a", &[("a", true)]), None);
    }
}
