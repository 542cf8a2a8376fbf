//! One mistake gives one error: every example and accepted test program gets one seeded mistake at a time (a missing
//! token, a misspelt name, a value of another type), and the errors are counted. The test fails if the mean of a kind
//! exceeds its limit below, or if a single mistake gives more errors than its limit.
//!
//! `cargo test -p frontend --test one_mistake -- --nocapture` prints the distributions; with `SHOW_CASCADES=3` also the
//! mistakes of each kind that gave most errors.

use base::Severity;
use frontend::{Input, Options, Until, compile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Number of mistakes of each kind per program.
const MISTAKES_PER_PROGRAM: usize = 16;

/// By kind of mistake: the limit of the mean number of errors, in hundredths, and the limit of a single mistake's
/// errors.
const LIMITS: &[(&str, u32, usize)] = &[
    ("no ;", 100, 1),
    ("no }", 100, 1),
    ("no )", 100, 1),
    ("misspelt use", 101, 2),
    ("misspelt declaration", 101, 2),
    ("another type", 100, 1),
];

/// A linear congruential generator, so that the mistakes are the same each time. The limits hold for this sample, so
/// the test has a generator of its own.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

/// A word, number or symbol of a program, with its offset.
#[derive(Clone, Copy)]
struct Word<'t> {
    at: usize,
    text: &'t str,
}

/// The words of a program, without comments, strings, annotations and directives.
fn words(text: &str) -> Vec<Word<'_>> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut i = 0;
    let mut line_start = true;
    while i < bytes.len() {
        let rest = &text[i..];
        let skip_to = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |p| p + from + end.len());
        match bytes[i] {
            b'\n' => {
                line_start = true;
                i += 1;
                continue;
            }
            b if b.is_ascii_whitespace() => {
                i += 1;
                continue;
            }
            b'#' if line_start => i += rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("//") => i += rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => i += skip_to("*/", 2),
            b'"' => i += skip_to("\"", 1),
            b'@' => {
                i += 1;
                i += text[i..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
                if text[i..].starts_with('(') {
                    i += text[i..].find(')').unwrap_or(0);
                }
            }
            b if b.is_ascii_alphanumeric() || b == b'_' => {
                let len = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
                out.push(Word { at: i, text: &rest[..len] });
                i += len;
            }
            _ => {
                let len = rest.chars().next().map_or(1, char::len_utf8);
                out.push(Word { at: i, text: &rest[..len] });
                i += len;
            }
        }
        line_start = false;
    }
    out
}

const NOT_NAMES: &[&str] = &[
    "abstract",
    "action",
    "actions",
    "apply",
    "bit",
    "bool",
    "break",
    "const",
    "continue",
    "control",
    "default",
    "else",
    "entries",
    "enum",
    "error",
    "exit",
    "extern",
    "false",
    "for",
    "header",
    "header_union",
    "if",
    "in",
    "inout",
    "int",
    "key",
    "match_kind",
    "out",
    "package",
    "parser",
    "priority",
    "return",
    "select",
    "size",
    "state",
    "string",
    "struct",
    "switch",
    "table",
    "this",
    "transition",
    "true",
    "tuple",
    "type",
    "typedef",
    "value_set",
    "varbit",
    "void",
    "main",
    "start",
    "accept",
    "reject",
    "default_action",
    "list",
    "isValid",
    "setValid",
    "setInvalid",
];

