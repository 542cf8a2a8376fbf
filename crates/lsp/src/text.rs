//! Conversion of positions: byte offsets here, lines and UTF-16 columns in the protocol (LSP 3.17, "Position").

use lsp_types::{Position, Range, TextDocumentContentChangeEvent};
use std::ops::Range as Bytes;

/// The position of a byte offset; offsets past the end count as the end.
pub fn position(text: &str, offset: usize) -> Position {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|b| *b == b'\n').count();
    let column = before[line_start..].encode_utf16().count();
    Position::new(line as u32, column as u32)
}

/// The protocol's range of a byte range.
pub fn range(text: &str, bytes: Bytes<usize>) -> Range {
    Range::new(position(text, bytes.start), position(text, bytes.end))
}

/// The byte offset of a position; a column past the end of its line counts as the line's end, as the protocol
/// specifies.
pub fn offset(text: &str, position: Position) -> usize {
    let mut start = 0;
    for _ in 0..position.line {
        match text[start..].find('\n') {
            Some(at) => start += at + 1,
            None => return text.len(),
        }
    }
    let line = text[start..].split(['\n', '\r']).next().unwrap_or_default();
    let mut units = 0;
    for (at, c) in line.char_indices() {
        if units >= position.character {
            return start + at;
        }
        units += c.len_utf16() as u32;
    }
    start + line.len()
}

/// Applies a change reported by the editor; one without a range replaces the whole text.
pub fn apply(text: &mut String, change: &TextDocumentContentChangeEvent) {
    match change.range {
        None => text.clone_from(&change.text),
        Some(range) => {
            let (start, end) = (offset(text, range.start), offset(text, range.end));
            text.replace_range(start.min(end)..end.max(start), &change.text);
        }
    }
}

/// The byte range of the identifier that contains an offset or ends at it.
pub fn word_at(text: &str, offset: usize) -> Option<Bytes<usize>> {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let bytes = text.as_bytes();
    let offset = offset.min(bytes.len());
    let start = bytes[..offset].iter().rposition(|b| !is_word(b)).map_or(0, |at| at + 1);
    let end = bytes[offset..].iter().position(|b| !is_word(b)).map_or(bytes.len(), |at| offset + at);
    (start < end && !bytes[start].is_ascii_digit()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_utf16_units() {
        let text = "a\n// ä 𝄞 x\r\nb";
        let at = text.find('x').unwrap();
        assert_eq!(position(text, at), Position::new(1, 8));
        assert_eq!(offset(text, Position::new(1, 8)), at);
        assert_eq!(offset(text, Position::new(1, 99)), at + 1);
        assert_eq!(offset(text, Position::new(9, 0)), text.len());
        assert_eq!(position(text, 999), Position::new(2, 1));
    }

    #[test]
    fn edits_change_what_their_range_covers() {
        let mut text = String::from("one\ntwo\nthree\n");
        let change = |start, end, text: &str| TextDocumentContentChangeEvent {
            range: Some(Range::new(start, end)),
            range_length: None,
            text: text.into(),
        };
        apply(&mut text, &change(Position::new(0, 1), Position::new(2, 2), "X"));
        assert_eq!(text, "oXree\n");
        apply(&mut text, &TextDocumentContentChangeEvent { range: None, range_length: None, text: "new".into() });
        assert_eq!(text, "new");
    }

    #[test]
    fn words_are_identifiers() {
        assert_eq!(word_at("a.bc_1+2", 3), Some(2..6));
        assert_eq!(word_at("a.bc", 4), Some(2..4));
        assert_eq!(word_at("12", 1), None);
        assert_eq!(word_at("+ +", 1), None);
    }
}
