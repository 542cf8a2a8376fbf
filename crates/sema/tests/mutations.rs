//! Programs with small mistakes never make the checker panic, and what it accepts keeps the promises of the typed
//! program. Mutations are made by token from the programs in `ok/`: left out, doubled, or another name of the program.

use random::Random;
use std::sync::Arc;
use syntax::{MemoryLoader, Options, SourceInput};

fn check(text: &str) -> Option<sema::Checked> {
    let embedded = sema::EMBEDDED.iter().filter_map(|n| Some((n.to_string(), Arc::from(sema::embedded(n)?)))).collect();
    let loader = MemoryLoader { embedded, ..MemoryLoader::default() };
    let mut sources = base::SourceMap::new();
    let input = SourceInput { name: "mutation.p4".to_string(), text: text.into() };
    let parsed = syntax::parse_program(input, &Options::default(), &loader, &mut sources);
    // Trees with syntax errors are checked as well.
    let checked = sema::check(&parsed.program, &sources);
    (!base::diag::has_errors(&parsed.diagnostics)).then_some(checked)
}

/// Byte ranges of words, and of other characters one by one.
fn tokens(text: &str) -> Vec<(usize, usize)> {
    let mut result = Vec::new();
    let mut start = None;
    for (i, c) in text.char_indices() {
        if c.is_alphanumeric() || c == '_' {
            start.get_or_insert(i);
            continue;
        }
        if let Some(s) = start.take() {
            result.push((s, i));
        }
        if !c.is_whitespace() {
            result.push((i, i + c.len_utf8()));
        }
    }
    result
}

#[test]
fn mutated_programs_do_not_panic_and_accepted_ones_are_sound() {
    let rounds: usize = std::env::var("SEMA_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for (name, text) in [
        ("router", include_str!("ok/router.p4")),
        ("language", include_str!("ok/language.p4")),
        ("tables", include_str!("err/tables.p4")),
        ("types", include_str!("err/types.p4")),
        ("instances", include_str!("err/instances.p4")),
    ] {
        let tokens = tokens(text);
        let mut numbers = Random::new(tokens.len() as u64);
        for _ in 0..rounds {
            let mut mutated = text.to_string();
            // From the back, so that earlier ranges stay right.
            let mut places: Vec<usize> = (0..=numbers.index(2)).map(|_| numbers.index(tokens.len())).collect();
            places.sort_unstable();
            places.dedup();
            for place in places.into_iter().rev() {
                let (start, end) = tokens[place];
                let other = tokens[numbers.index(tokens.len())];
                let replacement = match numbers.index(4) {
                    0 => String::new(),
                    1 => format!("{0} {0}", &text[start..end]),
                    _ => text[other.0..other.1].to_string(),
                };
                mutated.replace_range(start..end, &replacement);
            }
            let accepted = check(&mutated).and_then(|c| c.program);
            if let Some(program) = accepted {
                assert_eq!(sema::verify::verify(&program), Vec::<String>::new(), "{name}:\n{mutated}");
            }
        }
    }
}
