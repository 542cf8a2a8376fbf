//! IP fragments, by the bridge's configuration (`OFPC_FRAG_`; ovs-ofctl(8), `set-frags`).
//!
//! | configuration | first fragments | later fragments |
//! | --- | --- | --- |
//! | `normal` | the ports, and ICMP's type and code, read as zero | the parser finds no transport header |
//! | `drop` | dropped | dropped |
//! | `nx-match` | as other packets | the parser finds no transport header |
//!
//! Hidden fields are hidden from flows and actions only: they can be written, and the frame keeps them otherwise, so
//! that its checksums stay right.
//!
//! A megaflow whose result depends on a field that is hidden in first fragments also depends on whether the packet is
//! one. Others stay wide.

use super::Translator;
use crate::recent::Dependence;

/// `OFPC_FRAG_MASK`.
const MODE: u16 = 0b11;
/// `OFPC_FRAG_NORMAL`.
const NORMAL: u16 = 0;
/// `OFPC_FRAG_DROP`.
const DROP: u16 = 1;

impl Translator<'_> {
    /// Hides the fields of a first fragment that the configuration hides.
    pub(super) fn hide_transport(&mut self) {
        let Some(fragment) = self.layout.fragment() else { return };
        self.depend(Dependence::Ports);
        if self.tables.as_ref().is_none_or(|tables| tables.fragments() & MODE != NORMAL) {
            return;
        }
        let layout = self.layout;
        if layout.is_first_fragment(&self.state.record) {
            self.state.consult_place(fragment, MODE.into());
            self.state.hide(layout.transport());
            self.note(|| "a first fragment: its transport fields are hidden".to_string());
        } else {
            self.state.watch_transport();
        }
    }

    /// Whether the configuration drops the packet.
    pub(super) fn drops_fragment(&mut self) -> bool {
        let Some(fragment) = self.layout.fragment() else { return false };
        if self.tables.as_ref().is_none_or(|tables| tables.fragments() & MODE != DROP) {
            return false;
        }
        // Bit 0 is set for all fragments.
        self.state.consult_place(fragment, 1);
        let drops = fragment.read(&self.state.record) & 1 != 0;
        if drops {
            self.note(|| "fragments are dropped".to_string());
        }
        drops
    }

    /// Consults whether the packet is a first fragment, if the result would be another one for these.
    pub(super) fn consult_fragment(&mut self) {
        if let Some(fragment) = self.layout.fragment().filter(|_| self.state.has_read_transport()) {
            fragment.spread(0, MODE.into(), |word, mask, _| self.state.consulted.add(word, mask));
        }
    }
}
