//! Modules of a crate form layers: no module imports one that imports it, directly or through others.
//!
//! Read from `use` declarations (`crate::`, `super::`, `self::`, or a child's name) outside of `#[cfg(test)]`. A module is a
//! file; an import counts for the deepest file that its path names, so an item that a parent re-exports counts for the parent.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Crates that still have import circles. A crate leaves the list with its last circle; none is added.
const WITH_CIRCLES: [&str; 7] = ["bmv2", "control", "datapath", "jit", "lower", "tables", "thrift"];

/// Path of a module below its crate; empty for the crate's root.
type Module = Vec<String>;
/// What each module imports from others of its crate.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Adds a finding for every circle of a crate that should have none, and for a crate that is listed without reason.
pub fn check(files: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    for (krate, files) in crates(files) {
        let circles = circles(&imports(&krate, &files)?);
        let listed = WITH_CIRCLES.iter().any(|name| krate.ends_with(name));
        if listed && circles.is_empty() {
            findings.push(format!("{}: has no import circle any more: take it off WITH_CIRCLES", krate.display()));
        }
        for circle in circles.iter().filter(|_| !listed) {
            findings.push(format!("{}: modules import each other: {}", krate.display(), shown(circle)));
        }
    }
    Ok(())
}

/// Source files by crate, without tests and without binaries beside the crate.
fn crates(files: &[PathBuf]) -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut crates: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let folders = file.ancestors().skip(1).filter(|folder| folder.ends_with("src"));
        let Some(krate) = folders.last().and_then(Path::parent) else { continue };
        let below = file.strip_prefix(krate.join("src")).unwrap_or(file);
        let apart = below.starts_with("bin") || below.components().any(|c| c.as_os_str() == "tests");
        if !apart && !below.ends_with("tests.rs") {
            crates.entry(krate.to_path_buf()).or_default().push(file.clone());
        }
    }
    crates
}

fn imports(krate: &Path, files: &[PathBuf]) -> Result<Imports> {
    let module = |file: &Path| -> Module {
        let below = file.strip_prefix(krate.join("src")).unwrap_or(file).with_extension("");
        let mut path: Module = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if path.last().is_some_and(|last| last == "mod" || path.len() == 1 && (last == "lib" || last == "main")) {
            path.pop();
        }
        path
    };
    let modules: BTreeSet<Module> = files.iter().map(|file| module(file)).collect();
    let mut imports = Imports::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let of = module(file);
        let found = used_paths(&tokens(&text)).into_iter().filter_map(|path| target(&of, &path, &modules));
        imports.entry(of.clone()).or_default().extend(found.filter(|target| *target != of));
    }
    Ok(imports)
}

/// The module that a path of module `of` leads into; `None` for other crates'.
fn target(of: &Module, path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let mut rest = path;
    let mut at: Module = match rest.first()?.as_str() {
        "crate" => Module::new(),
        "self" | "super" => of.clone(),
        child => {
            let child: Module = of.iter().cloned().chain([child.to_string()]).collect();
            modules.contains(&child).then(|| of.clone())?
        }
    };
    while let Some(first @ ("crate" | "self" | "super")) = rest.first().map(String::as_str) {
        if first == "super" {
            at.pop();
        }
        rest = &rest[1..];
    }
    for part in rest {
        at.push(part.clone());
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

/// Paths of all `use` declarations, one for each leaf.
fn used_paths(tokens: &[&str]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let cfg = tokens[i..].strip_prefix(&["#", "[", "cfg", "("]).unwrap_or_default();
        if cfg.strip_prefix(&["all", "("]).unwrap_or(cfg).first() == Some(&"test") {
            i = after_item(tokens, i);
            continue;
        }
        // Not the `use<'a>` of captured lifetimes.
        if tokens[i] == "use" && tokens.get(i + 1).is_some_and(|next| *next != "<") {
            let end = tokens[i..].iter().position(|t| *t == ";").map_or(tokens.len(), |at| i + at);
            tree(&tokens[i + 1..end], &mut Vec::new(), &mut paths);
            i = end;
        }
        i += 1;
    }
    paths
}

/// Where the item ends that an attribute at `at` belongs to: behind its `;` or its braces.
fn after_item(tokens: &[&str], at: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "{" | "[" | "(" => depth += 1,
            "}" if depth <= 1 => return i + 1,
            "}" | "]" | ")" => depth = depth.saturating_sub(1),
            ";" if depth == 0 => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The leaves of a `use` tree; returns how many tokens it has.
fn tree(tokens: &[&str], prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let length = prefix.len();
    let mut i = 0;
    loop {
        match tokens.get(i).copied() {
            Some(":") => {}
            Some("{") => {
                i += 1;
                while tokens.get(i).is_some_and(|t| *t != "}") {
                    i += tree(&tokens[i..], prefix, paths);
                    i += usize::from(tokens.get(i) == Some(&","));
                }
                prefix.truncate(length);
                return i + 1;
            }
            None | Some("," | "}") => break,
            // Another name for the leaf.
            Some("as") => i += 1,
            Some(name) => prefix.push(name.to_string()),
        }
        i += 1;
    }
    paths.push(prefix.clone());
    prefix.truncate(length);
    i
}

/// Words and single punctuation of a source, without comments, strings and characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c == '_' || c.is_alphanumeric();
        let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r');
        let raw = raw.filter(|raw| raw.trim_start_matches('#').starts_with('"'));
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some(raw) = raw {
            let fence = raw.len() - raw.trim_start_matches('#').len();
            let close = format!("\"{}", "#".repeat(fence));
            let body = rest.len() - raw.len() + fence + 1;
            rest[body..].find(&close).map_or(rest.len(), |at| body + at + close.len())
        } else if first == '"' {
            quoted(rest, '"').unwrap_or(rest.len())
        } else if first == '\'' {
            // A character, or a lifetime.
            let is_char = rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\'');
            if is_char { quoted(rest, '\'').unwrap_or(rest.len()) } else { 1 }
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(&rest[..length]);
            length
        } else {
            if !first.is_whitespace() {
                tokens.push(&rest[..first.len_utf8()]);
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// Bytes of a quoted text that a source begins with.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return Some(at + 1);
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

/// One circle, the shortest, of each set of modules that reach one another.
fn circles(imports: &Imports) -> Vec<Vec<Module>> {
    let mut seen: BTreeSet<&Module> = BTreeSet::new();
    let mut circles: Vec<Vec<Module>> = Vec::new();
    for module in imports.keys() {
        if seen.contains(module) {
            continue;
        }
        let Some(mut shortest) = way_back(imports, module) else { continue };
        // All that it reaches and that reach it: their circles are the same knot.
        let reached: Vec<&Module> = reach(imports, module).into_iter().collect();
        for other in reached.into_iter().filter(|other| reach(imports, other).contains(module)) {
            seen.insert(other);
            if let Some(circle) = way_back(imports, other).filter(|c| c.len() < shortest.len()) {
                shortest = circle;
            }
        }
        circles.push(shortest);
    }
    circles
}

fn reach<'a>(imports: &'a Imports, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = imports.get(from).into_iter().flatten().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(imports.get(module).into_iter().flatten());
        }
    }
    reached
}

