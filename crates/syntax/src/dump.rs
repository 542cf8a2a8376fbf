//! Prints the tree as compact S-expressions, for tests and for inspecting the parser's output.
//!
//! One line per declaration or statement, indented; expressions and types on one line in prefix notation:
//! `a + b * c` is `(+ a (* b c))`, `(T) x` is `(cast T x)`, `f<T>(x)` is `(call f <T> x)`. Spans and ids are left out.

use std::fmt::Write;

use crate::ast::*;

/// Prints a whole program.
pub fn dump(program: &Program) -> String {
    let mut out = Dumper { text: String::new(), indent: 0 };
    for decl in &program.decls {
        out.decl(decl);
    }
    out.text
}

struct Dumper {
    text: String,
    indent: usize,
}

impl Dumper {
    fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.text, "{:width$}{}", "", text.as_ref(), width = self.indent * 2);
    }

    fn within(&mut self, head: impl AsRef<str>, body: impl FnOnce(&mut Self)) {
        self.line(head);
        self.indent += 1;
        body(self);
        self.indent -= 1;
    }

    fn decl(&mut self, decl: &Decl) {
        let head = format!("{}{} {}", annotations(&decl.annotations), decl.kind.noun().replace(' ', "_"), decl.name);
        match &decl.kind {
            DeclKind::Const(d) => self.line(format!("{head}: {} = {}", ty(&d.ty), expr(&d.value))),
            DeclKind::Variable(d) => self.line(format!("{head}: {}{}", ty(&d.ty), optional(" = ", &d.init))),
            DeclKind::Instantiation(d) => {
                let head = format!("{head}: {}({})", ty(&d.ty), args(&d.args));
                self.within(head, |out| d.body.iter().flatten().for_each(|inner| out.decl(inner)));
            }
            DeclKind::Action(d) => self.within(format!("{head}({})", params(&d.params)), |out| out.block(&d.body)),
            DeclKind::Table(d) => self.within(head, |out| d.properties.iter().for_each(|p| out.property(p))),
            DeclKind::ValueSet(d) => self.line(format!("{head}: {} size {}", ty(&d.element), expr(&d.size))),
            DeclKind::Function(d) => {
                self.within(format!("{head}{}", prototype(&d.proto)), |out| out.block(&d.body));
            }
            DeclKind::ExternFunction(d) => self.line(format!("{head}{}", prototype(d))),
            DeclKind::ExternObject(d) => self.within(format!("{head}{}", type_params(&d.type_params)), |out| {
                for m in &d.methods {
                    let kind = format!("{:?}", m.kind).to_lowercase();
                    let notes = annotations(&m.annotations);
                    out.line(format!("{notes}{kind} {}{}", m.name, prototype(&m.proto)));
                }
            }),
            DeclKind::Parser(d) => {
                let (runtime, constructor) = (params(&d.params), params(&d.constructor_params));
                let head = format!("{head}{}({runtime})({constructor})", type_params(&d.type_params));
                self.within(head, |out| {
                    d.locals.iter().for_each(|local| out.decl(local));
                    d.states.iter().for_each(|state| out.state(state));
                });
            }
            DeclKind::Control(d) => {
                let (runtime, constructor) = (params(&d.params), params(&d.constructor_params));
                let head = format!("{head}{}({runtime})({constructor})", type_params(&d.type_params));
                self.within(head, |out| {
                    d.locals.iter().for_each(|local| out.decl(local));
                    out.within(format!("{}apply", annotations(&d.apply.annotations)), |out| out.block(&d.apply));
                });
            }
            DeclKind::ParserType(d) | DeclKind::ControlType(d) | DeclKind::PackageType(d) => {
                self.line(format!("{head}{}({})", type_params(&d.type_params), params(&d.params)));
            }
            DeclKind::Header(d) | DeclKind::HeaderUnion(d) | DeclKind::Struct(d) => {
                self.within(format!("{head}{}", type_params(&d.type_params)), |out| {
                    for field in &d.fields {
                        out.line(format!("{}{}: {}", annotations(&field.annotations), field.name, ty(&field.ty)));
                    }
                });
            }
            DeclKind::Enum(d) => {
                let repr = d.repr.as_ref().map_or(String::new(), |t| format!(": {}", ty(t)));
                self.line(format!("{head}{repr} {{{}}}", members(&d.members)));
            }
            DeclKind::Error(d) | DeclKind::MatchKind(d) => self.line(format!("{head} {{{}}}", members(&d.members))),
            DeclKind::Typedef(TypedefDecl::Type(t)) | DeclKind::NewType(t) => {
                self.line(format!("{head} = {}", ty(t)));
            }
            DeclKind::Typedef(TypedefDecl::Derived(inner)) => self.within(head, |out| out.decl(inner)),
        }
    }

    fn state(&mut self, state: &State) {
        self.within(format!("{}state {}", annotations(&state.annotations), state.name), |out| {
            state.body.iter().for_each(|s| out.stmt(s));
            match state.transition.as_ref().map(|t| &t.kind) {
                None => out.line("no transition"),
                Some(TransitionKind::Direct(next)) => out.line(format!("transition {next}")),
                Some(TransitionKind::Select(select)) => {
                    out.within(format!("select {}", list(&select.args, expr)), |out| {
                        for case in &select.cases {
                            out.line(format!("{} -> {}", keyset(&case.keyset), case.next));
                        }
                    });
                }
            }
        });
    }

    fn property(&mut self, p: &TableProperty) {
        let head = format!("{}{}{}", annotations(&p.annotations), if p.is_const { "const " } else { "" }, p.name);
        match &p.kind {
            TablePropertyKind::Key(elements) => self.within(head, |out| {
                for e in elements {
                    out.line(
                        format!("{} : {} {}", expr(&e.expr), e.match_kind, annotations(&e.annotations)).trim_end(),
                    );
                }
            }),
            TablePropertyKind::Actions(actions) => self.within(head, |out| {
                for action in actions {
                    out.line(action_ref(action));
                }
            }),
            TablePropertyKind::Entries(entries) => self.within(head, |out| {
                for e in entries {
                    let constant = if e.is_const { "const " } else { "" };
                    let priority = e.priority.as_ref().map_or(String::new(), |p| format!("priority {} ", expr(p)));
                    let notes = annotations(&e.annotations);
                    let action = action_ref(&e.action);
                    out.line(format!("{constant}{priority}{} -> {action} {notes}", keyset(&e.keyset)).trim_end());
                }
            }),
            TablePropertyKind::Value(value) => self.line(format!("{head} = {}", expr(value))),
        }
    }

    fn block(&mut self, block: &Block) {
        block.stmts.iter().for_each(|s| self.stmt(s));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Empty => self.line("empty"),
            StmtKind::Assign { .. } | StmtKind::Call(_) => self.line(simple_stmt(stmt)),
            StmtKind::Decl(decl) => self.decl(decl),
            StmtKind::Block(block) => {
                self.within(format!("{}block", annotations(&block.annotations)), |out| out.block(block));
            }
            StmtKind::If { cond, then, otherwise } => {
                self.within(format!("if {}", expr(cond)), |out| out.stmt(then));
                if let Some(otherwise) = otherwise {
                    self.within("else", |out| out.stmt(otherwise));
                }
            }
            StmtKind::Return(value) => self.line(format!("return{}", optional(" ", value))),
            StmtKind::Exit => self.line("exit"),
            StmtKind::Break => self.line("break"),
            StmtKind::Continue => self.line("continue"),
            StmtKind::Switch { subject, cases } => self.within(format!("switch {}", expr(subject)), |out| {
                for case in cases {
                    let label = match &case.label {
                        SwitchLabel::Default(_) => "default".to_owned(),
                        SwitchLabel::Expr(label) => expr(label),
                    };
                    match &case.body {
                        Some(body) => out.within(label, |out| out.block(body)),
                        None => out.line(format!("{label} falls through")),
                    }
                }
            }),
            StmtKind::For(f) => {
                let head = format!("{}for {}", annotations(&f.annotations), list(&f.init, simple_stmt));
                let head = format!("{head}; {}; {}", expr(&f.cond), list(&f.update, simple_stmt));
                self.within(head, |out| out.stmt(&f.body));
            }
            StmtKind::ForIn(f) => {
                let collection = match &f.collection {
                    ForCollection::Expr(e) => expr(e),
                    ForCollection::Range(low, high) => format!("(.. {} {})", expr(low), expr(high)),
                };
                let variable = simple_decl(&f.variable);
                let head = format!("{}for {variable} in {collection}", annotations(&f.annotations));
                self.within(head, |out| out.stmt(&f.body));
            }
        }
    }
}

