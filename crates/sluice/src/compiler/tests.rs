//! Requests and responses survive the pipe unchanged.

use super::*;
use frontend::{Input, Until};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).join(name).with_extension("p4")
}

#[test]
fn a_program_and_its_p4info_are_the_same_behind_the_pipe() {
    let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).unwrap();
    let names: Vec<String> = folders.flatten().map(|f| f.file_name().to_string_lossy().into_owned()).collect();
    let programs: Vec<PathBuf> = names.iter().map(|name| example(name)).filter(|path| path.exists()).collect();
    assert!(programs.len() >= 10, "there are examples");
    let compiler = Compiler::in_process();
    for path in programs {
        let options = Options::default();
        let direct = frontend::compile(Input::File(&path), &options, Until::Ir).unwrap();
        let wants = Wants { sources: true, self_contained: true, ..Wants::default() };
        let output = compiler.compile_file(&path, &options, wants).unwrap();
        assert_eq!(output.program, direct.optimised, "{}", path.display());
        assert_eq!(output.p4info.as_ref(), direct.p4info.as_deref(), "{}", path.display());
        assert_eq!(output.messages, direct.render(false));
        let text = frontend::self_contained(&path, &direct.sources, &options).unwrap();
        assert_eq!(output.self_contained, Some(text.into_bytes()));
        let raw = compiler.compile_file(&path, &options, Wants { raw: true, ..wants }).unwrap();
        assert_eq!(raw.program, direct.raw, "{}", path.display());
        let places = |sources: &base::SourceMap, program: &ir::Program| -> Vec<Option<(String, u32)>> {
            let spans = program.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts).map(|i| i.span);
            spans.map(|span| sources.origin(span).map(|(file, line)| (file.to_string(), line))).collect()
        };
        let program = raw.program.unwrap();
        assert_eq!(places(&raw.sources, &program), places(&direct.sources, &program));
    }
}

#[test]
fn requests_keep_all_options() {
    let options = Options {
        include_dirs: vec!["a".into()],
        defines: vec![("N".into(), "2".into())],
        opt: opt::Options { disabled: ["const_prop".to_string()].into(), verify: true },
        warnings: frontend::Warnings { silent: vec!["W0503".into()], denied: vec!["W0601".into()], deny_all: false },
        bmv2: true,
        drop_port: Some(500),
    };
    let source = Source::Text { name: "x.p4".into(), text: "text".into() };
    let limits = Limits { memory_bytes: 1 << 30, time: Duration::from_secs(7) };
    let bytes = Request::new(source, &options, Wants::default(), Some(limits)).encode();
    let read = Request::read(bytes.as_slice()).unwrap();
    assert_eq!(format!("{:?}", read.options()), format!("{options:?}"));
    assert_eq!(read.limits().map(|l| (l.memory_bytes, l.time)), Some((1 << 30, Duration::from_secs(7))));
    assert!(matches!(read.source, Source::Text { text, .. } if text == "text"));
    assert!(Request::read(&bytes[..bytes.len() - 1]).is_none());
    assert!(Response::decode(b"\xff\xff").is_none());
}

#[test]
fn ir_that_is_wrong_or_too_large_is_not_taken() {
    assert!(matches!(read_program("nonsense"), Err(Refusal::Internal(_))));
    let lines = "  x = mov 8w1\n".repeat(lower::SIZE_LIMIT + 1);
    let text = format!("program \"t\"\nslot x: 8 metadata\nstage control s {{\nb0:\n{lines}  next\n}}\n");
    assert!(read_program(&text).is_err());
}
