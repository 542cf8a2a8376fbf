//! Language features computed from an [`Analysis`]: hover, definition, references, rename, symbols, completion.
//!
//! Plain functions from an analysis and a position to a result. Positions are a file's name and a byte offset.

use crate::analysis::{Analysis, Macro};
use crate::files::Files;
use crate::index::{Def, DefId, DefKind, Index, Item, Site};
use crate::resolve::{MARK, PROPERTIES};
use crate::text;
use base::Span;
use lsp_types::{CompletionItem, CompletionItemKind, DocumentSymbol, SymbolKind};
use std::collections::BTreeSet;

/// Maximum length of the declaration that a hover shows, in lines.
const HOVER_LINES_MAX: usize = 30;

/// The entity at a source position.
#[derive(Clone, Copy)]
pub enum Thing<'a> {
    /// A declared name.
    Def(Span, DefId),
    /// A macro's name.
    Macro(Span, &'a Macro),
    /// An included file.
    Include(Span, &'a str),
    /// A built-in member: its syntax, and its description.
    Builtin(Span, &'static str, &'static str),
}

/// The entity at an offset of a file.
pub fn at<'a>(analysis: &'a Analysis, file: &str, offset: usize) -> Option<Thing<'a>> {
    let ids = analysis.ids(file);
    let source = analysis.sources().get(*ids.first()?)?;
    let at = offset as u32;
    let line = |span: Span| analysis.sources().get(span.file).map(|f| f.line_col(span.start).0);
    if let Some(include) =
        analysis.includes.iter().find(|i| ids.contains(&i.span.file) && line(i.span) == Some(source.line_col(at).0))
    {
        return Some(Thing::Include(include.span, &include.file));
    }
    let word = text::word_at(&source.text, offset);
    // Tokens of a macro expansion have the span of the macro's use, so macros are checked first.
    if let Some(word) = &word
        && let Some(found) = analysis.macros.iter().rev().find(|m| m.name == source.text[word.clone()])
    {
        return Some(Thing::Macro(Span::new(ids[0], word.start as u32, word.end as u32), found));
    }
    if let Some((span, def)) = analysis.index.at(&ids, at) {
        return Some(Thing::Def(span, def));
    }
    let covers = |span: &Span| ids.contains(&span.file) && span.start <= at && at <= span.end;
    let builtin = analysis.index.builtins.iter().find(|(span, ..)| covers(span))?;
    Some(Thing::Builtin(builtin.0, builtin.1, builtin.2))
}

/// The entity that another program has at the declaration of `thing`.
pub fn declared_at<'a>(analysis: &'a Analysis, file: &str, place: Span, thing: &Thing) -> Option<Thing<'a>> {
    let ids = analysis.ids(file);
    match thing {
        Thing::Def(..) => analysis.index.at(&ids, place.start).map(|(span, def)| Thing::Def(span, def)),
        Thing::Macro(..) => {
            let same = |m: &&Macro| ids.contains(&m.span.file) && m.span.start == place.start;
            analysis.macros.iter().find(same).map(|m| Thing::Macro(m.span, m))
        }
        Thing::Include(..) | Thing::Builtin(..) => None,
    }
}

/// The span of an entity's declaration.
pub fn definition(analysis: &Analysis, thing: &Thing) -> Option<Span> {
    match thing {
        Thing::Def(_, def) => Some(analysis.index.def(*def).span),
        Thing::Macro(_, found) => Some(found.span),
        Thing::Include(_, file) => analysis.ids(file).first().map(|id| Span::new(*id, 0, 0)),
        Thing::Builtin(..) => None,
    }
}

/// All occurrences of an entity's name, the declaration first.
pub fn references(analysis: &Analysis, thing: &Thing) -> Vec<Span> {
    match thing {
        Thing::Def(_, def) => analysis.index.places(*def),
        Thing::Macro(_, found) => macro_places(analysis, found),
        Thing::Include(..) | Thing::Builtin(..) => Vec::new(),
    }
}

/// Occurrences of a macro's name, outside comments and strings.
fn macro_places(analysis: &Analysis, found: &Macro) -> Vec<Span> {
    let mut places = vec![found.span];
    for (id, file) in (0..).map(base::FileId).zip(analysis.sources().files()) {
        let tokens = syntax::lexer::lex(id, &file.text, &mut syntax::token::Interner::default());
        let named = tokens.iter().filter(|t| t.kind.is_word() && t.text() == found.name && t.span != found.span);
        places.extend(named.map(|t| t.span));
    }
    places
}

