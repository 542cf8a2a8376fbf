//! The syntax tree of a P4_16 program: plain data, one type per construct of the grammar.
//!
//! Long because it is the whole grammar in one place, and each type is a few lines.
//!
//! The parser builds the tree and `sema` reads it; nothing rewrites it. It records what the author wrote: names are not
//! resolved and types are not checked.
//!
//! Invariants:
//! - Every node has a [`Span`] into the original files (after preprocessing; tokens of a macro expansion have the span
//!   of the macro's use).
//! - Every expression has an [`ExprId`] and every declaration (also parameters, type parameters, fields, members,
//!   states, methods) a [`DeclId`]; both are dense, start at 0 and are unique in one [`Program`], so that a checker can
//!   keep its results in vectors of length [`Program::expr_count`] and [`Program::decl_count`].
//! - A path is one name with an optional leading dot (P4_16, "Name resolution"); what follows is member access. Name
//!   resolution decides whether the name in `E.member`, `C(args)` or `C.apply()` is a type or a value: both are
//!   [`ExprKind::Path`]. [`ExprKind::Type`] occurs only for what cannot be a path: `error`, base types and specialised
//!   types (`C<T>.apply()`), and for a type within an annotation.
//! - Parentheses are not kept; literals keep their value, width and signedness.
//!
//! It is one file on purpose: a catalogue to be read from top to bottom, without code except for a few accessors. Rule
//! names of the grammar are those of the P4_16 specification, appendix "P4 grammar".

use std::fmt;
use std::sync::Arc;

use base::Span;
use num_bigint::BigInt;

/// Identifies an expression within one [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExprId(pub u32);

/// Identifies a declaration within one [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DeclId(pub u32);

/// A whole program, with all included files in order.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Top-level declarations in source order.
    pub decls: Vec<Decl>,
    /// One past the largest [`ExprId`].
    pub expr_count: u32,
    /// One past the largest [`DeclId`].
    pub decl_count: u32,
}

/// An identifier and its span. Equality and hashing consider the text only.
#[derive(Clone)]
pub struct Name {
    /// The identifier.
    pub text: Arc<str>,
    /// Its span.
    pub span: Span,
}

impl Name {
    /// A name with a span.
    pub fn new(text: impl Into<Arc<str>>, span: Span) -> Name {
        Name { text: text.into(), span }
    }

    /// The identifier as a string slice.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.text == other.text
    }
}

impl Eq for Name {}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        &*self.text == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        &*self.text == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.text)
    }
}

/// `name` or `.name` (looked up in the global scope only).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Whether a leading dot was written.
    pub global: bool,
    /// The name.
    pub name: Name,
}

impl Path {
    /// The span of the name (without the dot).
    pub fn span(&self) -> Span {
        self.name.span
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.global { "." } else { "" }, self.name)
    }
}

// ---------------------------------------------------------------------------------------------------- annotations

/// `@name`, `@name(...)`, `@name[...]`, or a `@pragma name ...` line.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// The name after `@`.
    pub name: Name,
    /// The body after the name.
    pub body: AnnotationBody,
    /// Span of the whole construct.
    pub span: Span,
}

/// The body of an annotation.
#[derive(Clone, Debug)]
pub enum AnnotationBody {
    /// `@name`.
    Empty,
    /// `@name(...)` or `@pragma name ...`: free tokens with balanced parentheses.
    Unstructured {
        /// The tokens as written.
        tokens: Vec<AnnotationToken>,
        /// The same tokens parsed as a comma-separated expression list, where possible (`@name("x")`, `@id(3)`,
        /// `@field_list(A, B)`).
        exprs: Option<Vec<Expr>>,
    },
    /// `@name[expr, ...]`.
    List(Vec<Expr>),
    /// `@name[key = expr, ...]`.
    KeyValues(Vec<NamedExpr>),
}

