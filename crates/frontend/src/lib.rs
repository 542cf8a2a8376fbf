//! The compiler's front end: source text to IR and P4Info in one call, shared by the command line, the control plane
//! and the tests.
//!
//! Runs the stages in order and stops after the first one that reports an error, with all diagnostics so far. (After
//! syntax errors, `partial_check` still reports type errors in other declarations.) Opens files only through
//! [`Input::File`]. A program that arrives over P4Runtime is [`Input::Text`] and sees only the embedded architecture
//! files and the configured include directories. `explain` is the registry of diagnostic codes; `warning_filter`
//! filters warnings.
//!
//! The stages walk syntax trees recursively. The parser bounds their depth, and the stages run on a thread with a stack
//! for that depth, so the size of the caller's stack, which may be a server's small one, does not matter.

pub mod explain;
pub mod form;
mod partial_check;
mod warning_filter;

pub use warning_filter::Warnings;

use base::diag::has_errors;
use base::{Diagnostic, Severity, SourceMap};
use form::{Embedded, Form};
use p4info::P4Info;
use sema::TypedProgram;
use std::io::Read;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::{Duration, Instant};
use syntax::preprocess::SOURCE_BYTES_MAX;
use syntax::{FileLoader, SourceInput};

/// Options of the compiler.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `-I` directories, in order.
    pub include_dirs: Vec<String>,
    /// `-D` definitions, in order.
    pub defines: Vec<(String, String)>,
    /// The passes to run.
    pub opt: opt::Options,
    /// Warnings to silence or to treat as errors.
    pub warnings: Warnings,
    /// v1model programs behave as in bmv2 where that differs (`lower::Options::bmv2`). bmv2's JSON always does.
    pub bmv2: bool,
    /// The port that means drop in v1model and in bmv2's JSON, if it is not 511.
    pub drop_port: Option<u64>,
}

/// The program to compile.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A file; its includes are searched in its folder. `-` is standard input, with includes in the working directory.
    File(&'a Path),
    /// A text.
    Text {
        /// Its name, for messages.
        name: &'a str,
        /// The text itself.
        text: &'a str,
    },
}

/// The last stage to run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Until {
    /// Parse.
    Syntax,
    /// Check types.
    Types,
    /// Lower to IR, if there is a `main`.
    Ir,
}

/// The result of a compilation.
pub struct Compiled {
    /// All files that were read.
    pub sources: SourceMap,
    /// The diagnostics of all stages that ran.
    pub diagnostics: Vec<Diagnostic>,
    /// The typed program; `None` for a program in bmv2's JSON.
    pub typed: Option<TypedProgram>,
    /// The controller's view; present for each program with a `main`.
    pub p4info: Option<Arc<P4Info>>,
    /// IR as lowered.
    pub raw: Option<ir::Program>,
    /// IR after the passes.
    pub optimised: Option<ir::Program>,
    /// Errors that prevent loading a program that compiles: it is for another switch, or calls externs that this one
    /// does not have.
    pub unloadable: Vec<Diagnostic>,
    /// The duration of each stage, in order.
    pub times: Vec<(&'static str, Duration)>,
}

impl Compiled {
    /// Whether there are errors.
    pub fn failed(&self) -> bool {
        has_errors(&self.diagnostics)
    }

    /// The errors that prevent loading, as text; `None` if the program can be loaded.
    pub fn render_unloadable(&self, colour: bool) -> Option<String> {
        let lines = self.unloadable.iter().map(|d| d.render(&self.sources, colour) + "\n");
        (!self.unloadable.is_empty()).then(|| lines.collect())
    }

    /// All diagnostics as text.
    pub fn render(&self, colour: bool) -> String {
        self.diagnostics.iter().map(|d| d.render(&self.sources, colour) + "\n").collect()
    }
}

/// Reads files from disk and embedded ones from `sema`.
pub struct DiskLoader;

impl FileLoader for DiskLoader {
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String> {
        read_included(Path::new(path)).map(|text| text.map(Into::into))
    }

    fn embedded(&self, name: &str) -> Option<Arc<str>> {
        sema::embedded(name).map(Into::into)
    }

    fn names(&self, dir: Option<&str>) -> Vec<String> {
        let Some(dir) = dir else { return embedded_names() };
        let dir = if dir.is_empty() { "." } else { dir };
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten().take(SUGGESTIONS_MAX);
        files.map(|f| f.file_name().to_string_lossy().into_owned()).collect()
    }
}

/// Largest number of files of a folder that are compared with the name of a missing one.
const SUGGESTIONS_MAX: usize = 1000;

fn embedded_names() -> Vec<String> {
    sema::EMBEDDED.iter().map(ToString::to_string).collect()
}

/// The loader for programs that arrive as text: embedded files and files below the include directories. The sender of a
/// program must not be able to read other files of the machine.
struct TextLoader<'a> {
    include_dirs: &'a [String],
}

