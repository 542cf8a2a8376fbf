//! Conditions in the analysis of a body: what they imply about header validity, and whether they may imply more.

use super::states::Changes;
use super::walk::Walker;
use super::{BAD, GOOD, TESTED};
use crate::lint::places::Part;
use crate::typed::*;
use crate::types::*;
use crate::value::Value;

/// What a condition implies about headers when true (`yes`) and when false (`no`).
#[derive(Default)]
pub(super) struct Facts {
    pub yes: Vec<(u32, Fact)>,
    pub no: Vec<(u32, Fact)>,
    /// Whether it depends on more than validity: correlated conditions are possible, which this analysis does not
    /// track.
    pub opaque: bool,
    pub known: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    Valid,
    Invalid,
    Tested,
}

fn tested(facts: &[(u32, Fact)]) -> impl Iterator<Item = (u32, Fact)> {
    facts.iter().map(|(place, _)| (*place, Fact::Tested))
}

impl<'p> Walker<'_, 'p> {
    pub fn apply(&mut self, facts: &[(u32, Fact)]) {
        for (place, fact) in facts {
            match fact {
                Fact::Valid => {
                    self.set(*place, GOOD | TESTED);
                    for other in self.flow.implied_by(self.places, *place) {
                        self.weaken(other, TESTED);
                    }
                }
                Fact::Invalid => self.set(*place, BAD | TESTED),
                Fact::Tested => self.weaken(*place, TESTED),
            }
        }
    }

    /// Marks the headers whose validity was tested, where the result is used as a value.
    pub fn mark_tested(&mut self, facts: &Facts) {
        for (place, _) in facts.yes.iter().chain(&facts.no) {
            self.weaken(*place, TESTED);
        }
        let valid = facts.yes.iter().filter(|(_, fact)| *fact == Fact::Valid);
        let others: Vec<u32> = valid.flat_map(|(place, _)| self.flow.implied_by(self.places, *place)).collect();
        others.into_iter().for_each(|place| self.weaken(place, TESTED));
    }

    /// Analyses a condition and returns what it implies.
    pub fn condition(&mut self, e: &'p Expr) -> Facts {
        match &e.kind {
            ExprKind::Const(Value::Bool(b)) => Facts { known: Some(*b), ..Facts::default() },
            ExprKind::Unary(UnaryOp::Not, a) => {
                let facts = self.condition(a);
                Facts { yes: facts.no, no: facts.yes, known: facts.known.map(|k| !k), opaque: facts.opaque }
            }
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let both = *op == BinaryOp::And;
                let left = self.condition(a);
                let calls = self.calls_made;
                let mut right = Facts::default();
                let (changes, _) = self.branch(|w| {
                    w.depth += u32::from(left.opaque);
                    w.apply(if both { &left.yes } else { &left.no });
                    right = w.condition(b);
                });
                if self.calls_made != calls {
                    self.join(vec![changes, Some(Changes::new())]);
                }
                let opaque = left.opaque || right.opaque;
                let (certain, left_other, right_other) = match both {
                    true => ([left.yes, right.yes].concat(), left.no, right.no),
                    false => ([left.no, right.no].concat(), left.yes, right.yes),
                };
                let open: Vec<(u32, Fact)> = tested(&left_other).chain(tested(&right_other)).collect();
                let (yes, no) = if both { (certain, open) } else { (open, certain) };
                Facts { yes, no, opaque, known: None }
            }
            ExprKind::Call(c) => match &c.callee {
                Callee::Builtin(Builtin::IsValid, object) => self.is_valid(object),
                _ => self.opaque(e),
            },
            _ => self.opaque(e),
        }
    }

    fn opaque(&mut self, e: &'p Expr) -> Facts {
        self.rvalue(e);
        Facts { opaque: true, ..Facts::default() }
    }

    fn is_valid(&mut self, object: &'p Expr) -> Facts {
        self.indices(object);
        let Some(r) = self.places.resolve(&self.flow.layouts, object) else {
            return self.opaque(object);
        };
        let places = r.start..r.start + r.len;
        match (r.part, &object.ty) {
            (Part::Whole, Type::Header(_)) => {
                Facts { yes: vec![(r.start, Fact::Valid)], no: vec![(r.start, Fact::Invalid)], ..Facts::default() }
            }
            (Part::Whole, _) => Facts {
                yes: places.clone().map(|p| (p, Fact::Tested)).collect(),
                no: places.map(|p| (p, Fact::Invalid)).collect(),
                ..Facts::default()
            },
            _ => Facts {
                yes: vec![(r.start, Fact::Tested)],
                no: vec![(r.start, Fact::Tested)],
                opaque: true,
                ..Facts::default()
            },
        }
    }
}
