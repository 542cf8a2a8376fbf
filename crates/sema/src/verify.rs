//! The verifier of the typed program: checks the invariants that [`crate::typed`] states and lowering relies on.
//!
//! A finding is a bug in the checker, not in the P4 program; tests and the corpus example verify every accepted
//! program. The verifier knows only the shape of the typed program, not how the checker produced it.

use crate::typed::*;
use crate::types::*;
use crate::value::Value;

/// Every violated invariant, as text for a developer; empty if the program is well-formed.
pub fn verify(program: &Program) -> Vec<String> {
    let mut v = Verifier { p: program, frame: &[], result: Type::Void, found: Vec::new() };
    v.program();
    v.found
}

struct Verifier<'p> {
    p: &'p Program,
    frame: &'p [Local],
    result: Type,
    found: Vec<String>,
}

impl<'p> Verifier<'p> {
    fn program(&mut self) {
        let p = self.p;
        for frame in &p.frames {
            for local in &frame.locals {
                self.ground(&local.ty, &local.name);
            }
        }
        for f in &p.functions {
            self.enter(f.frame);
            self.result = f.result.clone();
            self.block(&f.body);
        }
        for a in &p.actions {
            self.enter(a.frame);
            self.result = Type::Void;
            self.block(&a.body);
        }
        for t in &p.tables {
            self.enter(p.controls[t.owner.index()].frame);
            self.table(t);
        }
        for c in &p.controls {
            self.enter(c.frame);
            self.result = Type::Void;
            self.stmts(&c.locals);
            self.block(&c.body);
            self.instances(&c.instances);
        }
        for parser in &p.parsers {
            self.enter(parser.frame);
            self.stmts(&parser.locals);
            self.instances(&parser.instances);
            for state in &parser.states {
                self.stmts(&state.body);
                if let Transition::Select { keys, cases, .. } = &state.transition {
                    keys.iter().for_each(|k| self.expr(k));
                    for case in cases {
                        let whole = matches!(case.keysets.as_slice(), [Keyset::ValueSet(_)]);
                        self.that(whole || case.keysets.len() == keys.len(), || "keysets per key".to_string());
                        for (set, key) in case.keysets.iter().zip(keys) {
                            self.keyset(set, &key.ty);
                        }
                    }
                }
            }
        }
        self.frame = &[];
        self.instances(&p.globals);
        self.that(p.globals.len() == p.global_instances.len(), || "an instance for every global".to_string());
    }

    fn enter(&mut self, frame: FrameId) {
        self.frame = &self.p.frames[frame.index()].locals;
    }

