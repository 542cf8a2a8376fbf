//! Parsers for the parts of a line: words, names, values, frames, keys, actions, rates.
//!
//! Tests: `script/tests.rs`, by whole lines.

use super::command::*;
use abi::state::{CrcParameters, HashParameters, TOEPLITZ_KEY_MAX};

/// The position of the first character outside of quotes that `accept` accepts.
pub(super) fn outside_quotes(text: &str, accept: impl Fn(char) -> bool) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (!quoted && accept(c)).then_some(at)
    })
}

/// Splits a text at the characters outside of quotes that `accept` accepts.
pub(super) fn split_outside_quotes(text: &str, accept: impl Fn(char) -> bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = outside_quotes(rest, &accept) {
        parts.push(&rest[..at]);
        rest = &rest[at + rest[at..].chars().next().map_or(1, char::len_utf8)..];
    }
    parts.push(rest);
    parts
}

/// The words of a text; white space in quotes does not end one.
pub(super) fn words_of(text: &str) -> Vec<&str> {
    split_outside_quotes(text, char::is_whitespace).into_iter().filter(|word| !word.is_empty()).collect()
}

/// A name, which may be quoted and then contain any character except quotes.
pub(super) fn name(text: &str) -> Result<String, String> {
    let inner = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"').ok_or(format!("the name `{text}` has no closing quote"))?,
        None => text,
    };
    match inner.contains('"') {
        true => Err(format!("`{text}` is not a name: a quote stands within it")),
        false => Ok(inner.to_string()),
    }
}

pub(super) fn port_and_data(rest: &str) -> Result<(u32, &str), String> {
    let (port, data) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Ok((narrow(number(port, "a port")?, "a port")?, data))
}

pub(super) fn nibbles(text: &str) -> Result<Vec<Option<u8>>, String> {
    text.chars()
        .map(|c| match c {
            '*' => Ok(None),
            c => c.to_digit(16).map(|d| Some(d as u8)).ok_or(format!("`{c}` is not a hexadecimal digit")),
        })
        .collect()
}

/// A number, in the base of its prefix.
pub(crate) fn number(text: &str, what: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not {what}: a number was expected");
    let (digits, radix) = radix_of(text);
    u64::from_str_radix(digits, radix).map_err(|_| bad())
}

/// Splits off the prefix that tells the base of a number.
pub(crate) fn radix_of(text: &str) -> (&str, u32) {
    let lower = text.get(..2).map(str::to_ascii_lowercase);
    match lower.as_deref() {
        Some("0x") => (&text[2..], 16),
        Some("0b") => (&text[2..], 2),
        Some("0o") => (&text[2..], 8),
        _ => (text, 10),
    }
}

pub(super) fn narrow(n: u64, what: &str) -> Result<u32, String> {
    u32::try_from(n).map_err(|_| format!("{n} is too large for {what}"))
}

pub(super) fn index_or_all(text: &str) -> Result<Option<u64>, String> {
    if text == "all" { Ok(None) } else { number(text, "an index, nor `all`").map(Some) }
}

/// Separates `KEY=VALUE` words from the others.
pub(super) fn split_options<'a>(words: &[&'a str]) -> (Vec<(&'a str, &'a str)>, Vec<&'a str>) {
    let (mut options, mut others) = (Vec::new(), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some(option) => options.push(option),
            None => others.push(*word),
        }
    }
    (options, others)
}

pub(super) fn no_option(command: &str, key: &str, there: &[&str]) -> String {
    format!("`{command}` has no option `{key}`; it has: {}", there.join(", "))
}

/// `MEMBER[:WEIGHT][@PORT]`
pub(super) fn group_part(text: &str) -> Result<GroupPart, String> {
    let (rest, watch) = match text.split_once('@') {
        Some((rest, port)) => (rest, Some(narrow(number(port, "a port")?, "a port")?)),
        None => (text, None),
    };
    let (member, weight) = match rest.split_once(':') {
        Some((member, weight)) => (member, Some(narrow(number(weight, "a weight")?, "a weight")?)),
        None => (rest, None),
    };
    Ok(GroupPart { member: narrow(number(member, "a member")?, "a member")?, weight, watch })
}