/// One token of an unstructured annotation.
#[derive(Clone, Debug)]
pub struct AnnotationToken {
    /// Its spelling; for a string, the value without quotes.
    pub text: Arc<str>,
    /// Its class.
    pub kind: AnnotationTokenKind,
    /// Its span.
    pub span: Span,
}

/// Classes of annotation tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnnotationTokenKind {
    /// Identifier or keyword.
    Word,
    /// Integer literal.
    Int,
    /// String literal.
    String,
    /// Operator or punctuation.
    Symbol,
}

impl Annotation {
    /// The single string of `@name("text")`.
    pub fn as_string(&self) -> Option<&str> {
        match self.exprs()? {
            [Expr { kind: ExprKind::String(s), .. }] => Some(s),
            _ => None,
        }
    }

    /// The single integer literal of `@name(3)`.
    pub fn as_int(&self) -> Option<&BigInt> {
        match self.exprs()? {
            [Expr { kind: ExprKind::Int(lit), .. }] => Some(&lit.value),
            _ => None,
        }
    }

    /// The body as a list of expressions: `@name[a, b]`, or `@name(a, b)` where it parses as one.
    pub fn exprs(&self) -> Option<&[Expr]> {
        match &self.body {
            AnnotationBody::Empty | AnnotationBody::KeyValues(_) => None,
            AnnotationBody::Unstructured { exprs, .. } => exprs.as_deref(),
            AnnotationBody::List(exprs) => Some(exprs),
        }
    }
}

/// The first annotation with this name in a list.
pub fn find_annotation<'a>(annotations: &'a [Annotation], name: &str) -> Option<&'a Annotation> {
    annotations.iter().find(|a| a.name == *name)
}

// ---------------------------------------------------------------------------------------------------- declarations

/// A named declaration at any level: top level, in a parser or control, in a block, in an instantiation's body.
#[derive(Clone, Debug)]
pub struct Decl {
    /// Its id, unique in the program.
    pub id: DeclId,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// The declared name; the keyword for `error { }` and `match_kind { }`.
    pub name: Name,
    /// What it declares.
    pub kind: DeclKind,
    /// Span of the whole construct, without annotations.
    pub span: Span,
}

/// What a [`Decl`] declares.
#[derive(Clone, Debug)]
pub enum DeclKind {
    /// `const T name = value;`
    Const(ConstDecl),
    /// `T name;` or `T name = init;`
    Variable(VariableDecl),
    /// `T(args) name;` or `T(args) name = { methods };`
    Instantiation(Instantiation),
    /// `action name(params) { }`
    Action(ActionDecl),
    /// `table name { }`
    Table(TableDecl),
    /// `value_set<T>(size) name;`
    ValueSet(ValueSetDecl),
    /// `R name<T>(params) { }`
    Function(FunctionDecl),
    /// `extern R name<T>(params);`
    ExternFunction(Prototype),
    /// `extern name<T> { methods }`
    ExternObject(ExternObjectDecl),
    /// `parser name(params)(constructor params) { }`
    Parser(ParserDecl),
    /// `control name(params)(constructor params) { }`
    Control(ControlDecl),
    /// `parser name<T>(params);`
    ParserType(BlockTypeDecl),
    /// `control name<T>(params);`
    ControlType(BlockTypeDecl),
    /// `package name<T>(params);`
    PackageType(BlockTypeDecl),
    /// `header name<T> { }`
    Header(FieldsDecl),
    /// `header_union name<T> { }`
    HeaderUnion(FieldsDecl),
    /// `struct name<T> { }`
    Struct(FieldsDecl),
    /// `enum name { }` or `enum T name { }`
    Enum(EnumDecl),
    /// `error { }`
    Error(MembersDecl),
    /// `match_kind { }`
    MatchKind(MembersDecl),
    /// `typedef T name;`
    Typedef(TypedefDecl),
    /// `type T name;`
    NewType(TypeRef),
}

