//! Warnings that the program or the caller silences, and those that the caller treats as errors.
//!
//! In a program, `@noWarn("name")` on a declaration silences a warning whose span lies in that declaration. The name is
//! the warning's code or, where there is one, p4c's name for it. (Dataflow warnings check annotations themselves, in
//! `sema`, since they may belong to several declarations.) From outside, [`Warnings`] silences codes everywhere.

use base::{Diagnostic, Severity, Span};
use syntax::ast;

/// p4c's names of warnings, except those about dataflow.
const NAMES: [(&str, &[&str]); 3] = [
    (sema::codes::HIDES_PARAMETER, &["shadow"]),
    (sema::codes::DEPRECATED, &["deprecated"]),
    (sema::codes::OVERFLOW, &["overflow", "mismatch"]),
];

/// The treatment of warnings, from the command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Warnings {
    /// Codes that are silenced.
    pub silent: Vec<String>,
    /// Codes that are treated as errors.
    pub denied: Vec<String>,
    /// Whether all warnings are treated as errors.
    pub deny_all: bool,
}

impl Warnings {
    /// Removes silenced warnings and turns denied ones into errors.
    pub fn apply(&self, diagnostics: &mut Vec<Diagnostic>) {
        let listed = |list: &[String], d: &Diagnostic| list.iter().any(|code| code.eq_ignore_ascii_case(d.code));
        diagnostics.retain(|d| d.severity == Severity::Error || !listed(&self.silent, d));
        for d in diagnostics {
            if self.deny_all || listed(&self.denied, d) {
                d.severity = Severity::Error;
            }
        }
    }
}

/// Removes the warnings that `@noWarn` in the program silences.
pub(crate) fn by_annotations(program: &ast::Program, diagnostics: &mut Vec<Diagnostic>) {
    if diagnostics.iter().all(|d| d.severity == Severity::Error) {
        return;
    }
    let mut quiet: Vec<(Span, String)> = Vec::new();
    program.decls.iter().for_each(|decl| collect(decl, &mut quiet));
    let covers = |d: &Diagnostic, span: Span, name: &str| {
        let named = |(code, names): &(&str, &[&str])| *code == d.code && names.contains(&name);
        let within = span.file == d.span.file && span.start <= d.span.start && d.span.start < span.end;
        within && (name.eq_ignore_ascii_case(d.code) || NAMES.iter().any(named))
    };
    diagnostics.retain(|d| {
        d.severity == Severity::Error || !quiet.iter().any(|(span, name)| covers(d, *span, &name.replace('-', "_")))
    });
}

fn collect(decl: &ast::Decl, out: &mut Vec<(Span, String)>) {
    add(&decl.annotations, decl.span, out);
    match &decl.kind {
        ast::DeclKind::Parser(parser) => {
            parser.locals.iter().for_each(|local| collect(local, out));
            parser.states.iter().for_each(|state| add(&state.annotations, state.span, out));
        }
        ast::DeclKind::Control(control) => {
            control.locals.iter().for_each(|local| collect(local, out));
            add(&control.apply.annotations, control.apply.span, out);
        }
        ast::DeclKind::Table(table) => {
            table.properties.iter().for_each(|property| add(&property.annotations, property.span, out));
        }
        _ => {}
    }
}

fn add(annotations: &[ast::Annotation], span: Span, out: &mut Vec<(Span, String)>) {
    for annotation in annotations.iter().filter(|a| &*a.name.text == "noWarn") {
        let ast::AnnotationBody::Unstructured { tokens, .. } = &annotation.body else { continue };
        out.extend(tokens.iter().map(|t| (annotation.span.to(span), t.text.to_string())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Options, Until, compile};

    fn codes(text: &str, warnings: Warnings) -> Vec<(Severity, &'static str)> {
        let options = Options { warnings, ..Options::default() };
        let compiled = compile(Input::Text { name: "x.p4", text }, &options, Until::Types).unwrap();
        compiled.diagnostics.iter().map(|d| (d.severity, d.code)).collect()
    }

    #[test]
    fn warnings_are_silenced_by_annotation_and_from_outside() {
        let warning = (Severity::Warning, "W0503");
        let text = |annotation: &str| format!("{annotation}\nconst bit<8> x = 256;\nconst bit<8> y = 257;\n");
        assert_eq!(codes(&text(""), Warnings::default()), [warning, warning]);
        for annotation in ["@noWarn(\"W0503\")", "@noWarn(\"overflow\")"] {
            assert_eq!(codes(&text(annotation), Warnings::default()), [warning], "{annotation}");
        }
        assert_eq!(codes(&text("@noWarn(\"unused\")"), Warnings::default()), [warning, warning]);
        let silent = Warnings { silent: vec!["w0503".into()], ..Warnings::default() };
        assert_eq!(codes(&text(""), silent), []);
        let error = (Severity::Error, "W0503");
        let denied = Warnings { denied: vec!["W0503".into()], ..Warnings::default() };
        assert_eq!(codes(&text(""), denied), [error, error]);
        assert_eq!(codes(&text(""), Warnings { deny_all: true, ..Warnings::default() }), [error, error]);
    }
}
