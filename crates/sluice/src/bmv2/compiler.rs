//! `p4c-bm2-ss`, and `p4c --target bmv2 --arch v1model`: write P4Info and a file in bmv2's JSON format that carries the
//! P4 source.
//!
//! Loaded into Sluice, the source in such a file is compiled; other tools read the rest of the file (`bmv2::describe`).
//! Messages are Sluice's; exit codes are p4c's: 0 compiled, 1 anything else.

use super::Tool;
use super::entries;
use super::options::{Given, Names, Spec, Takes, help, ignored, read, refused, set};
use crate::compile::{CompileArgs, parse_define};
use crate::p4info;
use anyhow::{Context, Result, bail};
use bmv2::describe::{Described, describe};
use frontend::{Compiled, DiskLoader, explain, self_contained};
use prost::Message;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Opt {
    Help,
    Version,
    Include,
    Define,
    Undefine,
    Preprocess,
    Output,
    Standard,
    Arch,
    Target,
    P4Info,
    P4InfoOne,
    P4InfoFormat,
    Entries,
    EntriesOne,
    Deny,
    Silence,
}

const DEPENDENCIES: &str = "rules for make are not written; `cpp -M` writes them";
const INTERNAL: &str = "it shows the inside of p4c; `sluice check --help` lists what this compiler shows";

/// The options of both programs.
const SPECS: &[Spec<Opt>] = &[
    set(&["--help", "-h"], Takes::Nothing, Opt::Help, "Print this"),
    set(&["--version", "-V"], Takes::Nothing, Opt::Version, "Print the version"),
    set(&["-o", "--output"], Takes::Value, Opt::Output, "The JSON file; of p4c, the folder for it"),
    set(&["--p4v", "--std", "-x"], Takes::Value, Opt::Standard, "The language: 16 or p4-16"),
    set(&["-b", "--target"], Takes::Value, Opt::Target, "The target: bmv2"),
    set(
        &["-a", "--arch"],
        Takes::Value,
        Opt::Arch,
        "The architecture, which must be the program's: v1model, psa or pna",
    ),
    set(
        &["--p4runtime-files"],
        Takes::Value,
        Opt::P4Info,
        "Write P4Info to these files (.txt, .txtpb, .json, .bin), separated by commas",
    ),
    set(&["--p4runtime-file"], Takes::Value, Opt::P4InfoOne, "Write P4Info to this file"),
    set(
        &["--p4runtime-format"],
        Takes::Value,
        Opt::P4InfoFormat,
        "The format of --p4runtime-file and --p4runtime-entries-file: binary, json or text",
    ),
    set(
        &["--p4runtime-entries-files"],
        Takes::Value,
        Opt::Entries,
        "Write the program's entries to these files, as a WriteRequest of P4Runtime in the form that their endings say",
    ),
    set(&["--p4runtime-entries-file"], Takes::Value, Opt::EntriesOne, "Write the program's entries to this file"),
    set(&["-I"], Takes::Value, Opt::Include, "Look for included files here too"),
    set(&["-D"], Takes::Value, Opt::Define, "Define a macro: NAME or NAME=VALUE"),
    set(&["-U"], Takes::Value, Opt::Undefine, "Take back a -D"),
    set(&["-E"], Takes::Nothing, Opt::Preprocess, "Print the preprocessed program and do nothing else"),
    set(&["--Werror"], Takes::Optional, Opt::Deny, "Take a warning for an error, by its code, or all"),
    set(&["--Wdisable"], Takes::Optional, Opt::Silence, "Do not report a warning, by its code, or all"),
    ignored(&["--Wwarn", "--Winfo"], Takes::Optional, "warnings are reported as they are"),
    ignored(
        &["-O", "-O0", "-O1", "-O2", "-O3", "-g", "-v", "--debug", "-c", "--compile", "-S", "-e"],
        Takes::Nothing,
        "",
    ),
    ignored(&["-Xassembler", "-Xlinker"], Takes::Value, "there is neither assembler nor linker"),
    ignored(
        &["--ndebug", "--nocpp", "--emit-externs", "--loopsUnroll", "--parser-inline-opt", "--doNotEmitIncludes"],
        Takes::Nothing,
        "",
    ),
    ignored(&["--maxErrorCount", "-T", "-W"], Takes::Value, ""),
    refused(&["-M", "-MD", "-MG", "-MP"], Takes::Nothing, DEPENDENCIES),
    refused(&["-MF", "-MT", "-MQ"], Takes::Value, DEPENDENCIES),
    refused(
        &["--disable-annotations", "--disable-annotation", "--disable-pragmas", "--disable-pragma"],
        Takes::Optional,
        "annotations mean what they say",
    ),
    refused(&["-###", "--test-only"], Takes::Nothing, "no other program is called that could be shown"),
    refused(
        &[
            "--help-pragmas",
            "--pragma-help",
            "--pragmas-help",
            "--help-annotations",
            "--annotation-help",
            "--annotations-help",
        ],
        Takes::Nothing,
        "docs/p4-coverage.md lists annotations",
    ),
    refused(
        &["--help-targets", "--target-help", "--targets-help"],
        Takes::Nothing,
        "the target is bmv2; its architectures are v1model, psa and pna",
    ),
    refused(&["--toJson", "--fromJson"], Takes::Value, INTERNAL),
    refused(&["--pp", "--toJSON", "--fromJSON", "--dump", "--top4", "--metrics"], Takes::Value, INTERNAL),
    refused(&["--excludeFrontendPasses", "--excludeMidendPasses"], Takes::Value, INTERNAL),
    refused(&["--listFrontendPasses", "--listMidendPasses", "--testJson"], Takes::Nothing, INTERNAL),
];

