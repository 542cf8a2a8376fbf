//! Undeclared names: one error for each, which also says where the name is declared if it is declared elsewhere.
//!
//! A misspelt declaration makes every use of the right name an error. Only the first use is reported; the others are
//! counted. The message depends on where else the name occurs: a similar name is in scope (a typing error); it is
//! declared below (P4 requires declaration before use), in another block, or in a library file that is not included; or
//! nowhere.

use super::Checker;
use crate::codes;
use base::spelling::similar;
use base::{Diagnostic, Severity, Span};
use std::collections::HashMap;
use std::fmt::Write;
use syntax::ast;

/// The undeclared names that have been reported.
#[derive(Default)]
pub(super) struct Unknown {
    /// Uses by name, or by message for members.
    names: HashMap<String, Uses>,
    /// The declarations of all names in the program; built when the first undeclared name is reported.
    declared: Option<HashMap<String, Vec<Place>>>,
}

/// The uses of an undeclared name.
struct Uses {
    /// Index of its error among the diagnostics; the error is at the first use.
    error: usize,
    first: Span,
    others: Vec<Span>,
}

/// Where a name is declared.
#[derive(Clone)]
struct Place {
    span: Span,
    noun: &'static str,
    /// Span of the whole declaration.
    whole: Span,
    /// The parser or control that contains the declaration, with its span.
    within: Option<(String, Span)>,
}

impl<'a> Checker<'a> {
    /// Reports a name that is not in scope; `is_type`: used as a type.
    pub(super) fn undeclared(&mut self, path: &ast::Path, is_type: bool) {
        let key = path.name.text.to_string();
        if self.known_unknown(&key, path.span()) {
            return;
        }
        let (code, message) = match is_type {
            true => (codes::NO_SUCH_TYPE, format!("there is no type `{path}`")),
            false => (codes::NOT_DECLARED, format!("`{path}` is not declared")),
        };
        let mut d = Diagnostic::error(code, path.span(), message);
        // The search through all names below is skipped if the error would be suppressed.
        if self.is_at_limit(Severity::Error) {
            return;
        }
        let wanted = |s: &crate::scope::Symbol| !is_type || matches!(s, crate::scope::Symbol::Type(_));
        let places = self.declared_at(&key, path.span());
        let used = path.span();
        let inside = |whole: Span| whole.file == used.file && (whole.start..whole.end).contains(&used.start);
        if let Some(place) = places.iter().find(|p| inside(p.whole)) {
            d = d
                .note(place.span, format!("within the {} `{path}` itself", place.noun))
                .help("P4 has no recursion: a declaration is visible after its end");
        } else if let Some(place) = places.iter().find(|p| p.within.as_ref().is_none_or(|(_, block)| inside(*block))) {
            d = d
                .note(place.span, format!("the {} `{path}` is declared here, below its use", place.noun))
                .help("P4 declares before use: move the declaration up");
        } else if let Some(like) = self.scopes.similar(&key, wanted) {
            d = d.help(format!("did you mean `{like}`?"));
        } else if let Some(like) = similar(&key, BASE_TYPES.into_iter()).filter(|_| is_type) {
            d = d.help(format!("did you mean `{like}`?"));
        } else if let Some((place, block)) = places.iter().find_map(|p| p.within.as_ref().map(|(block, _)| (p, block)))
        {
            d = d
                .note(place.span, format!("the {} `{path}` of `{block}` is declared here", place.noun))
                .help(format!("it is known within `{block}` only, below its declaration"));
        } else if let Some(file) = library_of(&key) {
            d = d.help(match self.architecture() {
                Some(other) if other != file && packages_of(file).next().is_some() => {
                    format!("{file} declares it, but this program is for the architecture of {other}")
                }
                _ => format!("{file} declares it: #include <{file}>"),
            });
        } else {
            d = d.help("nothing of this name is declared in the program or in the files that it includes");
        }
        self.report_unknown(key, d);
    }

    /// Whether a name has been reported before; if so, this use is counted.
    fn known_unknown(&mut self, key: &str, span: Span) -> bool {
        let Some(uses) = self.unknown.names.get_mut(key) else { return false };
        if uses.first != span && !uses.others.contains(&span) {
            uses.others.push(span);
        }
        true
    }

    fn report_unknown(&mut self, key: String, d: Diagnostic) {
        self.unknown.names.insert(key, Uses { error: self.diags.len(), first: d.span, others: Vec::new() });
        self.report(d);
    }