impl DeclKind {
    /// Whether it declares a type name.
    pub fn declares_type(&self) -> bool {
        use DeclKind::*;
        matches!(
            self,
            ExternObject(_)
                | Parser(_)
                | Control(_)
                | ParserType(_)
                | ControlType(_)
                | PackageType(_)
                | Header(_)
                | HeaderUnion(_)
                | Struct(_)
                | Enum(_)
                | Typedef(_)
                | NewType(_)
        )
    }

    /// The noun for it in messages: «constant», «table», …
    pub fn noun(&self) -> &'static str {
        use DeclKind::*;
        match self {
            Const(_) => "constant",
            Variable(_) => "variable",
            Instantiation(_) => "instance",
            Action(_) => "action",
            Table(_) => "table",
            ValueSet(_) => "value set",
            Function(_) => "function",
            ExternFunction(_) => "extern function",
            ExternObject(_) => "extern",
            Parser(_) => "parser",
            Control(_) => "control",
            ParserType(_) => "parser type",
            ControlType(_) => "control type",
            PackageType(_) => "package",
            Header(_) => "header",
            HeaderUnion(_) => "header union",
            Struct(_) => "struct",
            Enum(_) => "enum",
            Error(_) => "error list",
            MatchKind(_) => "match_kind list",
            Typedef(_) => "typedef",
            NewType(_) => "type",
        }
    }
}

/// `const T name = value;`
#[derive(Clone, Debug)]
pub struct ConstDecl {
    /// Its type.
    pub ty: TypeRef,
    /// Its value.
    pub value: Expr,
}

/// `T name = init;`
#[derive(Clone, Debug)]
pub struct VariableDecl {
    /// Its type.
    pub ty: TypeRef,
    /// Its initial value.
    pub init: Option<Expr>,
}

/// `T(args) name = { body };`
#[derive(Clone, Debug)]
pub struct Instantiation {
    /// The extern, parser, control or package type.
    pub ty: TypeRef,
    /// Constructor arguments.
    pub args: Vec<Argument>,
    /// Implementations of abstract methods and the instances that they use: only [`DeclKind::Function`] and
    /// [`DeclKind::Instantiation`].
    pub body: Option<Vec<Decl>>,
}

/// `action name(params) { body }`
#[derive(Clone, Debug)]
pub struct ActionDecl {
    /// Directed parameters first, then the action data (enforced by `sema`).
    pub params: Vec<Param>,
    /// Its statements.
    pub body: Block,
}

/// `value_set<T>(size) name;`
#[derive(Clone, Debug)]
pub struct ValueSetDecl {
    /// The element type.
    pub element: TypeRef,
    /// The size hint.
    pub size: Expr,
}

/// A function with a body.
#[derive(Clone, Debug)]
pub struct FunctionDecl {
    /// Return type, type parameters, parameters.
    pub proto: Prototype,
    /// Its statements.
    pub body: Block,
}

/// The signature of a function or method; the name is the declaration's.
#[derive(Clone, Debug)]
pub struct Prototype {
    /// Return type; [`TypeKind::Void`] if nothing is returned.
    pub result: TypeRef,
    /// `<T, U>`.
    pub type_params: Vec<TypeParam>,
    /// Parameters.
    pub params: Vec<Param>,
}

/// `extern name<T> { methods }`
#[derive(Clone, Debug)]
pub struct ExternObjectDecl {
    /// `<T, U>`.
    pub type_params: Vec<TypeParam>,
    /// Methods and constructors in source order; overloads have the same name.
    pub methods: Vec<Method>,
}

/// A method or constructor of an extern object.
#[derive(Clone, Debug)]
pub struct Method {
    /// Its id, unique in the program.
    pub id: DeclId,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its name; for a constructor, the extern's name.
    pub name: Name,
    /// Method, constructor or abstract method.
    pub kind: MethodKind,
    /// Its signature; the return type of a constructor is `void`.
    pub proto: Prototype,
    /// Span of the whole construct, without annotations.
    pub span: Span,
}

