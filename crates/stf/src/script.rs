//! Reads a script: one command a line, `#` begins a comment.
//!
//! ```text
//! packet PORT HEX                         a frame arrives; spaces in HEX are ignored
//! expect PORT [HEX]                       a frame leaves: `*` stands for any nibble, a `$` at the end for «and no more
//!                                         bytes»; without HEX: any number of any frames
//! no_packet                               the last packet caused no output
//! wait [MICROSECONDS]                     the clock advances (one second)
//! add TABLE [PRIORITY] KEY:VALUE... ACTION(ARG:VALUE, ...)
//! setdefault TABLE ACTION(ARG:VALUE, ...)
//! mc_mgrp_create GROUP | mc_node_create RID PORT... | mc_node_associate GROUP NODE | mc_node_update NODE PORT...
//! mirroring_add SESSION PORT | mirroring_add_mc SESSION GROUP | mirroring_delete SESSION | mirroring_get SESSION
//! register_write NAME INDEX VALUE | register_read NAME INDEX | register_reset NAME
//! counter_write NAME INDEX PACKETS BYTES | counter_read NAME INDEX
//! meter_set_rates NAME INDEX RATE:BURST RATE:BURST | meter_array_set_rates NAME RATE:BURST RATE:BURST
//! meter_get_rates NAME INDEX              rates are units per microsecond, the committed one first
//! check_counter NAME(INDEX) [packets|bytes ==|!=|<|<=|>|>= NUMBER]
//! ```
//!
//! A VALUE is a number (decimal, `0x`, `0b`, `0o`), a number with `*` for nibbles or bits that are not compared,
//! `VALUE/PREFIX_LENGTH`. Ours: `VALUE&&&MASK`, `LOW..HIGH`, a lone `*`, IPv4 addresses as `10.0.0.1`,
//! MAC addresses as `02:00:00:00:00:01` in quotes-free form after the key's colon; and
//!
//! ```text
//! member PROFILE ID ACTION(ARG:VALUE, ...)     group PROFILE ID MEMBER[:WEIGHT]...
//! add TABLE KEY:VALUE... member(ID)            add TABLE KEY:VALUE... group(ID)
//! value_set NAME VALUE...                      delete TABLE [PRIORITY] KEY:VALUE...
//! expect_register NAME INDEX VALUE             a check
//! expect_digest NAME [VALUE...]                the oldest digest message not yet checked
//! expect_log TEXT                              the oldest line of the log not yet checked
//! check_drops "REASON" ==|!=|<|<=|>|>= NUMBER  packets dropped for a reason
//! set_crc16_parameters POLYNOMIAL INITIAL XOR_OUT REFLECT_IN REFLECT_OUT      what custom CRCs are from now on;
//! set_crc32_parameters ...                                                    the last two are true or false
//! ```

use abi::state::CrcParameters;
use std::fmt;

/// A command with its line number, from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Line number.
    pub number: usize,
    /// What to do.
    pub command: Command,
}

/// An action with named (or, ours, positional) arguments as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionText {
    /// Name or a suffix of it.
    pub name: String,
    /// `(parameter, value)`; an empty parameter name for positional arguments.
    pub args: Vec<(String, String)>,
}

/// How a counter is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterCheck {
    /// Packets, else bytes.
    pub packets: bool,
    /// `==`, `!=`, `<`, `<=`, `>`, `>=`.
    pub comparison: String,
    /// With what.
    pub value: u64,
}

