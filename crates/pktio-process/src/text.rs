//! Text that a process has sent, before it is shown.

/// Maximum characters of a text.
const TEXT_MAX: usize = 1000;

/// The first 1,000 characters of a text of a process, with control characters escaped, so that it is one line of a log and
/// changes nothing in the terminal of who reads it.
pub(crate) fn clean(text: &str) -> String {
    // Line and paragraph separators, and what changes the direction of text.
    let is_control = |c: char| {
        c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut clean = String::new();
    let mut count = 0;
    for c in text.chars() {
        let escaped: String = if is_control(c) { c.escape_default().collect() } else { c.into() };
        count += escaped.chars().count();
        if count > TEXT_MAX {
            break;
        }
        clean.push_str(&escaped);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_says_is_one_short_line() {
        assert_eq!(clean("port a\\b \"c\" Grüße"), "port a\\b \"c\" Grüße");
        assert_eq!(clean("a\n2026 ERROR b\r\t\u{1b}[2J\0\u{85}"), "a\\n2026 ERROR b\\r\\t\\u{1b}[2J\\u{0}\\u{85}");
        assert_eq!(clean("a\u{2028}b\u{202e}c"), "a\\u{2028}b\\u{202e}c");
        assert_eq!(clean(&"ü".repeat(5000)).chars().count(), TEXT_MAX);
        let escaped = clean(&"\n".repeat(5000));
        assert_eq!(escaped.len(), TEXT_MAX);
        assert!(clean(&"\0".repeat(5000)).ends_with('}'), "no escape is cut in two");
    }
}