/// Kinds of [`Method`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MethodKind {
    /// Called on an instance.
    Method,
    /// Called to create an instance.
    Constructor,
    /// Implemented by the instantiation.
    Abstract,
}

/// `parser name(params)(constructor params) { locals states }`
#[derive(Clone, Debug)]
pub struct ParserDecl {
    /// `<T, U>`, an extension of the reference compiler: in the specification only parser *types* are generic.
    pub type_params: Vec<TypeParam>,
    /// Runtime parameters.
    pub params: Vec<Param>,
    /// Constructor parameters.
    pub constructor_params: Vec<Param>,
    /// Constants, variables, instances and value sets.
    pub locals: Vec<Decl>,
    /// States in source order.
    pub states: Vec<State>,
}

/// `control name(params)(constructor params) { locals apply { } }`
#[derive(Clone, Debug)]
pub struct ControlDecl {
    /// `<T, U>`, an extension of the reference compiler: in the specification only control *types* are generic.
    pub type_params: Vec<TypeParam>,
    /// Runtime parameters.
    pub params: Vec<Param>,
    /// Constructor parameters.
    pub constructor_params: Vec<Param>,
    /// Constants, variables, instances, actions and tables.
    pub locals: Vec<Decl>,
    /// The `apply` block.
    pub apply: Block,
}

/// A parser, control or package type: `control name<T>(params);`
#[derive(Clone, Debug)]
pub struct BlockTypeDecl {
    /// `<T, U>`.
    pub type_params: Vec<TypeParam>,
    /// Parameters; for a package, the constructor's.
    pub params: Vec<Param>,
}

/// Type parameters and fields of a struct, header or header union.
#[derive(Clone, Debug)]
pub struct FieldsDecl {
    /// `<T, U>`.
    pub type_params: Vec<TypeParam>,
    /// Fields in order.
    pub fields: Vec<Field>,
}

/// A field of a struct, header or header union.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its id, unique in the program.
    pub id: DeclId,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its type.
    pub ty: TypeRef,
    /// Its name.
    pub name: Name,
    /// Span of the whole construct, without annotations.
    pub span: Span,
}

/// `enum name { A, B }` or `enum T name { A = 1 }`
#[derive(Clone, Debug)]
pub struct EnumDecl {
    /// The underlying type of a serialisable enum.
    pub repr: Option<TypeRef>,
    /// Members in order.
    pub members: Vec<Member>,
}

/// The names in `error { }` or `match_kind { }`.
#[derive(Clone, Debug)]
pub struct MembersDecl {
    /// Members in order; none has a value.
    pub members: Vec<Member>,
}

/// A member of an enum, error or match_kind list.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its id, unique in the program.
    pub id: DeclId,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its name.
    pub name: Name,
    /// `= value` of a serialisable enum.
    pub value: Option<Expr>,
}

/// `typedef T name;`
#[derive(Clone, Debug)]
pub enum TypedefDecl {
    /// `typedef T name;`
    Type(TypeRef),
    /// `typedef struct S { } name;`: declares `S` (first) and `name`.
    Derived(Box<Decl>),
}

/// A type parameter.
#[derive(Clone, Debug)]
pub struct TypeParam {
    /// Its id, unique in the program.
    pub id: DeclId,
    /// Its name.
    pub name: Name,
}

/// A parameter of a function, method, action, parser, control or package.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its id, unique in the program.
    pub id: DeclId,
    /// Annotations before it (`@optional`).
    pub annotations: Vec<Annotation>,
    /// Its direction.
    pub direction: Direction,
    /// Its type.
    pub ty: TypeRef,
    /// Its name.
    pub name: Name,
    /// `= default`.
    pub default: Option<Expr>,
    /// Span of the whole construct, without annotations.
    pub span: Span,
}

/// Direction of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Directionless: a compile-time value, an instance, or action data.
    None,
    /// `in`.
    In,
    /// `out`.
    Out,
    /// `inout`.
    InOut,
}