    /// Reports a name that is not among the candidates.
    pub fn unknown_name<'n>(
        &mut self,
        code: &'static str,
        name: &ast::Name,
        message: String,
        known: impl Iterator<Item = &'n str> + Clone,
    ) {
        self.unknown_member(code, name, message, Span::NONE, known);
    }

    /// Reports a name that is not among the members of something declared at `declared`.
    pub fn unknown_member<'n>(
        &mut self,
        code: &'static str,
        name: &ast::Name,
        message: String,
        declared: Span,
        known: impl Iterator<Item = &'n str> + Clone,
    ) {
        if self.known_unknown(&message, name.span) || self.is_at_limit(Severity::Error) {
            return;
        }
        let mut d = Diagnostic::error(code, name.span, message.clone());
        if !declared.is_none() {
            d = d.note(declared, "declared here");
        }
        if let Some(like) = similar(&name.text, known.clone()) {
            d = d.help(format!("did you mean `{like}`?"));
        } else {
            let mut names: Vec<&str> = known.take(13).collect();
            if !names.is_empty() {
                if names.len() > 12 {
                    names[12] = "…";
                }
                d = d.help(format!("there are: {}", names.join(", ")));
            }
        }
        self.report_unknown(message, d);
    }

    /// Discards the diagnostics from index `length` on, after a speculative check.
    pub(super) fn retract(&mut self, length: usize) {
        self.diags.truncate(length);
        self.unknown.names.retain(|_, uses| uses.error < length);
    }

    /// Adds to each error about a name the number of its other uses.
    pub(super) fn count_unknown(&mut self) {
        for uses in self.unknown.names.values() {
            let Some(d) = self.diags.get_mut(uses.error).filter(|d| d.span == uses.first) else { continue };
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = match uses.others.len() {
                0 => continue,
                1 => write!(text, "the same name is used in 1 other place"),
                n => write!(text, "the same name is used in {n} other places"),
            };
            d.notes.push((Span::NONE, text));
        }
    }

    /// The library file of the architecture that the program includes.
    fn architecture(&self) -> Option<&'static str> {
        let declared = |package: &str| {
            let is_it = |d: &ast::Decl| matches!(d.kind, ast::DeclKind::PackageType(_)) && &*d.name.text == package;
            self.ast.decls.iter().any(is_it)
        };
        crate::EMBEDDED.iter().copied().find(|file| packages_of(file).any(declared))
    }

    /// Declarations of a name that is not in scope: around the use, below it in the same file, or in a block.
    fn declared_at(&mut self, name: &str, used: Span) -> Vec<Place> {
        let ast = self.ast;
        let declared = self.unknown.declared.get_or_insert_with(|| declarations(ast));
        let below = |p: &&Place| p.span.file == used.file && p.span.start > used.start;
        let places = declared.get(name).map(Vec::as_slice).unwrap_or_default();
        let around = |p: &&Place| p.whole.file == used.file && (p.whole.start..p.whole.end).contains(&used.start);
        places.iter().filter(|p| below(p) || around(p) || p.within.is_some()).cloned().collect()
    }
}

/// Types that need no declaration.
const BASE_TYPES: [&str; 9] = ["bit", "bool", "int", "varbit", "string", "error", "tuple", "void", "list"];

/// All declared names and their declarations.
fn declarations(program: &ast::Program) -> HashMap<String, Vec<Place>> {
    let mut out: HashMap<String, Vec<Place>> = HashMap::new();
    let mut add = |decl: &ast::Decl, within: Option<&ast::Decl>| {
        let within = within.map(|block| (block.name.text.to_string(), block.span));
        let place = Place { span: decl.name.span, noun: decl.kind.noun(), whole: decl.span, within };
        out.entry(decl.name.text.to_string()).or_default().push(place);
    };
    for decl in &program.decls {
        add(decl, None);
        let locals = match &decl.kind {
            ast::DeclKind::Parser(parser) => &parser.locals,
            ast::DeclKind::Control(control) => &control.locals,
            _ => continue,
        };
        locals.iter().for_each(|local| add(local, Some(decl)));
    }
    out
}

/// The library file that declares a name.
fn library_of(name: &str) -> Option<&'static str> {
    const STARTS: [&str; 10] =
        ["extern ", "action ", "header ", "struct ", "enum ", "package ", "parser ", "control ", "typedef ", "type "];
    let declares = |text: &str| {
        text.lines().filter(|line| STARTS.iter().any(|s| line.starts_with(s))).any(|line| {
            // A declared name follows a space and precedes its parameters, type parameters, body or `;`.
            line.match_indices(name).any(|(at, _)| {
                let before = line[..at].ends_with(' ') && !line[..at].contains(['(', ',']);
                let behind = line[at + name.len()..].trim_start();
                before && behind.starts_with(['<', '(', '{', ';'])
            })
        })
    };
    if BASE_TYPES.contains(&name) {
        return None;
    }
    crate::EMBEDDED.iter().copied().find(|file| crate::embedded(file).is_some_and(declares))
}

/// The packages that a library file declares; only architecture files declare any.
fn packages_of(file: &str) -> impl Iterator<Item = &'static str> {
    let lines = crate::embedded(file).unwrap_or_default().lines();
    lines.filter_map(|line| line.strip_prefix("package ")?.split(['<', '(']).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_identified_by_their_declarations() {
        assert_eq!(library_of("packet_in"), Some("core.p4"));
        assert_eq!(library_of("NoAction"), Some("core.p4"));
        assert_eq!(library_of("V1Switch"), Some("v1model.p4"));
        assert_eq!(library_of("mark_to_drop"), Some("v1model.p4"));
        assert_eq!(library_of("standard_metadata_t"), Some("v1model.p4"));
        assert_eq!(library_of("digest"), Some("v1model.p4"));
        assert_eq!(library_of("ethernet_t"), Some("p4lib/headers.p4"));
        for none in ["size", "T", "H", "M", "D", "O"] {
            assert_eq!(library_of(none), None);
        }
        assert_eq!(library_of("bit"), None);
    }
}