// -------------------------------------------------------------------------------------------------------------- hover

/// The hover text of an entity, as Markdown.
pub fn hover(analysis: &Analysis, thing: &Thing) -> String {
    match thing {
        Thing::Def(_, id) => {
            let def = analysis.index.def(*id);
            let mut out = format!("```p4\n{}\n```", declaration(analysis, def));
            if let Some(parent) = def.parent.map(|p| analysis.index.def(p)) {
                out += &format!("\n\n{} of `{}`", noun(def.kind), parent.name);
            }
            let comment = comment(analysis, def);
            if !comment.is_empty() {
                out += &format!("\n\n{comment}");
            }
            out
        }
        Thing::Macro(_, found) => format!("```p4\n{}\n```", found.text),
        Thing::Include(_, file) => format!("`{file}`"),
        Thing::Builtin(_, text, about) => format!("```p4\n{text}\n```\n\n{about}"),
    }
}

/// The source text of a declaration, with its annotations and without its body.
fn declaration(analysis: &Analysis, def: &Def) -> String {
    let mut span = def.full;
    if !def.annotations.is_none() && def.annotations.file == span.file && def.annotations.start < span.start {
        span.start = def.annotations.start;
    }
    if !def.body.is_none() && def.body.file == span.file && def.body.start > span.start {
        span.end = def.body.start;
    }
    let text = analysis.sources().text(span).unwrap_or(&def.name);
    let indent = indent_of(analysis, span);
    let lines = text.trim_end().lines().map(|line| line.strip_prefix(&indent).unwrap_or(line));
    let mut shown: Vec<&str> = lines.take(HOVER_LINES_MAX + 1).collect();
    if shown.len() > HOVER_LINES_MAX {
        shown.pop();
        shown.push("...");
    }
    match def.kind {
        DefKind::State => format!("state {}", def.name),
        _ => shown.join("\n"),
    }
}

/// The white space before a declaration's first line.
fn indent_of(analysis: &Analysis, span: Span) -> String {
    let Some(file) = analysis.sources().get(span.file) else { return String::new() };
    let line = file.line(file.line_col(span.start).0).unwrap_or_default();
    line.chars().take_while(|c| c.is_whitespace()).collect()
}

/// The comment directly above a declaration, or after it on the same line.
fn comment(analysis: &Analysis, def: &Def) -> String {
    let Some(file) = analysis.sources().get(def.full.file) else { return String::new() };
    let start = if def.annotations.is_none() { def.full.start } else { def.annotations.start.min(def.full.start) };
    let (first, _) = file.line_col(start);
    let mut lines = Vec::new();
    for number in (1..first).rev() {
        let line = file.line(number).unwrap_or_default().trim();
        let is_comment = line.starts_with("//") || line.starts_with("/*") || line.starts_with('*');
        if !is_comment || line.ends_with("*/") && !lines.is_empty() {
            break;
        }
        lines.push(line.trim_start_matches(['/', '*', '!']).trim_end_matches("*/").trim());
        if line.starts_with("/*") {
            break;
        }
    }
    lines.reverse();
    if lines.is_empty() {
        let (last, _) = file.line_col(def.full.end);
        let behind = file.line(last).and_then(|line| line.split_once("//"));
        lines.extend(behind.map(|(_, comment)| comment.trim_start_matches(['/', '<']).trim()));
    }
    lines.join("\n").trim().to_string()
}

fn noun(kind: DefKind) -> &'static str {
    use DefKind::*;
    match kind {
        Const => "constant",
        Variable => "variable",
        Param => "parameter",
        TypeParam => "type parameter",
        Instance => "instance",
        Action => "action",
        Table => "table",
        ValueSet => "value set",
        Function => "function",
        Extern => "extern",
        Method => "method",
        Constructor => "constructor",
        Parser => "parser",
        Control => "control",
        BlockType => "type",
        Header => "header",
        HeaderUnion => "header union",
        Struct => "struct",
        Enum => "enum",
        Field => "field",
        Member => "member",
        State => "state",
        Typedef => "typedef",
        NewType => "type",
    }
}