/// The shortest path from a module back to itself, without its end.
fn way_back(imports: &Imports, module: &Module) -> Option<Vec<Module>> {
    let mut before: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut open = VecDeque::from([module]);
    while let Some(at) = open.pop_front() {
        for next in imports.get(at).into_iter().flatten() {
            if next == module {
                let mut path = vec![at.clone()];
                while path.last() != Some(module) {
                    path.push(before[path.last()?].clone());
                }
                path.reverse();
                return Some(path);
            }
            if !before.contains_key(next) {
                before.insert(next, at);
                open.push_back(next);
            }
        }
    }
    None
}

fn shown(circle: &[Module]) -> String {
    let name = |module: &Module| if module.is_empty() { "crate".to_string() } else { module.join("::") };
    circle.iter().chain(circle.first()).map(name).collect::<Vec<_>>().join(" → ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split("::").filter(|part| !part.is_empty()).map(str::to_string).collect()
    }

    #[test]
    fn use_declarations_are_read_and_nothing_else_is() {
        let source = r##"
            //! use crate::comment;
            use crate::a::{self, b::{C, D as E}, *};
            pub(crate) use super::f;
            const TEXT: &str = "use crate::string;"; const RAW: &str = r#"use crate::"raw";"#;
            const QUOTE: char = '"'; const TICK: char = '\'';
            fn f<'a>(x: &'a str) -> impl Fn() + use<'a> { use std::fmt; /* use crate::block; */ }
            #[cfg(test)]
            mod tests { use super::*; fn g() {} }
            #[cfg(all(test, not(loom)))]
            fn g() -> [u8; 2] { use crate::test; }
            use h::i;
        "##;
        let paths: Vec<String> = used_paths(&tokens(source)).iter().map(|path| path.join("::")).collect();
        let found =
            ["crate::a::self", "crate::a::b::C", "crate::a::b::D", "crate::a::*", "super::f", "std::fmt", "h::i"];
        assert_eq!(paths, found);
    }

    #[test]
    fn paths_lead_into_the_deepest_file() {
        let modules = ["", "a", "a::b", "c"].map(module).into();
        let leads = |of: &str, path: &str| target(&module(of), &module(path), &modules);
        assert_eq!(leads("c", "crate::a::b::Item"), Some(module("a::b")));
        assert_eq!(leads("c", "crate::a::Item"), Some(module("a")));
        assert_eq!(leads("a::b", "super::Item"), Some(module("a")));
        assert_eq!(leads("a::b", "super::super::c"), Some(module("c")));
        assert_eq!(leads("a", "b::Item"), Some(module("a::b")));
        assert_eq!(leads("a", "std::fmt"), None);
        assert_eq!(leads("a", "crate::Item"), Some(module("")));
    }

    #[test]
    fn one_circle_is_shown_of_each_knot() {
        let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "b"), ("d", "a"), ("e", "f"), ("f", "e"), ("g", "h")];
        let mut imports = Imports::new();
        for (from, to) in edges {
            imports.entry(module(from)).or_default().insert(module(to));
        }
        let circles: Vec<String> = circles(&imports).iter().map(|circle| shown(circle)).collect();
        assert_eq!(circles, ["b → c → b", "e → f → e"]);
    }
}