/// One command. Names and values are still text: [`crate::setup`] gives them meaning.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named by the language in the module text")]
pub enum Command {
    Packet { port: u32, frame: Vec<u8> },
    Expect { port: u32, frame: Option<Pattern> },
    NoPacket,
    Wait { microseconds: u64 },
    Add { table: String, priority: Option<i32>, key: Vec<(String, String)>, action: ActionText },
    Delete { table: String, priority: Option<i32>, key: Vec<(String, String)> },
    SetDefault { table: String, action: ActionText },
    Member { profile: String, id: u32, action: ActionText },
    Group { profile: String, id: u32, members: Vec<(u32, u32)> },
    ValueSet { name: String, values: Vec<String> },
    GroupCreate { group: u32 },
    NodeCreate { rid: u32, ports: Vec<u32> },
    NodeUpdate { node: u32, ports: Vec<u32> },
    NodeAssociate { group: u32, node: u32 },
    MirroringAdd { session: u32, port: u32 },
    MirroringAddGroup { session: u32, group: u32 },
    MirroringDelete { session: u32 },
    MirroringGet { session: u32 },
    RegisterWrite { name: String, index: u64, value: String },
    RegisterRead { name: String, index: u64 },
    RegisterReset { name: String },
    CounterWrite { name: String, index: u64, packets: u64, bytes: u64 },
    CounterRead { name: String, index: u64 },
    MeterSetRates { name: String, index: Option<u64>, rates: Vec<(String, u64)> },
    MeterGetRates { name: String, index: u64 },
    CheckCounter { name: String, index: u64, check: Option<CounterCheck> },
    ExpectRegister { name: String, index: u64, value: String },
    ExpectDigest { name: String, values: Vec<String> },
    ExpectLog { text: String },
    CheckDrops { reason: String, comparison: String, value: u64 },
    SetCrc { parameters: CrcParameters },
}

/// What a frame must look like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// One per nibble: 0 to 15, or `None` for any.
    pub nibbles: Vec<Option<u8>>,
    /// Whether nothing may follow.
    pub exact_length: bool,
}

impl Pattern {
    /// Whether a frame matches.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let got = frame.iter().flat_map(|b| [b >> 4, b & 15]);
        let long_enough = frame.len() * 2 >= self.nibbles.len();
        let same = self.nibbles.iter().zip(got).all(|(want, got)| want.is_none_or(|w| w == got));
        long_enough && same && (!self.exact_length || frame.len() * 2 == self.nibbles.len())
    }

    /// The first hexadecimal digit at which a frame differs, its end if only the length does; `None` if it matches.
    pub fn first_difference(&self, frame: &[u8]) -> Option<usize> {
        let got: Vec<u8> = frame.iter().flat_map(|b| [b >> 4, b & 15]).collect();
        let differs = |(want, got): (&Option<u8>, &u8)| want.is_some_and(|w| w != *got);
        match self.nibbles.iter().zip(&got).position(differs) {
            _ if self.matches(frame) => None,
            Some(at) => Some(at),
            None => Some(self.nibbles.len().min(got.len())),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for nibble in &self.nibbles {
            match nibble {
                Some(n) => write!(f, "{n:x}")?,
                None => f.write_str("*")?,
            }
        }
        f.write_str(if self.exact_length { "$" } else { "" })
    }
}

/// A line that cannot be read or carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// Reads a whole script; all bad lines are reported.
pub fn parse(text: &str) -> Result<Vec<Line>, Vec<ScriptError>> {
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    for (i, raw) in text.lines().enumerate() {
        let line = raw.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        match command(line) {
            Ok(command) => lines.push(Line { number: i + 1, command }),
            Err(message) => errors.push(ScriptError { line: i + 1, message }),
        }
    }
    if errors.is_empty() { Ok(lines) } else { Err(errors) }
}

