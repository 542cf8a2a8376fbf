//! Text of others (programs, names of files and objects) for a terminal, which obeys control characters and shows what follows
//! some others in another order.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal would obey a character, or show others in another order, rather than show it.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The form in which a character that steers is shown: `\u{1b}`, as in a literal of Rust.
pub fn shown(c: char, out: &mut String) {
    _ = write!(out, "\\u{{{:x}}}", u32::from(c));
}

/// Text of one line or several, whose characters that steer are shown as [`shown`] does.
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
