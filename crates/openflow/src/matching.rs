//! Matches: values and masks of fields.

use crate::field::{FieldId, Fields};

/// A field's value and mask. Value bits outside the mask are zero, and the mask is not zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term {
    /// The field.
    pub field: FieldId,
    /// The value of the masked bits.
    pub value: u128,
    /// The bits that are compared.
    pub mask: u128,
}

/// A conjunction of terms, at most one per field, in order of field ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Match {
    terms: Vec<Term>,
}

impl Match {
    /// The match of all packets.
    pub fn any() -> Match {
        Match::default()
    }

    /// Adds a term and returns true; if the field already has one, changes nothing and returns false. A mask of zero
    /// adds no term.
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

    /// Its terms, in order of field ids.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Its size on the heap in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.terms.capacity() * size_of::<Term>()
    }

    /// Its terms with each field after its prerequisites (OpenFlow 1.3.5, 7.2.3.6).
    pub fn ordered_terms(&self, fields: &Fields) -> Vec<Term> {
        // `open` breaks cycles: a program that declares a field as its own indirect prerequisite must not hang the
        // switch.
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

    /// Its term of a field.
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

    /// Whether some packet may match both.
    pub fn overlaps(&self, other: &Match) -> bool {
        self.terms.iter().all(|term| {
            other.term(term.field).is_none_or(|other| (term.value ^ other.value) & term.mask & other.mask == 0)
        })
    }

    /// Whether the match guarantees all prerequisites of a field.
    pub fn provides(&self, field: FieldId, fields: &Fields) -> bool {
        fields.get(field).prerequisites.iter().all(|needs| {
            let has = self.term(needs.field);
            has.is_some_and(|has| {
                has.mask & needs.mask == needs.mask && needs.values.contains(&(has.value & needs.mask))
            })
        })
    }

    /// The first field whose prerequisites the match does not guarantee.
    pub fn lacks_prerequisite(&self, fields: &Fields) -> Option<FieldId> {
        self.terms.iter().find(|term| !self.provides(term.field, fields)).map(|term| term.field)
    }
}