impl FileLoader for TextLoader<'_> {
    fn read(&self, path: &str) -> Result<Option<Arc<str>>, String> {
        let plain = |rest: &Path| rest.components().all(|c| matches!(c, Component::Normal(_)));
        let below = |dir: &String| !dir.is_empty() && Path::new(path).strip_prefix(dir).is_ok_and(plain);
        if self.include_dirs.iter().any(below) { DiskLoader.read(path) } else { Ok(None) }
    }

    fn embedded(&self, name: &str) -> Option<Arc<str>> {
        DiskLoader.embedded(name)
    }

    fn names(&self, dir: Option<&str>) -> Vec<String> {
        // The names of files on this machine are not disclosed.
        if dir.is_none() { embedded_names() } else { Vec::new() }
    }
}

/// Reads a program's text. Bytes of P4 source that are not UTF-8 (in comments of old programs) become replacement
/// characters. It may come through a pipe.
fn read_text(path: &Path) -> std::io::Result<String> {
    read_bounded(std::fs::File::open(path)?)
}

/// Reads an included file. Only regular files are opened, because opening others may block or affect a device.
fn read_included(path: &Path) -> Result<Option<String>, String> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(None) };
    if !metadata.is_file() {
        return Err("it is not a regular file".to_string());
    }
    std::fs::File::open(path).and_then(read_bounded).map(Some).map_err(|error| error.to_string())
}

/// Reads a text of at most [`SOURCE_BYTES_MAX`] bytes.
fn read_bounded(file: impl Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > SOURCE_BYTES_MAX {
        let message = format!("it is longer than {SOURCE_BYTES_MAX} bytes, the limit for a program");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(e) => match form::invalid_utf8(e.as_bytes(), e.utf8_error().valid_up_to()) {
            Some(why) => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why)),
            None => Ok(String::from_utf8_lossy(e.as_bytes()).into_owned()),
        },
    }
}

fn read_stdin() -> std::io::Result<String> {
    read_bounded(std::io::stdin().lock())
}

/// A program as one text that needs no other file. A text that is JSON, or that includes only files embedded in the
/// compiler, is returned unchanged; others are preprocessed, with `#line` directives for the origin of lines. JSON
/// records that the program behaves as in bmv2. `sources` are the files that its compilation has read.
///
/// # Errors
///
/// An I/O error if the file cannot be read again; `InvalidData` for standard input that carries a program in JSON.
pub fn self_contained(path: &Path, sources: &SourceMap, options: &Options) -> std::io::Result<String> {
    let source = self_contained_text(path, sources, options)?;
    if !options.bmv2 || !matches!(form::of(&source), Ok(Form::P4(_))) {
        return Ok(source);
    }
    Ok(Embedded { source, name: path.display().to_string(), bmv2: true }.to_json())
}

/// The name of the program on standard input, in messages.
const STDIN: &str = "stdin";

/// The name and text of a program that has been compiled. Standard input cannot be read a second time.
fn text_again(path: &Path, sources: &SourceMap) -> std::io::Result<(String, String)> {
    if path != Path::new("-") {
        return Ok((path.display().to_string(), read_text(path)?));
    }
    match sources.files().find(|f| f.name == STDIN) {
        Some(file) => Ok((STDIN.to_string(), file.text.to_string())),
        None => Err(invalid("standard input is a file that carries a program: give its name".to_string())),
    }
}

fn self_contained_text(path: &Path, sources: &SourceMap, options: &Options) -> std::io::Result<String> {
    let (main, text) = text_again(path, sources)?;
    if !matches!(form::of(&text), Ok(Form::P4(_))) {
        return Ok(text);
    }
    let alone = sources.files().all(|f| f.name == main || f.name.starts_with('<'));
    if alone && options.defines.is_empty() {
        return Ok(text);
    }
    let source = SourceInput { name: main, text: text.into() };
    let options = syntax::Options { include_dirs: options.include_dirs.clone(), defines: options.defines.clone() };
    let mut sources = SourceMap::new();
    let (tokens, _) = syntax::preprocess::preprocess(source, &options, &DiskLoader, &mut sources);
    Ok(syntax::preprocess::to_text(&tokens, &sources))
}

/// Stack size in bytes for the deepest tree that the parser builds, with a margin. Only pages in use take memory.
pub const STACK_BYTES: usize = 32 * 1024 * 1024;

