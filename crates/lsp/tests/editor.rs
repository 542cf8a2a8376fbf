//! A scripted editor: the server over a connection in memory, for each answer, and over all example programs.

use lsp::Settings;
use lsp_server::{Connection, Message, Notification, Request, RequestId, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long anything may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

struct Editor {
    connection: Connection,
    server: Option<JoinHandle<()>>,
    next: i32,
    diagnostics: BTreeMap<String, Vec<Value>>,
    /// What the server asked for: method and parameters.
    asked: Vec<(String, Value)>,
}

impl Editor {
    fn start(folder: &Path, options: Value) -> Editor {
        Editor::with_capabilities(folder, options, json!({}))
    }

    fn with_capabilities(folder: &Path, options: Value, capabilities: Value) -> Editor {
        let (server, client) = Connection::memory();
        let thread = std::thread::Builder::new().stack_size(64 << 20);
        let server = thread.spawn(move || lsp::serve(&server, Settings::default()).unwrap()).unwrap();
        let mut editor =
            Editor { connection: client, server: Some(server), next: 0, diagnostics: BTreeMap::new(), asked: vec![] };
        let root = uri(folder);
        let result = editor.ask(
            "initialize",
            json!({"rootUri": root, "capabilities": capabilities, "initializationOptions": options}),
        );
        assert_eq!(result["capabilities"]["hoverProvider"], true);
        editor.tell("initialized", json!({}));
        editor
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.connection.sender.send(Notification::new(method.into(), params).into()).unwrap();
    }

    fn response(&mut self, method: &str, params: Value) -> Response {
        self.next += 1;
        let id = RequestId::from(self.next);
        let request = Request::new(id.clone(), method.into(), params);
        self.connection.sender.send(request.into()).unwrap();
        loop {
            match self.connection.receiver.recv_timeout(PATIENCE).expect("the server answers") {
                Message::Response(response) if response.id == id => return response,
                Message::Notification(n) if n.method == "textDocument/publishDiagnostics" => {
                    let uri = n.params["uri"].as_str().unwrap().to_string();
                    self.diagnostics.insert(uri, n.params["diagnostics"].as_array().unwrap().clone());
                }
                Message::Request(request) => {
                    self.asked.push((request.method, request.params));
                    self.connection.sender.send(Response::new_ok(request.id, Value::Null).into()).unwrap();
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let response = self.response(method, params);
        assert!(response.error.is_none(), "{method}: {:?}", response.error);
        response.result.unwrap_or_default()
    }

    fn open(&mut self, path: &Path, text: &str) {
        let document = json!({"uri": uri(path), "languageId": "p4", "version": 1, "text": text});
        self.tell("textDocument/didOpen", json!({"textDocument": document}));
    }

    /// Diagnostics of a file, after all that was sent before has been worked on.
    fn diagnostics(&mut self, path: &Path) -> Vec<Value> {
        self.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": uri(path)}}));
        self.diagnostics.get(&uri(path)).cloned().unwrap_or_default()
    }

    fn place(path: &Path, text: &str, offset: usize) -> Value {
        let line = text[..offset].matches('\n').count();
        let start = text[..offset].rfind('\n').map_or(0, |at| at + 1);
        let character = text[start..offset].encode_utf16().count();
        json!({"textDocument": {"uri": uri(path)}, "position": {"line": line, "character": character}})
    }

    /// The labels offered at `$` in a text, which is opened without it.
    fn completions(&mut self, path: &Path, text: &str) -> Vec<String> {
        let at = text.find('$').expect("a `$` says where");
        let text = text.replace('$', "");
        self.open(path, &text);
        let items = self.ask("textDocument/completion", Editor::place(path, &text, at));
        items.as_array().unwrap().iter().map(|item| item["label"].as_str().unwrap().to_string()).collect()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.ask("shutdown", Value::Null);
            self.tell("exit", Value::Null);
            self.server.take().unwrap().join().unwrap();
        }
    }
}

fn uri(path: &Path) -> String {
    lsp_types::Url::from_file_path(path).unwrap().to_string()
}

fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let folders = std::fs::read_dir(&root).unwrap().map(|f| f.unwrap().path()).filter(|p| p.is_dir());
    let files = folders.flat_map(|f| std::fs::read_dir(f).unwrap().map(|f| f.unwrap().path()));
    let mut programs: Vec<PathBuf> = files.filter(|f| f.extension().is_some_and(|e| e == "p4")).collect();
    programs.sort();
    assert!(programs.len() >= 20, "{programs:?}");
    programs
}

const ROUTER: &str = r#"#include <core.p4>
#include <v1model.p4>
#define PORT_WIDTH 9
typedef bit<PORT_WIDTH> port_t;
// The link layer.
header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
header tag_t { bit<16> id; bit<16> kind; }
struct headers { ethernet_t ethernet; tag_t[3] tags; }
struct meta { port_t port; }
parser P(packet_in pkt, out headers hdr, inout meta m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) { 0x8100: tagged; default: accept; }
    }
    state tagged { pkt.extract(hdr.tags.next); transition accept; }
}
control Nothing(inout headers hdr, inout meta m) { apply { } }
control I(inout headers hdr, inout meta m, inout standard_metadata_t sm) {
    counter(16, CounterType.packets) seen;
    action send(@name("port") port_t to) { sm.egress_spec = to; seen.count((bit<32>) to); }
    action drop() { mark_to_drop(sm); }
    table forward { key = { hdr.ethernet.dst: exact; } actions = { send; drop; } default_action = drop(); }
    apply {
        if (hdr.ethernet.isValid()) {
            switch (forward.apply().action_run) { send: { m.port = sm.egress_spec; } default: { } }
        }
    }
}
control E(inout headers hdr, inout meta m, inout standard_metadata_t sm) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), Nothing(), I(), E(), Nothing(), D()) main;
"#;

