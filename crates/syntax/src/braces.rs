//! Missing closing braces, found by indentation before parsing.
//!
//! A parser notices a missing `}` only at a token that is not allowed in the open block, often at the end of the file
//! and after many other errors; a person sees it from the indentation. This pass does the same. When a program has more
//! `{` than `}`, the first line indented no deeper than the line of an open block ends that block: a `}` is inserted
//! before it, with one error. If a file is included within the open block, the block ends at a declaration that no
//! block may contain, such as a control. If the indentation gives a different number of missing braces than counting
//! does, it is unreliable and nothing is changed.
//!
//! Time is linear in the number of tokens. Tests: at the end of this file, and `crates/frontend/tests/one_mistake.rs`.

use base::{Diagnostic, FileId, SourceMap, Span};

use crate::codes;
use crate::token::{Token, TokenKind};

/// The maximum number of missing braces: with more, something else is wrong with the program.
const MISSING_MAX: usize = 4;
/// Width of a tab, in columns.
const TAB: u32 = 8;

/// An open block: the span of its `{`, and the column at which its declaration or statement starts.
struct Open {
    brace: Span,
    indent: u32,
    /// The number of open parentheses around it.
    parens: u32,
    /// For `x = {`, a list of values: its line. A `;` on that line ends the list.
    list_on: Option<u32>,
    /// Whether it is a table's `key = {` or `actions = {`, which the next property ends.
    is_property: bool,
}

/// The tokens with missing `}` inserted, and an error for each; `None` when none is missing or their places are
/// unclear.
pub(crate) fn close(tokens: &[Token], sources: &SourceMap) -> Option<(Vec<Token>, Vec<Diagnostic>)> {
    let count = |kind| tokens.iter().filter(|t| t.kind == kind).count();
    let missing = count(TokenKind::LBrace).checked_sub(count(TokenKind::RBrace))?;
    if !(1..=MISSING_MAX).contains(&missing) {
        return None;
    }
    let mut out = Vec::with_capacity(tokens.len() + missing);
    let mut diags: Vec<Diagnostic> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut indent = 0;
    // The column of the block that ended last.
    let mut closed_indent = 0;
    // Lines within parentheses may have any indentation.
    let mut parens = 0_u32;
    let mut line = 0_u32;
    let put_in = |i: usize, block: Open, out: &mut Vec<Token>, diags: &mut Vec<Diagnostic>| {
        diags.push(missing_before(&tokens[i], block.brace));
        let previous = tokens[i.saturating_sub(1)].span;
        let behind = Span::new(previous.file, previous.end, previous.end);
        out.push(Token { kind: TokenKind::RBrace, text: None, span: behind, ..tokens[i].clone() });
    };
    for (i, token) in tokens.iter().enumerate() {
        line += u32::from(token.line_start);
        let starts_line = token.line_start && parens == 0;
        if starts_line || token.kind == TokenKind::Eof {
            let here = if token.kind == TokenKind::Eof { 0 } else { column(token.span, sources)? };
            let is_brace = token.kind == TokenKind::RBrace;
            let file: FileId = token.span.file;
            // A brace further to the right ends an inner block.
            let after_brace = i > 0 && tokens[i - 1].kind == TokenKind::RBrace && closed_indent <= here;
            let ended = |o: &Open| match token.kind {
                TokenKind::Eof => true,
                kind if o.brace.file != file => here == 0 && stands_alone(kind),
                _ if is_brace => o.indent > here,
                // An `else` that has lost its `}` is a little to the right of where the brace was.
                TokenKind::Else if !after_brace => o.indent + 2 >= here,
                _ => o.indent >= here,
            };
            let mut ended_at = None;
            // `{` at the start of a line belongs to the line before.
            while token.kind != TokenKind::LBrace && open.last().is_some_and(ended) {
                let Some(block) = open.pop() else { break };
                ended_at = Some(block.indent);
                put_in(i, block, &mut out, &mut diags);
            }
            indent = match ended_at {
                // The statement continues.
                Some(block) if token.kind == TokenKind::Else => block,
                _ => here,
            };
        }
        // `f({ a, b);`
        if token.kind == TokenKind::RParen
            && let Some(block) = open.pop_if(|o| o.parens == parens && parens > 0)
        {
            put_in(i, block, &mut out, &mut diags);
        }
        // `x = { a, b;`
        if token.kind == TokenKind::Semi
            && let Some(block) = open.pop_if(|o| o.list_on == Some(line))
        {
            put_in(i, block, &mut out, &mut diags);
        }
        // `key = { a: exact; actions = {`
        let name = i + usize::from(token.kind == TokenKind::Const);
        if tokens.get(name + 1).is_some_and(|t| t.kind == TokenKind::Eq)
            && matches!(tokens[i.saturating_sub(1)].kind, TokenKind::Semi | TokenKind::LBrace)
            && let Some(block) = open.pop_if(|o| o.is_property)
        {
            put_in(i, block, &mut out, &mut diags);
        }
        if diags.len() > missing {
            return None;
        }
        match token.kind {
            TokenKind::LBrace => {
                use TokenKind::{Actions, Entries, Eq, Key};
                let assigned = i >= 2 && tokens[i - 1].kind == Eq;
                let is_list = assigned && !matches!(tokens[i - 2].kind, Actions | Entries | Key);
                let is_property = assigned && matches!(tokens[i - 2].kind, Actions | Key);
                open.push(Open { brace: token.span, indent, parens, list_on: is_list.then_some(line), is_property });
            }
            TokenKind::RBrace => closed_indent = open.pop()?.indent,
            TokenKind::LParen | TokenKind::LBracket => parens += 1,
            TokenKind::RParen | TokenKind::RBracket => parens = parens.saturating_sub(1),
            // An unclosed parenthesis also ends at `;`.
            TokenKind::Semi if parens > 0 => parens = 0,
            _ => {}
        }
        out.push(token.clone());
    }
    (diags.len() == missing).then_some((out, diags))
}

