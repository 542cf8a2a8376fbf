//! An editor's session: requests and notifications, open documents, and the program that each belongs to.
//!
//! One thread handles messages in order and publishes diagnostics; `lsp_server` has threads for reading and writing. A
//! request that fails gets an error response; a panic of the compiler loses that request or those diagnostics, not the
//! session.

use crate::analysis::{Analysis, Settings, analyse};
use crate::answers::{self, Thing};
use crate::files::{Document, Files, name_of, normal};
use crate::text;
use crate::workspace::programs_with;
use base::{Severity, Span};
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::notification::{
    DidChangeTextDocument, DidChangeWatchedFiles, DidCloseTextDocument, DidOpenTextDocument, DidSaveTextDocument,
    Notification as _, PublishDiagnostics,
};
use lsp_types::request::{
    Completion, DocumentSymbolRequest, GotoDefinition, HoverRequest, PrepareRenameRequest, References,
    RegisterCapability, Rename, Request as _,
};
use lsp_types::{
    CompletionOptions, CompletionResponse, Diagnostic, DiagnosticRelatedInformation, DiagnosticSeverity,
    DidChangeWatchedFilesRegistrationOptions, DocumentSymbolResponse, FileSystemWatcher, GlobPattern,
    GotoDefinitionResponse, Hover, HoverContents, HoverProviderCapability, InitializeParams, Location, MarkupContent,
    MarkupKind, NumberOrString, OneOf, PrepareRenameResponse, PublishDiagnosticsParams, Registration,
    RegistrationParams, RelativePattern, RenameOptions, ServerCapabilities, ServerInfo, TextDocumentPositionParams,
    TextDocumentSyncCapability, TextDocumentSyncKind, TextDocumentSyncOptions, TextEdit, Url, WorkspaceEdit,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Stack size: the compiler traverses trees recursively, to the depth that the parser allows.
const STACK_BYTES: usize = 64 << 20;

/// The id of the request that registers file watchers, and of the registration.
const WATCH_ID: &str = "files";

/// Why a session ended early.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Serves an editor on standard input and output until it says `exit`.
///
/// # Errors
/// The editor violates the protocol, or closes its end of the pipes without `exit`.
pub fn serve_stdio(settings: Settings) -> Result<(), Error> {
    let (connection, threads) = Connection::stdio();
    let thread = std::thread::Builder::new().name("lsp".into()).stack_size(STACK_BYTES);
    // The connection is dropped before the threads are joined, because that ends the writer.
    let result = thread.spawn(move || serve(&connection, settings))?.join();
    let result = result.unwrap_or_else(|_| Err("the session's thread panicked".into()));
    threads.join()?;
    result
}

/// Serves an editor at the other end of a connection until it says `exit`.
///
/// # Errors
/// As [`serve_stdio`].
pub fn serve(connection: &Connection, mut settings: Settings) -> Result<(), Error> {
    let (id, params) = connection.initialize_start()?;
    let params: InitializeParams = serde_json::from_value(params)?;
    let result = serde_json::json!({
        "capabilities": capabilities(),
        "serverInfo": ServerInfo { name: "sluice".into(), version: Some(env!("CARGO_PKG_VERSION").into()) },
    });
    connection.initialize_finish(id, result)?;
    configure(&mut settings, params.initialization_options.as_ref());
    let folders = folders(&params);
    let settings = Settings {
        include_dirs: settings.include_dirs.iter().map(|dir| absolute(dir, folders.first())).collect(),
        ..settings
    };
    if let Some(request) = watch_files(&params, &folders, &settings.include_dirs) {
        connection.sender.send(request.into())?;
    }
    let mut session = Session {
        connection,
        settings,
        folders,
        files: Files::default(),
        roots: BTreeMap::new(),
        alone: BTreeSet::new(),
        published: BTreeMap::new(),
    };
    for message in &connection.receiver {
        match message {
            Message::Request(request) => {
                if connection.handle_shutdown(&request)? {
                    return Ok(());
                }
                let response = session.request(request);
                connection.sender.send(response.into())?;
            }
            Message::Notification(notification) => session.notification(notification)?,
            // Without watchers everything works except changes made outside the editor.
            Message::Response(response) => {
                if let Some(error) = response.error {
                    tracing::warn!("{}: {}", response.id, error.message);
                }
            }
        }
    }
    Ok(())
}

fn capabilities() -> ServerCapabilities {
    ServerCapabilities {
        text_document_sync: Some(TextDocumentSyncCapability::Options(TextDocumentSyncOptions {
            open_close: Some(true),
            change: Some(TextDocumentSyncKind::INCREMENTAL),
            save: Some(true.into()),
            ..TextDocumentSyncOptions::default()
        })),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some(vec![".".into()]),
            ..CompletionOptions::default()
        }),
        rename_provider: Some(OneOf::Right(RenameOptions {
            prepare_provider: Some(true),
            work_done_progress_options: Default::default(),
        })),
        ..ServerCapabilities::default()
    }
}