fn command(line: &str) -> Result<Command, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let arg = |i: usize, what: &str| words.get(i).copied().ok_or(format!("`{word}` needs {what}"));
    let num = |i: usize, what: &str| arg(i, what).and_then(|w| number(w, what));
    let small = |i: usize, what: &str| num(i, what).and_then(|n| narrow(n, what));
    let ports = |from: usize| {
        let list = words.get(from..).unwrap_or_default();
        list.iter().map(|w| number(w, "a port").and_then(|n| narrow(n, "a port"))).collect::<Result<Vec<u32>, _>>()
    };
    let at_most = |n: usize| match words.get(n) {
        None => Ok(()),
        Some(extra) => Err(format!("`{extra}` is one word too many for `{word}`")),
    };
    Ok(match word.to_ascii_lowercase().as_str() {
        "packet" => {
            let (port, data) = port_and_data(rest)?;
            let data: String = data.split_whitespace().collect();
            if data.is_empty() {
                return Err(format!("`packet {port}` has no bytes: write them in hexadecimal behind the port"));
            }
            let nibbles = nibbles(&data)?;
            let bytes: Option<Vec<u8>> = nibbles.chunks(2).map(|c| Some(c[0]? << 4 | c.get(1).copied()??)).collect();
            let frame = bytes.ok_or_else(|| match nibbles.contains(&None) {
                true => "a packet has no `*`: all its digits are sent".to_string(),
                false => format!("a packet is whole bytes, and this has {} hexadecimal digits", nibbles.len()),
            })?;
            Command::Packet { port, frame }
        }
        "expect" => {
            let (port, data) = port_and_data(rest)?;
            let data: String = data.split_whitespace().collect();
            let frame = match data.strip_suffix('$') {
                _ if data.is_empty() => None,
                Some(exact) => Some(Pattern { nibbles: nibbles(exact)?, exact_length: true }),
                None => Some(Pattern { nibbles: nibbles(&data)?, exact_length: false }),
            };
            Command::Expect { port, frame }
        }
        "no_packet" => Command::NoPacket,
        "wait" => Command::Wait { microseconds: if words.is_empty() { 1_000_000 } else { num(0, "microseconds")? } },
        "add" => {
            let (table, priority, key, action) = table_line(rest)?;
            let action = action.ok_or("`add` needs an action with parentheses at the end")?;
            Command::Add { table, priority, key, action }
        }
        "delete" => {
            let (table, priority, key, action) = table_line(rest)?;
            if let Some(action) = action {
                return Err(format!("`delete` takes no action, but there is `{}`", action.name));
            }
            Command::Delete { table, priority, key }
        }
        "setdefault" => {
            let (table, rest) =
                rest.split_once(char::is_whitespace).ok_or("`setdefault` needs a table and an action")?;
            Command::SetDefault { table: name(table), action: action_text(rest.trim())? }
        }
        "member" => Command::Member {
            profile: name(arg(0, "an action profile")?),
            id: small(1, "a member id")?,
            action: action_text(words.get(2..).unwrap_or_default().join(" ").trim())?,
        },
        "group" => {
            let mut members = Vec::new();
            for w in words.get(2..).unwrap_or_default() {
                let (m, weight) = w.split_once(':').unwrap_or((w, "1"));
                members.push((
                    narrow(number(m, "a member")?, "a member")?,
                    narrow(number(weight, "a weight")?, "a weight")?,
                ));
            }
            Command::Group { profile: name(arg(0, "an action selector")?), id: small(1, "a group id")?, members }
        }
        "value_set" => Command::ValueSet {
            name: name(arg(0, "a value set")?),
            values: words.get(1..).unwrap_or_default().iter().map(|w| w.to_string()).collect(),
        },
        "mc_mgrp_create" => {
            at_most(1)?;
            Command::GroupCreate { group: small(0, "a multicast group")? }
        }
        "mc_node_create" => Command::NodeCreate { rid: small(0, "a replica id")?, ports: ports(1)? },
        "mc_node_update" => Command::NodeUpdate { node: small(0, "a node")?, ports: ports(1)? },
        "mc_node_associate" => {
            at_most(2)?;
            Command::NodeAssociate { group: small(0, "a multicast group")?, node: small(1, "a node")? }
        }
        "mirroring_add" => {
            at_most(2)?;
            Command::MirroringAdd { session: small(0, "a session")?, port: small(1, "a port")? }
        }
        "mirroring_add_mc" => {
            at_most(2)?;
            Command::MirroringAddGroup { session: small(0, "a session")?, group: small(1, "a multicast group")? }
        }
        "mirroring_delete" => Command::MirroringDelete { session: small(0, "a session")? },
        "mirroring_get" => Command::MirroringGet { session: small(0, "a session")? },
        "register_write" => Command::RegisterWrite {
            name: name(arg(0, "a register")?),
            index: num(1, "an index")?,
            value: arg(2, "a value")?.to_string(),
        },
        "register_read" => Command::RegisterRead { name: name(arg(0, "a register")?), index: num(1, "an index")? },
        "register_reset" => Command::RegisterReset { name: name(arg(0, "a register")?) },
        "counter_write" => Command::CounterWrite {
            name: name(arg(0, "a counter")?),
            index: num(1, "an index")?,
            packets: num(2, "packets")?,
            bytes: num(3, "bytes")?,
        },
        "counter_read" => Command::CounterRead { name: name(arg(0, "a counter")?), index: num(1, "an index")? },
        "meter_set_rates" => Command::MeterSetRates {
            name: name(arg(0, "a meter")?),
            index: Some(num(1, "an index")?),
            rates: rates(words.get(2..).unwrap_or_default())?,
        },
        "meter_array_set_rates" => Command::MeterSetRates {
            name: name(arg(0, "a meter")?),
            index: None,
            rates: rates(words.get(1..).unwrap_or_default())?,
        },
        "meter_get_rates" => Command::MeterGetRates { name: name(arg(0, "a meter")?), index: num(1, "an index")? },
        "check_counter" => check_counter(rest)?,
        "expect_register" => Command::ExpectRegister {
            name: name(arg(0, "a register")?),
            index: num(1, "an index")?,
            value: arg(2, "a value")?.to_string(),
        },
        "expect_digest" => Command::ExpectDigest {
            name: name(arg(0, "a digest")?),
            values: words.get(1..).unwrap_or_default().iter().map(|w| w.to_string()).collect(),
        },
        "expect_log" => Command::ExpectLog { text: rest.trim().to_string() },
        "check_drops" => check_drops(rest)?,
        "set_crc16_parameters" => Command::SetCrc { parameters: crc_parameters(16, &words)? },
        "set_crc32_parameters" => Command::SetCrc { parameters: crc_parameters(32, &words)? },
        other => return Err(format!("there is no command `{other}`")),
    })
}