fn router() -> (tempfile::TempDir, PathBuf, Editor) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.p4");
    let mut editor = Editor::start(folder.path(), Value::Null);
    editor.open(&path, ROUTER);
    (folder, path, editor)
}

fn hover(editor: &mut Editor, path: &Path, text: &str, offset: usize) -> String {
    let answer = editor.ask("textDocument/hover", Editor::place(path, text, offset));
    answer["contents"]["value"].as_str().unwrap_or_default().to_string()
}

#[test]
fn diagnostics_come_as_one_types_and_go() {
    let (_folder, path, mut editor) = router();
    assert_eq!(editor.diagnostics(&path), Vec::<Value>::new());
    // `hdr.ethernet.dst` becomes `hdr.ethernet.dts`, as one types it.
    let at = ROUTER.find("dst: exact").unwrap();
    let place = |offset| Editor::place(&path, ROUTER, offset)["position"].clone();
    let change = json!({"range": {"start": place(at), "end": place(at + 3)}, "text": "dts"});
    let document = json!({"uri": uri(&path), "version": 2});
    editor.tell("textDocument/didChange", json!({"textDocument": document, "contentChanges": [change]}));
    let found = editor.diagnostics(&path);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0]["message"].as_str().unwrap().contains("dts"), "{found:?}");
    assert!(found[0]["message"].as_str().unwrap().contains("dst"), "it says what could be meant: {found:?}");
    assert_eq!(found[0]["range"]["start"], place(at));
    let back = json!({"range": {"start": place(at), "end": place(at + 3)}, "text": "dst"});
    editor.tell("textDocument/didChange", json!({"textDocument": document, "contentChanges": [back]}));
    assert_eq!(editor.diagnostics(&path), Vec::<Value>::new());
}

