//! What lowering asks of an architecture.
//!
//! The core lowers P4_16 itself and the externs of `core.p4`; all other externs and the table properties that name them
//! are an architecture's. Arguments are evaluated before the architecture is asked, so its methods only emit.

use crate::context::Lowerer;
use crate::path::Place;
use crate::tree::Tree;
use ir::SlotId;
use sema::typed::{Call, InstanceId, Table};

/// A call of an extern with its arguments evaluated.
pub(crate) struct ExternCall<'a> {
    /// The call: types, constants, places.
    pub call: &'a Call,
    /// One per parameter.
    pub args: Vec<ExternArg>,
}

/// An evaluated argument.
pub(crate) enum ExternArg {
    /// Of an `in` or directionless parameter.
    In(Tree),
    /// Of an `out` or `inout` parameter.
    Out(Place),
    /// Not given, or `_`.
    Absent,
}

impl ExternCall<'_> {
    /// The value of argument `i`.
    pub fn value(&self, i: usize) -> Tree {
        match self.args.get(i) {
            Some(ExternArg::In(tree)) => tree.clone(),
            _ => Tree::Nothing,
        }
    }

    /// The place of argument `i`.
    pub fn place(&self, i: usize) -> Option<&Place> {
        match self.args.get(i) {
            Some(ExternArg::Out(place)) => Some(place),
            _ => None,
        }
    }
}

/// What a table property means.
pub(crate) enum TableProperty {
    /// The table's action profile or selector.
    Implementation,
    /// A direct counter.
    Counters,
    /// A direct meter.
    Meters,
    /// An object whose `size` is the table's.
    Capacity,
    /// `true` when entries may time out.
    IdleTimeout,
    /// What runs where an entry's group is empty.
    EmptyGroupAction,
    /// Known and without effect here.
    Ignored,
    /// Not of this architecture.
    Unknown,
}

/// An architecture.
pub(crate) trait Architecture {
    /// Declares an extern instance, if it is one with state.
    fn declare(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId);
    /// Emits a call of an extern function.
    fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Tree;
    /// Emits a call of an extern's method.
    fn method(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId, method: &str, call: &ExternCall<'_>) -> Tree;
    /// An instance of a parser or control is applied: emits what begins anew with it.
    fn enter(&mut self, _: &mut Lowerer<'_>, _block: InstanceId) {}
    /// Whether direct counters count and direct meters run at each lookup; else they do where actions call them.
    fn runs_direct_at_lookup(&self) -> bool {
        true
    }
    /// A table with a direct meter was applied: emits what the architecture does with the colour of a hit besides what
    /// actions do.
    fn direct_meter(&mut self, cx: &mut Lowerer<'_>, table: &Table, meter: ir::ExternId, hit: SlotId, colour: SlotId);
    /// Says what a table property means.
    fn table_property(&self, name: &str) -> TableProperty;
    /// The slot that has the packet's length in bytes.
    fn packet_length(&self) -> Option<SlotId>;
}
