//! Runs the cases in `tests/files/NAME.ir`, one file for each optimisation: checks the generated code with the
//! optimisation and without, and that both treat packets as the interpreter does.
//!
//! A file begins with what its cases share. A case is a line `// ==== title`, the rest of a program, and directives:
//!
//! ```text
//! // packets: 64 of 45|46 .. ( .. .. cc cc )   so many packets, by bytes: this one, one of several, any; `cc cc` is the
//!                                              checksum of the bytes in parentheses (wrong in some packets); some
//!                                              packets are truncated
//! // tables: entries of t, contents of u       the code is specialised: for these entries, for what these can return
//! // strategy: staged                          run to completion otherwise
//! // memory: every other                       every other slot lives in memory
//! // left out: hot_paths                       switched off too, because it would obscure the file's own optimisation
//! // with: check: store packet                 the code with the optimisation; the directives of crate `filecheck`
//! // without: not: store packet
//! // both: check: store packet
//! // code: the same                            with the optimisation and without
//! ```
//!
//! The code is what `sluice check --clif` shows, abbreviated ([`readable`]): loads and stores name their region
//! (`packet`, `state`, `stack`), calls and addresses what they refer to (`call lookup(…)`, `&handle(t)`), and values
//! without a type have 64 bits.

mod common;

use common::random::Random;
use common::{Both, Outcome, engine, parse};
use interp::Fate;
use ir::{EntryKind, Program};
use jit::{Optimisation, Options, Strategy};
use std::path::{Path, PathBuf};

/// A case of a file.
struct Case {
    /// File and title, for messages.
    name: String,
    /// The program's text.
    text: String,
    /// The directives: word, rest.
    directives: Vec<(String, String)>,
}

impl Case {
    fn all<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.directives.iter().filter(move |(w, _)| w == word).map(|(_, rest)| rest.as_str())
    }

    fn is(&self, word: &str, what: &str) -> bool {
        self.all(word).any(|rest| {
            assert_eq!(rest, what, "{}: `{word}`", self.name);
            true
        })
    }
}

const WORDS: [&str; 9] = ["packets", "tables", "strategy", "memory", "left out", "with", "without", "both", "code"];

fn cases(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).expect("a readable file");
    let file = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let mut parts = text.split("// ==== ");
    let shared = parts.next().expect("there is always a first part");
    let case = |part: &str| {
        let (title, body) = part.split_once('\n').expect("a title and a body");
        let name = format!("{file}: {title}");
        let directive = |line: &str| {
            let (word, rest) = line.strip_prefix("// ")?.split_once(": ")?;
            assert!(WORDS.contains(&word), "{name}: there is no directive `{word}`");
            Some((word.to_string(), rest.to_string()))
        };
        let directives = body.lines().filter_map(directive).collect();
        Case { text: format!("{shared}{body}"), directives, name }
    };
    parts.map(case).collect()
}

/// The code of an entry point as text, and both engines to run it with.
fn compile(case: &Case, program: &Program, tables: &mut [tables::Table], without: &[Optimisation]) -> (Both, String) {
    let strategy = if case.is("strategy", "staged") { Strategy::Staged } else { Strategy::RunToCompletion };
    let mut options = Options { verify: true, keep_text: true, strategy, ..Options::default() };
    if case.is("memory", "every other") {
        options.memory_slots = jit::MemorySlots::EveryOther;
    }
    let also = |name: &str| {
        let named = Optimisation::ALL.into_iter().find(|o| o.name() == name);
        named.unwrap_or_else(|| panic!("{}: there is no optimisation `{name}`", case.name))
    };
    let left_out = case.all("left out").map(also).chain(without.iter().copied());
    left_out.for_each(|optimisation| options.without.insert(optimisation));
    let shapes = shapes(case, program, tables);
    let bindings: Vec<_> = tables.iter().map(|table| table.binding()).collect();
    let mut names: Vec<(u64, String)> = Vec::new();
    for (binding, table) in bindings.iter().zip(&program.tables) {
        names.push((binding.handle as u64, format!("&handle({})", table.name)));
        names.push((binding.lookup as usize as u64, "lookup".into()));
        names.push((binding.lookup_batch as usize as u64, "lookup_batch".into()));
    }
    let abi::RuntimeCalls { meter, hash, random, digest, log, assert_failed, wide_bin, make_headroom, wait_for_lock } =
        common::runtime::calls();
    names.extend([
        (meter as usize as u64, "meter".into()),
        (hash as usize as u64, "hash".into()),
        (random as usize as u64, "random".into()),
        (digest as usize as u64, "digest".into()),
        (log as usize as u64, "log".into()),
        (assert_failed as usize as u64, "assert_failed".into()),
        (wide_bin as usize as u64, "wide_bin".into()),
        (make_headroom as usize as u64, "make_headroom".into()),
        (wait_for_lock as usize as u64, "wait_for_lock".into()),
    ]);
    let both = Both::with_shapes(program.clone(), &options, &shapes, |runtime| {
        runtime.replaced = bindings.into_iter().map(Some).collect();
    });
    let clif = readable(both.pipeline.clif(EntryKind::Ingress).expect("the text is kept"), &names);
    (both, clif)
}

