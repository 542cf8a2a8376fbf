//! Filters that select the packets to trace, by conditions on the fields that the parser extracts.
//!
//! ```text
//!   or         = and { "||" and }
//!   and        = not { "&&" not }
//!   not        = "!" not | "(" or ")" | condition
//!   condition  = PATH [ ("==" | "!=" | "<" | "<=" | ">" | ">=") VALUE [ "/" BITS ] ]
//! ```
//!
//! A path is a header (`hdr.ipv4`: whether it was extracted), a field of one (`hdr.ipv4.dstAddr`; leading components
//! may be omitted), `port` or `length`. Values are decimal, hexadecimal (`0x`), or IPv4, IPv6 and MAC addresses. A
//! condition on a field of a header that was not extracted is false.
//!
//! Filters come from clients: any text is either parsed or rejected with an error. Tests: at the end of the file, and
//! the fuzz target `trace_filter`.

use crate::trace::Event;
use base::Bits;
use ir::Program;
use std::collections::HashMap;

/// A filter of packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter(Option<Expr>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Expr {
    Or(Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Compare { path: String, op: Op, value: u128, ignored_bits: Option<u32> },
    Extracted(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Limit on tokens of a filter: it comes from a client, and parsing and evaluation are recursive.
const TOKENS_MAX: usize = 512;
/// Limit on the nesting of parentheses.
const DEPTH_MAX: usize = 32;

/// Paths that are not part of the packet.
const PORT: &str = "port";
const LENGTH: &str = "length";

impl Filter {
    /// Parses a filter; names are those of the program. The empty filter accepts everything.
    ///
    /// # Errors
    /// A message, if the text is not a filter, exceeds a limit, or names a field that the program does not have.
    pub fn parse(text: &str, program: &Program) -> Result<Filter, String> {
        if text.trim().is_empty() {
            return Ok(Filter(None));
        }
        let tokens = tokens(text)?;
        let mut parser = Parser { tokens: &tokens, at: 0, depth: 0, program };
        let expr = parser.or()?;
        match parser.peek() {
            None => Ok(Filter(Some(expr))),
            Some(token) => Err(format!("filter: unexpected `{token}`")),
        }
    }

    /// Whether the filter accepts everything.
    pub fn wants_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the filter accepts a packet, given the trace events of its parsing.
    pub fn accepts<'a>(&self, port: u32, length: u64, events: impl Iterator<Item = &'a Event>) -> bool {
        let Some(expr) = &self.0 else { return true };
        let mut values: HashMap<String, Bits> = HashMap::new();
        values.insert(PORT.to_string(), Bits::new(32, port.into()));
        values.insert(LENGTH.to_string(), Bits::new(64, length.into()));
        let mut headers = Vec::new();
        for event in events {
            let Event::Extract { header, fields, .. } = event else { continue };
            headers.push(header.clone());
            for (field, value) in fields {
                // If several have the same name, such as the elements of a stack, the first one counts.
                values.entry(format!("{header}.{field}")).or_insert_with(|| value.clone());
            }
        }
        holds(expr, &values, &headers)
    }
}

fn holds(expr: &Expr, values: &HashMap<String, Bits>, headers: &[String]) -> bool {
    match expr {
        Expr::Or(a, b) => holds(a, values, headers) || holds(b, values, headers),
        Expr::And(a, b) => holds(a, values, headers) && holds(b, values, headers),
        Expr::Not(a) => !holds(a, values, headers),
        Expr::Extracted(header) => headers.contains(header),
        Expr::Compare { path, op, value, ignored_bits } => {
            let Some(found) = values.get(path).and_then(Bits::to_u128) else { return false };
            let cut = |v: u128| ignored_bits.map_or(v, |bits| v.checked_shr(bits).unwrap_or(0));
            let (a, b) = (cut(found), cut(*value));
            match op {
                Op::Eq => a == b,
                Op::Ne => a != b,
                Op::Lt => a < b,
                Op::Le => a <= b,
                Op::Gt => a > b,
                Op::Ge => a >= b,
            }
        }
    }
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let signs = ["||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", "/"];
        let word = |c: char| c.is_alphanumeric() || "._:[]$".contains(c);
        let length = match signs.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => sign.len(),
            None => rest.find(|c| !word(c)).unwrap_or(rest.len()),
        };
        if length == 0 {
            return Err(format!("filter: `{}` means nothing here", rest.chars().next().unwrap_or_default()));
        }
        if tokens.len() == TOKENS_MAX {
            return Err(format!("filter: it is longer than {TOKENS_MAX} words and signs"));
        }
        tokens.push(rest[..length].to_string());
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser<'a> {
    tokens: &'a [String],
    at: usize,
    depth: usize,
    program: &'a Program,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn take(&mut self, token: &str) -> bool {
        let there = self.peek() == Some(token);
        self.at += usize::from(there);
        there
    }

    fn word(&mut self, what: &str) -> Result<String, String> {
        let word = self.tokens.get(self.at).cloned().ok_or_else(|| format!("filter: {what} is missing at the end"))?;
        self.at += 1;
        Ok(word)
    }

    fn or(&mut self) -> Result<Expr, String> {
        let mut expr = self.and()?;
        while self.take("||") {
            expr = Expr::Or(Box::new(expr), Box::new(self.and()?));
        }
        Ok(expr)
    }

    fn and(&mut self) -> Result<Expr, String> {
        let mut expr = self.not()?;
        while self.take("&&") {
            expr = Expr::And(Box::new(expr), Box::new(self.not()?));
        }
        Ok(expr)
    }

    fn not(&mut self) -> Result<Expr, String> {
        let mut negated = false;
        while self.take("!") {
            negated = !negated;
        }
        let expr = if self.take("(") {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(format!("filter: more than {DEPTH_MAX} nested parentheses"));
            }
            let expr = self.or()?;
            self.depth -= 1;
            if !self.take(")") {
                return Err("filter: a `)` is missing".to_string());
            }
            expr
        } else {
            self.condition()?
        };
        Ok(if negated { Expr::Not(Box::new(expr)) } else { expr })
    }

    fn condition(&mut self) -> Result<Expr, String> {
        let path = self.word("a field")?;
        let op = match self.peek() {
            Some("==") => Op::Eq,
            Some("!=") => Op::Ne,
            Some("<") => Op::Lt,
            Some("<=") => Op::Le,
            Some(">") => Op::Gt,
            Some(">=") => Op::Ge,
            _ => return self.header(&path).map(Expr::Extracted),
        };
        self.at += 1;
        let (path, width) = self.field(&path)?;
        let value = value(&self.word("a value")?)?;
        let mut ignored_bits = None;
        if self.take("/") {
            let text = self.word("a number of bits")?;
            let bits: u32 = text.parse().map_err(|_| format!("filter: `/{text}` is not a number of bits"))?;
            let fits = bits <= width && matches!(op, Op::Eq | Op::Ne);
            ignored_bits = Some(fits.then(|| width - bits).ok_or_else(|| {
                format!("filter: `/{bits}` does not fit: {path} has {width} bits, and a prefix goes with == and !=")
            })?);
        }
        Ok(Expr::Compare { path, op, value, ignored_bits })
    }

    fn header(&self, given: &str) -> Result<String, String> {
        let names = self.program.headers.iter().map(|h| h.name.clone());
        find(given, names).ok_or_else(|| format!("filter: the program has no header `{given}`; a field needs a value"))
    }

    /// The full path and the width in bits of a field.
    fn field(&self, given: &str) -> Result<(String, u32), String> {
        match given {
            PORT => return Ok((PORT.to_string(), 32)),
            LENGTH => return Ok((LENGTH.to_string(), 64)),
            _ => {}
        }
        let of = |h: &ir::Header| {
            h.fields.iter().map(|f| (format!("{}.{}", h.name, f.name), self.program.width(f.slot))).collect::<Vec<_>>()
        };
        let all: Vec<(String, u32)> = self.program.headers.iter().flat_map(of).collect();
        let found = find(given, all.iter().map(|(name, _)| name.clone()));
        if let Some(entry) = found.and_then(|name| all.iter().find(|(n, _)| *n == name)) {
            return match entry.1 {
                0..=128 => Ok(entry.clone()),
                width => Err(format!("filter: {} has {width} bits; 128 can be compared", entry.0)),
            };
        }
        let last = given.rsplit('.').next().unwrap_or(given);
        let near: Vec<&str> = all.iter().map(|(n, _)| n.as_str()).filter(|n| n.contains(last)).take(4).collect();
        let near = if near.is_empty() { all.iter().map(|(n, _)| n.as_str()).take(4).collect() } else { near };
        Err(format!("filter: the program has no field `{given}`; it has {}, ...", near.join(", ")))
    }
}