// ---------------------------------------------------------------------------------------------------- parsers

/// `state name { body transition ...; }`
#[derive(Clone, Debug)]
pub struct State {
    /// Its id, unique in the program.
    pub id: DeclId,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its name.
    pub name: Name,
    /// Statements.
    pub body: Vec<Stmt>,
    /// `None` when there is no transition statement (an implicit `transition reject`).
    pub transition: Option<Transition>,
    /// Span of the whole construct, without annotations.
    pub span: Span,
}

/// `transition ...`
#[derive(Clone, Debug)]
pub struct Transition {
    /// The target.
    pub kind: TransitionKind,
    /// From `transition` to its end.
    pub span: Span,
}

/// The target of a [`Transition`].
#[derive(Clone, Debug)]
pub enum TransitionKind {
    /// `transition name;`
    Direct(Name),
    /// `transition select(args) { cases }`
    Select(Select),
}

/// `select(args) { cases }`
#[derive(Clone, Debug)]
pub struct Select {
    /// The expressions that are matched.
    pub args: Vec<Expr>,
    /// Cases in order.
    pub cases: Vec<SelectCase>,
}

/// `keyset: state;`
#[derive(Clone, Debug)]
pub struct SelectCase {
    /// What it matches.
    pub keyset: Keyset,
    /// The next state.
    pub next: Name,
    /// Span of the whole construct.
    pub span: Span,
}

/// A keyset expression: one element, or several in parentheses (P4_16, "Select expressions").
#[derive(Clone, Debug)]
pub struct Keyset {
    /// One element per key; a single `default` or `_` also matches any number of keys.
    pub elements: Vec<KeysetElement>,
    /// Span of the whole construct.
    pub span: Span,
}

/// The keyset for one key.
#[derive(Clone, Debug)]
pub struct KeysetElement {
    /// What it matches.
    pub kind: KeysetKind,
    /// Its span.
    pub span: Span,
}

/// The kinds of [`KeysetElement`].
#[derive(Clone, Debug)]
pub enum KeysetKind {
    /// A value, or a value set by name.
    Expr(Expr),
    /// `value &&& mask`.
    Mask(Expr, Expr),
    /// `low .. high`, both included.
    Range(Expr, Expr),
    /// `default`.
    Default,
    /// `_`.
    DontCare,
}

// ---------------------------------------------------------------------------------------------------- tables

/// `table name { properties }`
#[derive(Clone, Debug)]
pub struct TableDecl {
    /// Properties in source order; `sema` rejects duplicates.
    pub properties: Vec<TableProperty>,
}

impl TableDecl {
    /// The elements of `key = { }`.
    pub fn key(&self) -> Option<&[KeyElement]> {
        self.properties.iter().find_map(|p| match &p.kind {
            TablePropertyKind::Key(elements) => Some(elements.as_slice()),
            _ => None,
        })
    }

    /// The elements of `actions = { }`.
    pub fn actions(&self) -> Option<&[ActionRef]> {
        self.properties.iter().find_map(|p| match &p.kind {
            TablePropertyKind::Actions(actions) => Some(actions.as_slice()),
            _ => None,
        })
    }

    /// `(whether const, entries)` of `entries = { }`.
    pub fn entries(&self) -> Option<(bool, &[Entry])> {
        self.properties.iter().find_map(|p| match &p.kind {
            TablePropertyKind::Entries(entries) => Some((p.is_const, entries.as_slice())),
            _ => None,
        })
    }

    /// Another property by name: `default_action`, `size`, or one defined by the architecture.
    pub fn property(&self, name: &str) -> Option<(&TableProperty, &Expr)> {
        self.properties.iter().find_map(|p| match &p.kind {
            TablePropertyKind::Value(value) if p.name == *name => Some((p, value)),
            _ => None,
        })
    }
}