/// The shapes of tables that the code is specialised for.
fn shapes(case: &Case, program: &Program, tables: &mut [tables::Table]) -> abi::Shapes {
    let Some(known) = case.all("tables").next() else { return abi::Shapes::default() };
    let known: Vec<&str> = known.split(", ").collect();
    let is_known = |what: &str, table: &str| known.contains(&format!("{what} of {table}").as_str());
    let shape = |(table, of): (&mut tables::Table, &ir::Table)| {
        let entries_max = is_known("entries", &of.name).then_some(of.entries.len() as u64);
        let results = is_known("contents", &of.name);
        let mut shape = table.shape(Some(tables::Wanted { entries_max, results, prefilter: false }));
        shape.prefilter = tables::prefilter::of_known(&shape);
        shape
    };
    let shapes: Vec<abi::TableShape> = tables.iter_mut().zip(&program.tables).map(shape).collect();
    let told = shapes.iter().map(|s| {
        let rules = s.rules.as_ref().is_some_and(|r| !r.is_empty());
        usize::from(rules) + usize::from(s.results.is_some())
    });
    assert_eq!(told.sum::<usize>(), known.len(), "{}: {known:?}", case.name);
    abi::Shapes { tables: shapes }
}

/// Cranelift's text without what is irrelevant here: source locations, flags of loads and stores, comments. Alias
/// regions are named, and so are addresses in `names`; all other addresses are printed alike.
fn readable(clif: &str, names: &[(u64, String)]) -> String {
    let named = |word: &str| {
        let number = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(&hex.replace('_', ""), 16).ok()?,
            None => word.parse::<i64>().ok()?.unsigned_abs(),
        };
        match names.iter().find(|(address, _)| *address == number) {
            Some((_, name)) => Some(name.clone()),
            None => (1 << 44..1 << 48).contains(&number).then(|| "address".to_string()),
        }
    };
    let regions: Vec<(&str, &str)> = clif
        .lines()
        .filter_map(|line| line.trim().strip_prefix("region")?.split_once(" = "))
        .map(|(number, described)| (number, described.split('"').nth(1).expect("a description")))
        .collect();
    let mut out = String::new();
    for line in clif.lines().skip_while(|line| !line.trim_start().starts_with("block0")) {
        let line = line.trim_start();
        let line = line.strip_prefix('@').and_then(|l| l.split_once(' ')).map_or(line, |(_, rest)| rest.trim_start());
        let (line, comment) = line.split_once("  ; ").unwrap_or((line, ""));
        let mut words: Vec<String> = Vec::new();
        for word in line.split(' ') {
            match word {
                "notrap" | "readonly" | "can_move" | "aligned" | "heap_oob" => {}
                _ if let Some(number) = word.strip_prefix("region") => {
                    let region = regions.iter().find(|(n, _)| *n == number).expect("a region that was declared");
                    words.push(region.1.to_string());
                }
                _ => words.push(named(word).unwrap_or_else(|| word.strip_suffix(".i64").unwrap_or(word).to_string())),
            }
        }
        // An indirect call of an operand whose value is in the comment.
        if let Some(at) = words.iter().position(|word| word == "call_indirect")
            && let Some((callee, arguments)) = words[at + 2].split_once('(')
            && let Some(address) = comment.split(", ").find_map(|c| c.strip_prefix(callee)?.strip_prefix(" = "))
            && let Some(name) = named(address)
        {
            let first = format!("{name}({arguments}");
            words.splice(at..at + 3, ["call".to_string(), first]);
        }
        out += words.join(" ").trim_end();
        out.push('\n');
    }
    out
}

/// The failure of the directives that begin with `words`, if they fail.
fn check(case: &Case, words: [&str; 2], code: &str) -> Option<String> {
    let mut builder = filecheck::CheckerBuilder::new();
    for (_, directive) in case.directives.iter().filter(|(word, _)| words.contains(&word.as_str())) {
        let is_one = builder.directive(directive).unwrap_or_else(|e| panic!("{}: {directive}: {e}", case.name));
        assert!(is_one, "{}: there is no directive `{directive}` of filecheck", case.name);
    }
    let checker = builder.finish();
    let (is_right, explained) = checker.explain(code, filecheck::NO_VARIABLES).expect("patterns are right");
    (!is_right).then(|| format!("{}, {}:\n{explained}", case.name, words[0]))
}

