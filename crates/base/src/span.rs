//! Source locations: a file and a byte range.
//!
//! Spans are small and `Copy`, so that every token, tree node and IR instruction carries one. The [`SourceMap`] owns
//! file names and texts and converts a span to path, line and column. After preprocessing, spans point into the
//! *original* files (for a macro expansion, at the macro's use), so that diagnostics and traces show what the author
//! wrote.

use std::sync::Arc;

/// Index of a file in a [`SourceMap`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct FileId(pub u32);

/// A byte range `start..end` of one file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Span {
    /// The file; `Span::NONE` uses file 0 with an empty range at `u32::MAX`.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// No source location, for compiler-generated code.
    pub const NONE: Span = Span { file: FileId(0), start: u32::MAX, end: u32::MAX };

    /// The byte range `start..end` of a file.
    pub const fn new(file: FileId, start: u32, end: u32) -> Span {
        Span { file, start, end }
    }

    /// The smallest range that covers both; `other` is ignored if it is in another file or `NONE`.
    pub fn to(self, other: Span) -> Span {
        if self.is_none() {
            return other;
        }
        if other.is_none() || other.file != self.file {
            return self;
        }
        Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// Whether this is [`Span::NONE`].
    pub fn is_none(self) -> bool {
        self.start == u32::MAX
    }
}

/// One source file: its display name, text, and line starts.
#[derive(Debug)]
pub struct SourceFile {
    /// The path as given or found; `<core.p4>` and the like for embedded files.
    pub name: String,
    /// The whole text.
    pub text: Arc<str>,
    line_starts: Vec<u32>,
    included_from: Span,
    /// `#line` markers in line order: from this line on, the original file and line.
    markers: Vec<(u32, Arc<str>, u32)>,
}

impl SourceFile {
    /// 1-based line and column (in characters) of a byte offset; offsets past the end count as the end.
    pub fn line_col(&self, offset: u32) -> (u32, u32) {
        let offset = offset.min(self.text.len() as u32);
        let line = self.line_starts.partition_point(|&s| s <= offset) - 1;
        let start = self.line_starts[line] as usize;
        let col = self.text.get(start..offset as usize).map_or(0, |s| s.chars().count());
        (line as u32 + 1, col as u32 + 1)
    }

    /// The `#line` markers: the offset of the directive, and the original line and file of the next line.
    pub fn markers(&self) -> impl Iterator<Item = (u32, u32, &str)> {
        self.markers.iter().map(|(from, name, line)| {
            let directive = (*from as usize).saturating_sub(2);
            (self.line_starts.get(directive).copied().unwrap_or(0), *line, &**name)
        })
    }

    /// The text of a 1-based line without its line end.
    pub fn line(&self, line: u32) -> Option<&str> {
        let start = *self.line_starts.get(line.checked_sub(1)? as usize)? as usize;
        let end = self.line_starts.get(line as usize).map_or(self.text.len(), |&e| e as usize);
        Some(self.text[start..end].trim_end_matches(['\n', '\r']))
    }
}

/// All source files of one compilation.
#[derive(Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// An empty map.
    pub fn new() -> SourceMap {
        SourceMap::default()
    }

    /// Adds a file and returns its id. The same name may be added twice (two includes of a file are two files).
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> FileId {
        let text: Arc<str> = text.into();
        let mut line_starts = vec![0];
        line_starts.extend(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u32 + 1));
        self.files.push(SourceFile {
            name: name.into(),
            text,
            line_starts,
            included_from: Span::NONE,
            markers: vec![],
        });
        FileId(self.files.len() as u32 - 1)
    }

    /// Records the `#include` that led to a file.
    pub fn set_included_from(&mut self, id: FileId, at: Span) {
        if let Some(file) = self.files.get_mut(id.0 as usize) {
            file.included_from = at;
        }
    }

    /// Records a `#line`: the line after `at` is line `line` of `name`, or of the file in the previous marker.
    pub fn set_marker(&mut self, at: Span, line: u32, name: Option<&str>) {
        let Some(file) = self.files.get_mut(at.file.0 as usize) else { return };
        let (here, _) = file.line_col(at.start);
        let before = file.markers.last().map_or(file.name.as_str(), |(_, name, _)| name);
        let name = Arc::from(name.unwrap_or(before));
        file.markers.push((here + 1, name, line));
    }

    /// The original file and line of a span's start, following `#line` markers: in a program assembled from several
    /// files, where the line came from.
    pub fn origin(&self, span: Span) -> Option<(&str, u32)> {
        let (name, line, _) = self.locate(span)?;
        let file = self.get(span.file)?;
        let marker = file.markers.partition_point(|(from, ..)| *from <= line).checked_sub(1);
        Some(match marker.map(|at| &file.markers[at]) {
            Some((from, name, first)) => (name, first.saturating_add(line - from)),
            None => (name, line),
        })
    }

    /// The `#include` that led to a file; `Span::NONE` for the main file.
    pub fn included_from(&self, id: FileId) -> Span {
        self.get(id).map_or(Span::NONE, |file| file.included_from)
    }

    /// All files, in the order of their ids.
    pub fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter()
    }

    /// The file with this id; `None` for an id of another map.
    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id.0 as usize)
    }

    /// `(file name, line, column)` of a span's start, 1-based; `None` for [`Span::NONE`].
    pub fn locate(&self, span: Span) -> Option<(&str, u32, u32)> {
        if span.is_none() {
            return None;
        }
        let file = self.get(span.file)?;
        let (line, col) = file.line_col(span.start);
        Some((&file.name, line, col))
    }

    /// The source text a span covers.
    pub fn text(&self, span: Span) -> Option<&str> {
        self.get(span.file)?.text.get(span.start as usize..span.end as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_and_column_count_from_one() {
        let mut map = SourceMap::new();
        let id = map.add("a.p4", "ab\ncd\r\n");
        assert_eq!(map.locate(Span::new(id, 0, 1)), Some(("a.p4", 1, 1)));
        assert_eq!(map.locate(Span::new(id, 4, 5)), Some(("a.p4", 2, 2)));
        assert_eq!(map.locate(Span::new(id, 999, 999)), Some(("a.p4", 3, 1)));
        assert_eq!(map.get(id).unwrap().line(2), Some("cd"));
        assert_eq!(map.locate(Span::NONE), None);
    }

    #[test]
    fn markers_say_where_lines_are_from() {
        let mut map = SourceMap::new();
        let id = map.add("all.p4", "a\n#line 7 \"b.p4\"\nc\nd\n#line 3\ne\n");
        map.set_marker(Span::new(id, 2, 3), 7, Some("b.p4"));
        map.set_marker(Span::new(id, 21, 22), 3, None);
        let origin = |at| map.origin(Span::new(id, at, at + 1));
        assert_eq!(origin(0), Some(("all.p4", 1)));
        assert_eq!(origin(17), Some(("b.p4", 7)));
        assert_eq!(origin(19), Some(("b.p4", 8)));
        assert_eq!(origin(29), Some(("b.p4", 3)));
        assert_eq!(map.locate(Span::new(id, 17, 18)), Some(("all.p4", 3, 1)));
        let mut again = SourceMap::new();
        let file = map.get(id).unwrap();
        let copy = again.add(file.name.clone(), Arc::clone(&file.text));
        for (at, line, name) in file.markers() {
            again.set_marker(Span::new(copy, at, at), line, Some(name));
        }
        for at in [0, 17, 19, 29] {
            assert_eq!(again.origin(Span::new(copy, at, at + 1)), origin(at));
        }
    }
}
