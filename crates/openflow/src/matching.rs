//! What a flow matches: values and masks of fields.

use crate::field::{FieldId, Fields};

/// A field's value and mask. Value bits outside the mask are zero, and the mask is not zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term {
    /// Which.
    pub field: FieldId,
    /// What it must be.
    pub value: u128,
    /// The bits that count.
    pub mask: u128,
}

/// All of these must hold; at most one for each field, in order of the fields.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Match {
    terms: Vec<Term>,
}

impl Match {
    /// Matches every packet.
    pub fn any() -> Match {
        Match::default()
    }

    /// Asks for a field as well. A mask of zero asks for nothing. Whether the field was free: if not, nothing changes.
    pub fn add(&mut self, field: FieldId, value: u128, mask: u128) -> bool {
        match self.terms.binary_search_by_key(&field, |term| term.field) {
            Ok(_) => false,
            Err(at) => {
                if mask != 0 {
                    self.terms.insert(at, Term { field, value: value & mask, mask });
                }
                true
            }
        }
    }

    /// What it asks for, in order of the fields.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Bytes that it has on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.terms.capacity() * size_of::<Term>()
    }

    /// The same with each field behind those that it needs (OpenFlow 1.3.5, 7.2.3.6).
    pub fn ordered_terms(&self, fields: &Fields) -> Vec<Term> {
        // A field that needs itself, by others, is not declared by any sound program; it must not hang the switch either.
        fn visit(term: Term, matching: &Match, fields: &Fields, open: &mut Vec<FieldId>, terms: &mut Vec<Term>) {
            if terms.contains(&term) || open.contains(&term.field) {
                return;
            }
            open.push(term.field);
            for needs in &fields.get(term.field).prerequisites {
                if let Some(term) = matching.term(needs.field) {
                    visit(term, matching, fields, open, terms);
                }
            }
            open.pop();
            terms.push(term);
        }
        let mut terms = Vec::with_capacity(self.terms.len());
        self.terms.iter().for_each(|term| visit(*term, self, fields, &mut Vec::new(), &mut terms));
        terms
    }

    /// What it asks of a field.
    pub fn term(&self, field: FieldId) -> Option<Term> {
        self.terms.binary_search_by_key(&field, |term| term.field).ok().map(|at| self.terms[at])
    }

    /// Whether every packet that matches this matches `wider` as well (OpenFlow 1.3.5, 6.4: non-strict).
    pub fn is_within(&self, wider: &Match) -> bool {
        wider.terms.iter().all(|wide| {
            let term = self.term(wide.field);
            term.is_some_and(|term| term.mask & wide.mask == wide.mask && term.value & wide.mask == wide.value)
        })
    }

    /// Whether a packet may match both.
    pub fn overlaps(&self, other: &Match) -> bool {
        self.terms.iter().all(|term| {
            other.term(term.field).is_none_or(|other| (term.value ^ other.value) & term.mask & other.mask == 0)
        })
    }

    /// Whether the match says that all that a field needs is there.
    pub fn provides(&self, field: FieldId, fields: &Fields) -> bool {
        fields.get(field).prerequisites.iter().all(|needs| {
            let has = self.term(needs.field);
            has.is_some_and(|has| {
                has.mask & needs.mask == needs.mask && needs.values.contains(&(has.value & needs.mask))
            })
        })
    }

    /// The first field whose prerequisites do not hold.
    pub fn lacks_prerequisite(&self, fields: &Fields) -> Option<FieldId> {
        self.terms.iter().find(|term| !self.provides(term.field, fields)).map(|term| term.field)
    }
}
