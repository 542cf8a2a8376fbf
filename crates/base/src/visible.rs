//! Sanitises untrusted text (programs, names of files and objects) for a terminal, which would execute control
//! characters and reorder text at bidirectional controls.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character is a control character or a bidirectional control, which a terminal executes instead of showing.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Appends the escaped form of such a character: `\u{1b}`, as in a Rust literal.
pub fn shown(c: char, out: &mut String) {
    _ = write!(out, "\\u{{{:x}}}", u32::from(c));
}

/// The text, of one or more lines, with control characters escaped as by [`shown`].
pub fn visible(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| steers(c) && !matches!(c, '\n' | '\t');
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if obeyed(c) { shown(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}