/// The name that equals `given`, or else one that ends with it after a dot.
fn find(given: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let mut names: Vec<String> = names.collect();
    if let Some(at) = names.iter().position(|n| n == given) {
        return Some(names.swap_remove(at));
    }
    names.into_iter().find(|n| n.strip_suffix(given).is_some_and(|front| front.ends_with('.')))
}

fn value(text: &str) -> Result<u128, String> {
    let bad = || format!("filter: `{text}` is neither a number nor an address");
    if let Some(digits) = text.strip_prefix("0x") {
        return u128::from_str_radix(digits, 16).map_err(|_| bad());
    }
    if let Ok(number) = text.parse::<u128>() {
        return Ok(number);
    }
    if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
        return Ok(u32::from(address).into());
    }
    let bytes: Vec<&str> = text.split(':').collect();
    if bytes.len() == 6 && bytes.iter().all(|b| b.len() == 2) {
        return u128::from_str_radix(&bytes.concat(), 16).map_err(|_| bad());
    }
    text.parse::<std::net::Ipv6Addr>().map(u128::from).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::builder::FieldWidth;

    fn program() -> Program {
        let mut b = ir::Builder::new("headers");
        b.header("hdr.ethernet", &[("dst", FieldWidth::Fixed(48)), ("type", FieldWidth::Fixed(16))]);
        b.header("hdr.ipv4", &[("src", FieldWidth::Fixed(32)), ("dst", FieldWidth::Fixed(32))]);
        b.finish()
    }

    fn accepts(text: &str) -> bool {
        let extract = |header: &str, fields: &[(&str, u32, u128)]| Event::Extract {
            header: header.into(),
            offset: 0,
            fields: fields.iter().map(|(name, width, v)| (name.to_string(), Bits::new(*width, *v))).collect(),
        };
        let events = [extract("hdr.ethernet", &[("dst", 48, 0x0200_0000_0001), ("type", 16, 0x800)])];
        Filter::parse(text, &program()).expect(text).accepts(3, 60, events.iter())
    }

    #[test]
    fn conditions_hold_as_they_read() {
        for yes in [
            "",
            "hdr.ethernet",
            "ethernet.type == 0x0800",
            "hdr.ethernet.dst == 02:00:00:00:00:01 && port == 3",
            "port != 3 || length >= 60",
            "!(port == 4)",
            "!hdr.ipv4",
            "ethernet.dst == 02:00:00:ff:ff:ff/24",
            "port == 1 && port == 2 || length < 61",
        ] {
            assert!(accepts(yes), "{yes}");
        }
        for no in ["ipv4", "ipv4.dst == 10.0.0.1", "ipv4.dst != 10.0.0.1", "port == 4", "!ethernet", "length > 60"] {
            assert!(!accepts(no), "{no}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, what) in [
            ("hdr.ipv4.dts == 1", "no field `hdr.ipv4.dts`"),
            ("hdr.vlan", "no header `hdr.vlan`"),
            ("ipv4.dst == 10.0.0", "`10.0.0` is neither a number"),
            ("ipv4.dst ==", "a value is missing"),
            ("(port == 1", "`)` is missing"),
            ("port == 1 port", "unexpected `port`"),
            ("ipv4.dst == 10.0.0.0/33", "does not fit"),
            ("port == 1 % 2", "`%` means nothing"),
        ] {
            let error = Filter::parse(text, &program()).expect_err(text);
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn whatever_is_typed_is_read_or_refused() {
        let words = [
            "hdr",
            "hdr.ethernet",
            "ethernet.type",
            ".dst",
            "ipv4.src",
            "port",
            "length",
            "==",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
            "&&",
            "||",
            "!",
            "(",
            ")",
            "/",
            "0x",
            "0xff",
            "255",
            "10.0.0.1",
            "300.1.2.3",
            "::1",
            "fe80::",
            "02:00:00:00:00:01",
            "99999999999999999999999999",
            "9999999999999999999999999999999999999999999",
            "/33",
            "/ 8",
            "é",
            "\"",
            "&",
            "|",
            "=",
            "-1",
            ":",
            "",
        ];
        let program = program();
        let mut random = random::Random::new(1);
        let mut draw = |n: usize| random.index(n);
        let mut read = 0;
        for _ in 0..20_000 {
            let length = draw(12);
            let glue = ["", " "][draw(2)];
            let text: Vec<&str> = (0..length).map(|_| words[draw(words.len())]).collect();
            read += usize::from(Filter::parse(&text.join(glue), &program).is_ok());
        }
        assert!(read > 20, "{read}");
        for (long, why) in [
            (format!("{}port == 1{}", "(".repeat(100_000), ")".repeat(100_000)), "longer than 512"),
            (format!("{}port == 1{}", "(".repeat(33), ")".repeat(33)), "more than 32 nested parentheses"),
            (["port == 1"; 10_000].join(" || "), "longer than 512"),
        ] {
            let refused = Filter::parse(&long, &program).expect_err("too long");
            assert!(refused.contains(why), "{refused}");
        }
        let most = format!("{}port == 1{}", "(".repeat(32), ")".repeat(32));
        assert!(
            Filter::parse(&most, &program).is_ok() && Filter::parse(&["port == 1"; 128].join("||"), &program).is_ok()
        );
    }
}