/// A table property.
#[derive(Clone, Debug)]
pub struct TableProperty {
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Whether `const` was written.
    pub is_const: bool,
    /// `key`, `actions`, `entries`, `default_action`, `size`, …
    pub name: Name,
    /// Its value.
    pub kind: TablePropertyKind,
    /// Span of the whole construct, without annotations.
    pub span: Span,
}

/// The value of a table property.
#[derive(Clone, Debug)]
pub enum TablePropertyKind {
    /// `key = { elements }`
    Key(Vec<KeyElement>),
    /// `actions = { actions }`
    Actions(Vec<ActionRef>),
    /// `entries = { entries }`
    Entries(Vec<Entry>),
    /// Any other: `name = expr;` (a `default_action` is a path or a call of a path).
    Value(Expr),
}

/// `expr : match_kind annotations;`
#[derive(Clone, Debug)]
pub struct KeyElement {
    /// The expression whose value is looked up.
    pub expr: Expr,
    /// `exact`, `lpm`, …
    pub match_kind: Name,
    /// Annotations after it.
    pub annotations: Vec<Annotation>,
    /// Span of the whole construct.
    pub span: Span,
}

/// An action in an `actions` list or in an entry.
#[derive(Clone, Debug)]
pub struct ActionRef {
    /// Its id, unique in the program (an action reference is checked like a call expression).
    pub id: ExprId,
    /// Annotations before it (`@defaultonly`, `@tableonly`); empty in an entry.
    pub annotations: Vec<Annotation>,
    /// The action.
    pub path: Path,
    /// Arguments; `None` without parentheses.
    pub args: Option<Vec<Argument>>,
    /// Span of the whole construct, without annotations.
    pub span: Span,
}

/// `const priority = 3: keyset : action annotations;`
#[derive(Clone, Debug)]
pub struct Entry {
    /// Whether this entry alone is `const`.
    pub is_const: bool,
    /// `priority = value:`
    pub priority: Option<Expr>,
    /// What it matches.
    pub keyset: Keyset,
    /// What it does.
    pub action: ActionRef,
    /// Annotations after it.
    pub annotations: Vec<Annotation>,
    /// Span of the whole construct.
    pub span: Span,
}

// ---------------------------------------------------------------------------------------------------- statements

/// `annotations { statements }`
#[derive(Clone, Debug)]
pub struct Block {
    /// Annotations before it (`@atomic`).
    pub annotations: Vec<Annotation>,
    /// Statements and local declarations in order.
    pub stmts: Vec<Stmt>,
    /// From `{` to `}`.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Span of the whole construct.
    pub span: Span,
}

/// What a [`Stmt`] does.
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// `;`
    Empty,
    /// `target = value;` or `target op= value;`
    Assign {
        /// The target.
        target: Expr,
        /// The operator of a compound assignment.
        op: Option<BinaryOp>,
        /// The value.
        value: Expr,
    },
    /// `f(args);`, `x.m(args);`, and a direct application `C.apply(args);`: always [`ExprKind::Call`].
    Call(Expr),
    /// A local constant, variable or instance.
    Decl(Box<Decl>),
    /// `{ }`
    Block(Block),
    /// `if (cond) then else otherwise`
    If {
        /// The condition.
        cond: Expr,
        /// Executed when true.
        then: Box<Stmt>,
        /// Executed when false.
        otherwise: Option<Box<Stmt>>,
    },
    /// `return value;`
    Return(Option<Expr>),
    /// `exit;`
    Exit,
    /// `break;`
    Break,
    /// `continue;`
    Continue,
    /// `switch (subject) { cases }`
    Switch {
        /// A table's `action_run` or a value.
        subject: Expr,
        /// Cases in order.
        cases: Vec<SwitchCase>,
    },
    /// `for (init; cond; update) body`
    For(Box<ForStmt>),
    /// `for (T name in collection) body`
    ForIn(Box<ForInStmt>),
}

