//! What the typed program says: names, instances, conversions, calls. One question per test.

use sema::typed::*;
use sema::{Type, TypedProgram, Value};
use std::sync::Arc;
use syntax::{MemoryLoader, Options, SourceInput};

/// The typed program of a correct text.
fn typed(text: &str) -> TypedProgram {
    let embedded = sema::EMBEDDED.iter().filter_map(|n| Some((n.to_string(), Arc::from(sema::embedded(n)?)))).collect();
    let loader = MemoryLoader { embedded, ..MemoryLoader::default() };
    let mut sources = base::SourceMap::new();
    let input = SourceInput { name: "typed.p4".to_string(), text: text.into() };
    let parsed = syntax::parse_program(input, &Options::default(), &loader, &mut sources);
    assert_eq!(parsed.diagnostics, []);
    let checked = sema::check(&parsed.program, &sources);
    for d in &checked.diagnostics {
        assert!(d.severity != base::Severity::Error, "{}", d.render(&sources, false));
    }
    let program = checked.program.expect("no errors");
    assert_eq!(sema::verify::verify(&program), Vec::<String>::new());
    program
}

/// A control with a given body around it.
fn control(locals: &str, apply: &str) -> TypedProgram {
    typed(&format!(
        "#include <core.p4>\nheader h_t {{ bit<8> a; bit<16> b; }}\nstruct s_t {{ bit<8> x; bool y; }}\n\
         control C(inout h_t h, inout s_t s, inout bit<8> x, out bit<16> y) {{ {locals}\napply {{ y = 0; {apply} }} }}"
    ))
}

/// The statements of the first control's `apply`, without the first.
fn stmts(program: &TypedProgram) -> Vec<&StmtKind> {
    program.controls[0].body.stmts.iter().skip(1).map(|s| &s.kind).collect()
}

fn assigned(kind: &StmtKind) -> &Expr {
    match kind {
        StmtKind::Assign { value, .. } => value,
        other => panic!("{other:?} is no assignment"),
    }
}

fn called(kind: &StmtKind) -> &Call {
    match kind {
        StmtKind::Call(call) => call,
        other => panic!("{other:?} is no call"),
    }
}

fn bits(width: u32, value: u128) -> Value {
    Value::Bits(base::Bits::new(width, value))
}

#[test]
fn constant_expressions_are_folded_to_the_type_that_is_needed() {
    let p = control("const int N = 3;", "y = (N << 2) + 1; x = (bit<8>)(16w0xabcd >> 4); x = s.y ? 8w1 : N;");
    assert_eq!(assigned(stmts(&p)[0]).as_const(), Some(&bits(16, 13)));
    assert_eq!(assigned(stmts(&p)[1]).as_const(), Some(&bits(8, 0xbc)));
    let ExprKind::Ternary { otherwise, .. } = &assigned(stmts(&p)[2]).kind else { panic!() };
    assert_eq!(otherwise.as_const(), Some(&bits(8, 3)));
}

#[test]
fn literals_become_aggregates_in_field_order() {
    let p = control("", "s = { y = true, x = x }; s = { x, ... }; h = { 1, 2 };");
    let ExprKind::Aggregate(fields) = &assigned(stmts(&p)[0]).kind else { panic!() };
    assert!(matches!(fields[0].kind, ExprKind::Local(_)));
    assert_eq!(fields[1].as_const(), Some(&Value::Bool(true)));
    let ExprKind::Aggregate(fields) = &assigned(stmts(&p)[1]).kind else { panic!() };
    assert_eq!(fields[1].as_const(), Some(&Value::Bool(false)));
    assert_eq!(assigned(stmts(&p)[2]).as_const(), Some(&Value::Seq(vec![bits(8, 1), bits(16, 2)])));
}

#[test]
fn arguments_are_in_parameter_order_with_defaults() {
    let p = typed(
        "bit<8> f(in bit<8> a, in bit<8> b = 7, out bit<8> c) { c = a; return b; }\n\
         control C(inout bit<8> x) { apply { f(c = x, a = 3); f(1, 2, _); } }",
    );
    let body = &p.controls[0].body.stmts;
    let call = called(&body[0].kind);
    let names: Vec<&str> = call.args.iter().map(|a| &*a.param).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(call.args[0].value.expr().unwrap().as_const(), Some(&bits(8, 3)));
    assert_eq!(call.args[1].value.expr().unwrap().as_const(), Some(&bits(8, 7)));
    assert!(matches!(call.args[2].value.expr().unwrap().kind, ExprKind::Local(_)));
    assert!(matches!(called(&body[1].kind).args[2].value, ArgValue::DontCare));
}