/// Packets by a pattern.
fn packets(case: &Case, random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for line in case.all("packets") {
        let (count, pattern) = line.split_once(" of ").unwrap_or_else(|| panic!("{}: `{line}`", case.name));
        let count: usize = count.parse().unwrap_or_else(|e| panic!("{}: `{count}`: {e}", case.name));
        for i in 0..count {
            let mut packet = packet(pattern, random, &case.name);
            if i % 8 == 7 {
                packet.truncate(random.below(packet.len() as u64 + 1) as usize);
            }
            all.push(packet);
        }
    }
    all
}

fn packet(pattern: &str, random: &mut Random, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut summed, mut sum_at) = (0, None);
    for word in pattern.split_whitespace() {
        match word {
            "(" => summed = bytes.len(),
            "cc" => {
                sum_at.get_or_insert(bytes.len());
                bytes.push(0);
            }
            ")" => {
                let at = sum_at.take().unwrap_or_else(|| panic!("{name}: there is no checksum in parentheses"));
                let mut sum: u64 = bytes[summed..].chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(w[1])).sum();
                while sum > 0xffff {
                    sum = (sum & 0xffff) + (sum >> 16);
                }
                let wrong = if random.chance(20) { random.below(0x1_0000) as u16 } else { 0 };
                bytes[at..at + 2].copy_from_slice(&(!(sum as u16) ^ wrong).to_be_bytes());
            }
            ".." => bytes.push(*random.pick(&[0, 0, 0xff, 0xff, 1, 2, 0x45, 0x7f, 0x80, 0xfe])),
            _ => {
                let choices: Vec<&str> = word.split('|').collect();
                let chosen = *random.pick(&choices);
                bytes.push(u8::from_str_radix(chosen, 16).unwrap_or_else(|e| panic!("{name}: `{word}`: {e}")));
            }
        }
    }
    bytes
}

/// The outcome without messages, which cannot be attributed to a packet of a batch.
fn by_itself(outcome: &Outcome) -> Outcome {
    Outcome { digests: Vec::new(), logs: Vec::new(), failed_assertions: Vec::new(), ..outcome.clone() }
}

/// Runs packets one by one and in batches.
fn run(case: &Case, both: &Both, packets: &[Vec<u8>]) -> Vec<[u64; 2]> {
    let outcomes = both.check(packets);
    let goes_on = |o: &Outcome| !matches!(o.fate, Fate::Drop(_));
    assert!(outcomes.iter().any(goes_on), "{}: all packets are dropped", case.name);
    for batch in packets.chunks(abi::BATCH_MAX) {
        let compiled = both.run_batch(EntryKind::Ingress, batch, &|_| {});
        for (packet, compiled) in batch.iter().zip(&compiled) {
            let interpreted = both.run_one_interpreted(EntryKind::Ingress, packet);
            assert_eq!(by_itself(compiled), by_itself(&interpreted), "{}, in a batch: {packet:02x?}", case.name);
        }
    }
    both.runtime.table_counters.clone()
}

/// Whether this machine supports an optimisation.
fn is_possible(optimisation: Optimisation) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let has_avx512 = has!("avx512f") && has!("avx512vl") && has!("avx512dq");
        match optimisation {
            Optimisation::WideCompare => has_avx512,
            Optimisation::CarrylessCrc => has_avx512 && has!("vpclmulqdq"),
            _ => true,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    !matches!(optimisation, Optimisation::WideCompare | Optimisation::CarrylessCrc)
}

fn file_of(optimisation: Optimisation) -> PathBuf {
    directory().join(format!("{}.ir", optimisation.name()))
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

#[test]
fn file_tests_match_their_expectations() {
    let mut wrong = Vec::new();
    for optimisation in Optimisation::ALL {
        let cases = cases(&file_of(optimisation));
        if cases.len() < 2 {
            wrong.push(format!("{}: something that is done, and something that is not", optimisation.name()));
        }
        for case in &cases {
            let program = parse(&case.text);
            let mut tables: Vec<_> = program.tables.iter().map(|t| engine(&program, t, false)).collect();
            let (with, code_with) = compile(case, &program, &mut tables, &[]);
            let (without, code_without) = compile(case, &program, &mut tables, &[optimisation]);
            if is_possible(optimisation) {
                wrong.extend(check(case, ["with", "both"], &code_with));
            }
            wrong.extend(check(case, ["without", "both"], &code_without));
            let is_same = case.is("code", "the same");
            let is_checked = is_same || ["with", "both"].iter().any(|word| case.all(word).next().is_some());
            assert!(is_checked, "{}: nothing is said of the code", case.name);
            if is_same && code_with != code_without {
                wrong.push(format!("{}, with:\n{code_with}\nwithout:\n{code_without}", case.name));
            }
            let packets = packets(case, &mut Random::new(1));
            let counted = run(case, &with, &packets);
            assert_eq!(counted, run(case, &without, &packets), "{}: hits and misses", case.name);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_optimisation_has_a_file_and_every_file_an_optimisation() {
    let mut expected: Vec<PathBuf> = Optimisation::ALL.into_iter().map(file_of).collect();
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(directory()).expect("the directory").map(|f| f.expect("a file").path()).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}
