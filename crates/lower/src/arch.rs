//! The interface between lowering and the architectures.
//!
//! The core lowers P4_16 itself and the externs of `core.p4`. All other externs, and the table properties that refer to
//! them, belong to an architecture. Arguments are evaluated before its methods are called, so these only emit
//! operations.

use crate::context::Lowerer;
use crate::path::Place;
use crate::tree::Tree;
use ir::SlotId;
use sema::typed::{Call, InstanceId, Table};

/// A call of an extern whose arguments have been evaluated.
pub(crate) struct ExternCall<'a> {
    /// The typed call, with types, constants and source positions.
    pub call: &'a Call,
    /// One per parameter.
    pub args: Vec<ExternArg>,
}

/// An evaluated argument.
pub(crate) enum ExternArg {
    /// For an `in` or directionless parameter.
    In(Tree),
    /// For an `out` or `inout` parameter.
    Out(Place),
    /// No argument, or `_`.
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

    /// The place to which argument `i` is written.
    pub fn place(&self, i: usize) -> Option<&Place> {
        match self.args.get(i) {
            Some(ExternArg::Out(place)) => Some(place),
            _ => None,
        }
    }
}

/// The meaning of a table property.
pub(crate) enum TableProperty {
    /// An action profile or action selector.
    Implementation,
    /// A direct counter.
    Counters,
    /// A direct meter.
    Meters,
    /// An object whose `size` is the size of the table.
    Capacity,
    /// Whether entries have an idle timeout.
    IdleTimeout,
    /// The action that runs when the entry's group is empty.
    EmptyGroupAction,
    /// Known, but without effect.
    Ignored,
    /// Not a property of this architecture.
    Unknown,
}

/// An architecture: it lowers calls of its externs and interprets its table properties.
pub(crate) trait Architecture {
    /// Declares an extern instance, if it has state.
    fn declare(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId);
    /// Emits a call of an extern function.
    fn function(&mut self, cx: &mut Lowerer<'_>, name: &str, call: &ExternCall<'_>) -> Tree;
    /// Emits a call of an extern's method.
    fn method(&mut self, cx: &mut Lowerer<'_>, instance: InstanceId, method: &str, call: &ExternCall<'_>) -> Tree;
    /// Called when an instance of a parser or control is applied: emits what must be initialised for each application.
    fn enter(&mut self, _: &mut Lowerer<'_>, _block: InstanceId) {}
    /// Whether direct counters count and direct meters run at each lookup; otherwise they do so when actions call them.
    fn runs_direct_at_lookup(&self) -> bool {
        true
    }
    /// Called when a table with a direct meter has been applied: emits how the architecture handles the colour of a
    /// hit, apart from what actions do.
    fn direct_meter(&mut self, cx: &mut Lowerer<'_>, table: &Table, meter: ir::ExternId, hit: SlotId, colour: SlotId);
    /// The meaning of a table property.
    fn table_property(&self, name: &str) -> TableProperty;
    /// The slot with the packet's length in bytes.
    fn packet_length(&self) -> Option<SlotId>;
}