/// One label of a switch statement.
#[derive(Clone, Debug)]
pub struct SwitchCase {
    /// `default`, an action name, or a constant expression.
    pub label: SwitchLabel,
    /// `None` falls through to the next case.
    pub body: Option<Block>,
    /// Span of the whole construct.
    pub span: Span,
}

/// The label of a [`SwitchCase`].
#[derive(Clone, Debug)]
pub enum SwitchLabel {
    /// `default`, with its span.
    Default(Span),
    /// An expression.
    Expr(Expr),
}

/// `for (init; cond; update) body`
#[derive(Clone, Debug)]
pub struct ForStmt {
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Variable declarations, assignments and calls, executed once.
    pub init: Vec<Stmt>,
    /// Tested before each iteration.
    pub cond: Expr,
    /// Assignments and calls, executed after each iteration.
    pub update: Vec<Stmt>,
    /// The loop body.
    pub body: Stmt,
}

/// `for (T name in collection) body`
#[derive(Clone, Debug)]
pub struct ForInStmt {
    /// Annotations before `for`.
    pub annotations: Vec<Annotation>,
    /// The loop variable: [`DeclKind::Variable`] without initialiser.
    pub variable: Decl,
    /// What the loop iterates over.
    pub collection: ForCollection,
    /// The loop body.
    pub body: Stmt,
}

/// What a `for`-`in` loop iterates over.
#[derive(Clone, Debug)]
pub enum ForCollection {
    /// A list or header stack.
    Expr(Expr),
    /// `low .. high`, both included.
    Range(Expr, Expr),
}

// ---------------------------------------------------------------------------------------------------- types

/// A type as written.
#[derive(Clone, Debug)]
pub struct TypeRef {
    /// Which type.
    pub kind: TypeKind,
    /// Its span.
    pub span: Span,
}

/// Which type a [`TypeRef`] names.
#[derive(Clone, Debug)]
pub enum TypeKind {
    /// `bool`
    Bool,
    /// `error`
    Error,
    /// `match_kind`
    MatchKind,
    /// `string`
    String,
    /// `void`
    Void,
    /// `int`: arbitrary precision
    Int,
    /// `bit<width>`; `bit` alone has the literal width 1.
    Bit(Box<Expr>),
    /// `int<width>`
    IntN(Box<Expr>),
    /// `varbit<max width>`
    Varbit(Box<Expr>),
    /// A declared type or type parameter, specialised when `args` is not empty.
    Named {
        /// Its name.
        path: Path,
        /// `<T, U>`.
        args: Vec<TypeRef>,
    },
    /// `T[size]`
    Array(Box<TypeRef>, Box<Expr>),
    /// `tuple<T, U>`
    Tuple(Vec<TypeRef>),
    /// `list<T>`
    List(Box<TypeRef>),
    /// `_`: to be inferred.
    DontCare,
}

// ---------------------------------------------------------------------------------------------------- expressions

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Its id, unique in the program.
    pub id: ExprId,
    /// What it computes.
    pub kind: ExprKind,
    /// Its span.
    pub span: Span,
}

