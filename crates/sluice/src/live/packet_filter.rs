//! Filters in libpcap's language, compiled by libpcap: `tcp port 80 and host 10.0.0.1`.
//!
//! Frames are Ethernet. These filters test bytes of the frame, whatever headers the program parses; [`interp::filter`]
//! tests the program's headers. Tests: at the end of the file.

use pcap::{BpfProgram, Capture, Linktype};

/// A compiled filter; an empty text accepts every frame.
pub struct PacketFilter(Option<BpfProgram>);

impl PacketFilter {
    /// Compiles a filter.
    ///
    /// # Errors
    /// If libpcap rejects the text.
    pub fn compile(text: &str) -> Result<PacketFilter, String> {
        if text.trim().is_empty() {
            return Ok(PacketFilter(None));
        }
        let compiled = Capture::dead(Linktype::ETHERNET).and_then(|dead| dead.compile(text, true));
        compiled.map(|program| PacketFilter(Some(program))).map_err(|e| format!("the filter `{text}`: {e}"))
    }

    /// Whether the filter accepts a frame.
    pub fn accepts(&self, frame: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|program| program.filter(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_looked_at_as_ethernet() {
        let ipv4 = |protocol: u8| {
            let mut frame = vec![0; 12];
            frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend([0, 80, 1, 0]);
            frame.resize(60, 0);
            frame
        };
        let tcp = PacketFilter::compile("tcp port 80 and src host 10.0.0.1").unwrap();
        assert!(tcp.accepts(&ipv4(6)) && !tcp.accepts(&ipv4(17)) && !tcp.accepts(&[]));
        assert!(PacketFilter::compile("").unwrap().accepts(&[]));
        let refused = PacketFilter::compile("tcp prot 80").err().expect("refused");
        assert!(refused.contains("tcp prot 80") && refused.contains("syntax error"), "{refused}");
    }
}