#[test]
fn files_that_change_on_disk_change_diagnostics_of_open_programs() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let capabilities = json!({
        "workspace": {"didChangeWatchedFiles": {"dynamicRegistration": true, "relativePatternSupport": true}},
    });
    let options = json!({"includeDirs": [outside.path(), "shared"]});
    let mut editor = Editor::with_capabilities(folder.path(), options, capabilities);
    let main = folder.path().join("main.p4");
    let (types, late) = (folder.path().join("types.p4"), outside.path().join("late.p4"));
    let good = "typedef bit<9> port_t;\n";
    std::fs::write(&types, good).unwrap();
    editor.open(&main, "#include \"types.p4\"\n#include \"late.p4\"\nconst port_t p = 1;\n");
    let missing = editor.diagnostics(&main);
    assert_eq!(missing.len(), 1, "{missing:?}");
    let [(method, asked)] = editor.asked.as_slice() else { panic!("{:?}", editor.asked) };
    assert_eq!(method, "client/registerCapability");
    let [registration] = asked["registrations"].as_array().unwrap().as_slice() else { panic!("{asked}") };
    assert_eq!(registration["method"], "workspace/didChangeWatchedFiles");
    let watchers = registration["registerOptions"]["watchers"].as_array().unwrap();
    assert_eq!(watchers[0]["globPattern"], "**/*.{p4,h,p4h,inc}");
    assert_eq!(
        watchers[1]["globPattern"]["baseUri"],
        lsp_types::Url::from_directory_path(outside.path()).unwrap().as_str()
    );
    assert_eq!(watchers.len(), 2, "the folder in the workspace is watched with it: {watchers:?}");

    let changed = |editor: &mut Editor, path: &Path, kind: u32| {
        editor.tell("workspace/didChangeWatchedFiles", json!({"changes": [{"uri": uri(path), "type": kind}]}));
    };
    // Created, changed, deleted.
    std::fs::write(&late, "").unwrap();
    changed(&mut editor, &late, 1);
    assert_eq!(editor.diagnostics(&main), Vec::<Value>::new());
    std::fs::write(&types, "typedef bit<9> other_t;\n").unwrap();
    changed(&mut editor, &types, 2);
    let found = editor.diagnostics(&main);
    assert!(found.iter().any(|d| d["message"].as_str().unwrap().contains("port_t")), "{found:?}");
    std::fs::write(&types, good).unwrap();
    changed(&mut editor, &types, 2);
    assert_eq!(editor.diagnostics(&main), Vec::<Value>::new());
    std::fs::remove_file(&types).unwrap();
    changed(&mut editor, &types, 3);
    assert!(!editor.diagnostics(&main).is_empty());
    // Of an open document the editor's text counts.
    editor.open(&types, good);
    std::fs::write(&types, "nonsense").unwrap();
    changed(&mut editor, &types, 1);
    assert_eq!(editor.diagnostics(&main), Vec::<Value>::new());
}

#[test]
fn an_editor_that_cannot_watch_files_is_not_asked_to() {
    let (_folder, path, mut editor) = router();
    editor.diagnostics(&path);
    assert_eq!(editor.asked, []);
}

#[test]
fn hover_shows_types_annotations_and_comments() {
    let (_folder, path, mut editor) = router();
    let mut at = |needle: &str, behind: usize| hover(&mut editor, &path, ROUTER, ROUTER.find(needle).unwrap() + behind);
    let field = at("hdr.ethernet.dst", 13);
    assert!(field.contains("bit<48> dst") && field.contains("field of `ethernet_t`"), "{field}");
    let header = at("ethernet_t ethernet;", 0);
    assert!(header.contains("header ethernet_t {") && header.contains("The link layer."), "{header}");
    let parameter = at("(bit<32>) to)", 10);
    assert!(parameter.contains("@name(\"port\") port_t to"), "{parameter}");
    let action = at("drop; }", 0);
    assert!(action.contains("action drop()") && !action.contains("mark_to_drop"), "{action}");
    let method = at("seen.count", 5);
    assert!(method.contains("void count(in") && method.contains("counter"), "{method}");
    let builtin = at("isValid", 0);
    assert!(builtin.contains("bool isValid()"), "{builtin}");
    let found = at("bit<PORT_WIDTH>", 4);
    assert!(found.contains("#define PORT_WIDTH 9"), "{found}");
    let metadata = at("sm.egress_spec = to", 3);
    assert!(metadata.contains("egress_spec"), "{metadata}");
    let state = at("0x8100: tagged", 8);
    assert!(state.contains("state tagged"), "{state}");
    let next = at("hdr.tags.next", 9);
    assert!(next.contains("extracted next"), "{next}");
}