/// The request to be notified of files that change on disk; `None` if the editor does not support that. Folders outside
/// the workspace are watched if the editor supports relative patterns.
fn watch_files(params: &InitializeParams, folders: &[PathBuf], include_dirs: &[String]) -> Option<Request> {
    let can = params.capabilities.workspace.as_ref()?.did_change_watched_files.as_ref()?;
    if !can.dynamic_registration.unwrap_or(false) {
        return None;
    }
    let pattern = format!("**/*.{{{}}}", crate::workspace::ENDINGS.join(","));
    let mut patterns = vec![GlobPattern::String(pattern.clone())];
    if can.relative_pattern_support.unwrap_or(false) {
        let outside =
            include_dirs.iter().filter(|dir| !folders.iter().any(|folder| Path::new(dir).starts_with(folder)));
        let bases = outside.filter_map(|dir| Url::from_directory_path(dir).ok());
        let relative = bases.map(|uri| {
            GlobPattern::Relative(RelativePattern { base_uri: OneOf::Right(uri), pattern: pattern.clone() })
        });
        patterns.extend(relative);
    }
    let watchers = patterns.into_iter().map(|glob_pattern| FileSystemWatcher { glob_pattern, kind: None }).collect();
    let registration = Registration {
        id: WATCH_ID.into(),
        method: DidChangeWatchedFiles::METHOD.into(),
        register_options: serde_json::to_value(DidChangeWatchedFilesRegistrationOptions { watchers }).ok(),
    };
    let params = RegistrationParams { registrations: vec![registration] };
    Some(Request::new(RequestId::from(WATCH_ID.to_string()), RegisterCapability::METHOD.into(), params))
}

/// Adds `{"includeDirs": ["..."], "defines": {"NAME": "VALUE"}}` to the settings of the command line.
fn configure(settings: &mut Settings, options: Option<&Value>) {
    let Some(options) = options else { return };
    let dirs = options["includeDirs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    settings.include_dirs.extend(dirs.map(String::from));
    let value = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let defines = options["defines"].as_object().into_iter().flatten();
    settings.defines.extend(defines.map(|(name, v)| (name.clone(), value(v))));
}

#[expect(deprecated, reason = "older editors name one folder by `rootUri`")]
fn folders(params: &InitializeParams) -> Vec<PathBuf> {
    let named = params.workspace_folders.iter().flatten().map(|folder| &folder.uri);
    named.chain(&params.root_uri).filter_map(|uri| uri.to_file_path().ok()).collect()
}

fn absolute(dir: &str, folder: Option<&PathBuf>) -> String {
    match folder {
        Some(folder) if Path::new(dir).is_relative() => normal(&folder.join(dir)),
        _ => dir.to_string(),
    }
}

struct Session<'a> {
    connection: &'a Connection,
    settings: Settings,
    folders: Vec<PathBuf>,
    files: Files,
    /// The programs of the open documents, by their main files.
    roots: BTreeMap<String, Analysis>,
    /// Documents that no program in the workspace includes: a cache of failed searches, cleared when a file is opened,
    /// closed, saved or changed on disk.
    alone: BTreeSet<String>,
    /// The files that have diagnostics in the editor, by the main file that they come from.
    published: BTreeMap<String, BTreeSet<String>>,
}