const CODES: &str = "`sluice explain` lists codes of warnings, which begin with W";

/// The names of p4c's warnings.
const WARNINGS_OF_P4C: [&str; 27] = [
    "branch",
    "deprecated",
    "duplicate",
    "duplicate-priorities",
    "entries-out-of-priority-order",
    "expr",
    "failed",
    "ignore",
    "ignore-prop",
    "invalid",
    "invalid-header",
    "keys",
    "mismatch",
    "missing",
    "multi-header-extract",
    "ordering",
    "overflow",
    "parser-transition",
    "shadow",
    "type-inference",
    "uninitialized",
    "uninitialized-out-param",
    "uninitialized-use",
    "unknown",
    "unreachable",
    "unsupported",
    "unused",
];

/// An encoding of P4Info.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Text,
    Json,
    Binary,
}

/// The outputs and settings that a command line requests.
#[derive(Debug)]
struct Wanted {
    program: PathBuf,
    compile: CompileArgs,
    /// The architecture that the program must be written for.
    architecture: Option<String>,
    output: Option<PathBuf>,
    /// The output folder, p4c's -o; it is created if it does not exist.
    folder: Option<PathBuf>,
    p4info: Vec<(PathBuf, Format)>,
    /// Files for the program's entries.
    entries: Vec<(PathBuf, Format)>,
    preprocess: bool,
}