    fn that(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.found.push(what());
        }
    }

    fn same(&mut self, a: &Type, b: &Type, what: &str) {
        let show = |t| self.p.types.display(t).to_string();
        if a != b {
            let text = format!("{what}: `{}` and `{}` should be one type", show(a), show(b));
            self.found.push(text);
        }
    }

    fn ground(&mut self, ty: &Type, what: &str) {
        let ok = match ty {
            Type::Unknown | Type::Var(_) => false,
            Type::Tuple(types) | Type::Extern(_, types) | Type::Block(_, types) => {
                types.iter().for_each(|t| self.ground(t, what));
                true
            }
            Type::Stack(element, _) | Type::List(element) | Type::Set(element) => {
                self.ground(element, what);
                true
            }
            _ => true,
        };
        self.that(ok, || format!("{what} has no type"));
    }

    fn instances(&mut self, decls: &'p [InstanceDecl]) {
        for decl in decls {
            self.ground(&decl.ty, &decl.name);
            self.args(&decl.args);
        }
    }

    fn table(&mut self, t: &'p Table) {
        for key in &t.keys {
            self.expr(&key.expr);
        }
        for action in &t.actions {
            self.args(&action.args);
            let params = &self.p.actions[action.action.index()].params;
            self.that(params.len() == action.args.len(), || format!("{}: an argument per parameter", t.name));
        }
        if let Some(d) = &t.default_action {
            self.action_data(t, d.action, &d.args);
        }
        for entry in &t.entries {
            self.that(entry.keysets.len() == t.keys.len(), || format!("{}: a keyset per key", t.name));
            for (set, key) in entry.keysets.iter().zip(&t.keys) {
                self.keyset(set, &key.expr.ty);
            }
            self.action_data(t, entry.action, &entry.args);
        }
        t.size.iter().for_each(|e| self.expr(e));
        t.properties.iter().for_each(|p| self.expr(&p.value));
    }

    fn action_data(&mut self, t: &'p Table, action: u32, args: &'p [Expr]) {
        let Some(action) = t.actions.get(action as usize) else {
            self.found.push(format!("{}: no such action", t.name));
            return;
        };
        let params: Vec<&Param> = self.p.actions[action.action.index()].data_params().collect();
        self.that(params.len() == args.len(), || format!("{}: a value per action data parameter", t.name));
        for (param, arg) in params.iter().zip(args) {
            self.same(&param.ty, &arg.ty, "action data");
            self.expr(arg);
        }
    }

    fn keyset(&mut self, set: &'p Keyset, ty: &Type) {
        match set {
            Keyset::Value(e) => self.typed(e, ty, "keyset"),
            Keyset::Mask(a, b) | Keyset::Range(a, b) => {
                self.typed(a, ty, "keyset");
                self.typed(b, ty, "keyset");
            }
            Keyset::DontCare | Keyset::ValueSet(_) => {}
        }
    }

    fn typed(&mut self, e: &'p Expr, ty: &Type, what: &str) {
        self.same(&e.ty, ty, what);
        self.expr(e);
    }

    fn block(&mut self, block: &'p Block) {
        self.stmts(&block.stmts);
    }

    fn stmts(&mut self, stmts: &'p [Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'p Stmt) {
        match &stmt.kind {
            StmtKind::Assign { target, op, value } => {
                self.expr(target);
                self.expr(value);
                if !matches!(op, Some(BinaryOp::Shl | BinaryOp::Shr | BinaryOp::Concat)) {
                    self.same(&target.ty, &value.ty, "assignment");
                }
            }
            StmtKind::Call(call) => self.call(call),
            StmtKind::Var { local, init } => {
                if let Some(init) = init {
                    let ty = self.frame.get(local.index()).map_or(Type::Unknown, |l| l.ty.clone());
                    self.typed(init, &ty, "initial value");
                }
            }
            StmtKind::Block(block) => self.block(block),
            StmtKind::If { cond, then, otherwise } => {
                self.typed(cond, &Type::Bool, "condition");
                self.block(then);
                otherwise.iter().for_each(|b| self.block(b));
            }
            StmtKind::SwitchAction { apply, table, cases } => {
                self.call(apply);
                let count = self.p.tables[table.index()].actions.len();
                for case in cases {
                    let in_range = case.actions.iter().all(|a| (*a as usize) < count);
                    self.that(in_range, || "a case of an action that the table has".to_string());
                    self.block(&case.body);
                }
            }
            StmtKind::Switch { subject, cases } => {
                self.expr(subject);
                for case in cases {
                    for value in &case.values {
                        self.value(value, &subject.ty);
                    }
                    self.block(&case.body);
                }
            }
            StmtKind::For { init, cond, update, body, .. } => {
                self.stmts(init);
                self.typed(cond, &Type::Bool, "condition");
                self.stmts(update);
                self.block(body);
            }
            StmtKind::ForIn { collection, body, .. } => {
                match collection {
                    ForCollection::Elements(e) => self.expr(e),
                    ForCollection::Range(a, b) => {
                        self.expr(a);
                        self.typed(b, &a.ty, "range");
                    }
                }
                self.block(body);
            }
            StmtKind::Return(Some(e)) => {
                let ty = self.result.clone();
                self.typed(e, &ty, "result");
            }
            StmtKind::Return(None) | StmtKind::Break | StmtKind::Continue | StmtKind::Exit => {}
        }
    }

    fn args(&mut self, args: &'p [Arg]) {
        for arg in args {
            self.ground(&arg.ty, &arg.param);
            if let ArgValue::Expr(e) = &arg.value {
                self.expr(e);
                if !matches!(arg.ty, Type::Block(..)) {
                    self.same(&e.ty, &arg.ty, &arg.param);
                }
            }
        }
    }

    fn call(&mut self, call: &'p Call) {
        self.args(&call.args);
        call.type_args.iter().for_each(|t| self.ground(t, "a type argument"));
        self.ground(&call.result, "a result");
        let count = match &call.callee {
            Callee::Function(id) => self.p.functions[id.index()].params.len(),
            Callee::Action(id) => self.p.actions[id.index()].params.len(),
            Callee::ExternFunction(id) => self.p.extern_functions[id.index()].params.len(),
            Callee::ExternMethod { object, extern_id, method } => {
                self.expr(object);
                self.p.externs[extern_id.index()].methods[*method as usize].params.len()
            }
            Callee::Builtin(_, object) => {
                self.expr(object);
                call.args.len()
            }
            Callee::TableApply(_) => 0,
            Callee::ParserApply(_) | Callee::ControlApply(_) => call.args.len(),
        };
        self.that(count == call.args.len(), || "an argument per parameter".to_string());
    }

    fn expr(&mut self, e: &'p Expr) {
        self.ground(&e.ty, "an expression");
        match &e.kind {
            ExprKind::Const(value) => self.value(value, &e.ty),
            ExprKind::Local(id) => match self.frame.get(id.index()) {
                Some(local) => {
                    let ty = local.ty.clone();
                    self.same(&e.ty, &ty, &local.name);
                }
                None => self.found.push("a variable of another frame".to_string()),
            },
            ExprKind::CtorParam(_) | ExprKind::Instance(_) | ExprKind::This => {}
            ExprKind::Field(base, i) => {
                self.expr(base);
                let field = self.p.types.struct_info(&base.ty).and_then(|s| s.fields.get(*i as usize));
                match field.map(|f| f.ty.clone()) {
                    Some(ty) => self.same(&e.ty, &ty, "field"),
                    None => self.found.push("no such field".to_string()),
                }
            }
            ExprKind::TupleElement(base, i) => {
                self.expr(base);
                match &base.ty {
                    Type::Tuple(types) if (*i as usize) < types.len() => {
                        self.same(&e.ty, &types[*i as usize], "element")
                    }
                    _ => self.found.push("no such element".to_string()),
                }
            }
            ExprKind::StackElement { stack, index } => {
                self.expr(stack);
                self.expr(index);
                let numeric = matches!(index.ty, Type::Bits { .. });
                self.that(numeric, || "a stack index without width".to_string());
            }
            ExprKind::StackNext(base) | ExprKind::StackLast(base) | ExprKind::StackLastIndex(base) => self.expr(base),
            ExprKind::Slice { base, high, low } => {
                self.expr(base);
                self.same(&e.ty, &Type::bit(high + 1 - low), "slice");
            }
            ExprKind::SliceFrom { base, low, width } => {
                self.expr(base);
                self.expr(low);
                self.same(&e.ty, &Type::bit(*width), "slice");
            }
            ExprKind::Unary(_, a) => self.typed(a, &e.ty, "operand"),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, &e.ty),
            ExprKind::Ternary { cond, then, otherwise } => {
                self.typed(cond, &Type::Bool, "condition");
                self.typed(then, &e.ty, "value");
                self.typed(otherwise, &e.ty, "value");
            }
            ExprKind::Cast(a) => self.expr(a),
            ExprKind::Aggregate(elements) => {
                let types = crate::consteval::element_types(&self.p.types, &e.ty, elements.len());
                match types {
                    Some(types) => {
                        for (element, ty) in elements.iter().zip(&types) {
                            self.typed(element, ty, "element");
                        }
                    }
                    None => self.found.push("elements that do not fit their type".to_string()),
                }
            }
            ExprKind::Call(call) | ExprKind::ApplyHit(call) | ExprKind::ApplyMiss(call) => self.call(call),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: &'p Expr, b: &'p Expr, ty: &Type) {
        use BinaryOp::*;
        self.expr(a);
        self.expr(b);
        match op {
            Shl | Shr => {
                self.same(&a.ty, ty, "shift");
                let fits = matches!(b.ty, Type::Bits { signed: false, .. }) || a.ty == Type::Int;
                self.that(fits, || "the amount of a shift".to_string());
            }
            Concat => {}
            Eq | Ne | Lt | Le | Gt | Ge => self.same(&a.ty, &b.ty, "comparison"),
            And | Or => {
                self.same(&a.ty, &Type::Bool, "operand");
                self.same(&b.ty, &Type::Bool, "operand");
            }
            _ => {
                self.same(&a.ty, &b.ty, "operands");
                self.same(&a.ty, ty, "operands");
            }
        }
    }

    /// Reports a value that is not one of the type's.
    fn value(&mut self, value: &Value, ty: &Type) {
        let types = &self.p.types;
        let ok = match (value, types.underlying(ty)) {
            (Value::Bool(_), Type::Bool) | (Value::Int(_), Type::Int) | (Value::Str(_), Type::String) => true,
            (Value::Bits(v), Type::Bits { width, .. }) => v.width() == width,
            (Value::Varbit(v), Type::Varbit(max)) => v.width() <= max,
            (Value::Enum(i), Type::Enum(id)) => (*i as usize) < types.enums[id.index()].members.len(),
            (Value::Error(i), Type::Error) => (*i as usize) < self.p.errors.len(),
            (Value::MatchKind(i), Type::MatchKind) => (*i as usize) < self.p.match_kinds.len(),
            (Value::Invalid, Type::Header(_) | Type::HeaderUnion(_)) => true,
            (Value::Seq(values), composite) => match crate::consteval::element_types(types, &composite, values.len()) {
                Some(element_types) => {
                    for (v, t) in values.iter().zip(&element_types) {
                        self.value(v, t);
                    }
                    true
                }
                None => false,
            },
            (Value::Instance(_) | Value::Absent, _) => true,
            _ => false,
        };
        let ty = self.p.types.display(ty).to_string();
        self.that(ok, || format!("{value:?} is not a value of `{ty}`"));
    }
}
