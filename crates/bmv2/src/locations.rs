//! `source_info`: file, line and column in the P4 source that the JSON was made from, and a fragment of its text.
//!
//! The source itself is not available. For each file that is named, a text is made with the known fragments on their
//! lines, so that traces and messages show file, line and fragment as for programs from source.

use crate::read::{At, Read};
use base::{SourceMap, Span};
use std::collections::BTreeMap;

/// Largest line and column that are kept; larger ones are treated as unknown. Each line up to the last one with a
/// fragment costs a byte of its file's text, and so does each column before a fragment: with the limits below that is
/// at most 8 MB besides the fragments.
const LINE_MAX: u32 = 1 << 17;
const COLUMN_MAX: u32 = 512;
/// Most bytes of a fragment that are kept: a line of a message.
const FRAGMENT_BYTES_MAX: usize = 160;
/// Most files that are kept: the program's and those that it includes.
const FILES_MAX: usize = 64;
/// Most bytes of a file's name, which is stored with each location.
const NAME_BYTES_MAX: usize = 512;

/// A handle of a location in the JSON and in the source, resolved when all locations are known; 0 is the whole program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Location(u32);

/// The lines of a file, by number: column and fragment.
type Lines = BTreeMap<u32, BTreeMap<u32, String>>;

/// File, line and column of the source.
type SourceLocation = (String, u32, u32);

/// Collects locations while the JSON is read.
#[derive(Default, Debug)]
pub(crate) struct Locations {
    files: BTreeMap<String, Lines>,
    /// The path in the JSON and, if known, the location in the source.
    locations: Vec<(String, Option<SourceLocation>)>,
}

impl Locations {
    /// The location of an object.
    pub fn of(&mut self, object: &At<'_>) -> Read<Location> {
        let source = self.source_of(object)?;
        self.locations.push((object.path(), source));
        Ok(Location(self.locations.len() as u32))
    }

    fn source_of(&mut self, object: &At<'_>) -> Read<Option<SourceLocation>> {
        let Some(info) = object.get("source_info") else { return Ok(None) };
        let file = info.get("filename").map_or(Ok(""), |f| f.text())?;
        let line = info.get("line").map_or(Ok(0), |l| l.number())?;
        let column = info.get("column").map_or(Ok(0), |c| c.number())?;
        let fragment = info.get("source_fragment").map_or(Ok(""), |f| f.text())?;
        let known = self.files.contains_key(file) || self.files.len() < FILES_MAX;
        if file.is_empty()
            || file.len() > NAME_BYTES_MAX
            || line == 0
            || line > LINE_MAX
            || column > COLUMN_MAX
            || !known
        {
            return Ok(None);
        }
        let fragment = fragment.trim_end_matches(" ...");
        let mut text: String = fragment.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut end = text.len().min(FRAGMENT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        let line_of = self.files.entry(file.to_string()).or_default().entry(line).or_default();
        let kept = line_of.entry(column).or_default();
        if text.len() > kept.len() {
            *kept = text;
        }
        Ok(Some((file.to_string(), line, column)))
    }

    /// Adds the files' texts to a source map; returns the span of each location.
    pub fn finish(self, sources: &mut SourceMap) -> Spans {
        let mut offsets = BTreeMap::new();
        let mut ids = BTreeMap::new();
        for (name, lines) in &self.files {
            let mut text = String::new();
            let mut current = 1;
            for (line, parts) in lines {
                while current < *line {
                    text.push('\n');
                    current += 1;
                }
                let start = text.len();
                for (column, fragment) in parts {
                    let column = *column as usize;
                    while text.len() - start < column {
                        text.push(' ');
                    }
                    // A fragment inside an earlier one is part of its text.
                    let at = (start + column).min(text.len());
                    let at = if text.is_char_boundary(at) { at } else { text.len() };
                    if text.len() == at {
                        text.push_str(fragment);
                    }
                    let end = (at + fragment.len().max(1)).min(text.len().max(at));
                    let end = if text.is_char_boundary(end) { end } else { text.len() };
                    offsets.insert((name.clone(), *line, column as u32), (at as u32, end as u32));
                }
            }
            text.push('\n');
            ids.insert(name.clone(), sources.add(name.clone(), text));
        }
        let span = |location: (String, u32, u32)| {
            let (start, end) = offsets[&location];
            Span::new(ids[&location.0], start, end)
        };
        let with_span = |(path, location): (String, Option<_>)| (path, location.map_or(Span::NONE, span));
        Spans(self.locations.into_iter().map(with_span).collect())
    }
}

/// JSON paths and source spans, by location.
#[derive(Default, Debug)]
pub(crate) struct Spans(Vec<(String, Span)>);

impl Spans {
    pub fn of(&self, location: Location) -> Span {
        self.at(location).map_or(Span::NONE, |(_, span)| *span)
    }

    /// The path in the JSON; `pipelines` for the whole program.
    pub fn path(&self, location: Location) -> &str {
        self.at(location).map_or("pipelines", |(path, _)| path)
    }

    fn at(&self, location: Location) -> Option<&(String, Span)> {
        (location.0 as usize).checked_sub(1).and_then(|i| self.0.get(i))
    }
}