#[test]
fn a_generic_function_has_one_body_per_list_of_type_arguments() {
    let p = typed(
        "T id<T>(in T a) { return a; }\n\
         bit<8> twice(in bit<8> a) { return id(id(a)) + id(8w3); }\n\
         bool other(in bool b) { return id<bool>(b); }",
    );
    let args: Vec<Vec<Type>> = p.functions.iter().filter(|f| &*f.name == "id").map(|f| f.type_args.clone()).collect();
    assert_eq!(args.len(), 2);
    assert!(args.contains(&vec![Type::bit(8)]) && args.contains(&vec![Type::Bool]));
}

#[test]
fn a_table_without_default_action_gets_an_implicit_no_action() {
    let p = control("action a() {} table t { actions = { a; } } table u { actions = { a; NoAction; } }", "");
    let name = |t: &Table, i: u32| p.actions[t.actions[i as usize].action.index()].name.to_string();
    let (t, u) = (&p.tables[0], &p.tables[1]);
    assert!(t.actions[1].implicit && t.actions[1].default_only);
    assert_eq!(name(t, t.default_action.as_ref().unwrap().action), "NoAction");
    assert!(!u.actions[1].implicit);
    assert_eq!(name(u, u.default_action.as_ref().unwrap().action), "NoAction");
}

#[test]
fn keys_are_named_by_annotation_or_expression() {
    let p = control(
        "action a() {} table t { key = { h.a: exact; h.b[7:0]: ternary; h.isValid(): exact; x + 1: exact @name(\"sum\");\n\
         h.a & 0x0F: exact; h.a & 8w15: exact; h.a & 0b11: exact; }\n\
         actions = { a; } }",
        "",
    );
    let names: Vec<&str> = p.tables[0].keys.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["h.a", "h.b[7:0]", "h.isValid()", "sum", "h.a & 0xf", "h.a & 15", "h.a & 0b11"]);
}

#[test]
fn switch_cases_that_fall_through_are_one_case() {
    let p = control(
        "action a() {} action b() {} action c() {} table t { actions = { a; b; c; } }",
        "switch (t.apply().action_run) { a: b: { x = 1; } default: { x = 2; } }\n\
         switch (x) { 1: 2: { x = 3; } 3: {} }",
    );
    let StmtKind::SwitchAction { cases, .. } = stmts(&p)[0] else { panic!() };
    assert_eq!((cases[0].actions.as_slice(), cases[0].default), ([0, 1].as_slice(), false));
    assert_eq!((cases[1].actions.as_slice(), cases[1].default), ([].as_slice(), true));
    let StmtKind::Switch { cases, .. } = stmts(&p)[1] else { panic!() };
    assert_eq!(cases[0].values, [bits(8, 1), bits(8, 2)]);
    assert_eq!(cases.len(), 2);
}

#[test]
fn instances_have_qualified_names_and_evaluated_arguments() {
    let p = typed(
        "#include <core.p4>\n\
         extern Reg { Reg(bit<32> size); void hit(); }\n\
         control Leaf()(bit<32> n, Reg shared) {\n\
           Reg(n * 2) own; @name(\"renamed\") Reg(1) a; @name(\".top\") Reg(2) b; @hidden Reg(3) c;\n\
           action act() { shared.hit(); own.hit(); }\n\
           @name(\".global\") table t { actions = { act; } }\n\
           apply { t.apply(); } }\n\
         @name(\"no_instance\") control Once() { apply {} }\n\
         @name(\"nor_this\") control Main() { Reg(9) reg; Leaf(n = 4, shared = reg) leaf; apply { leaf.apply(); Once.apply(); } }\n\
         control T(); package P(T t); P(Main()) main;",
    );
    let main = p.instance(p.main.unwrap());
    let control = main.arg("t").unwrap().as_instance().unwrap();
    assert_eq!(p.instance(control).path, "Main");
    let path = |name: &str| p.instances.iter().find(|i| &*i.name == name).map(|i| i.path.as_str());
    assert_eq!(path("leaf"), Some("Main.leaf"));
    assert_eq!(path("own"), Some("Main.leaf.own"));
    assert_eq!(path("a"), Some("Main.leaf.renamed"));
    assert_eq!(path("b"), Some("top"));
    assert_eq!(path("Once"), Some("Main.Once"));
    assert!(p.instances.iter().any(|i| &*i.name == "c" && i.hidden));
    let own = p.instances.iter().find(|i| &*i.name == "own").unwrap();
    assert_eq!(own.arg("size"), Some(&bits(32, 8)));
    assert_eq!(p.tables[0].control_name.qualified("Main.leaf"), "global");
    // `shared` in the body of `Leaf` is the register of `Main`.
    let leaf = p.instances.iter().position(|i| &*i.name == "leaf").map(InstanceId::from_index);
    let shared = p.resolve(InstanceRef::CtorParam(1), leaf).unwrap();
    assert_eq!(p.instance(shared).path, "Main.reg");
}