/// Runs the compiler.
///
/// # Errors
/// If the command line is wrong or a file cannot be read or written.
pub fn main(tool: Tool, args: Vec<String>) -> Result<ExitCode> {
    let given = read(SPECS, names_of(tool), handed_on(args))?;
    if given.has(Opt::Help) {
        println!(
            "Usage: {} [OPTION]... X.p4\nP4_16 to bmv2's JSON and P4Info, by Sluice\n\n{}",
            tool.name(),
            help(SPECS).trim_end()
        );
        return Ok(ExitCode::SUCCESS);
    }
    if given.has(Opt::Version) {
        println!("{} (sluice {})", tool.name(), env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    for note in &given.notes {
        eprintln!("{}: {note}", tool.name());
    }
    compile(&wanted(tool, &given)?)
}

/// Returns how a tool matches option names: the driver as Python's argparse, the compiler in full.
fn names_of(tool: Tool) -> Names {
    if tool == Tool::P4c { Names::Beginnings } else { Names::Whole }
}

/// Inlines the arguments that p4c passes on: `-Xp4c ARG` to the compiler, `-Xpreprocessor ARG` to the preprocessor,
/// which are the same program here. ARG is split at spaces.
fn handed_on(args: Vec<String>) -> Vec<String> {
    let mut all = Vec::new();
    let mut is_handed = false;
    for arg in args {
        let rest = ["-Xp4c", "-Xpreprocessor"].iter().find_map(|name| arg.strip_prefix(name));
        match rest.map(|rest| (rest, rest.strip_prefix('='))) {
            Some(("", _)) => {
                is_handed = true;
                continue;
            }
            Some((_, Some(handed))) => all.extend(handed.split_whitespace().map(str::to_string)),
            _ if is_handed => all.extend(arg.split_whitespace().map(str::to_string)),
            _ => all.push(arg),
        }
        is_handed = false;
    }
    all
}

fn wanted(tool: Tool, given: &Given<Opt>) -> Result<Wanted> {
    match given.last(Opt::Standard) {
        None | Some("16" | "p4-16" | "p4_16" | "1.2") => {}
        Some("14" | "p4-14" | "p4_14" | "1.0" | "1.1") => bail!(
            "P4_14 is not compiled here. Translate the program with p4lang's compiler (`p4test --std p4-14 X.p4 --pp Y.p4`) and \
             compile Y.p4; or compile it with p4lang's p4c-bm2-ss: its JSON is a program for Sluice, too"
        ),
        Some(other) => bail!("{other} is not a version of P4: the language is 16 (or p4-16)"),
    }
    match given.last(Opt::Target) {
        None | Some("bmv2" | "bmv2-ss-p4org") => {}
        Some(other) => bail!("there is no target {other} here: it must be bmv2"),
    }
    let architecture = match given.last(Opt::Arch) {
        None => tool.architecture().map(str::to_string),
        Some(known @ ("v1model" | "psa" | "pna")) => Some(known.to_string()),
        Some(other) => bail!("there is no architecture {other} here: it must be v1model, psa or pna"),
    };
    let program = match given.files.as_slice() {
        [program] if program == "-" && tool == Tool::P4c => {
            bail!("- is not a file; p4c-bm2-ss compiles what comes on standard input")
        }
        [program] => PathBuf::from(program),
        [] => bail!("no program was given; --help lists options"),
        [_, more, ..] => bail!("one program is compiled at a time, and {more} is another"),
    };
    let mut defines: Vec<(String, String)> = Vec::new();
    for (option, value) in &given.options {
        match option {
            Opt::Define => defines.push(parse_define(value).map_err(anyhow::Error::msg)?),
            Opt::Undefine => defines.retain(|(name, _)| name != value),
            _ => {}
        }
    }
    let compile = CompileArgs {
        include_dirs: given.all(Opt::Include).map(ToString::to_string).collect(),
        defines,
        silent: warnings(given.all(Opt::Silence))?,
        denied: warnings(given.all(Opt::Deny))?,
        ..CompileArgs::default()
    };
    let output = match (tool, given.last(Opt::Output)) {
        (Tool::P4c, folder) => {
            let mut name = program.file_stem().context("the program's file has no name")?.to_os_string();
            name.push(".json");
            Some(Path::new(folder.unwrap_or(".")).join(name))
        }
        (_, file) => file.map(PathBuf::from),
    };
    let folder = given.last(Opt::Output).filter(|_| tool == Tool::P4c).map(PathBuf::from);
    let p4info = files_of(given, "--p4runtime-files", Opt::P4Info, Opt::P4InfoOne)?;
    let entries = files_of(given, "--p4runtime-entries-files", Opt::Entries, Opt::EntriesOne)?;
    let preprocess = given.has(Opt::Preprocess);
    Ok(Wanted { program, compile, architecture, output, folder, p4info, entries, preprocess })
}

/// Translates warning options into codes; an empty one stands for all.
fn warnings<'a>(given: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let mut codes = Vec::new();
    for name in given.flat_map(|names| names.split(',')) {
        match explain::entry(name) {
            _ if name.is_empty() => {
                codes.extend(
                    explain::entries().iter().map(|entry| entry.code.to_string()).filter(|code| code.starts_with('W')),
                );
            }
            Some(entry) if entry.code.starts_with('W') => codes.push(entry.code.to_string()),
            _ if WARNINGS_OF_P4C.contains(&name) => {
                eprintln!("`{name}` is a warning of p4c, and changes nothing: {CODES}")
            }
            _ => bail!("there is no warning {name}: {CODES}"),
        }
    }
    Ok(codes)
}

/// Returns the files of two options: `list` names several, with the format by extension; `one` names a single one.
fn files_of(given: &Given<Opt>, name: &str, list: Opt, one: Opt) -> Result<Vec<(PathBuf, Format)>> {
    let mut files = Vec::new();
    for file in given.all(list).flat_map(|list| list.split(',')).filter(|file| !file.is_empty()) {
        let format = match Path::new(file).extension().and_then(|ending| ending.to_str()) {
            Some("txt" | "txtpb") => Format::Text,
            Some("json") => Format::Json,
            Some("bin") => Format::Binary,
            _ => bail!("{name}: {file} ends in none of .txt, .txtpb, .json and .bin, which say the format"),
        };
        files.push((PathBuf::from(file), format));
    }
    let format = match given.last(Opt::P4InfoFormat) {
        None | Some("binary") => Format::Binary,
        Some("text") => Format::Text,
        Some("json") => Format::Json,
        Some(other) => bail!("--p4runtime-format: {other} is none of binary, json and text"),
    };
    files.extend(given.all(one).map(|file| (PathBuf::from(file), format)));
    Ok(files)
}

fn compile(wanted: &Wanted) -> Result<ExitCode> {
    let path = &wanted.program;
    if wanted.preprocess {
        return preprocess(wanted);
    }
    if let Some(folder) = &wanted.folder {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let Some(compiled) = wanted.compile.compile_program(path)? else { return Ok(ExitCode::from(1)) };
    let is_for = compiled.p4info.as_ref().map_or("", |info| info.pkg_info.arch.as_str());
    if let Some(wanted) = wanted.architecture.as_deref().filter(|wanted| *wanted != is_for) {
        bail!("--arch {wanted}: {} is a program for {is_for}", path.display());
    }
    for (file, format) in &wanted.p4info {
        write(file, &p4info_bytes(&compiled, *format)?)?;
    }
    for (file, format) in &wanted.entries {
        write(file, &entries_bytes(&compiled, *format)?)?;
    }
    if let Some(file) = &wanted.output {
        let source = self_contained(path, &compiled.sources, &wanted.compile.options()?)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.display().to_string();
        write(file, json(&compiled, &name, &source, true)?.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the JSON for switches and tools. `bmv2` says whether the program is to follow bmv2's semantics when it is
/// compiled from the file.
///
/// # Errors
/// If the program was itself given as JSON.
pub fn json(compiled: &Compiled, name: &str, source: &str, bmv2: bool) -> Result<String> {
    let (Some(typed), Some(program)) = (&compiled.typed, &compiled.raw) else {
        bail!("{name} is JSON already: a P4 program is compiled to it");
    };
    let described = describe(&Described { typed, program, name, source, bmv2 });
    Ok(serde_json::to_string_pretty(&described)? + "\n")
}

fn p4info_bytes(compiled: &Compiled, format: Format) -> Result<Vec<u8>> {
    let info = compiled.p4info.as_deref().context("the program has no P4Info")?;
    Ok(match format {
        Format::Text => ::p4info::text::print(info).into_bytes(),
        Format::Json => (serde_json::to_string_pretty(&p4info::json(info)?)? + "\n").into_bytes(),
        Format::Binary => messages::convert::p4info::to_proto(info).encode_to_vec(),
    })
}

fn entries_bytes(compiled: &Compiled, format: Format) -> Result<Vec<u8>> {
    let info = compiled.p4info.as_deref().context("the program has no P4Info")?;
    let program = compiled.raw.as_ref().context("the program has no tables")?;
    let request = entries::request(info, program);
    Ok(match format {
        Format::Text => entries::text(&request).into_bytes(),
        Format::Json => (serde_json::to_string_pretty(&entries::json(&request)?)? + "\n").into_bytes(),
        Format::Binary => request.encode_to_vec(),
    })
}

fn preprocess(wanted: &Wanted) -> Result<ExitCode> {
    let path = &wanted.program;
    let text = crate::files::text(path)?;
    let source = syntax::SourceInput { name: path.display().to_string(), text: text.into() };
    let options = wanted.compile.options()?;
    let options = syntax::Options { include_dirs: options.include_dirs, defines: options.defines };
    let mut sources = base::SourceMap::new();
    let (tokens, diagnostics) = syntax::preprocess::preprocess(source, &options, &DiskLoader, &mut sources);
    diagnostics.iter().for_each(|diagnostic| eprintln!("{}", diagnostic.render(&sources, false)));
    if base::diag::has_errors(&diagnostics) {
        return Ok(ExitCode::from(1));
    }
    // A program, not a message: written without escaping.
    std::io::stdout().write_all(syntax::preprocess::to_text(&tokens, &sources).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted_of(tool: Tool, line: &str) -> Result<Wanted> {
        wanted(
            tool,
            &read(SPECS, names_of(tool), handed_on(line.split_whitespace().map(ToString::to_string).collect()))?,
        )
    }

    #[test]
    fn the_line_of_the_tutorials() {
        let line = "--p4v 16 --p4runtime-files build/basic.p4.p4info.txtpb -o build/basic.json basic.p4";
        let wanted = wanted_of(Tool::P4cBm2Ss, line).unwrap();
        assert_eq!(wanted.program, Path::new("basic.p4"));
        assert_eq!(wanted.output.as_deref(), Some(Path::new("build/basic.json")));
        assert_eq!(wanted.p4info, [(PathBuf::from("build/basic.p4.p4info.txtpb"), Format::Text)]);
    }

    #[test]
    fn the_driver_names_the_file_by_the_program() {
        let wanted =
            wanted_of(Tool::P4c, "--target bmv2 --arch v1model --std p4-16 -o out dir/x.p4 -DA -DB=2 -UA -Iinc")
                .unwrap();
        assert_eq!(wanted.output.as_deref(), Some(Path::new("out/x.json")));
        assert_eq!(wanted.folder.as_deref(), Some(Path::new("out")));
        assert_eq!(wanted.compile.defines, [("B".to_string(), "2".to_string())]);
        assert_eq!(wanted.compile.include_dirs, ["inc"]);
        assert_eq!(wanted_of(Tool::P4c, "x.p4").unwrap().output.as_deref(), Some(Path::new("./x.json")));
        assert_eq!(wanted_of(Tool::P4c, "x.p4_16.p4").unwrap().output.as_deref(), Some(Path::new("./x.p4_16.json")));
    }

    #[test]
    fn the_drivers_own_options() {
        let wanted = wanted_of(Tool::P4c, "-Xp4c --Wdisable -Xp4c=-DA=1 -Xpreprocessor -DB=2 --debug -c x.p4").unwrap();
        assert!(!wanted.compile.silent.is_empty());
        assert_eq!(wanted.compile.defines, [("A", "1"), ("B", "2")].map(|(name, value)| (name.into(), value.into())));
        let args = ["-Xlinker", "-s", "x.p4"].map(ToString::to_string).to_vec();
        let given = read(SPECS, Names::Whole, handed_on(args)).unwrap();
        assert_eq!(given.notes, ["-Xlinker changes nothing: there is neither assembler nor linker"]);
        let error = wanted_of(Tool::P4c, "-### x.p4").unwrap_err().to_string();
        assert!(error.starts_with("-### is not supported"), "{error}");
    }

    #[test]
    fn entries_are_written_to_files_as_p4info_is() {
        let line = "--p4runtime-entries-files a.txtpb,b.json --p4runtime-entries-file c --p4runtime-format text -";
        let wanted = wanted_of(Tool::P4cBm2Ss, line).unwrap();
        let files = [("a.txtpb", Format::Text), ("b.json", Format::Json), ("c", Format::Text)];
        assert_eq!(wanted.entries, files.map(|(file, format)| (PathBuf::from(file), format)));
        assert_eq!(wanted.program, Path::new("-"));
        let error = wanted_of(Tool::P4cBm2Ss, "--p4runtime-entries-files a.yaml x.p4").unwrap_err().to_string();
        assert!(error.starts_with("--p4runtime-entries-files: a.yaml ends in none"), "{error}");
        let error = wanted_of(Tool::P4c, "-").unwrap_err().to_string();
        assert!(error.starts_with("- is not a file"), "{error}");
    }

    #[test]
    fn the_driver_takes_beginnings_of_names_and_the_compiler_does_not() {
        let line = "--targ=bmv2 --p4runtime-fo json --p4runtime-entries-file c x.p4";
        assert!(
            wanted_of(Tool::P4c, line).unwrap_err().to_string().starts_with("--targ is the beginning of --target, ")
        );
        let wanted = wanted_of(Tool::P4c, &line.replace("--targ=", "--target=")).unwrap();
        assert_eq!(wanted.entries, [(PathBuf::from("c"), Format::Json)]);
        let error = wanted_of(Tool::P4cBm2Ss, "--p4runtime-fo json x.p4").unwrap_err().to_string();
        assert!(error.starts_with("there is no option --p4runtime-fo;"), "{error}");
        let of = |tool| wanted_of(tool, "x.p4").unwrap().architecture;
        assert_eq!(
            [Tool::P4cBm2Ss, Tool::P4cBm2Psa, Tool::P4cBm2Pna].map(of),
            [None, Some("psa".into()), Some("pna".into())]
        );
    }

    #[test]
    fn every_name_of_the_drivers_options_is_known() {
        let wanted = wanted_of(Tool::P4c, "-x p4-16 --Wdisable=unused,W0503 --Werror=uninitialized-use x.p4").unwrap();
        assert_eq!((wanted.compile.silent, wanted.compile.denied), (vec!["W0503".to_string()], vec![]));
        for name in ["--annotation-help", "--pragmas-help", "--target-help", "--disable-pragma=x", "--fromJson=x"] {
            let error = wanted_of(Tool::P4c, &format!("{name} x.p4")).unwrap_err().to_string();
            assert!(error.contains(" is not supported: "), "{name}: {error}");
        }
        // p4c's driver splits the arguments that it passes on.
        let args = ["-Xp4c=-DA=1 --p4runtime-files a.txt", "-Xp4c", "-D B=2 -I inc", "x.p4"].map(ToString::to_string);
        let wanted = super::wanted(Tool::P4c, &read(SPECS, Names::Whole, handed_on(args.to_vec())).unwrap()).unwrap();
        assert_eq!(wanted.compile.defines, [("A", "1"), ("B", "2")].map(|(name, value)| (name.into(), value.into())));
        assert_eq!(wanted.p4info, [(PathBuf::from("a.txt"), Format::Text)]);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for (line, said) in [
            ("--p4v 14 x.p4", "P4_14 is not compiled here"),
            ("--std p4-17 x.p4", "p4-17 is not a version"),
            ("--target dpdk x.p4", "there is no target dpdk"),
            ("--arch tna x.p4", "there is no architecture tna"),
            ("", "no program was given"),
            ("x.p4 y.p4", "one program is compiled"),
            ("--p4runtime-files a.yaml x.p4", "--p4runtime-files: a.yaml"),
            ("--p4runtime-format yaml x.p4", "--p4runtime-format: yaml"),
            ("--toJSON a.json x.p4", "--toJSON is not supported"),
            ("-MD x.p4", "-MD is not supported"),
            ("--Werror=unheard x.p4", "there is no warning unheard"),
        ] {
            let error = wanted_of(Tool::P4cBm2Ss, line).unwrap_err().to_string();
            assert!(error.starts_with(said), "{line}: {error}");
        }
        assert!(wanted_of(Tool::P4cBm2Ss, "--Werror --Wdisable=w0503 x.p4").unwrap().compile.denied.len() > 5);
    }
}
