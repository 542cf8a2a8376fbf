//! Rendering of diagnostics with source excerpts (annotate-snippets).
//!
//! One diagnostic is one block: title with code, an excerpt for each file with a marked span (the primary span's
//! first), notes without a span, and the help line. Rendering never fails: a span outside any file, past the end of a
//! file or inside a character is clamped or shown without an excerpt, because a bug in the compiler must not hide a
//! message about a bug in a program.
//!
//! Programs are untrusted and the output goes to a terminal: control characters and bidirectional controls are shown as
//! `\u{1b}`, in excerpts as well as in messages and file names ([`visible`]). Only colours are escape sequences.
//!
//! Tests: at the end of this file.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::{Diagnostic, Severity};
use crate::span::{FileId, SourceFile, SourceMap, Span};
use crate::visible::{shown, steers, visible};
use std::borrow::Cow;
use std::ops::Range;

/// Maximum size of the text that one excerpt is made from, in bytes.
const EXCERPT_BYTES_MAX: usize = 64 << 10;
/// Maximum width of an excerpt line, in columns; the renderer truncates longer lines.
const LINE_WIDTH_MAX: usize = 140;

pub(super) fn render(diag: &Diagnostic, sources: &SourceMap, colour: bool) -> String {
    let level = match diag.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = level.primary_title(visible(&diag.message)).id(diag.code).elements(Vec::<Origin<'_>>::new());
    let primary = place(sources, diag.span);
    let marks = |id: FileId, notes: Vec<(Span, &'_ str)>| -> Vec<Mark> {
        let mark = |(span, text): (Span, &str)| {
            Some(Mark {
                kind: AnnotationKind::Context,
                range: place(sources, span)?.1,
                label: visible(text).into_owned(),
            })
        };
        notes.into_iter().filter(|(span, _)| span.file == id).filter_map(mark).collect()
    };
    if let Some((file, range)) = &primary {
        let mut all = vec![Mark {
            kind: AnnotationKind::Primary,
            range: range.clone(),
            label: visible(&diag.label).into_owned(),
        }];
        all.extend(marks(diag.span.file, diag.notes.iter().map(|(span, text)| (*span, text.as_str())).collect()));
        group = excerpt(group, file, all);
    }
    for (id, notes) in elsewhere(diag, sources, primary.is_some()) {
        let Some(file) = sources.get(id) else { continue };
        group = excerpt(group, file, marks(id, notes));
    }
    // For an error in an included file, the `#include` that led to it.
    let included = sources.included_from(diag.span.file);
    let of_program = |id: FileId| sources.get(id).is_some_and(|f| !f.name.starts_with('<'));
    if primary.is_some()
        && of_program(diag.span.file)
        && let Some((file, range)) = place(sources, included)
        && diag.notes.iter().all(|(span, _)| span.file != included.file)
    {
        let label = "included here".to_string();
        group = excerpt(group, file, vec![Mark { kind: AnnotationKind::Context, range, label }]);
    }
    if primary.is_none() && !diag.label.is_empty() {
        group = group.element(Level::NOTE.message(visible(&diag.label)));
    }
    for (_, text) in diag.notes.iter().filter(|(span, _)| place(sources, *span).is_none()) {
        group = group.element(Level::NOTE.message(visible(text)));
    }
    if let Some(help) = &diag.help {
        group = group.element(Level::HELP.message(visible(help)));
    }
    let report: &[Group<'_>] = &[group];
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut text = renderer.decor_style(DecorStyle::Ascii).term_width(LINE_WIDTH_MAX).render(report);
    text.push('\n');
    text
}

/// A marked span in an excerpt.
struct Mark {
    kind: AnnotationKind,
    range: Range<usize>,
    label: String,
}

/// Adds the marked spans of a file with the surrounding lines. The renderer scans all text that it is given, for each
/// diagnostic, so it gets only the lines between the marks, or none if they are too many; the locations are then named
/// in text.
fn excerpt<'a>(mut group: Group<'a>, file: &'a SourceFile, marks: Vec<Mark>) -> Group<'a> {
    let mut shown = marks.len();
    let lines = loop {
        let candidates = [true, false].map(|around| window(&file.text, &marks[..shown], around));
        match candidates.into_iter().find(|lines| lines.len() <= EXCERPT_BYTES_MAX) {
            Some(lines) => break lines,
            None => shown -= 1,
        }
    };
    let (first, _) = file.line_col(lines.start as u32);
    let mut left_out = marks;
    let inside: Vec<Mark> = left_out.drain(..shown).collect();
    if !inside.is_empty() {
        let text = Excerpt::new(&file.text[lines.clone()]);
        let mut snippet = Snippet::source(text.shown.clone()).line_start(first as usize).path(visible(&file.name));
        for Mark { kind, range, label } in inside {
            let range = text.place(range.start - lines.start)..text.place(range.end - lines.start);
            let label = Some(label).filter(|label| !label.is_empty());
            snippet = snippet.annotation(kind.span(range).label(label));
        }
        group = group.element(snippet);
    }
    for Mark { kind, range, label } in left_out {
        let (line, column) = file.line_col(range.start as u32);
        let primary = matches!(kind, AnnotationKind::Primary);
        if primary {
            let origin = Origin::path(visible(&file.name)).line(line as usize).char_column(column as usize);
            group = group.element(origin);
        }
        if !label.is_empty() {
            let at = if primary { String::new() } else { format!(" ({}:{line}:{column})", visible(&file.name)) };
            group = group.element(Level::NOTE.message(format!("{label}{at}")));
        }
    }
    group
}

/// Lines of a file as displayed, with control characters escaped, and the mapping of their offsets.
struct Excerpt<'a> {
    shown: Cow<'a, str>,
    /// For each escape, in text order: the offset after it in the file's text, and in the displayed text.
    behind: Vec<(usize, usize)>,
}

impl<'a> Excerpt<'a> {
    fn new(text: &'a str) -> Excerpt<'a> {
        let mut excerpt = Excerpt { shown: Cow::Borrowed(text), behind: Vec::new() };
        // The renderer handles line ends with two characters (CR LF).
        let is_shown = |at: usize, c: char| {
            c == '\n' || c == '\t' || !steers(c) || (c == '\r' && text[at + 1..].starts_with('\n'))
        };
        if text.char_indices().all(|(at, c)| is_shown(at, c)) {
            return excerpt;
        }
        let mut out = String::with_capacity(text.len() + 16);
        for (at, c) in text.char_indices() {
            if is_shown(at, c) {
                out.push(c);
                continue;
            }
            shown(c, &mut out);
            excerpt.behind.push((at + c.len_utf8(), out.len()));
        }
        excerpt.shown = Cow::Owned(out);
        excerpt
    }

    /// Maps an offset in the file's text, on a character boundary, to the displayed text.
    fn place(&self, at: usize) -> usize {
        let before = self.behind.partition_point(|(behind, _)| *behind <= at);
        let (from, to) = before.checked_sub(1).map_or((0, 0), |last| self.behind[last]);
        at - from + to
    }
}

/// The byte range of whole lines from the first mark to the last, plus one on each side if `around`; empty without
/// marks.
fn window(text: &str, marks: &[Mark], around: bool) -> Range<usize> {
    if marks.is_empty() {
        return 0..0;
    }
    let start = marks.iter().map(|m| m.range.start).min().unwrap_or(0);
    let end = marks.iter().map(|m| m.range.end).max().unwrap_or(0);
    let line_start = |at: usize| text[..at].rfind('\n').map_or(0, |i| i + 1);
    let line_end = |at: usize| text[at..].find('\n').map_or(text.len(), |i| at + i + 1);
    let (start, end) = (line_start(start), line_end(end));
    if around { line_start(start.saturating_sub(1))..line_end(end) } else { start..end }
}

/// The notes in files other than the primary span's, in order of first mention.
fn elsewhere<'d>(diag: &'d Diagnostic, sources: &SourceMap, has_primary: bool) -> Vec<(FileId, Vec<(Span, &'d str)>)> {
    let mut files: Vec<(FileId, Vec<(Span, &str)>)> = Vec::new();
    for (span, text) in &diag.notes {
        if place(sources, *span).is_none() || (has_primary && span.file == diag.span.file) {
            continue;
        }
        match files.iter_mut().find(|(id, _)| *id == span.file) {
            Some((_, notes)) => notes.push((*span, text)),
            None => files.push((span.file, vec![(*span, text)])),
        }
    }
    files
}

/// The file of a span, and its byte range clamped to the text and to character boundaries.
fn place(sources: &SourceMap, span: Span) -> Option<(&SourceFile, std::ops::Range<usize>)> {
    if span.is_none() {
        return None;
    }
    let file = sources.get(span.file)?;
    let text = &file.text;
    let mut start = (span.start as usize).min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let mut end = (span.end as usize).clamp(start, text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    Some((file, start..end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn sources() -> (SourceMap, FileId, FileId) {
        let mut map = SourceMap::new();
        let main = map.add("main.p4", "header h {\n    bit<8> x;\n    bit<8> x;\n}\n// é\n");
        let other = map.add("<core.p4>", "extern packet_in {}\n");
        (map, main, other)
    }

    #[test]
    fn excerpt_label_note_and_help() {
        let (map, main, other) = sources();
        let diag = Diagnostic::error("E0301", Span::new(main, 36, 37), "field `x` is declared twice")
            .label("declared again here")
            .note(Span::new(main, 22, 23), "first declared here")
            .note(Span::new(other, 7, 16), "and this is elsewhere")
            .note(Span::NONE, "a note without a place")
            .help("rename one of them");
        expect![[r#"
            error[E0301]: field `x` is declared twice
             --> main.p4:3:12
              |
            2 |     bit<8> x;
              |            - first declared here
            3 |     bit<8> x;
              |            ^ declared again here
              |
             ::: <core.p4>:1:8
              |
            1 | extern packet_in {}
              |        --------- and this is elsewhere
              |
              = note: a note without a place
              = help: rename one of them
        "#]]
        .assert_eq(&diag.render(&map, false));
    }

    #[test]
    fn no_place_gives_title_note_and_help() {
        let (map, _, other) = sources();
        let diag = Diagnostic::warning("W0001", Span::NONE, "no `main` package")
            .label("label")
            .note(Span::new(other, 0, 6), "here")
            .help("add one");
        expect![[r#"
            warning[W0001]: no `main` package
             --> <core.p4>:1:1
              |
            1 | extern packet_in {}
              | ------ here
              |
              = note: label
              = help: add one
        "#]]
        .assert_eq(&diag.render(&map, false));
        let bare = Diagnostic::error("E0001", Span::NONE, "bare").render(&map, false);
        assert_eq!(bare, "error[E0001]: bare\n");
    }

    #[test]
    fn end_of_file_and_empty_range() {
        let (map, main, _) = sources();
        let diag = Diagnostic::error("E0202", Span::new(main, 23, 23), "expected `;`").label("add it here");
        expect![[r#"
            error[E0202]: expected `;`
             --> main.p4:2:13
              |
            2 |     bit<8> x;
              |             ^ add it here
        "#]]
        .assert_eq(&diag.render(&map, false));
        let end = map.get(main).unwrap().text.len() as u32;
        let diag = Diagnostic::error("E0202", Span::new(main, end, end), "at the end").render(&map, false);
        assert!(diag.contains("at the end") && diag.contains("main.p4"), "{diag}");
    }

    #[test]
    fn control_characters_of_a_program_are_shown_and_not_obeyed() {
        let mut map = SourceMap::new();
        let text = "a\r\n\tx\u{1b}[2J = \u{202e}name\u{9b}31m; // \u{7}\nz\r;\n";
        let id = map.add("odd\u{1b}[1m.p4", text);
        let span = |needle: &str| {
            let at = text.find(needle).unwrap() as u32;
            Span::new(id, at, at + needle.len() as u32)
        };
        let diag = Diagnostic::error("E0301", span("name"), "no `\u{1b}[31mname`")
            .label("of \u{9b}7m")
            .note(span("x\u{1b}"), "note \u{8}")
            .note(span(";\n"), "the end")
            .note(Span::NONE, "placeless \u{202e}\u{0}")
            .help("two\nlines\r");
        expect![[r#"
            error[E0301]: no `\u{1b}[31mname`
             --> odd\u{1b}[1m.p4:2:23
              |
            2 |     x\u{1b}[2J = \u{202e}name\u{9b}31m; // \u{7}
              |     ------- note \u{8}   ^^^^ of \u{9b}7m
            3 | z\u{d};
              |       - the end
              |
              = note: placeless \u{202e}\u{0}
              = help: two
                      lines\u{d}
        "#]]
        .assert_eq(&diag.render(&map, false));
        let coloured = diag.render(&map, true);
        let escapes: Vec<&str> = coloured.split('\u{1b}').skip(1).collect();
        assert!(escapes.len() > 10);
        for escape in escapes {
            let style = escape.strip_prefix('[').and_then(|rest| rest.split_once('m')).map(|(style, _)| style);
            assert!(style.is_some_and(|s| s.bytes().all(|b| b.is_ascii_digit() || b == b';')), "{escape:?}");
        }
        assert!(!coloured.contains(['\u{9b}', '\u{202e}', '\u{7}']), "{coloured:?}");
    }

    #[test]
    fn a_line_of_megabytes_and_marks_far_apart_are_named_and_not_shown() {
        let mut map = SourceMap::new();
        let text = format!("first\n{}\nlast\n", "(".repeat(3_000_000));
        let id = map.add("x.p4", text);
        let diag = Diagnostic::error("E0301", Span::new(id, 1000, 1001), "too long").label("here");
        let text = diag.render(&map, false);
        assert!(text.contains("x.p4:2:995") && text.contains("here") && text.len() < 500, "{text}");
        let diag = Diagnostic::error("E0301", Span::new(id, 0, 5), "far")
            .note(Span::new(id, 3_000_008, 3_000_010), "from here");
        let text = diag.render(&map, false);
        assert!(text.contains("1 | first") && text.contains("from here (x.p4:3:2)") && text.len() < 500, "{text}");
    }

    #[test]
    fn places_out_of_range_do_not_panic() {
        let (map, main, _) = sources();
        let length = map.get(main).unwrap().text.len() as u32;
        for (start, end) in
            [(0, u32::MAX), (length + 5, length + 9), (9, 3), (length - 2, length - 2), (length - 3, length)]
        {
            for file in [main, FileId(77)] {
                for colour in [false, true] {
                    let diag = Diagnostic::error("E0999", Span::new(file, start, end), "odd place")
                        .note(Span::new(file, end, start), "odd note")
                        .note(Span::new(FileId(1), start, end), "odd note elsewhere");
                    assert!(diag.render(&map, colour).contains("odd place"));
                }
            }
        }
        let mut empty = SourceMap::new();
        let file = empty.add("empty.p4", "");
        assert!(Diagnostic::error("E0999", Span::new(file, 0, 0), "empty").render(&empty, false).contains("empty.p4"));
    }

    #[test]
    fn colour_adds_escapes() {
        let (map, main, _) = sources();
        let diag = Diagnostic::error("E0301", Span::new(main, 0, 6), "m");
        assert!(diag.render(&map, true).contains("\x1b["));
        assert!(!diag.render(&map, false).contains('\x1b'));
    }
}