#[test]
fn anonymous_instances_in_tables_are_named_by_the_property() {
    let p = typed(
        "#include <core.p4>\nextern Profile { Profile(bit<32> size); }\n\
         control Main(in bit<8> x) {\n\
           table t { key = { x: exact; } actions = { NoAction; } @name(\"ap\") implementation = Profile(4); }\n\
           table u { key = { x: exact; } actions = { NoAction; } implementation = Profile(5); }\n\
           apply { t.apply(); } }\n\
         control T(in bit<8> x); package P(T t); P(Main()) main;",
    );
    let paths: Vec<&str> =
        p.instances.iter().filter(|i| matches!(i.of, InstanceOf::Extern(_))).map(|i| i.path.as_str()).collect();
    assert_eq!(paths, ["ap", "Main.u.implementation"]);
    let value = &p.tables[0].property("implementation").unwrap().value;
    assert!(matches!(value.kind, ExprKind::Instance(InstanceRef::Local(0))));
}

#[test]
fn annotations_have_values_of_named_constants() {
    let p = typed(
        "const bit<8> LIST = 3;\nstruct meta_t { @field_list(1, LIST) bit<8> a; @odd(not an expression) bit<8> b;\n\
         @tags[1, LIST] bit<8> c; @keys[size = LIST, name = \"n\"] bit<8> d; }",
    );
    let fields = &p.types.structs[0].fields;
    let values = find_annotation(&fields[0].annotations, "field_list").unwrap().values().unwrap();
    assert_eq!(values.iter().filter_map(Value::to_u64).collect::<Vec<_>>(), [1, 3]);
    assert!(find_annotation(&fields[1].annotations, "odd").unwrap().values().is_none());
    assert_eq!(find_annotation(&fields[2].annotations, "tags").unwrap().values().unwrap().len(), 2);
    let AnnotationBody::KeyValues(pairs) = &fields[3].annotations[0].body else { panic!() };
    assert_eq!(pairs[0], ("size".into(), bits(8, 3)));
}

#[test]
fn the_verifier_finds_broken_programs() {
    let mut p = control("", "y = 1; x = s.x;");
    assert_eq!(sema::verify::verify(&p), Vec::<String>::new());
    for stmt in &mut p.controls[0].body.stmts {
        if let StmtKind::Assign { value, .. } = &mut stmt.kind {
            value.ty = Type::Bool;
        }
    }
    assert!(sema::verify::verify(&p).len() >= 3);
}

#[test]
fn every_code_is_used_and_listed_once() {
    let codes = include_str!("../src/codes.rs");
    let names: Vec<&str> = codes.lines().filter_map(|l| l.strip_prefix("pub const ")?.split(':').next()).collect();
    let numbers: std::collections::BTreeSet<&str> = codes.lines().filter_map(|l| l.split('"').nth(1)).collect();
    assert_eq!(names.len(), numbers.len());
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/check");
    let source: String =
        std::fs::read_dir(dir).unwrap().map(|f| std::fs::read_to_string(f.unwrap().path()).unwrap()).collect();
    for name in names {
        assert!(source.contains(&format!("codes::{name}")), "{name} is not used");
    }
    assert!(!source.contains("\"E0") && !source.contains("\"W0"), "a code stands in the source by number");
}

#[test]
fn a_default_action_may_repeat_any_argument_of_the_list() {
    let argument = "(h.isValid() ? h.b[h.a+:4] : 4w1)";
    let p = control(
        &format!(
            "action a(in bit<4> i, bit<8> d) {{}} table t {{ actions = {{ a({argument}); }} default_action = a({argument}, 3); }}"
        ),
        "",
    );
    assert_eq!(p.tables[0].default_action.as_ref().unwrap().args[0].as_const(), Some(&bits(8, 3)));
}