/// A statement that fits on one line.
fn simple_stmt(stmt: &Stmt) -> String {
    match &stmt.kind {
        StmtKind::Assign { target, op, value } => {
            format!("({}= {} {})", op.map_or("", BinaryOp::symbol), expr(target), expr(value))
        }
        StmtKind::Call(call) => expr(call),
        StmtKind::Decl(decl) => simple_decl(decl),
        other => format!("{other:?}"),
    }
}

fn simple_decl(decl: &Decl) -> String {
    let notes = annotations(&decl.annotations);
    match &decl.kind {
        DeclKind::Variable(v) => format!("{notes}{}: {}{}", decl.name, ty(&v.ty), optional(" = ", &v.init)),
        other => format!("{notes}{} {}", other.noun(), decl.name),
    }
}

fn list<T>(items: &[T], one: impl Fn(&T) -> String) -> String {
    items.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn optional(before: &str, value: &Option<Expr>) -> String {
    value.as_ref().map_or(String::new(), |value| format!("{before}{}", expr(value)))
}

fn annotations(annotations: &[Annotation]) -> String {
    let one = |a: &Annotation| match &a.body {
        AnnotationBody::Empty => format!("@{} ", a.name),
        AnnotationBody::Unstructured { tokens, exprs } => {
            let words = tokens.iter().map(|t| &*t.text).collect::<Vec<_>>().join(" ");
            match exprs {
                Some(exprs) => format!("@{}({}) ", a.name, list(exprs, expr)),
                None => format!("@{}`{words}` ", a.name),
            }
        }
        AnnotationBody::List(exprs) => format!("@{}[{}] ", a.name, list(exprs, expr)),
        AnnotationBody::KeyValues(fields) => format!("@{}[{}] ", a.name, list(fields, named)),
    };
    annotations.iter().map(one).collect()
}

fn named(field: &NamedExpr) -> String {
    format!("{} = {}", field.name, expr(&field.value))
}

fn members(members: &[Member]) -> String {
    list(members, |m| format!("{}{}{}", annotations(&m.annotations), m.name, optional(" = ", &m.value)))
}

fn type_params(params: &[TypeParam]) -> String {
    if params.is_empty() { String::new() } else { format!("<{}>", list(params, |p| p.name.to_string())) }
}

fn params(params: &[Param]) -> String {
    list(params, |p| {
        let direction = match p.direction {
            Direction::None => "",
            Direction::In => "in ",
            Direction::Out => "out ",
            Direction::InOut => "inout ",
        };
        let notes = annotations(&p.annotations);
        format!("{notes}{direction}{}: {}{}", p.name, ty(&p.ty), optional(" = ", &p.default))
    })
}

fn prototype(p: &Prototype) -> String {
    format!("{}({}) -> {}", type_params(&p.type_params), params(&p.params), ty(&p.result))
}

fn action_ref(action: &ActionRef) -> String {
    let args = action.args.as_ref().map_or(String::new(), |a| format!("({})", args(a)));
    format!("{}{}{args}", annotations(&action.annotations), action.path)
}

fn keyset(keyset: &Keyset) -> String {
    list(&keyset.elements, |e| match &e.kind {
        KeysetKind::Expr(e) => expr(e),
        KeysetKind::Mask(value, mask) => format!("(&&& {} {})", expr(value), expr(mask)),
        KeysetKind::Range(low, high) => format!("(.. {} {})", expr(low), expr(high)),
        KeysetKind::Default => "default".into(),
        KeysetKind::DontCare => "_".into(),
    })
}

fn ty(t: &TypeRef) -> String {
    match &t.kind {
        TypeKind::Bool => "bool".into(),
        TypeKind::Error => "error".into(),
        TypeKind::MatchKind => "match_kind".into(),
        TypeKind::String => "string".into(),
        TypeKind::Void => "void".into(),
        TypeKind::Int => "int".into(),
        TypeKind::Bit(width) => format!("bit<{}>", expr(width)),
        TypeKind::IntN(width) => format!("int<{}>", expr(width)),
        TypeKind::Varbit(width) => format!("varbit<{}>", expr(width)),
        TypeKind::Named { path, args } if args.is_empty() => path.to_string(),
        TypeKind::Named { path, args } => format!("{path}<{}>", list(args, ty)),
        TypeKind::Array(element, size) => format!("{}[{}]", ty(element), expr(size)),
        TypeKind::Tuple(args) => format!("tuple<{}>", list(args, ty)),
        TypeKind::List(element) => format!("list<{}>", ty(element)),
        TypeKind::DontCare => "_".into(),
    }
}

fn args(args: &[Argument]) -> String {
    list(args, |a| match &a.name {
        Some(name) => format!("{name} = {}", expr(&a.value)),
        None => expr(&a.value),
    })
}

fn expr(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Int(literal) => match literal.ty {
            IntLiteralType::Int => literal.value.to_string(),
            IntLiteralType::Bit(width) => format!("{width}w{}", literal.value),
            IntLiteralType::IntN(width) => format!("{width}s{}", literal.value),
        },
        ExprKind::String(text) => format!("\"{text}\""),
        ExprKind::Path(path) => path.to_string(),
        ExprKind::This => "this".into(),
        ExprKind::Type(t) => format!("(type {})", ty(t)),
        ExprKind::DontCare => "_".into(),
        ExprKind::Default => "...".into(),
        ExprKind::InvalidHeader => "{#}".into(),
        ExprKind::Member(base, name) => format!("{}.{name}", expr(base)),
        ExprKind::Index(base, index) => format!("{}[{}]", expr(base), expr(index)),
        ExprKind::Slice { base, high, low } => format!("{}[{}:{}]", expr(base), expr(high), expr(low)),
        ExprKind::SliceFrom { base, low, width } => format!("{}[{}+:{}]", expr(base), expr(low), expr(width)),
        ExprKind::Unary(op, operand) => format!("({} {})", op.symbol(), expr(operand)),
        ExprKind::Binary(op, left, right) => format!("({} {} {})", op.symbol(), expr(left), expr(right)),
        ExprKind::Ternary { cond, then, otherwise } => {
            format!("(? {} {} {})", expr(cond), expr(then), expr(otherwise))
        }
        ExprKind::Cast(t, operand) => format!("(cast {} {})", ty(t), expr(operand)),
        ExprKind::Call { callee, type_args, args } => {
            let types = if type_args.is_empty() { String::new() } else { format!(" <{}>", list(type_args, ty)) };
            let values = if args.is_empty() { String::new() } else { format!(" {}", self::args(args)) };
            format!("(call {}{types}{values})", expr(callee))
        }
        ExprKind::List(items) => format!("{{{}}}", list(items, expr)),
        ExprKind::Record { fields, dots } => {
            format!("{{{}{}}}", list(fields, named), if dots.is_some() { ", ..." } else { "" })
        }
        ExprKind::Missing => "<missing>".into(),
    }
}