/// Compiles up to `until`.
///
/// # Errors
///
/// An I/O error if the main file cannot be read or no thread can be started; `InvalidData` if the text has none of the
/// forms of [`form`]. Errors in the program are diagnostics.
pub fn compile(input: Input, options: &Options, until: Until) -> std::io::Result<Compiled> {
    std::thread::scope(|scope| {
        let run = move || compile_on_this_stack(input, options, until);
        let thread = std::thread::Builder::new().name("compile".into()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, run)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// As [`compile`], on the caller's thread, whose stack must have [`STACK_BYTES`].
///
/// # Errors
///
/// As [`compile`].
pub fn compile_on_this_stack(input: Input, options: &Options, until: Until) -> std::io::Result<Compiled> {
    let (mut out, program) = stages(input, options, until)?;
    warning_filter::by_annotations(&program, &mut out.diagnostics);
    options.warnings.apply(&mut out.diagnostics);
    if out.failed() {
        (out.raw, out.optimised) = (None, None);
    }
    Ok(out)
}

/// Compiles a text, with includes from `loader`, and also returns its syntax tree: for editors, whose documents are not
/// on disk yet. The caller's thread needs a stack of [`STACK_BYTES`].
pub fn compile_tree(
    source: SourceInput,
    options: &Options,
    loader: &dyn FileLoader,
    until: Until,
) -> (Compiled, syntax::ast::Program) {
    let (mut out, program) = stages_of(source, options, loader, until);
    warning_filter::by_annotations(&program, &mut out.diagnostics);
    options.warnings.apply(&mut out.diagnostics);
    (out, program)
}

/// Runs the stages in order and also returns the syntax tree.
fn stages(input: Input, options: &Options, until: Until) -> std::io::Result<(Compiled, syntax::ast::Program)> {
    let text_loader = TextLoader { include_dirs: &options.include_dirs };
    let loader: &dyn FileLoader = match input {
        Input::File(_) => &DiskLoader,
        Input::Text { .. } => &text_loader,
    };
    let source = match input {
        Input::File(path) if path == Path::new("-") => {
            SourceInput { name: STDIN.to_string(), text: read_stdin()?.into() }
        }
        Input::File(path) => SourceInput { name: path.display().to_string(), text: read_text(path)?.into() },
        Input::Text { name, text } => SourceInput { name: name.to_string(), text: text.into() },
    };
    match form::of(&source.text).map_err(invalid)? {
        Form::P4(_) => {}
        Form::Embedded(Embedded { source: text, name, bmv2 }) => {
            let name = if name.is_empty() { source.name } else { name };
            let options = Options { bmv2: bmv2 || options.bmv2, ..options.clone() };
            // The file's author must not be able to read other files of this machine through it.
            return Ok(stages_of(SourceInput { name, text: text.into() }, &options, &text_loader, until));
        }
        Form::Bmv2(_) => return Ok((json_stages(&source, options, until), syntax::ast::Program::default())),
    }
    Ok(stages_of(source, options, loader, until))
}

/// The name of a program, from its file's.
fn program_name(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(|| "program".to_string(), |s| s.to_string_lossy().into_owned())
}

/// Runs the stages for JSON that was compiled for bmv2: there is no typed program.
fn json_stages(source: &SourceInput, options: &Options, until: Until) -> Compiled {
    let start = Instant::now();
    let read = bmv2::compile_with(&source.text, &source.name, &program_name(&source.name), options.drop_port);
    let mut out = Compiled {
        sources: read.sources,
        diagnostics: read.diagnostics,
        typed: None,
        p4info: None,
        raw: read.program,
        optimised: None,
        unloadable: Vec::new(),
        times: vec![("lower", start.elapsed())],
    };
    if until < Until::Ir || out.failed() {
        out.raw = None;
        return out;
    }
    out.p4info = read.p4info.map(Arc::new);
    if let Some(raw) = &mut out.raw {
        name_assertions(raw, &out.sources);
        let start = Instant::now();
        let mut program = raw.clone();
        opt::optimise(&mut program, &options.opt);
        out.optimised = Some(program);
        out.times.push(("optimise", start.elapsed()));
    }
    out
}

fn invalid(why: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, why)
}

fn stages_of(
    source: SourceInput,
    options: &Options,
    loader: &dyn FileLoader,
    until: Until,
) -> (Compiled, syntax::ast::Program) {
    let program_name = program_name(&source.name);
    let mut out = Compiled {
        sources: SourceMap::new(),
        diagnostics: Vec::new(),
        typed: None,
        p4info: None,
        raw: None,
        optimised: None,
        unloadable: Vec::new(),
        times: Vec::new(),
    };
    let mut clock = Instant::now();
    let mut lap = |times: &mut Vec<(&'static str, Duration)>, stage| {
        let now = Instant::now();
        times.push((stage, now - clock));
        clock = now;
    };

    let syntax_options =
        syntax::Options { include_dirs: options.include_dirs.clone(), defines: options.defines.clone() };
    let parsed = syntax::parse_program(source, &syntax_options, loader, &mut out.sources);
    out.diagnostics.extend(parsed.diagnostics);
    lap(&mut out.times, "parse");
    if out.failed() && until != Until::Syntax {
        let errors = partial_check::type_errors(&parsed.program, &out.sources, &out.diagnostics);
        out.diagnostics.extend(errors);
        lap(&mut out.times, "check");
    }
    if out.failed() || until == Until::Syntax {
        return (out, parsed.program);
    }

    let checked = sema::check(&parsed.program, &out.sources);
    out.diagnostics.extend(checked.diagnostics);
    lap(&mut out.times, "check");
    let Some(typed) = checked.program.filter(|_| !has_errors(&out.diagnostics)) else {
        return (out, parsed.program);
    };
    if until == Until::Types || typed.main.is_none() {
        out.typed = Some(typed);
        return (out, parsed.program);
    }

    let lowered =
        lower::lower_with(&typed, &program_name, lower::Options { bmv2: options.bmv2, drop_port: options.drop_port });
    out.diagnostics.extend(lowered.diagnostics);
    out.unloadable = lowered.unloadable;
    out.raw = lowered.program.filter(|_| !has_errors(&out.diagnostics));
    if let Some(raw) = &mut out.raw {
        name_assertions(raw, &out.sources);
    }
    lap(&mut out.times, "lower");
    if out.raw.is_some() {
        let (info, found) = p4info::build(&typed, &out.sources, lower::architecture(&typed).unwrap_or_default());
        // Errors in the controller's view matter only for programs that a controller could load.
        let loadable = out.unloadable.is_empty();
        out.diagnostics.extend(found.into_iter().filter(|d| loadable || d.severity == Severity::Warning));
        out.p4info = Some(Arc::new(info));
        lap(&mut out.times, "p4info");
    }
    // Two objects of the same name are refused by the control plane's checks, and the passes do not accept such IR.
    if out.failed() {
        out.raw = None;
    }
    if let Some(raw) = &out.raw {
        let mut program = raw.clone();
        opt::optimise(&mut program, &options.opt);
        out.optimised = Some(program);
        lap(&mut out.times, "optimise");
    }
    out.typed = Some(typed);
    (out, parsed.program)
}

/// Appends file and line to the messages of assertions: the IR does not hold the source text.
fn name_assertions(program: &mut ir::Program, sources: &SourceMap) {
    for inst in program.stages.iter_mut().flat_map(|s| &mut s.blocks).flat_map(|b| &mut b.insts) {
        if let ir::Op::Assert { text, .. } = &mut inst.op
            && let Some((file, line)) = sources.origin(inst.span)
        {
            // `<p4lib/x.p4>` is embedded in the compiler.
            let file = file.trim_matches(['<', '>']);
            let file = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
            *text = format!("{text} at {file}:{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_programs_do_not_need_the_callers_stack() {
        let sum = "x + ".repeat(900) + "x";
        let chain = "if (x == 1) { x = 2; } else ".repeat(900);
        let text = format!("control c(inout bit<8> x) {{ apply {{ x = {sum}; {chain} {{ }} }} }}\n");
        let compile = move || {
            let input = Input::Text { name: "deep.p4", text: &text };
            compile(input, &Options::default(), Until::Ir).unwrap().render(false)
        };
        let small = std::thread::Builder::new().stack_size(1024 * 1024);
        let messages = small.spawn(compile).unwrap().join().unwrap();
        assert!(!messages.contains("error"), "{messages}");
    }

    #[test]
    fn texts_include_only_what_lies_below_the_include_directories() {
        let here = env!("CARGO_MANIFEST_DIR");
        let options = |dirs: &[String]| Options { include_dirs: dirs.to_vec(), ..Options::default() };
        let reads = |include: &str, dirs: &[String]| {
            let text = format!("#include \"{include}\"");
            let input = Input::Text { name: "device_config.p4", text: &text };
            compile(input, &options(dirs), Until::Syntax)
                .unwrap()
                .sources
                .files()
                .any(|f| f.name.ends_with("Cargo.toml"))
        };
        let below = [format!("{here}/src"), here.to_string()];
        assert!(reads("Cargo.toml", &below));
        assert!(reads(&format!("{here}/Cargo.toml"), &below));
        let beside = [format!("{here}/src")];
        for include in ["Cargo.toml", "../Cargo.toml", &format!("{here}/Cargo.toml"), "./../Cargo.toml"] {
            assert!(!reads(include, &beside), "{include}");
            assert!(!reads(include, &[]), "{include}");
        }
    }
}