#[test]
fn definitions_lie_behind_includes_and_macros() {
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers.p4");
    let text = "#ifndef H\n#define H\n#define WIDE(n) bit<n>\nheader h_t { WIDE(16) a; }\n#endif\n";
    std::fs::write(&headers, text).unwrap();
    let main = folder.path().join("main.p4");
    let program =
        "#include <core.p4>\n#include \"headers.p4\"\ncontrol C(inout h_t h) { apply { h.a = 1; WIDE(8) x = 2; } }\n";
    let mut editor = Editor::start(folder.path(), Value::Null);
    editor.open(&main, program);
    let mut goto = |needle: &str| {
        let place = Editor::place(&main, program, program.find(needle).unwrap());
        editor.ask("textDocument/definition", place)
    };
    let field = goto("a = 1");
    assert_eq!(field["uri"], uri(&headers));
    assert_eq!(field["range"]["start"], json!({"line": 3, "character": 22}));
    let wide = goto("WIDE(8)");
    assert_eq!((&wide["uri"], &wide["range"]["start"]["line"]), (&json!(uri(&headers)), &json!(2)));
    assert_eq!(goto("headers.p4\"")["uri"], uri(&headers));
    let core = goto("core.p4>");
    let core = core["uri"].as_str().unwrap().strip_prefix("file://").unwrap();
    assert!(std::fs::read_to_string(core).unwrap().contains("extern packet_in"), "{core}");
}

#[test]
fn a_header_file_is_read_as_part_of_the_program_that_includes_it() {
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("part.p4");
    // Alone this would be an error: `h_t` is declared by the program.
    let text = "control Part(inout h_t h) { apply { h.a = 1; } }\n";
    std::fs::write(&part, text).unwrap();
    let main = folder.path().join("main.p4");
    let program = ROUTER.replace("parser P(", "header h_t { bit<8> a; }\n#include \"part.p4\"\nparser P(");
    std::fs::write(&main, program).unwrap();
    let mut editor = Editor::start(folder.path(), Value::Null);
    editor.open(&part, text);
    assert_eq!(editor.diagnostics(&part), Vec::<Value>::new());
    let place = Editor::place(&part, text, text.find("a = 1").unwrap());
    assert_eq!(editor.ask("textDocument/definition", place)["uri"], uri(&main));
}

#[test]
fn include_directories_and_macros_come_from_the_editors_options() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("include")).unwrap();
    std::fs::write(folder.path().join("include/width.p4"), "typedef bit<WIDTH> w_t;\n").unwrap();
    let main = folder.path().join("main.p4");
    let options = json!({"includeDirs": ["include"], "defines": {"WIDTH": "12"}});
    let mut editor = Editor::start(folder.path(), options);
    editor.open(&main, "#include <width.p4>\nconst w_t x = 4095;\n");
    assert_eq!(editor.diagnostics(&main), Vec::<Value>::new());
}