fn is_name(word: &str) -> bool {
    word.len() >= 3
        && !word.as_bytes()[0].is_ascii_digit()
        && !NOT_NAMES.contains(&word)
        && word.is_ascii()
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The name with a typing error, such that the program does not contain the result.
fn misspell(name: &str, rng: &mut Rng, all: &[Word<'_>]) -> String {
    loop {
        let mut slip: Vec<char> = name.chars().collect();
        let i = rng.below(slip.len());
        match rng.below(3) {
            0 => slip.insert(i, 'q'),
            1 => slip[i] = 'q',
            _ => slip.push('q'),
        }
        let slip: String = slip.into_iter().collect();
        if !all.iter().any(|w| w.text == slip) && !slip.as_bytes()[0].is_ascii_digit() {
            return slip;
        }
    }
}

/// The program with one mistake of a kind, and the offset; `None` if it has no place for one.
fn with_mistake(text: &str, kind: &str, rng: &mut Rng) -> Option<(usize, String)> {
    let all = words(text);
    let pick = |rng: &mut Rng, places: Vec<usize>| (!places.is_empty()).then(|| places[rng.below(places.len())]);
    let replace = |w: Word<'_>, by: &str| (w.at, format!("{}{by}{}", &text[..w.at], &text[w.at + w.text.len()..]));
    let first_of = |i: usize| all.iter().position(|w| w.text == all[i].text) == Some(i);
    let uses = |i: usize| all.iter().filter(|w| w.text == all[i].text).count();
    Some(match kind {
        "no ;" | "no }" | "no )" => {
            let token = &kind[3..];
            let i = pick(rng, (0..all.len()).filter(|i| all[*i].text == token).collect())?;
            replace(all[i], "")
        }
        "misspelt use" => {
            let i = pick(rng, (0..all.len()).filter(|i| is_name(all[*i].text) && !first_of(*i)).collect())?;
            replace(all[i], &misspell(all[i].text, rng, &all))
        }
        "misspelt declaration" => {
            let named = |i: &usize| is_name(all[*i].text) && first_of(*i) && uses(*i) > 1;
            let i = pick(rng, (0..all.len()).filter(named).collect())?;
            replace(all[i], &misspell(all[i].text, rng, &all))
        }
        "another type" => {
            let number = |i: &usize| {
                all[*i].text.bytes().all(|b| b.is_ascii_digit())
                    && *i > 1
                    && all[*i - 1].text == "="
                    && all.get(*i + 1).is_some_and(|w| w.text == ";")
            };
            let i = pick(rng, (0..all.len()).filter(number).collect())?;
            replace(all[i], "true")
        }
        _ => unreachable!("{kind}"),
    })
}

fn programs() -> Vec<PathBuf> {
    fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
            // Generated programs are unlike those that people write.
            if path.is_dir() && !path.ends_with("generated") {
                walk(&path, out);
            } else if path.extension().is_some_and(|e| e == "p4") {
                out.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut out = Vec::new();
    for dir in ["examples", "tests/stf", "crates/sema/tests/ok"] {
        walk(&root.join(dir), &mut out);
    }
    out.sort();
    out
}

/// The number of errors of a program, and their text.
fn errors(text: &str) -> (usize, String) {
    let compiled = compile(Input::Text { name: "x.p4", text }, &Options::default(), Until::Types).unwrap();
    let errors = compiled.diagnostics.iter().filter(|d| d.severity == Severity::Error);
    let shown: String = errors.clone().map(|d| d.render(&compiled.sources, false)).collect();
    (errors.count(), shown)
}

#[test]
fn one_mistake_gives_one_error() {
    let show = std::env::var("SHOW_CASCADES").ok().and_then(|n| n.parse().ok()).unwrap_or(0_usize);
    let texts: Vec<(PathBuf, String)> = programs()
        .into_iter()
        .map(|p| (p.clone(), std::fs::read_to_string(p).unwrap()))
        .filter(|(_, t)| errors(t).0 == 0)
        .collect();
    assert!(texts.len() >= 15, "{} programs", texts.len());
    let mut failures = String::new();
    for &(kind, mean_max, worst_max) in LIMITS {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let mut worst: Vec<(usize, String)> = Vec::new();
        for (number, (path, text)) in texts.iter().enumerate() {
            let mut rng = Rng(number as u64 * 977 + 13);
            for _ in 0..MISTAKES_PER_PROGRAM {
                let Some((at, wrong)) = with_mistake(text, kind, &mut rng) else { break };
                let (count, shown) = errors(&wrong);
                // Some mistakes give another correct program.
                if count == 0 {
                    continue;
                }
                *counts.entry(count).or_default() += 1;
                if count > 1 && show > 0 {
                    let line = text[..at].matches('\n').count();
                    let line = text.lines().nth(line).unwrap_or_default();
                    worst.push((count, format!("{}: {line}\n{shown}", path.display())));
                }
            }
        }
        let mistakes: usize = counts.values().sum();
        let total: usize = counts.iter().map(|(errors, n)| errors * n).sum();
        let mean = total as f64 / mistakes.max(1) as f64;
        println!("{kind:22} {mistakes:5} mistakes, {mean:.3} errors each: {counts:?}");
        worst.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        for (count, text) in worst.iter().take(show) {
            println!("== {kind}: {count} errors\n{text}");
        }
        let most = counts.keys().max().copied().unwrap_or(0);
        if mean * 100.0 > f64::from(mean_max) || most > worst_max {
            failures += &format!("{kind}: {mean:.3} errors for each mistake, at most {most}\n");
        }
        assert!(mistakes > 50, "{kind}: only {mistakes} mistakes");
    }
    assert!(failures.is_empty(), "{failures}");
}