impl Session<'_> {
    // ------------------------------------------------------------------------------------------------ notifications

    fn notification(&mut self, notification: Notification) -> Result<(), Error> {
        match notification.method.as_str() {
            DidOpenTextDocument::METHOD => {
                let Some(params) = told::<lsp_types::DidOpenTextDocumentParams>(notification) else { return Ok(()) };
                let document = params.text_document;
                self.alone.clear();
                self.set(document.uri, document.version, document.text)
            }
            DidChangeTextDocument::METHOD => {
                let Some(params) = told::<lsp_types::DidChangeTextDocumentParams>(notification) else { return Ok(()) };
                let document = params.text_document;
                let Some(old) = name_of(&document.uri).and_then(|name| self.files.get(&name)) else { return Ok(()) };
                let mut text = old.text.to_string();
                params.content_changes.iter().for_each(|change| text::apply(&mut text, change));
                self.set(document.uri, document.version, text)
            }
            DidSaveTextDocument::METHOD => {
                self.alone.clear();
                self.analyse_all()
            }
            DidCloseTextDocument::METHOD => {
                let Some(params) = told::<lsp_types::DidCloseTextDocumentParams>(notification) else { return Ok(()) };
                let Some(name) = name_of(&params.text_document.uri) else { return Ok(()) };
                self.files.close(&name);
                self.alone.clear();
                self.analyse_all()
            }
            DidChangeWatchedFiles::METHOD => {
                let Some(params) = told::<lsp_types::DidChangeWatchedFilesParams>(notification) else { return Ok(()) };
                // For open documents the editor's text is used, not the file on disk.
                let on_disk = |uri: &Url| name_of(uri).is_some_and(|name| self.files.get(&name).is_none());
                if !params.changes.iter().any(|change| on_disk(&change.uri)) {
                    return Ok(());
                }
                self.alone.clear();
                self.analyse_all()
            }
            // Unknown notifications may be ignored (LSP 3.17, "$ Notifications and Requests").
            _ => Ok(()),
        }
    }

    fn set(&mut self, uri: Url, version: i32, text: String) -> Result<(), Error> {
        let Some(name) = name_of(&uri) else { return Ok(()) };
        self.files.set(name, Document { uri, version, text: text.into() });
        self.analyse_all()
    }

    /// Analyses the programs that the open documents belong to, and publishes their diagnostics.
    fn analyse_all(&mut self) -> Result<(), Error> {
        let open: Vec<String> = self.files.names().cloned().collect();
        let before = std::mem::take(&mut self.roots);
        let mut parts: BTreeSet<String> = BTreeSet::new();
        // Programs first: the files that they include are not separate programs.
        for name in &open {
            self.add_root(name);
        }
        for (root, analysis) in &self.roots {
            let files = analysis.sources().files().map(|f| normal(Path::new(&f.name)));
            parts.extend(files.filter(|file| file != root));
        }
        // A document that is part of an open program, or of one in the workspace, is not a separate program.
        for name in &open {
            if parts.contains(name) {
                self.roots.remove(name);
            } else if !self.roots.get(name).is_some_and(has_main) {
                let known = before.iter().find(|(root, a)| *root != name && a.has(name)).map(|(root, _)| root.clone());
                let known = known.or_else(|| if self.alone.contains(name) { None } else { self.including(name) });
                if known.is_none() {
                    self.alone.insert(name.clone());
                }
                if let Some(root) = known {
                    self.add_root(&root);
                    if self.roots.get(&root).is_some_and(|a| a.has(name)) {
                        self.roots.remove(name);
                    } else if !open.contains(&root) {
                        self.roots.remove(&root);
                    }
                }
            }
        }
        self.publish()
    }

    fn add_root(&mut self, name: &str) {
        if self.roots.contains_key(name) {
            return;
        }
        let (files, settings) = (&self.files, &self.settings);
        match catch_unwind(AssertUnwindSafe(|| analyse(name, files, settings))) {
            Ok(Some(analysis)) => {
                self.roots.insert(name.to_string(), analysis);
            }
            Ok(None) => {}
            Err(_) => tracing::error!(file = name, "the compiler panicked; this file has no diagnostics"),
        }
    }

    /// A program in the workspace that includes a file.
    fn including(&self, name: &str) -> Option<String> {
        programs_with(&self.folders, &self.files, name).into_iter().find(|root| {
            let analysis = analyse(root, &self.files, &self.settings);
            analysis.is_some_and(|a| a.has(name) && has_main(&a))
        })
    }

    fn publish(&mut self) -> Result<(), Error> {
        let mut by_file: BTreeMap<String, Vec<Diagnostic>> = BTreeMap::new();
        let mut published: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (root, analysis) in &self.roots {
            let open = analysis.sources().files().map(|f| normal(Path::new(&f.name)));
            for name in open.filter(|name| self.files.get(name).is_some()) {
                by_file.entry(name).or_default();
            }
            for diagnostic in analysis.compiled.diagnostics.iter().chain(&analysis.compiled.unloadable) {
                let (file, found) = self.diagnostic(analysis, diagnostic);
                let list = by_file.entry(file.clone()).or_default();
                if !list.contains(&found) {
                    list.push(found);
                }
                published.entry(root.clone()).or_default().insert(file);
            }
        }
        // Files that no longer have diagnostics get an empty list.
        for file in self.published.values().flatten() {
            by_file.entry(file.clone()).or_default();
        }
        self.published = published;
        for (file, diagnostics) in by_file {
            let Some(uri) = self.files.uri(&file) else { continue };
            let version = self.files.get(&file).map(|d| d.version);
            let params = PublishDiagnosticsParams { uri, diagnostics, version };
            let message = Notification::new(PublishDiagnostics::METHOD.into(), params);
            self.connection.sender.send(message.into())?;
        }
        Ok(())
    }

    /// A diagnostic in the protocol's form, and the file that it is for. One in an embedded file, or without a span, is
    /// shown at the top of the main file.
    fn diagnostic(&self, analysis: &Analysis, found: &base::Diagnostic) -> (String, Diagnostic) {
        let place = self.place(analysis, found.span);
        let (file, range) = match place {
            Some((file, range)) if !file.starts_with('<') => (file, range),
            _ => (analysis.root.clone(), lsp_types::Range::default()),
        };
        let mut message = found.message.clone();
        if !found.label.is_empty() {
            message += &format!("\n{}", found.label);
        }
        if let Some(help) = &found.help {
            message += &format!("\nhelp: {help}");
        }
        let related = found.notes.iter().filter_map(|(span, text)| {
            let location = self.location(analysis, *span)?;
            Some(DiagnosticRelatedInformation { location, message: text.clone() })
        });
        let related: Vec<_> = related.collect();
        let severity = match found.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
        };
        let diagnostic = Diagnostic {
            range,
            severity: Some(severity),
            code: Some(NumberOrString::String(found.code.to_string())),
            source: Some("sluice".into()),
            message,
            related_information: (!related.is_empty()).then_some(related),
            ..Diagnostic::default()
        };
        (file, diagnostic)
    }

    fn place(&self, analysis: &Analysis, span: Span) -> Option<(String, lsp_types::Range)> {
        if span.is_none() {
            return None;
        }
        let source = analysis.sources().get(span.file)?;
        Some((analysis.file_of(span)?, text::range(&source.text, span.start as usize..span.end as usize)))
    }

    /// A location that the editor can open; for an embedded file, in a copy made for that purpose.
    fn location(&self, analysis: &Analysis, span: Span) -> Option<Location> {
        let (file, range) = self.place(analysis, span)?;
        let uri = match file.strip_prefix('<').and_then(|name| name.strip_suffix('>')) {
            Some(name) => Url::from_file_path(embedded_copy(name)?).ok()?,
            None => self.files.uri(&file)?,
        };
        Some(Location { uri, range })
    }

    // ---------------------------------------------------------------------------------------------------- requests

    fn request(&self, request: Request) -> Response {
        let id = request.id.clone();
        match catch_unwind(AssertUnwindSafe(|| self.answer(request))) {
            Ok(Ok(value)) => Response::new_ok(id, value),
            Ok(Err((code, message))) => Response::new_err(id, code as i32, message),
            Err(_) => panicked(id),
        }
    }

    fn answer(&self, request: Request) -> Result<Value, (ErrorCode, String)> {
        let Request { method, params, .. } = request;
        match method.as_str() {
            HoverRequest::METHOD => {
                let params: lsp_types::HoverParams = read(params)?;
                Ok(self.at(&params.text_document_position_params, |analysis, _, thing| {
                    let value = answers::hover(analysis, thing);
                    let range = self.place(analysis, span_of(thing)).map(|(_, range)| range);
                    let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value });
                    to_value(Hover { contents, range })
                }))
            }
            GotoDefinition::METHOD => {
                let params: lsp_types::GotoDefinitionParams = read(params)?;
                Ok(self.at(&params.text_document_position_params, |analysis, _, thing| {
                    let place = answers::definition(analysis, thing).and_then(|span| self.location(analysis, span));
                    place.map_or(Value::Null, |place| to_value(GotoDefinitionResponse::Scalar(place)))
                }))
            }
            References::METHOD => {
                let params: lsp_types::ReferenceParams = read(params)?;
                let mut found: Vec<Location> = Vec::new();
                let _ = self.in_all_programs(&params.text_document_position, |analysis, thing| {
                    let places = answers::references(analysis, thing);
                    let first = usize::from(!params.context.include_declaration);
                    for place in places.into_iter().skip(first).filter_map(|span| self.location(analysis, span)) {
                        if !found.contains(&place) {
                            found.push(place);
                        }
                    }
                    Ok(())
                });
                Ok(to_value(found))
            }
            DocumentSymbolRequest::METHOD => {
                let params: lsp_types::DocumentSymbolParams = read(params)?;
                let found = self.analysis_of(&params.text_document.uri);
                let symbols = found.map(|(analysis, file)| answers::symbols(analysis, &file)).unwrap_or_default();
                Ok(to_value(DocumentSymbolResponse::Nested(symbols)))
            }
            Completion::METHOD => {
                let params: lsp_types::CompletionParams = read(params)?;
                let place = &params.text_document_position;
                let Some((analysis, file)) = self.analysis_of(&place.text_document.uri) else { return Ok(Value::Null) };
                let Some(document) = self.files.get(&file) else { return Ok(Value::Null) };
                let offset = text::offset(&document.text, place.position);
                let items = answers::complete(&analysis.root, &file, offset, &self.files, &self.settings);
                Ok(to_value(CompletionResponse::Array(items)))
            }
            PrepareRenameRequest::METHOD => {
                let params: TextDocumentPositionParams = read(params)?;
                Ok(self.at(&params, |analysis, _, thing| match thing {
                    Thing::Def(..) | Thing::Macro(..) => self
                        .place(analysis, span_of(thing))
                        .map_or(Value::Null, |(_, range)| to_value(PrepareRenameResponse::Range(range))),
                    Thing::Include(..) | Thing::Builtin(..) => Value::Null,
                }))
            }
            Rename::METHOD => {
                let params: lsp_types::RenameParams = read(params)?;
                self.rename(&params)
            }
            _ => Err((ErrorCode::MethodNotFound, format!("{method} is not supported"))),
        }
    }

    fn rename(&self, params: &lsp_types::RenameParams) -> Result<Value, (ErrorCode, String)> {
        let failed = |why: String| (ErrorCode::RequestFailed, why);
        let mut changes: HashMap<Url, Vec<TextEdit>> = HashMap::new();
        let mut errors_before: BTreeMap<String, usize> = BTreeMap::new();
        let done = self.in_all_programs(&params.text_document_position, |analysis, thing| {
            let places = answers::rename(analysis, thing, &params.new_name)?;
            errors_before.insert(analysis.root.clone(), errors(analysis).count());
            for location in places.into_iter().filter_map(|span| self.location(analysis, span)) {
                let edit = TextEdit { range: location.range, new_text: params.new_name.clone() };
                let edits = changes.entry(location.uri).or_default();
                if !edits.contains(&edit) {
                    edits.push(edit);
                }
            }
            Ok(())
        });
        done.map_err(failed)?;
        if changes.is_empty() {
            return Err(failed("there is no name here that can be renamed".into()));
        }
        self.try_rename(&changes, &errors_before).map_err(failed)?;
        Ok(to_value(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() }))
    }

    /// Rejects a rename that adds errors to a program, for example because the name is taken.
    fn try_rename(
        &self,
        changes: &HashMap<Url, Vec<TextEdit>>,
        before: &BTreeMap<String, usize>,
    ) -> Result<(), String> {
        let mut changed = self.files.clone();
        for (uri, edits) in changes {
            let Some((name, text)) = name_of(uri).and_then(|name| self.files.text(&name).map(|text| (name, text)))
            else {
                continue;
            };
            let offset = |position| text::offset(&text, position);
            let mut edits: Vec<_> =
                edits.iter().map(|e| (offset(e.range.start)..offset(e.range.end), &e.new_text)).collect();
            edits.sort_by_key(|(range, _)| range.start);
            let mut text = text.to_string();
            edits.into_iter().rev().for_each(|(range, new)| text.replace_range(range, new));
            changed.set(name, Document { uri: uri.clone(), version: 0, text: text.into() });
        }
        for (root, count) in before {
            let Some(analysis) = analyse(root, &changed, &self.settings) else { continue };
            if errors(&analysis).count() > *count {
                let last = errors(&analysis).last().map(|error| error.message.clone()).unwrap_or_default();
                return Err(format!("the program would not compile any more: {last}"));
            }
        }
        Ok(())
    }

    /// Calls `then` with the entity at a position, in each program that uses it: the open ones, and those of the
    /// workspace that include the file that declares it.
    fn in_all_programs(
        &self,
        place: &TextDocumentPositionParams,
        mut then: impl FnMut(&Analysis, &Thing) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some((first, file)) = self.analysis_of(&place.text_document.uri) else { return Ok(()) };
        let Some(text) = self.files.text(&file) else { return Ok(()) };
        let offset = text::offset(&text, place.position);
        let Some(thing) = answers::at(first, &file, offset) else { return Ok(()) };
        then(first, &thing)?;
        let Some(declaration) = answers::definition(first, &thing) else { return Ok(()) };
        let Some(declaring) = first.file_of(declaration) else { return Ok(()) };
        let roots = match declaring.starts_with('<') {
            true => Vec::new(),
            false => programs_with(&self.folders, &self.files, &declaring),
        };
        let unopened = roots.iter().filter(|root| !self.roots.contains_key(*root));
        let unopened: Vec<Analysis> =
            unopened.filter_map(|root| analyse(root, &self.files, &self.settings)).filter(has_main).collect();
        for analysis in self.roots.values().filter(|a| a.root != first.root).chain(&unopened) {
            let used = answers::at(analysis, &file, offset);
            if let Some(same) = used.or_else(|| answers::declared_at(analysis, &declaring, declaration, &thing)) {
                then(analysis, &same)?;
            }
        }
        Ok(())
    }

    /// The program that a document belongs to; one that includes it is preferred to the document itself.
    fn analysis_of(&self, uri: &Url) -> Option<(&Analysis, String)> {
        let file = name_of(uri)?;
        let of = self.roots.get(&file).or_else(|| self.roots.values().find(|a| a.has(&file)))?;
        Some((of, file))
    }

    fn at(&self, place: &TextDocumentPositionParams, then: impl FnOnce(&Analysis, &str, &Thing) -> Value) -> Value {
        let Some((analysis, file)) = self.analysis_of(&place.text_document.uri) else { return Value::Null };
        let Some(text) = self.files.text(&file) else { return Value::Null };
        let thing = answers::at(analysis, &file, text::offset(&text, place.position));
        thing.map_or(Value::Null, |thing| then(analysis, &file, &thing))
    }
}