/// `PORT[:INSTANCE][|PORT[:INSTANCE]]...`
pub(super) fn replica(text: &str) -> Result<ReplicaText, String> {
    let one = |part: &str| {
        let (port, instance) = part.split_once(':').unwrap_or((part, "0"));
        Ok((narrow(number(port, "a port")?, "a port")?, narrow(number(instance, "an instance")?, "an instance")?))
    };
    Ok(ReplicaText { alternatives: text.split('|').map(one).collect::<Result<_, String>>()? })
}

/// The bytes of `0xHEX`.
pub(super) fn bytes_of(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() % 2 == 0);
    let digits = digits.ok_or_else(|| format!("`{text}` is no bytes: 0x and two hexadecimal digits for each"))?;
    let nibbles: Option<Vec<u8>> = digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let nibbles = nibbles.ok_or_else(|| format!("`{text}` has something else than hexadecimal digits"))?;
    Ok(nibbles.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A time, an integer with a unit, in nanoseconds.
pub(super) fn time_ns(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is no time: a whole number with `ns`, `us`, `ms` or `s`");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(bad()),
    };
    let time = digits.parse::<u64>().map_err(|_| bad())?.checked_mul(unit);
    // P4Runtime's times are signed 64-bit numbers.
    time.filter(|time| i64::try_from(*time).is_ok()).ok_or_else(|| format!("the time `{text}` is too long"))
}