/// Whether a token begins a declaration that cannot be nested in another.
fn stands_alone(kind: TokenKind) -> bool {
    use TokenKind::{Control, Enum, Extern, Header, HeaderUnion, Package, Parser, Struct, Typedef};
    matches!(kind, Control | Enum | Extern | Header | HeaderUnion | Package | Parser | Struct | Typedef)
}

fn missing_before(token: &Token, open: Span) -> Diagnostic {
    let message = match token.kind {
        TokenKind::RBrace => "a `}` is missing before this one".to_string(),
        TokenKind::Eof => "expected `}`, found the end of the file".to_string(),
        kind if kind.is_keyword() => format!("expected `}}`, found the keyword `{}`", token.text()),
        _ => format!("expected `}}`, found `{}`", token.text()),
    };
    Diagnostic::error(codes::UNCLOSED, token.span, message).note(open, "to close this")
}

/// The column of a token, if it is the first on its line.
fn column(span: Span, sources: &SourceMap) -> Option<u32> {
    let text = sources.get(span.file)?.text.get(..span.start as usize)?;
    let line = &text[text.rfind('\n').map_or(0, |i| i + 1)..];
    // A comment may precede it.
    let blank = line.bytes().take_while(|b| matches!(b, b' ' | b'\t'));
    Some(blank.fold(0, |column, b| if b == b'\t' { (column / TAB + 1) * TAB } else { column + 1 }))
}

#[cfg(test)]
mod tests {
    use crate::{MemoryLoader, Options, SourceInput, parse_program};
    use base::SourceMap;

    /// The line and message of each error.
    fn errors(text: &str) -> Vec<(u32, String)> {
        let mut sources = SourceMap::new();
        let source = SourceInput { name: "x.p4".into(), text: text.into() };
        let parsed = parse_program(source, &Options::default(), &MemoryLoader::default(), &mut sources);
        parsed.diagnostics.iter().map(|d| (sources.locate(d.span).map_or(0, |l| l.1), d.message.clone())).collect()
    }