#[test]
fn references_and_rename_reach_all_uses() {
    let (_folder, path, mut editor) = router();
    let at = ROUTER.find("ethernet; tag_t").unwrap();
    let mut params = Editor::place(&path, ROUTER, at);
    params["context"] = json!({"includeDeclaration": true});
    let places = editor.ask("textDocument/references", params);
    assert_eq!(places.as_array().unwrap().len(), 1 + ROUTER.matches("hdr.ethernet").count());
    let mut params = Editor::place(&path, ROUTER, at);
    params["newName"] = json!("eth");
    let edit = editor.ask("textDocument/rename", params.clone());
    let edits = edit["changes"][uri(&path)].as_array().unwrap();
    assert_eq!(edits.len(), 1 + ROUTER.matches("hdr.ethernet").count());
    params["newName"] = json!("no name");
    let refused = editor.response("textDocument/rename", params).error.unwrap();
    assert!(refused.message.contains("is not a name"), "{refused:?}");
    let mut builtin = Editor::place(&path, ROUTER, ROUTER.find("egress_spec").unwrap());
    builtin["newName"] = json!("out_port");
    let refused = editor.response("textDocument/rename", builtin).error.unwrap();
    assert!(refused.message.contains("comes with the compiler"), "{refused:?}");
}

#[test]
fn completion_offers_what_can_stand_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.p4");
    let mut editor = Editor::start(folder.path(), Value::Null);
    let mut at = |from: &str, to: &str| editor.completions(&path, &ROUTER.replacen(from, to, 1));
    let has = |offered: &[String], wanted: &[&str]| {
        for name in wanted {
            assert!(offered.iter().any(|o| o == name), "{name}: {offered:?}");
        }
    };
    // A field is begun, the statement is not finished.
    let fields = at("mark_to_drop(sm);", "hdr.ethernet.$");
    has(&fields, &["dst", "src", "kind", "isValid", "setInvalid"]);
    assert!(!fields.iter().any(|f| f == "tags"), "{fields:?}");
    has(&at("mark_to_drop(sm);", "hdr.$ethernet.setInvalid();"), &["ethernet", "tags"]);
    has(&at("mark_to_drop(sm);", "hdr.tags[0].i$"), &["id", "kind"]);
    has(&at("mark_to_drop(sm);", "seen.c$"), &["count"]);
    has(&at("pkt.extract(hdr.tags.next)", "pkt.$"), &["extract", "lookahead", "advance"]);
    has(&at("mark_to_drop(sm);", "mar$"), &["mark_to_drop", "seen", "send", "hdr"]);
    has(&at("if (hdr.ethernet.isValid())", "if (forward.apply().$)"), &["hit", "miss", "action_run"]);
    let actions = at("actions = { send; drop; }", "actions = { send; d$ }");
    has(&actions, &["drop", "NoAction"]);
    assert!(!actions.iter().any(|a| a == "forward"), "{actions:?}");
    has(&at("dst: exact", "dst: e$"), &["exact", "lpm", "ternary"]);
    has(&at("default: accept", "default: t$"), &["tagged", "accept"]);
    has(&at("CounterType.packets", "CounterType.$"), &["packets", "bytes", "packets_and_bytes"]);
    has(&at("struct meta { port_t port; }", "struct meta { po$ port; }"), &["port_t", "bit"]);
    assert_eq!(at("// The link layer.", "// The hdr.$"), Vec::<String>::new());
    // Declarations are begun, properties, actions; macros stand where values do.
    has(&at("header ethernet_t", "hea$\nheader ethernet_t"), &["header", "control", "typedef", "port_t"]);
    has(&at("counter(16", "tab$\n    counter(16"), &["table", "action", "counter"]);
    let inside = at("counter(16", "cou$\n    counter(16");
    assert!(!inside.iter().any(|name| name == "header"), "{inside:?}");
    has(&at("state tagged", "$\n    state tagged"), &["state", "value_set", "bit"]);
    has(&at("default_action = drop", "$ default_action = drop"), &["size", "implementation", "entries"]);
    let default = at("default_action = drop()", "default_action = dr$");
    has(&default, &["send", "drop", "NoAction"]);
    assert!(!default.iter().any(|name| name == "forward"), "{default:?}");
    let values = at("sm.egress_spec = to", "sm.egress_spec = PO$");
    has(&values, &["PORT_WIDTH", "to"]);
    assert!(!values.iter().any(|name| name.starts_with("V1MODEL")), "{values:?}");
}

