//! Broken variants of any program: prefixes, and token mutations ([`crate::source::mutate`]). For each, the compiler
//! must return a program or diagnostics, and never panic.
//!
//! A separate scanner splits the text (words, numbers, strings, comments, white space, single symbols), so that an
//! error of the compiler's lexer is not hidden. A variant is identified by a number; it is determined by the text, the
//! [`Plan`] and that number, which reproduces a finding.
//!
//! Used by the command `mangle` (one process per file of the p4c corpus, see `cargo xtask help`) and by
//! `tests/mangled_programs.rs` on the repository's programs.

use crate::generate::Dice;
use crate::source::mutate::mutate;
use frontend::{Input, Options, Until};
use std::ops::Range;
use std::sync::Arc;

/// The variants of a text to generate.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The maximum number of prefixes that end at a token boundary, evenly spread if there are more boundaries.
    pub cuts: usize,
    /// The maximum number of prefixes that end at any byte.
    pub byte_cuts: usize,
    /// The number of mutations.
    pub mutants: usize,
    /// The seed of the mutations.
    pub seed: u64,
}

/// A text and its tokens.
pub struct Source<'a> {
    text: &'a str,
    pieces: Vec<Range<usize>>,
    plan: Plan,
}

/// The compiler's result for a variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The compiler reported diagnostics.
    Refused,
    /// The compiler returned a program.
    Accepted,
}

impl<'a> Source<'a> {
    /// Splits a text into tokens.
    pub fn new(text: &'a str, plan: Plan) -> Source<'a> {
        Source { text, pieces: scan(text), plan }
    }

    /// The number of variants.
    pub fn variants(&self) -> usize {
        self.cuts() + self.byte_cuts() + self.mutants()
    }

    fn cuts(&self) -> usize {
        self.pieces.len().min(self.plan.cuts)
    }

    fn byte_cuts(&self) -> usize {
        self.text.len().min(self.plan.byte_cuts)
    }

    fn mutants(&self) -> usize {
        if self.pieces.is_empty() { 0 } else { self.plan.mutants }
    }

    /// A human-readable name of a variant.
    pub fn name(&self, variant: usize) -> String {
        let mutant = variant.checked_sub(self.cuts() + self.byte_cuts());
        match (self.prefix(variant), mutant) {
            (Some(end), _) => format!("the first {end} bytes"),
            (None, mutant) => format!("mutant {} of seed {}", mutant.unwrap_or_default(), self.plan.seed),
        }
    }

    /// The text of a variant.
    pub fn variant(&self, variant: usize) -> String {
        match self.prefix(variant) {
            Some(end) => self.text[..end].to_string(),
            None => self.mutant(variant - self.cuts() - self.byte_cuts()),
        }
    }

    /// The end of a variant that is a prefix.
    fn prefix(&self, variant: usize) -> Option<usize> {
        let (cuts, byte_cuts) = (self.cuts(), self.byte_cuts());
        if variant < cuts {
            return Some(self.pieces[variant * self.pieces.len() / cuts].start);
        }
        let i = variant - cuts;
        (i < byte_cuts).then(|| {
            // Offset by half a step, so that these prefixes differ from the others.
            let mut end = (2 * i + 1) * self.text.len() / (2 * byte_cuts);
            while !self.text.is_char_boundary(end) {
                end -= 1;
            }
            end
        })
    }

    /// The text with a few tokens changed. Comments are removed first, since changes in them find nothing.
    fn mutant(&self, number: usize) -> String {
        let code = self.pieces.iter().map(|r| &self.text[r.clone()]).filter(|p| !is_comment(p)).collect::<String>();
        let mut dice = Dice::new(self.plan.seed ^ ((number as u64 + 1) << 32) ^ self.text.len() as u64);
        mutate(&code, &mut dice)
    }
}

fn is_comment(piece: &str) -> bool {
    piece.starts_with("//") || piece.starts_with("/*")
}

/// The ranges of the tokens, which cover the whole text.
fn scan(text: &str) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let until = |found: Option<usize>| found.unwrap_or(rest.len());
        let first = rest.chars().next().unwrap_or_default();
        let length = if first.is_alphanumeric() || first == '_' {
            until(rest.find(|c: char| !c.is_alphanumeric() && c != '_'))
        } else if first.is_whitespace() {
            until(rest.find(|c: char| !c.is_whitespace()))
        } else if rest.starts_with("//") {
            until(rest.find('\n'))
        } else if let Some(comment) = rest.strip_prefix("/*") {
            until(comment.find("*/").map(|i| i + 4))
        } else if first == '"' {
            until(rest[1..].find(['"', '\n']).map(|i| i + 2))
        } else {
            first.len_utf8()
        };
        pieces.push(at..at + length);
        at += length;
    }
    pieces
}

/// Compiles a text as far as possible, to machine code if it is accepted.
///
/// # Panics
/// If the compiler violates one of its guarantees.
pub fn compile(name: &str, text: &str, include_dirs: &[String]) -> Outcome {
    let options = Options { include_dirs: include_dirs.to_vec(), ..Options::default() };
    let compiled = frontend::compile(Input::Text { name, text }, &options, Until::Ir).expect("a text needs no file");
    let messages = compiled.render(false);
    if compiled.failed() {
        assert!(!messages.is_empty(), "a refused program without a reason");
        return Outcome::Refused;
    }
    for program in compiled.raw.iter().chain(&compiled.optimised) {
        let problems = ir::verify(program);
        assert!(problems.is_empty(), "an accepted program became wrong IR: {}", problems[0].message);
    }
    if let Some(program) = compiled.optimised {
        // Code generation may refuse the program too: it has its own limits, which its error names.
        if let Err(error) = datapath::check_code(Arc::new(program)) {
            assert!(!format!("{error:#}").is_empty(), "a program that has no code without a reason");
            return Outcome::Refused;
        }
    }
    Outcome::Accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_text() {
        for text in
            ["", "a<b>>8w3 /* x */ \"s\\\"t\" // é\n#define X(a) a##b\n", "/* open", "\"open", "//", "/*/", "é\""]
        {
            let pieces = scan(text);
            assert_eq!(pieces.iter().map(|r| &text[r.clone()]).collect::<String>(), text);
            assert!(pieces.iter().all(|r| !r.is_empty()));
        }
    }

    #[test]
    fn few_pieces_are_cut_everywhere_and_many_are_spread() {
        let plan = Plan { cuts: 4, byte_cuts: 2, mutants: 3, seed: 1 };
        let ends = |text: &str| {
            let source = Source::new(text, plan);
            (0..source.variants()).filter_map(|v| source.prefix(v)).collect::<Vec<_>>()
        };
        assert_eq!(ends("a b"), [0, 1, 2, 0, 2]);
        assert_eq!(ends("a b c d e"), [0, 2, 4, 6, 2, 6]);
        assert_eq!(ends(""), [0usize; 0]);
    }

    #[test]
    fn mutants_follow_from_the_seed() {
        let text = "header h { bit<8> x; } struct s { h a; h b; }";
        let mutants = |seed| {
            let source = Source::new(text, Plan { cuts: 0, byte_cuts: 0, mutants: 20, seed });
            (0..source.variants()).map(|v| source.variant(v)).collect::<Vec<_>>()
        };
        assert_eq!(mutants(1), mutants(1));
        assert_ne!(mutants(1), mutants(2));
        assert!(mutants(1).iter().filter(|m| *m != text).count() > 10);
    }
}