    #[test]
    fn missing_braces_are_found_by_indentation() {
        let found = errors("header h_t {\n    bit<8> a;\n\nstruct s_t {\n    h_t h;\n}\n");
        assert_eq!(found, [(4, "expected `}`, found the keyword `struct`".to_string())]);
        let inner = "control c(inout bit<8> x,\n          in bit<8> y) {\n    apply {\n        if (x == 1) {\n            x = y;\n        else {\n            x = 2;\n        }\n    }\n}\n";
        assert_eq!(errors(inner), [(6, "expected `}`, found the keyword `else`".to_string())]);
        let nested = "control c(inout bit<8> x) {\n    apply {\n        if (x == 1) {\n            if (x == 2) {\n                x = 3;\n            }\n         else {\n            x = 2;\n        }\n    }\n}\n";
        assert_eq!(errors(nested), [(7, "expected `}`, found the keyword `else`".to_string())]);
        let brace = "control c(inout bit<8> x) {\n    apply {\n        if (x == 1) {\n            x = 2;\n    }\n}\n";
        assert_eq!(errors(brace), [(5, "a `}` is missing before this one".to_string())]);
        let end = "control c(inout bit<8> x)\n{\n    apply { x = 1; }\n";
        assert_eq!(errors(end), [(3, "expected `}`, found the end of the file".to_string())]);
    }

    #[test]
    fn a_list_of_a_table_ends_where_the_next_property_begins() {
        let table = |lists: &str| {
            let text = format!(
                "control c(inout bit<8> x) {{\n    action a() {{ }}\n    table t {{ {lists} size = 4; }}\n    apply {{ t.apply(); }}\n}}\n"
            );
            errors(&text)
        };
        assert_eq!(table("key = { x: exact; } actions = { a; }"), []);
        let expected = |what: &str| vec![(3, format!("expected `}}`, found {what}"))];
        assert_eq!(table("key = { x: exact; actions = { a; }"), expected("the keyword `actions`"));
        assert_eq!(table("key = { x: exact; } actions = { a;"), expected("`size`"));
        assert_eq!(
            table("key = { x: exact; } actions = { a; const default_action = a();"),
            expected("the keyword `const`")
        );
        // A priority is not a property.
        assert_eq!(table("key = { x: ternary; } actions = { a; } entries = { priority = 1: 5: a(); }"), []);
    }

    #[test]
    fn an_included_declaration_ends_a_block() {
        let errors = |text: &str, included: &str| {
            let mut sources = SourceMap::new();
            let source = SourceInput { name: "x.p4".into(), text: text.into() };
            let mut loader = MemoryLoader::default();
            loader.embedded.insert("y.p4".into(), included.into());
            let parsed = parse_program(source, &Options::default(), &loader, &mut sources);
            let place = |d: &base::Diagnostic| sources.locate(d.span).map(|(file, line, _)| format!("{file}:{line}"));
            parsed.diagnostics.iter().map(|d| (place(d).unwrap_or_default(), d.message.clone())).collect::<Vec<_>>()
        };
        let control = "control D(in bit<8> x) {\n    apply { }\n}\n";
        let found = errors("struct s {\n    bit<8> a;\n\n#include <y.p4>\nstruct t { }\n", control);
        assert_eq!(found, [("<y.p4>:1".to_string(), "expected `}`, found the keyword `control`".to_string())]);
        // A part of a block may be included.
        let part = "action a() { }\nbit<8> y = x;\n";
        assert_eq!(errors("control c(inout bit<8> x) {\n#include <y.p4>\n    apply { a(); }\n}\n", part), []);
        let found = errors("control c(inout bit<8> x) {\n#include <y.p4>\n    apply { a();\n}\n", part);
        assert_eq!(found, [("x.p4:4".to_string(), "a `}` is missing before this one".to_string())]);
    }

    #[test]
    fn misleading_indentation_is_ignored() {
        let flat = "control c(inout bit<8> x) {\napply {\nif (x == 1) {\nx = 2;\n}\n}\n";
        assert!(!errors(flat).is_empty());
        assert_eq!(errors("control c(inout bit<8> x) {\napply {\nx = 2;\n}\n}\n"), []);
    }
}