/// A header file that `one.p4` and `two.p4` include through another one.
fn two_programs() -> (tempfile::TempDir, PathBuf, [PathBuf; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("part.h");
    std::fs::write(&part, "#ifndef PART\n#define PART\nheader h_t { bit<8> a; bit<8> other; }\n#endif\n").unwrap();
    std::fs::write(folder.path().join("all.h"), "#include \"part.h\"\n").unwrap();
    let program = ROUTER
        .replace("struct meta {", "#include \"all.h\"\nstruct meta { h_t h;")
        .replace("m.port = sm.egress_spec;", "m.port = sm.egress_spec; m.h.a = 1;");
    let programs = ["one.p4", "two.p4"].map(|name| folder.path().join(name));
    programs.iter().for_each(|path| std::fs::write(path, &program).unwrap());
    (folder, part, programs)
}

#[test]
fn rename_in_a_shared_header_file_broke_programs_that_were_not_open() {
    let (folder, part, programs) = two_programs();
    let mut editor = Editor::start(folder.path(), Value::Null);
    let text = std::fs::read_to_string(&part).unwrap();
    editor.open(&part, &text);
    assert_eq!(errors(&editor.diagnostics(&part)), Vec::<String>::new());
    let mut params = Editor::place(&part, &text, text.find("a;").unwrap());
    params["context"] = json!({"includeDeclaration": false});
    let places = editor.ask("textDocument/references", params.clone());
    let found: Vec<&Value> = places.as_array().unwrap().iter().map(|place| &place["uri"]).collect();
    assert_eq!(found, [&json!(uri(&programs[0])), &json!(uri(&programs[1]))]);
    params["newName"] = json!("renamed");
    let edit = editor.ask("textDocument/rename", params);
    for file in programs.iter().chain([&part]) {
        assert_eq!(edit["changes"][uri(file)].as_array().map(Vec::len), Some(1), "{}: {edit}", file.display());
    }
    // The same from a use in one of the programs.
    let text = std::fs::read_to_string(&programs[0]).unwrap();
    editor.open(&programs[0], &text);
    let mut params = Editor::place(&programs[0], &text, text.find("a = 1").unwrap());
    params["newName"] = json!("renamed");
    assert_eq!(editor.ask("textDocument/rename", params), edit);
}

#[test]
fn rename_to_a_name_that_is_taken_is_refused() {
    let (_folder, path, mut editor) = router();
    let mut params = Editor::place(&path, ROUTER, ROUTER.find("src;").unwrap());
    params["newName"] = json!("dst");
    let refused = editor.response("textDocument/rename", params).error.unwrap();
    assert!(refused.message.contains("would not compile") && refused.message.contains("dst"), "{refused:?}");
}

#[test]
fn a_notification_that_could_not_be_read_ended_the_session() {
    let (_folder, path, mut editor) = router();
    editor.tell("textDocument/didOpen", json!({"textDocument": {"uri": uri(&path)}}));
    editor.tell("textDocument/didChange", json!({"textDocument": {"uri": "no uri"}, "contentChanges": 1}));
    assert!(hover(&mut editor, &path, ROUTER, ROUTER.find("ethernet_t").unwrap()).contains("header ethernet_t"));
}

#[test]
fn symbols_are_a_tree_with_the_names_inside_their_ranges() {
    let (_folder, path, mut editor) = router();
    let symbols = editor.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": uri(&path)}}));
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_string()).collect()
    };
    let top = names(&symbols);
    let expected =
        ["port_t", "ethernet_t", "tag_t", "headers", "meta", "P", "Nothing", "I", "E", "D", "main"].map(String::from);
    assert_eq!(top, expected);
    let control = &symbols[7];
    assert_eq!(names(&control["children"]), ["seen", "send", "drop", "forward"].map(String::from));
    assert_eq!(names(&symbols[5]["children"]), ["start", "tagged"].map(String::from));
}

