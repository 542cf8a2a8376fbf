//! Token mutations of sources. The results are mostly invalid: the compiler must report that, without panicking.

use crate::generate::Dice;

/// Words and symbols that generated programs may lack.
const WORDS: &[&str] = &[
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ";",
    ",",
    ".",
    ":",
    "=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "~",
    "!",
    "<<",
    ">>",
    "++",
    "|+|",
    "|-|",
    "&&&",
    "..",
    "...",
    "_",
    "@",
    "#",
    "0",
    "1",
    "-1",
    "8w255",
    "1s1",
    "0w0",
    "4294967296",
    "65536",
    "true",
    "false",
    "error",
    "int",
    "bit",
    "bool",
    "varbit",
    "string",
    "void",
    "in",
    "out",
    "inout",
    "const",
    "type",
    "typedef",
    "struct",
    "header",
    "header_union",
    "enum",
    "tuple",
    "list",
    "control",
    "parser",
    "table",
    "action",
    "actions",
    "key",
    "entries",
    "default_action",
    "size",
    "state",
    "transition",
    "select",
    "accept",
    "reject",
    "default",
    "apply",
    "if",
    "else",
    "for",
    "switch",
    "return",
    "exit",
    "break",
    "continue",
    "this",
    "abstract",
    "extern",
    "package",
    "exact",
    "lpm",
    "ternary",
    "range",
    "optional",
    "selector",
    "setValid",
    "isValid",
    "next",
    "last",
    "lastIndex",
    "push_front",
    "minSizeInBits",
    "hdr",
    "meta",
    "sm",
    "pkt",
    "extract",
    "emit",
    "advance",
    "lookahead",
    "verify",
    "hash",
    "register",
    "counter",
    "value_set",
    "{#}",
    "NoAction",
    "static_assert",
    "bit<0>",
    "int<1>",
    "bit<4096>",
    "(bit<8>)",
    "(int<8>)",
    "[0:0]",
    "[-1]",
    "<<100000",
    "random",
];

/// Symbols of several characters, longer ones first.
const OPERATORS: &[&str] = &[
    "|+|=", "|-|=", "|+|", "|-|", "&&&", "<<=", ">>=", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>", "++", "+:",
    "..", "+=", "-=", "*=", "&=", "|=", "^=",
];

/// Splits a source into words (with numbers), symbols and white space.
fn tokens(source: &str) -> Vec<&str> {
    let mut list = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = if word(first) {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else if first == ' ' {
            rest.find(|c| c != ' ').unwrap_or(rest.len())
        } else {
            OPERATORS.iter().find(|op| rest.starts_with(**op)).map_or(first.len_utf8(), |op| op.len())
        };
        let (token, after) = rest.split_at(length);
        list.push(token);
        rest = after;
    }
    list
}

/// Tokens that can replace each other without a change of type.
const ALIKE: &[&[&str]] = &[
    &["+", "-", "*", "&", "|", "^", "|+|", "|-|"],
    &["<", ">", "<=", ">=", "==", "!="],
    &["&&", "||"],
    &["push_front", "pop_front"],
    &["setValid", "setInvalid"],
    &["hit", "miss"],
    &["exact", "ternary", "optional"],
    &["lpm", "range", "ternary", "exact"],
    &["crc16", "crc32", "csum16", "xor16", "identity"],
    &["break", "continue"],
    &["exit", "return"],
    &["inout", "out", "in"],
    &["accept", "reject"],
    &["true", "false"],
];

/// An edit that mostly preserves types: replaces an operator, number or name by another.
fn gentle(list: &mut [&str], start: usize, dice: &mut Dice) {
    for _ in 0..40 {
        let at = start + dice.below(list.len() - start);
        let token = list[at];
        if let Some(alike) = ALIKE.iter().find(|group| group.contains(&token)) {
            list[at] = alike[dice.below(alike.len())];
            return;
        }
        // The first character of a name tells its kind; numbers begin with digits.
        let class = |t: &str| {
            (
                t.chars().next().is_some_and(|c| c.is_ascii_digit()),
                t.trim_end_matches(|c: char| c.is_ascii_digit()).len(),
            )
        };
        let other = list[start + dice.below(list.len() - start)];
        let numbered = token.ends_with(|c: char| c.is_ascii_digit()) && other.ends_with(|c: char| c.is_ascii_digit());
        if numbered && token != other && class(token) == class(other) && (class(token).0 || token[..1] == other[..1]) {
            list[at] = other;
            return;
        }
    }
}

/// Makes one to three edits; half of the time such that the compiler likely accepts the result.
pub fn mutate(source: &str, dice: &mut Dice) -> String {
    let mut list = tokens(source);
    // After the includes: without these every name is unknown.
    let start = list.iter().position(|t| *t == "error" || *t == "typedef" || *t == "type" || *t == "enum").unwrap_or(0);
    if dice.one_in(2) && list.len() > start {
        for _ in 0..1 + dice.below(2) {
            gentle(&mut list, start, dice);
        }
        return list.concat();
    }
    for _ in 0..1 + dice.below(3) {
        if list.len() <= start + 2 {
            break;
        }
        let place = |dice: &mut Dice, list: &[&str]| loop {
            let at = start + dice.below(list.len() - start);
            if !list[at].trim().is_empty() {
                return at;
            }
        };
        if list[start..].iter().all(|t| t.trim().is_empty()) {
            break;
        }
        let at = place(dice, &list);
        match dice.below(8) {
            0 => {
                list.remove(at);
            }
            1 => list.insert(at, list[at]),
            2 | 3 => {
                let other = place(dice, &list);
                list[at] = list[other];
            }
            4 => {
                let other = place(dice, &list);
                list.swap(at, other);
            }
            5 => list[at] = WORDS[dice.below(WORDS.len())],
            6 => list.insert(at, WORDS[dice.below(WORDS.len())]),
            _ => {
                // Deletes or duplicates a run of tokens.
                let end = (at + 1 + dice.below(12)).min(list.len());
                if dice.one_in(2) {
                    list.drain(at..end);
                } else {
                    let piece: Vec<&str> = list[at..end].to_vec();
                    let to = place(dice, &list);
                    list.splice(to..to, piece);
                }
            }
        }
    }
    list.concat()
}
