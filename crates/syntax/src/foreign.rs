//! Recognises files that are not P4 programs: compiler output (bmv2's JSON, P4Info), captures, archives, binaries. They
//! get one message that says what they are, instead of errors about their first characters.
//!
//! In doubt a text counts as a program. Tests: `tests/messages.rs`.

/// The number of bytes of a text that are examined.
const EXAMINED_BYTES: usize = 4096;

/// File signatures, as they appear after invalid UTF-8 has been replaced, and what such files are.
const MAGIC: &[(&str, &str)] = &[
    ("\u{7f}ELF", "an executable or object file (ELF)"),
    ("\u{1f}\u{fffd}", "compressed (gzip)"),
    ("PK\u{3}\u{4}", "an archive (zip)"),
    ("%PDF-", "a PDF document"),
    ("\u{fffd}PNG", "a picture (PNG)"),
    ("\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{2}\u{0}\u{4}\u{0}", "a packet capture (pcap)"),
    ("\n\r\r\n", "a packet capture (pcapng)"),
    ("#!", "a script"),
];

/// What a text is if it is not a program, and what to pass instead.
pub(crate) fn what(text: &str) -> Option<(&'static str, &'static str)> {
    let program = "give the P4 program";
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| text.starts_with(magic)) {
        return Some((what, program));
    }
    let mut end = text.len().min(EXAMINED_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let head = &text[..end];
    if head.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{7f}'..)) {
        return Some(("a binary file", program));
    }
    let begin = head.trim_start_matches('\u{feff}').trim_start();
    if let Some(inner) = begin.strip_prefix(['{', '[']) {
        let json = inner.trim_start().starts_with(['"', '{', '[', '}', ']']);
        let bmv2 = text.contains("\"header_types\"") || text.contains("\"pipelines\"") || text.contains("\"parsers\"");
        return match (json, bmv2) {
            (true, true) => {
                Some(("JSON that the reference compiler makes for bmv2", "give the P4 program it was made from"))
            }
            (true, false) => Some(("JSON", program)),
            _ => None,
        };
    }
    let begin = begin.trim_start_matches('#').trim_start();
    if begin.starts_with("proto-file: p4/config/v1/p4info.proto") || begin.starts_with("pkg_info {") {
        return Some(("a P4Info", "give the P4 program it was made from; `sluice p4info` makes one again"));
    }
    if begin.starts_with("<?xml") || begin.starts_with("<!DOCTYPE") || begin.starts_with("<html") {
        return Some(("XML or a web page", "give the P4 program; from a web site, the raw file"));
    }
    None
}