/// Names may be quoted.
fn name(text: &str) -> String {
    text.trim_matches('"').to_string()
}

fn port_and_data(rest: &str) -> Result<(u32, &str), String> {
    let (port, data) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Ok((narrow(number(port, "a port")?, "a port")?, data))
}

fn nibbles(text: &str) -> Result<Vec<Option<u8>>, String> {
    text.chars()
        .map(|c| match c {
            '*' => Ok(None),
            c => c.to_digit(16).map(|d| Some(d as u8)).ok_or(format!("`{c}` is not a hexadecimal digit")),
        })
        .collect()
}

/// A number in any base.
pub(crate) fn number(text: &str, what: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not {what}: a number was expected");
    let (digits, radix) = radix_of(text);
    u64::from_str_radix(digits, radix).map_err(|_| bad())
}

/// Splits a base prefix off.
pub(crate) fn radix_of(text: &str) -> (&str, u32) {
    let lower = text.get(..2).map(str::to_ascii_lowercase);
    match lower.as_deref() {
        Some("0x") => (&text[2..], 16),
        Some("0b") => (&text[2..], 2),
        Some("0o") => (&text[2..], 8),
        _ => (text, 10),
    }
}

fn narrow(n: u64, what: &str) -> Result<u32, String> {
    u32::try_from(n).map_err(|_| format!("{n} is too large for {what}"))
}

/// `TABLE [PRIORITY] KEY:VALUE... [ACTION(...)] [= ID]`
#[allow(clippy::type_complexity, reason = "four parts of one line, used at once")]
fn table_line(rest: &str) -> Result<(String, Option<i32>, Vec<(String, String)>, Option<ActionText>), String> {
    // The action is what begins with the word that holds the first parenthesis that is not part of a key's name.
    let action_at = action_start(rest);
    let (front, action) = match action_at {
        Some(at) => (&rest[..at], Some(action_text(strip_handle(rest[at..].trim()))?)),
        None => (rest, None),
    };
    let mut words = front.split_whitespace().peekable();
    let table = name(words.next().ok_or("a table's name is missing")?);
    let mut priority = None;
    if let Some(word) = words.peek().filter(|w| !w.contains(':')) {
        let value = number(word, "a priority")?;
        priority = Some(i32::try_from(value).map_err(|_| format!("{value} is too large for a priority"))?);
        words.next();
    }
    let mut key = Vec::new();
    for word in words {
        let (field, value) = word.split_once(':').ok_or(format!("`{word}` is not KEY:VALUE"))?;
        key.push((name(field), value.to_string()));
    }
    Ok((table, priority, key, action))
}

