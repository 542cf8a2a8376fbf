//! One error for a `select` or `switch` none of whose cases fits.
//!
//! A case that does not fit among others that do is wrong itself. If none fits, what they are compared with is as likely
//! wrong, and there is one mistake, not one per case: one error at the key, with the cases as notes.

use crate::codes;
use base::{Diagnostic, Severity, Span};

/// How many cases the error names.
const MAX_NOTES: usize = 3;

/// Which cases fit, collected case by case.
#[derive(Default)]
pub(super) struct CaseFit {
    /// Positions, among all diagnostics, of the errors of cases that do not fit.
    wrong: Vec<usize>,
    /// Whether a case fits, or is wrong in another way.
    other: bool,
}

impl CaseFit {
    /// Adds a case, which is not `default`, whose diagnostics start at `before`.
    pub fn add(&mut self, diags: &[Diagnostic], before: usize) {
        let misfit = |d: &Diagnostic| matches!(d.code, codes::MISMATCH | codes::KEYSET_COUNT);
        let errors = || (before.min(diags.len())..diags.len()).filter(|i| diags[*i].severity == Severity::Error);
        if errors().next().is_some() && errors().all(|i| misfit(&diags[i])) {
            self.wrong.extend(errors());
        } else {
            self.other = true;
        }
    }

    /// If no case fits, takes their errors out of the diagnostics and gives the one that stands for them.
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