/// The errors of a program.
fn errors(analysis: &Analysis) -> impl Iterator<Item = &base::Diagnostic> {
    analysis.compiled.diagnostics.iter().filter(|d| d.severity == Severity::Error)
}

/// The parameters of a notification; malformed ones are logged and ignored.
fn told<T: serde::de::DeserializeOwned>(notification: Notification) -> Option<T> {
    let read = serde_json::from_value(notification.params);
    read.inspect_err(|error| tracing::error!("{}: {error}", notification.method)).ok()
}

/// Whether a program declares `main`.
fn has_main(analysis: &Analysis) -> bool {
    analysis.index.defs.iter().any(|def| def.kind == crate::index::DefKind::Instance && &*def.name == "main")
}

fn span_of(thing: &Thing) -> Span {
    match thing {
        Thing::Def(span, _) | Thing::Macro(span, _) | Thing::Include(span, _) | Thing::Builtin(span, ..) => *span,
    }
}

/// Copies an embedded file to the user's cache, where an editor can open it.
fn embedded_copy(name: &str) -> Option<PathBuf> {
    let text = sema::embedded(name)?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let folder = cache.unwrap_or_else(std::env::temp_dir).join("sluice").join(env!("CARGO_PKG_VERSION"));
    let path = folder.join(name);
    if !std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
        std::fs::create_dir_all(path.parent()?).ok()?;
        std::fs::write(&path, text).ok()?;
    }
    Some(path)
}

fn panicked(id: RequestId) -> Response {
    Response::new_err(id, ErrorCode::InternalError as i32, "the language server panicked; please report it".into())
}

fn read<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, (ErrorCode, String)> {
    serde_json::from_value(params).map_err(|error| (ErrorCode::InvalidParams, error.to_string()))
}

fn to_value(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}
