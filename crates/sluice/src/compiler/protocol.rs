//! The messages between a switch and its compiler: a request with its length in front, and a response that extends to
//! the end of the pipe.
//!
//! They are these types in postcard's encoding. Both ends are the same executable, so there are no versions. A program
//! is transferred as the text of its IR (`ir::print`), which includes source positions.

use super::limits::Limits;
use base::{FileId, SourceMap, Span};
use frontend::{Options, Warnings};
use p4info::P4Info;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The most bytes of a request: the longest text that the front end accepts, and options.
pub const REQUEST_BYTES_MAX: usize = syntax::preprocess::SOURCE_BYTES_MAX + (1 << 20);

/// The source of a program.
#[derive(Serialize, Deserialize, Debug)]
pub enum Source {
    /// A text, with a name for messages; it may include the embedded files and those of the include directories.
    Text { name: String, text: String },
    /// A file of the command line, which may include any other.
    File(PathBuf),
}

/// The requested outputs besides messages and P4Info.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Wants {
    /// The IR as lowered instead of the optimised one.
    pub raw: bool,
    /// The texts of all files read.
    pub sources: bool,
    /// The program as one self-contained text.
    pub self_contained: bool,
    /// Whether messages are coloured.
    pub colour: bool,
    /// The description of a text in bmv2's JSON format, which carries the text.
    pub described: bool,
}

/// A program to compile.
#[derive(Serialize, Deserialize, Debug)]
pub struct Request {
    pub source: Source,
    pub include_dirs: Vec<String>,
    pub defines: Vec<(String, String)>,
    silent: Vec<String>,
    denied: Vec<String>,
    deny_all: bool,
    /// Whether to follow bmv2's semantics.
    bmv2: bool,
    drop_port: Option<u64>,
    /// Passes that are switched off.
    without: Vec<String>,
    verify: bool,
    pub wants: Wants,
    /// Memory in bytes, and time.
    limits: Option<(u64, Duration)>,
}

impl Request {
    pub fn new(source: Source, options: &Options, wants: Wants, limits: Option<Limits>) -> Request {
        let Options { include_dirs, defines, opt, warnings, bmv2, drop_port } = options.clone();
        let Warnings { silent, denied, deny_all } = warnings;
        Request {
            source,
            include_dirs,
            defines,
            silent,
            denied,
            deny_all,
            bmv2,
            drop_port,
            without: opt.disabled.into_iter().collect(),
            verify: opt.verify,
            wants,
            limits: limits.map(|l| (l.memory_bytes, l.time)),
        }
    }

    /// Returns the options of the front end.
    pub fn options(&self) -> Options {
        Options {
            include_dirs: self.include_dirs.clone(),
            defines: self.defines.clone(),
            opt: opt::Options { disabled: self.without.iter().cloned().collect(), verify: self.verify },
            warnings: Warnings { silent: self.silent.clone(), denied: self.denied.clone(), deny_all: self.deny_all },
            bmv2: self.bmv2,
            drop_port: self.drop_port,
        }
    }

    pub fn limits(&self) -> Option<Limits> {
        self.limits.map(|(memory_bytes, time)| Limits { memory_bytes, time })
    }

    /// Encodes the request with its length in front.
    pub fn encode(&self) -> Vec<u8> {
        let message = postcard::to_stdvec(self).unwrap_or_default();
        let mut bytes = (message.len() as u32).to_le_bytes().to_vec();
        bytes.extend(message);
        bytes
    }

    /// Reads a request from a pipe; `None` if there is no whole one.
    pub fn read(mut from: impl std::io::Read) -> Option<Request> {
        let mut length = [0; 4];
        from.read_exact(&mut length).ok()?;
        let length = u32::from_le_bytes(length) as usize;
        if length > REQUEST_BYTES_MAX {
            return None;
        }
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes).ok()?;
        postcard::from_bytes(&bytes).ok()
    }
}

/// The result of a compilation.
#[derive(Serialize, Deserialize, Debug, Default)]
pub struct Response {
    pub failed: bool,
    pub messages: String,
    pub first_error: Option<String>,
    pub unloadable: Option<String>,
    pub program: Option<String>,
    pub p4info: Option<P4Info>,
    pub self_contained: Option<Vec<u8>>,
    /// Whether compiling `self_contained` gives the same program, because it is the file itself.
    pub same_as_text: bool,
    pub sources: Vec<SourceText>,
    pub described: Option<String>,
    /// Why the program's file cannot be read.
    pub unreadable: Option<String>,
}

impl Response {
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Decodes a response; `None` if the bytes are not one whole message.
    pub fn decode(bytes: &[u8]) -> Option<Response> {
        postcard::from_bytes(bytes).ok()
    }
}

/// A source file.
#[derive(Serialize, Deserialize, Debug)]
pub struct SourceText {
    name: String,
    text: String,
    /// The `#include` that read it: file, first byte, one past the last byte.
    included_from: (u32, u32, u32),
    /// `#line` directives: byte of the directive, line, file.
    markers: Vec<(u32, u32, String)>,
}

/// Returns the files of a source map.
pub fn source_texts(sources: &SourceMap) -> Vec<SourceText> {
    let text = |(id, file): (usize, &base::span::SourceFile)| {
        let Span { file: from, start, end } = sources.included_from(FileId(id as u32));
        SourceText {
            name: file.name.clone(),
            text: file.text.to_string(),
            included_from: (from.0, start, end),
            markers: file.markers().map(|(at, line, name)| (at, line, name.to_string())).collect(),
        }
    };
    sources.files().enumerate().map(text).collect()
}

/// Rebuilds the source map from its files.
pub fn source_map(texts: Vec<SourceText>) -> SourceMap {
    let mut map = SourceMap::new();
    for SourceText { name, text, included_from: (file, start, end), markers } in texts {
        let id = map.add(name, text);
        map.set_included_from(id, Span::new(FileId(file), start, end));
        for (at, line, name) in markers {
            map.set_marker(Span::new(id, at, at), line, Some(&name));
        }
    }
    map
}