// ------------------------------------------------------------------------------------------------------------- symbols

/// The declarations of a file, as a tree.
#[expect(deprecated, reason = "the protocol's `deprecated` field has to be given")]
pub fn symbols(analysis: &Analysis, file: &str) -> Vec<DocumentSymbol> {
    let Some(id) = analysis.ids(file).first().copied() else { return Vec::new() };
    let Some(source) = analysis.sources().get(id) else { return Vec::new() };
    let range = |span: Span| text::range(&source.text, span.start as usize..span.end as usize);
    let shown = |def: &Def| {
        def.full.file == id
            && !matches!(def.kind, DefKind::Param | DefKind::TypeParam | DefKind::Variable | DefKind::Constructor)
    };
    let children = |parent: Option<DefId>| {
        let of = move |(_, def): &(DefId, &Def)| def.parent == parent;
        (0..).map(DefId).zip(&analysis.index.defs).filter(of)
    };
    fn tree<'a, I: Iterator<Item = (DefId, &'a Def)>>(
        parent: Option<DefId>,
        children: &impl Fn(Option<DefId>) -> I,
        shown: &impl Fn(&Def) -> bool,
        make: &impl Fn(&Def, Vec<DocumentSymbol>) -> DocumentSymbol,
    ) -> Vec<DocumentSymbol> {
        let own = children(parent).filter(|(_, def)| shown(def));
        own.map(|(id, def)| make(def, tree(Some(id), children, shown, make))).collect()
    }
    let make = |def: &Def, parts: Vec<DocumentSymbol>| {
        let mut full = def.full;
        // LSP requires the name's range to be inside the full range.
        full.start = full.start.min(def.span.start);
        full.end = full.end.max(def.span.end);
        DocumentSymbol {
            name: def.name.to_string(),
            detail: Some(noun(def.kind).to_string()),
            kind: symbol_kind(def.kind),
            tags: None,
            deprecated: None,
            range: range(full),
            selection_range: range(def.span),
            children: (!parts.is_empty()).then_some(parts),
        }
    };
    tree(None, &children, &shown, &make)
}

fn symbol_kind(kind: DefKind) -> SymbolKind {
    use DefKind::*;
    match kind {
        Const => SymbolKind::CONSTANT,
        Variable | Param | Instance | ValueSet => SymbolKind::VARIABLE,
        TypeParam => SymbolKind::TYPE_PARAMETER,
        Action | Function => SymbolKind::FUNCTION,
        Table => SymbolKind::OBJECT,
        Extern | Parser | Control => SymbolKind::CLASS,
        BlockType | Typedef | NewType => SymbolKind::INTERFACE,
        Method | Constructor => SymbolKind::METHOD,
        Header | HeaderUnion | Struct => SymbolKind::STRUCT,
        Enum => SymbolKind::ENUM,
        Field => SymbolKind::FIELD,
        Member => SymbolKind::ENUM_MEMBER,
        State => SymbolKind::EVENT,
    }
}

// -------------------------------------------------------------------------------------------------------------- rename

/// The spans that a rename changes.
///
/// # Errors
/// Why it cannot be renamed: the new name is not an identifier, the declaration is in a file that is not the user's, or
/// a macro produces a use.
pub fn rename(analysis: &Analysis, thing: &Thing, new: &str) -> Result<Vec<Span>, String> {
    let is_word = text::word_at(new, 0) == Some(0..new.len());
    if !is_word || syntax::token::TokenKind::keyword(new).is_some_and(|k| !k.is_name()) {
        return Err(format!("`{new}` is not a name of P4"));
    }
    let old = match thing {
        Thing::Def(_, def) => analysis.index.def(*def).name.to_string(),
        Thing::Macro(_, found) => found.name.clone(),
        Thing::Include(..) | Thing::Builtin(..) => {
            return Err("only names that a program declares can be renamed".into());
        }
    };
    let mut places = references(analysis, thing);
    if let Thing::Def(_, def) = thing {
        places.extend(also_named(analysis, *def));
    }
    // A file that is included twice has each span twice.
    let mut unique = BTreeSet::new();
    let mut out = Vec::new();
    for place in places {
        let Some(file) = analysis.file_of(place) else { continue };
        if file.starts_with('<') {
            return Err(format!("`{old}` is declared in {file}, which comes with the compiler"));
        }
        if analysis.sources().text(place) != Some(old.as_str()) {
            let (_, line, _) = analysis.sources().locate(place).unwrap_or_default();
            return Err(format!("a macro makes a use of `{old}`: {file}:{line}"));
        }
        if unique.insert((file, place.start)) {
            out.push(place);
        }
    }
    Ok(out)
}

