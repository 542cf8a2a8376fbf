//! The analysis of one program for an editor: diagnostics, declarations and uses, macros, source files.
//!
//! [`analyse`] runs the compiler through the optimiser, so an editor shows the same messages as `sluice check`. It
//! takes milliseconds, so it is repeated after every change; nothing is cached between runs.

use crate::files::{Files, normal};
use crate::index::Index;
use crate::resolve::resolve;
use base::{FileId, SourceMap, Span};
use frontend::{Compiled, Until};
use std::path::Path;
use syntax::SourceInput;

/// Settings shared by all programs of an editor's session.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Directories of `-I`.
    pub include_dirs: Vec<String>,
    /// Macros of `-D`.
    pub defines: Vec<(String, String)>,
}

/// A `#define`.
#[derive(Clone, Debug)]
pub struct Macro {
    /// Its name.
    pub name: String,
    /// Span of its name.
    pub span: Span,
    /// The directive as written.
    pub text: String,
}

/// An `#include` whose file was found.
#[derive(Clone, Debug)]
pub struct Include {
    /// Span of the directive.
    pub span: Span,
    /// The file's name.
    pub file: String,
}

/// An analysed program.
pub struct Analysis {
    /// The main file's name.
    pub root: String,
    /// Sources and diagnostics.
    pub compiled: Compiled,
    /// Declarations and uses.
    pub index: Index,
    /// All macros, in the order of their files.
    pub macros: Vec<Macro>,
    /// All includes.
    pub includes: Vec<Include>,
}

impl Analysis {
    /// The sources.
    pub fn sources(&self) -> &SourceMap {
        &self.compiled.sources
    }

    /// The ids of a file; several if it was included several times.
    pub fn ids(&self, name: &str) -> Vec<FileId> {
        let named = |(_, file): &(u32, &base::span::SourceFile)| file_name(&file.name) == name;
        (0..).zip(self.sources().files()).filter(named).map(|(id, _)| FileId(id)).collect()
    }

    /// The name of the file that contains a span.
    pub fn file_of(&self, span: Span) -> Option<String> {
        self.sources().get(span.file).map(|file| file_name(&file.name))
    }

    /// Whether the program includes this file, or it is its main file.
    pub fn has(&self, name: &str) -> bool {
        !self.ids(name).is_empty()
    }
}

/// The name of a file: normalised path, or the name itself for embedded files.
fn file_name(name: &str) -> String {
    if name.starts_with('<') { name.to_string() } else { normal(Path::new(name)) }
}

/// Analyses the program with main file `root`; `None` if there is no such file.
pub fn analyse(root: &str, files: &Files, settings: &Settings) -> Option<Analysis> {
    let text = files.text(root)?;
    let options = frontend::Options {
        include_dirs: settings.include_dirs.clone(),
        defines: settings.defines.clone(),
        ..frontend::Options::default()
    };
    let source = SourceInput { name: root.to_string(), text };
    let (compiled, program) = frontend::compile_tree(source, &options, files, Until::Ir);
    let index = resolve(&program, &compiled.sources);
    let (macros, includes) = directives(&compiled.sources);
    Some(Analysis { root: root.to_string(), compiled, index, macros, includes })
}

/// The declarations and uses only, for completion; no diagnostics.
pub fn names(root: &str, files: &Files, settings: &Settings) -> Option<(Index, SourceMap)> {
    let source = SourceInput { name: root.to_string(), text: files.text(root)? };
    let options = syntax::Options { include_dirs: settings.include_dirs.clone(), defines: settings.defines.clone() };
    let mut sources = SourceMap::new();
    let parsed = syntax::parse_program(source, &options, files, &mut sources);
    Some((resolve(&parsed.program, &sources), sources))
}

/// Finds macros and includes. The preprocessor's output does not contain them, so the lines are scanned again.
pub fn directives(sources: &SourceMap) -> (Vec<Macro>, Vec<Include>) {
    let (mut macros, mut includes) = (Vec::new(), Vec::new());
    for (id, file) in (0..).map(FileId).zip(sources.files()) {
        let mut start = 0;
        for line in file.text.split_inclusive('\n') {
            if let Some(name) = directive(line, "define") {
                let length = name.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
                let at = start + (name.as_ptr() as usize - line.as_ptr() as usize) as u32;
                if length > 0 {
                    macros.push(Macro {
                        name: name[..length].to_string(),
                        span: Span::new(id, at, at + length as u32),
                        text: whole_directive(&file.text[start as usize..]),
                    });
                }
            }
            start += line.len() as u32;
        }
    }
    for (id, file) in (0..).map(FileId).zip(sources.files()) {
        let from = sources.included_from(id);
        if !from.is_none() {
            includes.push(Include { span: from, file: file_name(&file.name) });
        }
    }
    (macros, includes)
}

/// The text after `# keyword` on a line.
fn directive<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix(keyword)?;
    rest.starts_with([' ', '\t']).then(|| rest.trim_start())
}

/// A directive with its continuation lines, at most a dozen.
fn whole_directive(text: &str) -> String {
    let mut out = Vec::new();
    for line in text.lines().take(12) {
        out.push(line);
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    out.join("\n")
}
