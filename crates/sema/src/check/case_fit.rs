//! A single error for a `select` or `switch` in which no case has the right type.
//!
//! If some cases match the type of the key and others do not, the mismatching cases are wrong. If none does, the key is
//! as likely to be wrong, and there is one mistake, not one per case: a single error at the key, with the cases as
//! notes.

use crate::codes;
use base::{Diagnostic, Severity, Span};

/// The maximum number of cases that the error lists.
const MAX_NOTES: usize = 3;

/// The type mismatches of the cases, collected case by case.
#[derive(Default)]
pub(super) struct CaseFit {
    /// Indices, in the list of diagnostics, of the mismatch errors.
    wrong: Vec<usize>,
    /// Whether some case matches the type, or has an error of another kind.
    other: bool,
}

impl CaseFit {
    /// Adds a case other than `default` whose diagnostics start at index `before`.
    pub fn add(&mut self, diags: &[Diagnostic], before: usize) {
        let misfit = |d: &Diagnostic| matches!(d.code, codes::MISMATCH | codes::KEYSET_COUNT);
        let errors = || (before.min(diags.len())..diags.len()).filter(|i| diags[*i].severity == Severity::Error);
        if errors().next().is_some() && errors().all(|i| misfit(&diags[i])) {
            self.wrong.extend(errors());
        } else {
            self.other = true;
        }
    }

    /// If no case matches, removes their errors from `diags` and returns the single error that replaces them.
    pub fn none_fits(self, diags: &mut Vec<Diagnostic>, key: Span, message: &str) -> Option<Diagnostic> {
        if self.other || self.wrong.is_empty() {
            return None;
        }
        let mut taken: Vec<Diagnostic> = self.wrong.iter().rev().map(|i| diags.remove(*i)).collect();
        taken.reverse();
        if let [only] = taken.as_slice()
            && only.code == codes::KEYSET_COUNT
        {
            return Some(Diagnostic::error(only.code, key, only.message.clone()).note(only.span, "here"));
        }
        let mut one = Diagnostic::error(taken[0].code, key, message);
        one.help = taken[0].help.clone();
        for case in taken.into_iter().take(MAX_NOTES) {
            one = one.note(case.span, case.message);
        }
        Some(one)
    }
}