/// Occurrences under related declarations: an extern object and its constructors have the same name.
fn also_named(analysis: &Analysis, def: DefId) -> Vec<Span> {
    let object = match analysis.index.def(def).kind {
        DefKind::Extern => Some(def),
        DefKind::Constructor => analysis.index.def(def).parent,
        _ => None,
    };
    let Some(object) = object else { return Vec::new() };
    let makers = analysis.index.def(object).members.iter().copied();
    let makers = makers.filter(|m| analysis.index.def(*m).kind == DefKind::Constructor);
    std::iter::once(object).chain(makers).flat_map(|id| analysis.index.places(id)).collect()
}

// ---------------------------------------------------------------------------------------------------------- completion

/// Keywords that can begin a statement or a value.
const VALUE_WORDS: [&str; 14] = [
    "apply",
    "const",
    "default",
    "else",
    "error",
    "exit",
    "false",
    "for",
    "if",
    "in",
    "return",
    "switch",
    "transition",
    "true",
];

/// Keywords that begin a declaration at top level (below: in a control, in a parser).
const PROGRAM_WORDS: [&str; 14] = [
    "action",
    "const",
    "control",
    "enum",
    "error",
    "extern",
    "header",
    "header_union",
    "match_kind",
    "package",
    "parser",
    "struct",
    "type",
    "typedef",
];
const CONTROL_WORDS: [&str; 4] = ["action", "apply", "const", "table"];
const PARSER_WORDS: [&str; 3] = ["const", "state", "value_set"];

/// Keywords that are types.
const TYPE_WORDS: [&str; 6] = ["bit", "bool", "error", "int", "tuple", "varbit"];