/// A time in the largest unit that gives an integer; the parser reads it back.
pub fn time_text(ns: u64) -> String {
    match [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
        .into_iter()
        .find(|(unit, _)| ns.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", ns / unit),
        None => format!("{ns}ns"),
    }
}

pub(super) fn meter_rates(figures: &[&str]) -> Result<MeterRates, String> {
    let number = |at: usize| figures.get(at).map_or(Ok(0), |text| number(text, "a rate or burst"));
    if !(4..=5).contains(&figures.len()) {
        return Err("a meter has CIR,CBURST,PIR,PBURST and perhaps an EBURST".to_string());
    }
    Ok(MeterRates { cir: number(0)?, cburst: number(1)?, pir: number(2)?, pburst: number(3)?, eburst: number(4)? })
}

/// `TABLE [PRIORITY] KEY:VALUE... [ACTION(...)] [OPTION=VALUE]... [= HANDLE]`
pub(super) struct TableLine {
    pub(super) table: String,
    pub(super) priority: Option<i32>,
    pub(super) key: Vec<(String, String)>,
    pub(super) action: Option<ActionText>,
    pub(super) options: EntryOptions,
    pub(super) handle: Option<String>,
}

pub(super) fn table_line(rest: &str) -> Result<TableLine, String> {
    // The action starts with the word that has the first parenthesis outside of a key's name.
    let (front, action, options, handle) = match action_start(rest) {
        Some(at) => {
            let (action, options, handle) = split_behind(rest[at..].trim())?;
            (&rest[..at], Some(action_text(action)?), options, handle)
        }
        None => (rest, None, EntryOptions::default(), None),
    };
    let mut words = words_of(front).into_iter().peekable();
    let table = name(words.next().ok_or("a table's name is missing")?)?;
    let mut priority = None;
    if let Some(word) = words.peek().filter(|w| outside_quotes(w, |c| c == ':').is_none()) {
        let value = number(word, "a priority")?;
        priority = Some(i32::try_from(value).map_err(|_| format!("{value} is too large for a priority"))?);
        words.next();
    }
    let mut key = Vec::new();
    for word in words {
        let colon = key_colon(word).ok_or(format!("`{word}` is not KEY:VALUE"))?;
        key.push((name(&word[..colon])?, word[colon + 1..].to_string()));
    }
    Ok(TableLine { table, priority, key, action, options, handle })
}

/// The position of the colon between a key's name and its value. The colon of a slice `[7:0]` is part of the name.
pub(super) fn key_colon(word: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut quoted = false;
    word.char_indices().find_map(|(at, c)| {
        match c {
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth = depth.saturating_sub(1),
            ':' if !quoted && depth == 0 => return Some(at),
            _ => {}
        }
        None
    })
}

/// Where the action starts: the first word with a parenthesis outside of quotes that is not `KEY:VALUE`.
pub(super) fn action_start(text: &str) -> Option<usize> {
    let base = text.as_ptr() as usize;
    words_of(text).into_iter().find_map(|word| {
        let paren = outside_quotes(word, |c| c == '(')?;
        // `hdr.x.isValid():1` is a key; `act(port:1)` is not.
        let key = word[..paren].ends_with("isValid") && word[paren..].starts_with("():");
        (!key).then_some(word.as_ptr() as usize - base)
    })
}

/// Splits off what follows an action: `OPTION=VALUE` and ` = HANDLE`.
pub(super) fn split_behind(text: &str) -> Result<(&str, EntryOptions, Option<String>), String> {
    let mut options = EntryOptions::default();
    let mut end = None;
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        quoted ^= c == '"';
        if c == ')' && !quoted {
            end = Some(at + 1);
        }
    }
    let Some(end) = end else { return Ok((text, options, None)) };
    let mut words = words_of(&text[end..]).into_iter();
    let mut handle = None;
    while let Some(word) = words.next() {
        let wrong = || format!("`{word}` behind the action is not `= HANDLE` or OPTION=VALUE");
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        let given = match (key, value) {
            ("", "") => words.next().ok_or_else(wrong)?,
            _ => value,
        };
        match key {
            "" => handle = Some(name(given.trim_start_matches('$'))?),
            "metadata" => options.metadata = bytes_of(given)?,
            "timeout" => options.idle_timeout_ns = time_ns(given)?,
            "meter" => options.meter = Some(meter_rates(&given.split(',').collect::<Vec<_>>())?),
            "counter" => {
                let (packets, bytes) = given.split_once(',').unwrap_or((given, "0"));
                options.counter = Some((number(packets, "packets")?, number(bytes, "bytes")?));
            }
            "mode" => options.random = Some(either(given, "random", "hash")?),
            "size" => options.size_is_weights = Some(either(given, "weights", "members")?),
            _ => return Err(no_option("an entry", key, &["metadata", "timeout", "meter", "counter", "mode", "size"])),
        }
    }
    Ok((&text[..end], options, handle))
}

pub(super) fn either(given: &str, yes: &str, no: &str) -> Result<bool, String> {
    match given {
        _ if given == yes => Ok(true),
        _ if given == no => Ok(false),
        _ => Err(format!("`{given}` is neither `{yes}` nor `{no}`")),
    }
}

pub(super) fn action_text(text: &str) -> Result<ActionText, String> {
    let (action, rest) = match outside_quotes(text, |c| c == '(') {
        Some(paren) => (&text[..paren], &text[paren + 1..]),
        None => (text, ")"),
    };
    let args = rest.trim().strip_suffix(')').ok_or(format!("`{text}` lacks a closing parenthesis"))?;
    if action.trim() == ONE_OF {
        let parts = split_outside_quotes(args, |c| c == ';').into_iter().map(str::trim).filter(|part| !part.is_empty());
        let parts = parts.map(action_part).collect::<Result<_, _>>()?;
        return Ok(ActionText { name: ONE_OF.to_string(), args: Vec::new(), parts });
    }
    let mut list = Vec::new();
    for part in split_outside_quotes(args, |c| c == ',').into_iter().map(str::trim).filter(|p| !p.is_empty()) {
        // A MAC address has colons, too. A parameter's name is quoted, or starts like an identifier, and a colon
        // follows it.
        let starts_name = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '"';
        let (param, value) = match outside_quotes(part, |c| c == ':') {
            Some(colon) if part.starts_with(starts_name) && !is_mac(part) => (&part[..colon], &part[colon + 1..]),
            _ => ("", part),
        };
        list.push((name(param.trim())?, value.trim().to_string()));
    }
    let action = action.trim();
    if action.is_empty() || outside_quotes(action, char::is_whitespace).is_some() {
        return Err(format!("`{action}` is not an action's name"));
    }
    Ok(ActionText { name: name(action)?, args: list, parts: Vec::new() })
}