/// What an [`Expr`] computes.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// `true`, `false`
    Bool(bool),
    /// An integer literal.
    Int(IntLiteral),
    /// A string literal without its quotes; backslashes are kept as written (P4_16, section "String literals").
    String(Arc<str>),
    /// `name` or `.name`: a value, or a type before `.` or `(`.
    Path(Path),
    /// `this`
    This,
    /// A type that is not a plain path, before `.`: `error.X`, `C<T>.apply()`.
    Type(TypeRef),
    /// `_` as an argument: the value is discarded.
    DontCare,
    /// `...` as an argument, initialiser or last list element: the default value.
    Default,
    /// `{#}`: the invalid header.
    InvalidHeader,
    /// `base.name`
    Member(Box<Expr>, Name),
    /// `base[index]`
    Index(Box<Expr>, Box<Expr>),
    /// `base[high:low]`
    Slice {
        /// The value.
        base: Box<Expr>,
        /// Highest bit.
        high: Box<Expr>,
        /// Lowest bit.
        low: Box<Expr>,
    },
    /// `base[low +: width]`
    SliceFrom {
        /// The value.
        base: Box<Expr>,
        /// Lowest bit, need not be constant.
        low: Box<Expr>,
        /// Number of bits.
        width: Box<Expr>,
    },
    /// `op operand`
    Unary(UnaryOp, Box<Expr>),
    /// `left op right`
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `cond ? then : otherwise`
    Ternary {
        /// The condition.
        cond: Box<Expr>,
        /// Value when true.
        then: Box<Expr>,
        /// Value when false.
        otherwise: Box<Expr>,
    },
    /// `(T) operand`
    Cast(TypeRef, Box<Expr>),
    /// `callee<type args>(args)`: function, method, action or constructor call.
    Call {
        /// What is called: a path, a member, or a type.
        callee: Box<Expr>,
        /// `<T, U>`; empty when none were written.
        type_args: Vec<TypeRef>,
        /// Arguments in order.
        args: Vec<Argument>,
    },
    /// `{ a, b }`; the last may be [`ExprKind::Default`].
    List(Vec<Expr>),
    /// `{ a = 1, b = 2 }`, `{ a = 1, ... }`
    Record {
        /// Fields in order.
        fields: Vec<NamedExpr>,
        /// The span of a final `...`.
        dots: Option<Span>,
    },
    /// A placeholder where the parser reported an error; never in a program without errors.
    Missing,
}

/// `name = value`
#[derive(Clone, Debug)]
pub struct NamedExpr {
    /// Left of `=`.
    pub name: Name,
    /// Right of `=`.
    pub value: Expr,
    /// Span of the whole construct.
    pub span: Span,
}

/// An argument of a call: `value`, `name = value`, `_`, or `name = _`.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The parameter's name.
    pub name: Option<Name>,
    /// The value; [`ExprKind::DontCare`] for `_`.
    pub value: Expr,
    /// Span of the whole construct.
    pub span: Span,
}

/// An integer literal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IntLiteral {
    /// The value as written, not yet reduced to the width.
    pub value: BigInt,
    /// Width and signedness.
    pub ty: IntLiteralType,
    /// 2, 8, 10 or 16 (for printing).
    pub radix: u8,
}

/// The type of an integer literal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntLiteralType {
    /// `3`: `int`.
    Int,
    /// `8w3`: `bit<8>`.
    Bit(u32),
    /// `8s3`: `int<8>`.
    IntN(u32),
}

/// Prefix operators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `+`
    Plus,
    /// `~`
    BitNot,
    /// `!`
    Not,
}

/// Infix operators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinaryOp {
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Mod,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `|+|`
    AddSat,
    /// `|-|`
    SubSat,
    /// `++`
    Concat,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `&`
    BitAnd,
    /// `^`
    BitXor,
    /// `|`
    BitOr,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `&&`
    And,
    /// `||`
    Or,
}

impl UnaryOp {
    /// Its spelling.
    pub fn symbol(self) -> &'static str {
        match self {
            UnaryOp::Neg => "-",
            UnaryOp::Plus => "+",
            UnaryOp::BitNot => "~",
            UnaryOp::Not => "!",
        }
    }
}

impl BinaryOp {
    /// Its spelling.
    pub fn symbol(self) -> &'static str {
        use BinaryOp::*;
        match self {
            Mul => "*",
            Div => "/",
            Mod => "%",
            Add => "+",
            Sub => "-",
            AddSat => "|+|",
            SubSat => "|-|",
            Concat => "++",
            Shl => "<<",
            Shr => ">>",
            BitAnd => "&",
            BitXor => "^",
            BitOr => "|",
            Lt => "<",
            Le => "<=",
            Gt => ">",
            Ge => ">=",
            Eq => "==",
            Ne => "!=",
            And => "&&",
            Or => "||",
        }
    }
}