/// Every identifier of every example means something: hover says what, and its definition can be gone to.
#[test]
fn every_name_of_the_examples_means_something() {
    let mut nowhere = Vec::new();
    let mut asked = 0;
    for path in examples() {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut editor = Editor::start(path.parent().unwrap(), Value::Null);
        editor.open(&path, &text);
        assert_eq!(errors(&editor.diagnostics(&path)), Vec::<String>::new(), "{}", path.display());
        for (at, word) in words(&text) {
            asked += 1;
            if hover(&mut editor, &path, &text, at).is_empty() {
                nowhere.push(format!("{}: {word} at byte {at}", path.display()));
            }
        }
    }
    assert!(asked > 5_000, "{asked}");
    assert!(nowhere.is_empty(), "{} of {asked}: {:#?}", nowhere.len(), &nowhere[..nowhere.len().min(20)]);
}

/// A program whose every declaration is renamed, one after the other, still compiles, and its uses were all found.
#[test]
fn programs_compile_after_everything_was_renamed() {
    for path in examples().into_iter().step_by(4) {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("renamed.p4");
        let mut text = std::fs::read_to_string(&path).unwrap();
        let mut renamed = 0;
        let mut editor = Editor::start(folder.path(), Value::Null);
        // States `start`, `main` and names that annotations or the architecture fix keep theirs.
        let fixed = ["start", "main", "accept", "reject", "NoAction"];
        let mut from = 0;
        while let Some((at, word)) = words(&text).into_iter().find(|(at, _)| *at >= from) {
            from = at + 1;
            if fixed.contains(&word.as_str()) || word.starts_with("renamed_") {
                continue;
            }
            editor.open(&copy, &text);
            let mut params = Editor::place(&copy, &text, at);
            params["newName"] = json!(format!("renamed_{word}"));
            let response = editor.response("textDocument/rename", params);
            let Some(edit) = response.result.filter(|_| response.error.is_none()) else { continue };
            apply(&mut text, edit["changes"][uri(&copy)].as_array().unwrap());
            renamed += 1;
        }
        editor.open(&copy, &text);
        assert_eq!(errors(&editor.diagnostics(&copy)), Vec::<String>::new(), "{}:\n{text}", path.display());
        assert!(renamed > 10, "{}: {renamed}", path.display());
    }
}

fn errors(diagnostics: &[Value]) -> Vec<String> {
    diagnostics.iter().filter(|d| d["severity"] == 1).map(|d| d["message"].to_string()).collect()
}

/// Applies edits that do not overlap, from the end.
fn apply(text: &mut String, edits: &[Value]) {
    let offset = |text: &str, place: &Value| {
        let line = place["line"].as_u64().unwrap() as usize;
        let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        start + place["character"].as_u64().unwrap() as usize
    };
    let mut ranges: Vec<(usize, usize, String)> = edits
        .iter()
        .map(|e| {
            let (start, end) = (offset(text, &e["range"]["start"]), offset(text, &e["range"]["end"]));
            (start, end, e["newText"].as_str().unwrap().to_string())
        })
        .collect();
    ranges.sort();
    for (start, end, new) in ranges.into_iter().rev() {
        text.replace_range(start..end, &new);
    }
}

/// The identifiers of a program outside comments, strings, directives' keywords and annotations, and keywords.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut interner = syntax::token::Interner::default();
    let tokens = syntax::lexer::lex(base::FileId(0), text, &mut interner);
    let mut found = Vec::new();
    let mut in_directive = None;
    let mut annotation = false;
    let mut depth = 0;
    for token in &tokens {
        if token.line_start {
            in_directive = (token.text() == "#").then_some(());
        }
        let is_ident = token.kind == syntax::token::TokenKind::Ident;
        match token.text() {
            "@" => annotation = true,
            "(" if annotation => depth += 1,
            ")" if annotation => {
                depth -= 1;
                annotation = depth > 0;
            }
            text if is_ident && in_directive.is_none() && !annotation => {
                found.push((token.span.start as usize, text.to_string()))
            }
            _ if annotation && depth == 0 && !is_ident => annotation = false,
            _ => {}
        }
    }
    found
}