/// `[first] ACTION(...) [*WEIGHT] [@PORT]`
pub(super) fn action_part(text: &str) -> Result<ActionPart, String> {
    let (text, first) = match text.strip_prefix("first ") {
        Some(rest) => (rest.trim(), true),
        None => (text, false),
    };
    let mut quoted = false;
    let close = text.char_indices().filter(|(_, c)| {
        quoted ^= *c == '"';
        *c == ')' && !quoted
    });
    let end = close.last().map(|(at, _)| at + 1).ok_or(format!("`{text}` is not ACTION(...)"))?;
    let action = action_text(&text[..end])?;
    let (mut weight, mut watch) = ((!first).then_some(1), None);
    for word in words_of(&text[end..]) {
        match (word.strip_prefix('*'), word.strip_prefix('@')) {
            (Some(text), _) if !first => weight = Some(narrow(number(text, "a weight")?, "a weight")?),
            (_, Some(port)) if !first => watch = Some(narrow(number(port, "a port")?, "a port")?),
            _ => return Err(format!("`{word}` behind `{}` is neither *WEIGHT nor @PORT", action.name)),
        }
    }
    Ok(ActionPart { action, weight, watch })
}

pub(super) fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6 && parts.iter().all(|p| p.len() == 2 && u8::from_str_radix(p, 16).is_ok())
}

pub(super) fn rates(words: &[&str]) -> Result<Vec<(String, u64)>, String> {
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

pub(super) fn checked_comparison(text: &str) -> Result<String, String> {
    match ["==", "!=", "<", "<=", ">", ">="].contains(&text) {
        true => Ok(text.to_string()),
        false => Err(format!("`{text}` is not a comparison")),
    }
}

pub(super) fn check_drops(rest: &str) -> Result<Command, String> {
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

pub(super) fn set_crc(width: u32, words: &[&str]) -> Result<Command, String> {
    let (calculation, words) = match words {
        [name, rest @ ..] if rest.len() == 5 => (Some(self::name(name)?), rest),
        all => (None, all),
    };
    Ok(Command::SetHash { calculation, parameters: HashParameters::Crc(crc_parameters(width, words)?) })
}

pub(super) fn set_toeplitz_key(words: &[&str]) -> Result<Command, String> {
    let (calculation, key) = match words {
        [calculation, key] => (Some(name(calculation)?), key),
        [key] => (None, key),
        _ => return Err("`set_toeplitz_key` needs [CALCULATION] KEY".to_string()),
    };
    let digits = key.strip_prefix("0x").unwrap_or(key);
    let wrong = || format!("`{key}` is no key: words of 8 hexadecimal digits, {TOEPLITZ_KEY_MAX} bytes at most");
    let parameters = HashParameters::Toeplitz(hex::decode(digits).map_err(|_| wrong())?);
    parameters.function().ok_or_else(wrong)?;
    Ok(Command::SetHash { calculation, parameters })
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

pub(super) fn check_counter(rest: &str) -> Result<Command, String> {
    let form = "`check_counter` needs NAME(INDEX) or NAME($HANDLE)";
    let paren = outside_quotes(rest, |c| c == '(').ok_or(form)?;
    let (counter, rest) = (&rest[..paren], &rest[paren + 1..]);
    let (cell, rest) = rest.split_once(')').ok_or(form)?;
    let cell = match cell.trim().strip_prefix('$') {
        Some(handle) => CounterCell::Handle(handle.to_string()),
        None => CounterCell::Index(number(cell.trim(), "an index")?),
    };
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
    Ok(Command::CheckCounter { name: name(counter.trim())?, cell, check })
}