/// Where the action begins: the last word that is not `KEY:VALUE` and contains or precedes `(`.
fn action_start(text: &str) -> Option<usize> {
    let mut at = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        let trimmed = word.trim_end();
        if let Some(paren) = trimmed.find('(') {
            // `hdr.x.isValid():1` is a key; `act(port:1)` is not.
            let key = trimmed[..paren].ends_with("isValid") && trimmed[paren..].starts_with("():");
            if !key {
                return Some(at);
            }
        }
        at += word.len();
    }
    None
}

/// Drops ` = HANDLE` behind an action.
fn strip_handle(text: &str) -> &str {
    match text.rfind(')') {
        Some(end) => &text[..=end],
        None => text,
    }
}

fn action_text(text: &str) -> Result<ActionText, String> {
    let (action, rest) = text.split_once('(').unwrap_or((text, ")"));
    let args = rest.trim().strip_suffix(')').ok_or(format!("`{text}` lacks a closing parenthesis"))?;
    let mut list = Vec::new();
    for part in args.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        // A MAC address has colons too: a parameter's name is what begins like a name and is followed by one.
        let (param, value) = match part.split_once(':') {
            Some((p, v)) if p.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !is_mac(part) => (p, v),
            _ => ("", part),
        };
        list.push((param.trim().to_string(), value.trim().to_string()));
    }
    if action.trim().is_empty() || action.trim().contains(char::is_whitespace) {
        return Err(format!("`{}` is not an action's name", action.trim()));
    }
    Ok(ActionText { name: name(action.trim()), args: list })
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6 && parts.iter().all(|p| p.len() == 2 && u8::from_str_radix(p, 16).is_ok())
}

fn rates(words: &[&str]) -> Result<Vec<(String, u64)>, String> {
    let list: Result<Vec<_>, String> = words
        .iter()
        .map(|w| {
            let (rate, burst) = w.split_once(':').ok_or(format!("`{w}` is not RATE:BURST"))?;
            rate.parse::<f64>().map_err(|_| format!("`{rate}` is not a rate"))?;
            Ok((rate.to_string(), number(burst, "a burst size")?))
        })
        .collect();
    let list = list?;
    if list.is_empty() || list.len() > 2 {
        return Err(format!("a meter has one or two rates, not {}", list.len()));
    }
    Ok(list)
}

fn checked_comparison(text: &str) -> Result<String, String> {
    match ["==", "!=", "<", "<=", ">", ">="].contains(&text) {
        true => Ok(text.to_string()),
        false => Err(format!("`{text}` is not a comparison")),
    }
}

fn check_drops(rest: &str) -> Result<Command, String> {
    let quoted = rest.trim().strip_prefix('"').and_then(|r| r.split_once('"'));
    let (reason, rest) = quoted.ok_or("`check_drops` needs a reason in quotes")?;
    match rest.split_whitespace().collect::<Vec<_>>().as_slice() {
        [comparison, value] => Ok(Command::CheckDrops {
            reason: reason.to_string(),
            comparison: checked_comparison(comparison)?,
            value: number(value, "a count")?,
        }),
        _ => Err("`check_drops` needs \"REASON\" COMPARISON NUMBER".to_string()),
    }
}

fn crc_parameters(width: u32, words: &[&str]) -> Result<CrcParameters, String> {
    let [polynomial, initial, xor_out, reflect_in, reflect_out] = words else {
        return Err("a CRC has a polynomial, a first remainder, a last exclusive or, and two reflections".to_string());
    };
    let value = |text: &str| number(text, "a value").and_then(|n| narrow(n, "a CRC"));
    let flag = |text: &str| match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither `true` nor `false`")),
    };
    let parameters = CrcParameters {
        width,
        polynomial: value(polynomial)?,
        initial: value(initial)?,
        xor_out: value(xor_out)?,
        reflect_in: flag(reflect_in)?,
        reflect_out: flag(reflect_out)?,
    };
    match parameters.are_possible() {
        true => Ok(parameters),
        false => Err(format!("a value does not fit {width} bits")),
    }
}