/// Completions at an offset of an open file: the text is analysed with [`MARK`] inserted there.
pub fn complete(
    root: &str,
    file: &str,
    offset: usize,
    files: &Files,
    settings: &crate::analysis::Settings,
) -> Vec<CompletionItem> {
    let Some(document) = files.get(file) else { return Vec::new() };
    let text = &document.text;
    let word = text::word_at(text, offset).filter(|word| word.end >= offset);
    let start = word.map_or(offset, |word| word.start).min(offset);
    if before_is_comment(text, start) {
        return Vec::new();
    }
    let end = start + text[start..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    // The statement may be incomplete: usual endings are tried until the parser reaches the mark.
    let endings = [
        ("", ""),
        ("", ";"),
        ("", "();"),
        ("", ") {}"),
        ("", " x;"),
        ("", ": exact;"),
        ("", "; }"),
        ("x : ", ";"),
        ("", " = 1;"),
    ];
    for (before, behind) in endings {
        let mut trial = files.clone();
        let changed = format!("{}{before}{MARK}{behind}{}", &text[..start], &text[end..]);
        trial.set(file.to_string(), crate::files::Document { text: changed.into(), ..document.clone() });
        let Some((index, sources)) = crate::analysis::names(root, &trial, settings) else { continue };
        if let Some(site) = &index.site {
            let mut items = offers(&index, site);
            if matches!(site, Site::Value(_) | Site::Type(_) | Site::Declaration(..)) {
                items.extend(macros(&sources));
            }
            return items;
        }
    }
    Vec::new()
}

/// Whether an offset is in a comment: behind `//` on its line, or within `/* */`.
fn before_is_comment(text: &str, offset: usize) -> bool {
    let before = &text[..offset];
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.contains("//") || before.rfind("/*").is_some_and(|open| before.rfind("*/").is_none_or(|close| close < open))
}

/// Macros of the program's own files that have a value.
fn macros(sources: &base::SourceMap) -> Vec<CompletionItem> {
    let (macros, _) = crate::analysis::directives(sources);
    let own = |m: &&Macro| sources.get(m.span.file).is_some_and(|file| !file.name.starts_with('<'));
    let stands = |m: &&Macro| !m.text.trim_end().ends_with(&m.name);
    let names: BTreeSet<String> = macros.iter().filter(own).filter(stands).map(|m| m.name.clone()).collect();
    let item = |label| CompletionItem {
        label,
        kind: Some(CompletionItemKind::CONSTANT),
        detail: Some("macro".into()),
        ..CompletionItem::default()
    };
    names.into_iter().map(item).collect()
}

fn offers(index: &Index, site: &Site) -> Vec<CompletionItem> {
    let visible = |scope: usize, wanted: &dyn Fn(&Def) -> bool| -> Vec<CompletionItem> {
        index.visible(scope).into_iter().map(|id| index.def(id)).filter(|d| wanted(d)).map(item_of).collect()
    };
    let words = |words: &[&str]| words.iter().map(|w| word(w)).collect::<Vec<_>>();
    match site {
        Site::Members(items) => items.iter().map(|item| member(index, item)).collect(),
        Site::Value(scope) => {
            [visible(*scope, &|d| d.kind != DefKind::State), words(&VALUE_WORDS), words(&TYPE_WORDS)].concat()
        }
        Site::Type(scope) => [visible(*scope, &|d| d.kind.is_type()), words(&TYPE_WORDS)].concat(),
        Site::Declaration(scope, within) => {
            let begin: &[&str] = match within {
                None => &PROGRAM_WORDS,
                Some(DefKind::Control) => &CONTROL_WORDS,
                Some(DefKind::Parser) => &PARSER_WORDS,
                Some(_) => &[],
            };
            [words(begin), visible(*scope, &|d| d.kind.is_type()), words(&TYPE_WORDS)].concat()
        }
        Site::Action(scope) => visible(*scope, &|d| d.kind == DefKind::Action),
        Site::State(scope) => {
            [visible(*scope, &|d| d.kind == DefKind::State), words(&["accept", "reject", "select"])].concat()
        }
        Site::MatchKind => index.match_kinds.iter().map(|id| item_of(index.def(*id))).collect(),
        Site::Property => PROPERTIES.iter().map(|(name, ..)| word(name)).collect(),
        Site::Argument(callees) => {
            callees.iter().flat_map(|c| &index.def(*c).params).map(|p| item_of(index.def(*p))).collect()
        }
    }
}

fn word(word: &str) -> CompletionItem {
    CompletionItem { label: word.into(), kind: Some(CompletionItemKind::KEYWORD), ..CompletionItem::default() }
}

fn item_of(def: &Def) -> CompletionItem {
    CompletionItem {
        label: def.name.to_string(),
        kind: Some(completion_kind(def.kind)),
        detail: Some(noun(def.kind).to_string()),
        ..CompletionItem::default()
    }
}

fn member(index: &Index, item: &Item) -> CompletionItem {
    match (item.def, item.about) {
        (Some(def), _) => item_of(index.def(def)),
        (None, Some((text, _))) => CompletionItem {
            label: item.name.to_string(),
            kind: Some(CompletionItemKind::METHOD),
            detail: Some(text.to_string()),
            // Sorts after the program's declarations.
            sort_text: Some(format!("~{}", item.name)),
            ..CompletionItem::default()
        },
        (None, None) => word(&item.name),
    }
}

fn completion_kind(kind: DefKind) -> CompletionItemKind {
    use DefKind::*;
    match kind {
        Const => CompletionItemKind::CONSTANT,
        Variable | Param | Instance | ValueSet | Table => CompletionItemKind::VARIABLE,
        TypeParam => CompletionItemKind::TYPE_PARAMETER,
        Action | Function => CompletionItemKind::FUNCTION,
        Method => CompletionItemKind::METHOD,
        Constructor => CompletionItemKind::CONSTRUCTOR,
        Extern | Parser | Control => CompletionItemKind::CLASS,
        BlockType | Typedef | NewType => CompletionItemKind::INTERFACE,
        Header | HeaderUnion | Struct => CompletionItemKind::STRUCT,
        Enum => CompletionItemKind::ENUM,
        Field => CompletionItemKind::FIELD,
        Member => CompletionItemKind::ENUM_MEMBER,
        State => CompletionItemKind::EVENT,
    }
}