fn check_counter(rest: &str) -> Result<Command, String> {
    let (counter, rest) = rest.split_once('(').ok_or("`check_counter` needs NAME(INDEX)")?;
    let (index, rest) = rest.split_once(')').ok_or("`check_counter` needs NAME(INDEX)")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let check = match words.as_slice() {
        [] => None,
        [unit, comparison, value] => {
            let packets = match unit.to_ascii_lowercase().as_str() {
                "packets" => true,
                "bytes" => false,
                other => return Err(format!("`{other}` is neither `packets` nor `bytes`")),
            };
            let comparison = checked_comparison(comparison)?;
            Some(CounterCheck { packets, comparison, value: number(value, "a count")? })
        }
        _ => return Err("`check_counter` needs `packets|bytes COMPARISON NUMBER`".to_string()),
    };
    Ok(Command::CheckCounter { name: name(counter.trim()), index: number(index.trim(), "an index")?, check })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Command {
        parse(line).unwrap().remove(0).command
    }

    #[test]
    fn packets_and_patterns() {
        assert_eq!(one("packet 3 00 ffAB # x"), Command::Packet { port: 3, frame: vec![0, 0xff, 0xab] });
        let Command::Expect { frame: Some(p), .. } = one("expect 1 0*ff$") else { panic!() };
        assert!(p.matches(&[0x07, 0xff]) && !p.matches(&[0x07, 0xff, 0]) && !p.matches(&[0x07]));
        assert_eq!(p.first_difference(&[0x07, 0xff]), None);
        assert_eq!(p.first_difference(&[0x07, 0xfe]), Some(3));
        assert_eq!(p.first_difference(&[0x17, 0xff]), Some(0));
        assert_eq!(p.first_difference(&[0x07]), Some(2));
        assert_eq!(p.first_difference(&[0x07, 0xff, 0]), Some(4));
        for (line, why) in [("packet 1", "no bytes"), ("packet 1 0*", "no `*`"), ("packet 1 000", "3 hexadecimal")] {
            let errors = parse(line).unwrap_err();
            assert!(errors[0].message.contains(why), "{errors:?}");
        }
        let Command::Expect { frame: Some(p), .. } = one("expect 1 0*ff") else { panic!() };
        assert!(p.matches(&[0x07, 0xff, 0]));
        assert_eq!(one("expect 4"), Command::Expect { port: 4, frame: None });
    }

    #[test]
    fn table_lines_with_priorities_validity_and_handles() {
        let Command::Add { table, priority, key, action } =
            one("add t1 100 data.$valid:0b1 hdr.x.isValid():1 data.f1:0x****0101 c.set(val:0x7f, port:2) = A")
        else {
            panic!()
        };
        assert_eq!((table.as_str(), priority), ("t1", Some(100)));
        assert_eq!(key.len(), 3);
        assert_eq!(key[1], ("hdr.x.isValid()".into(), "1".into()));
        assert_eq!(action.name, "c.set");
        assert_eq!(action.args, [("val".into(), "0x7f".into()), ("port".into(), "2".into())]);
    }

    #[test]
    fn mac_addresses_are_values() {
        let Command::SetDefault { action, .. } = one("setdefault t a(mac:02:00:00:00:00:01, 9)") else { panic!() };
        assert_eq!(action.args, [("mac".into(), "02:00:00:00:00:01".into()), (String::new(), "9".into())]);
    }

    #[test]
    fn every_bad_line_is_reported() {
        let errors = parse("packet 1 0g\nfrobnicate\nexpect 1 00\nadd\n").unwrap_err();
        assert_eq!(errors.iter().map(|e| e.line).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(errors[1].message, "there is no command `frobnicate`");
    }
}
