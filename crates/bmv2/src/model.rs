//! The program of the JSON with names resolved to indices: the result of reading and the input of lowering.
//!
//! Invariants: every index is in range; expressions have the types that their contexts require (`expressions.rs`);
//! every node that the control graph names exists, and the graph has no cycle (`control.rs`).

use crate::locations::Location;
use base::Bits;
use base::entry::{KeyMatch, MatchKind};
use ir::HashAlgorithm;
use num_bigint::BigInt;
use std::collections::HashMap;

/// A program.
#[derive(Default, Debug)]
pub(crate) struct Model {
    pub header_types: Vec<HeaderType>,
    pub headers: Vec<Header>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Union>,
    pub union_stacks: Vec<UnionStack>,
    /// Names of errors, by value.
    pub errors: Vec<String>,
    pub value_sets: Vec<ValueSet>,
    pub states: Vec<State>,
    pub first_state: Option<usize>,
    pub deparser: Deparser,
    pub counters: Vec<Counter>,
    pub meters: Vec<Meter>,
    pub registers: Vec<Register>,
    pub calculations: Vec<Calculation>,
    /// The port that means drop, if it is not simple_switch's.
    pub drop_port: Option<u64>,
    /// Calculations that have parameters.
    pub parametric: Vec<ir::Calculation>,
    pub checksums: Vec<Checksum>,
    pub actions: Vec<Action>,
    pub ingress: Pipeline,
    pub egress: Pipeline,
    pub profiles: Vec<Profile>,
    pub field_lists: Vec<FieldList>,
    pub learn_lists: Vec<LearnList>,
    /// The fields that simple_switch uses, by its names for them.
    pub well_known: HashMap<String, Field>,
}

#[derive(Debug)]
pub(crate) struct FieldType {
    pub name: String,
    /// In bits; for a varbit field the maximum.
    pub width: u32,
    pub signed: bool,
    pub saturating: bool,
    pub varbit: bool,
}

#[derive(Debug)]
pub(crate) struct HeaderType {
    pub name: String,
    pub fields: Vec<FieldType>,
    /// The number of bits of its varbit field; in it, [`Expr::Local`] is a field of the header itself.
    pub length: Option<Expr>,
}

#[derive(Debug)]
pub(crate) struct Header {
    pub name: String,
    pub ty: usize,
    pub metadata: bool,
    /// The union it is a member of.
    pub union: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Stack {
    pub name: String,
    pub ty: usize,
    pub elements: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Union {
    pub members: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct UnionStack {
    pub name: String,
    pub elements: Vec<usize>,
}

/// A field of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Field {
    pub header: usize,
    pub field: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnaryOp {
    BitNot,
    Not,
    DataToBool,
    BoolToData,
    Valid,
    ValidUnion,
    LastIndex,
    Size,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Shl,
    Shr,
    BitAnd,
    BitOr,
    BitXor,
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
    And,
    Or,
    TwosComplement,
    SaturateUnsigned,
    SaturateSigned,
}

/// An expression. Numbers are integers of any size.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Number(BigInt),
    Bool(bool),
    Field(Field),
    /// A header's validity as a number.
    ValidField(usize),
    /// Action data of the table entry.
    Local(usize),
    Register(usize, Box<Expr>),
    /// A field of the last element of a stack.
    LastField(usize, usize),
    /// A field of a member of the last element of a stack of unions: stack, member, field.
    LastMemberField(usize, usize, usize),
    Header(usize),
    Stack(usize),
    Union(usize),
    UnionStack(usize),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// Condition, value if it holds, value if it does not.
    Choice(Box<[Expr; 3]>),
    FieldOf(Box<Expr>, usize),
    MemberOf(Box<Expr>, usize),
    Element(usize, Box<Expr>),
    UnionElement(usize, Box<Expr>),
}

#[derive(Default, Debug)]
pub(crate) struct ValueSet {
    pub name: String,
    pub width: u32,
    pub size: u64,
    /// Names and widths in bits of the parts of a value, from the transition that uses the set.
    pub parts: Vec<(String, u32)>,
    /// Masks, part by part, under which transitions compare members.
    pub masks: Vec<Vec<Bits>>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub name: String,
    pub location: Location,
    pub ops: Vec<ParserOp>,
    pub key: Vec<KeyPart>,
    pub transitions: Vec<Transition>,
    /// The next state if no transition matches; `None` ends the parser.
    pub default: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum ParserOp {
    Extract {
        to: ExtractTo,
        length: Option<Expr>,
    },
    Set {
        /// `None` is a field of 0 bits.
        to: Option<Field>,
        value: ParserValue,
    },
    Verify {
        condition: Expr,
        error: Expr,
    },
    /// A number of bits.
    Advance(Expr),
    /// A primitive and its name.
    Primitive(String, Call),
}

#[derive(Debug)]
pub(crate) enum ExtractTo {
    Header(usize),
    Stack(usize),
    /// Stack of unions, and member.
    UnionStack(usize, usize),
}

#[derive(Debug)]
pub(crate) enum ParserValue {
    Expr(Expr),
    /// Bits ahead of the cursor: offset and width.
    Lookahead(u32, u32),
}

#[derive(Debug)]
pub(crate) enum KeyPart {
    Expr { value: Expr, width: u32 },
    Lookahead(u32, u32),
}

impl KeyPart {
    pub fn width(&self) -> u32 {
        match self {
            KeyPart::Expr { width, .. } => *width,
            KeyPart::Lookahead(_, width) => *width,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Transition {
    pub on: TransitionOn,
    pub next: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum TransitionOn {
    /// Value and mask for each part of the key.
    Value(Vec<(Bits, Option<Bits>)>),
    /// A value set, and the index of its mask.
    Set(usize, Option<usize>),
}

#[derive(Default, Debug)]
pub(crate) struct Deparser {
    pub calls: Vec<Call>,
    pub order: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Counter {
    pub name: String,
    pub location: Location,
    pub size: u64,
    /// The table of a direct counter.
    pub table: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Meter {
    pub name: String,
    pub location: Location,
    pub bytes: bool,
    pub size: u64,
    /// Whether it is a table's direct meter, and the field that receives the colour.
    pub direct: bool,
    pub result: Option<Field>,
}

#[derive(Debug)]
pub(crate) struct Register {
    pub name: String,
    pub location: Location,
    pub size: u64,
    pub width: u32,
}

#[derive(Debug)]
pub(crate) enum Input {
    Field(Field),
    Constant(Bits),
    Header(usize),
}

#[derive(Debug)]
pub(crate) struct Calculation {
    pub algorithm: HashAlgorithm,
    pub input: Vec<Input>,
    pub payload: bool,
}

#[derive(Debug)]
pub(crate) struct Checksum {
    pub name: String,
    pub location: Location,
    pub target: Field,
    /// `None`: the checksum of an IPv4 header itself, with its target as zero.
    pub calculation: Option<usize>,
    pub verify: bool,
    pub update: bool,
    pub condition: Option<Expr>,
}

#[derive(Debug)]
pub(crate) struct Action {
    pub name: String,
    pub params: Vec<(String, u32)>,
    pub calls: Vec<Call>,
}

/// A call of a primitive.
#[derive(Debug)]
pub(crate) struct Call {
    pub primitive: Primitive,
    pub location: Location,
}

/// A target of an assignment.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A field of 0 bits.
    Nowhere,
    Field(Field),
    FieldOf(Expr, usize),
    LastField(usize, usize),
    Register(usize, Expr),
}

#[derive(Debug)]
pub(crate) enum Primitive {
    Assign(Target, Expr),
    AssignVarbit(Field, Field),
    AssignHeader(Expr, Expr),
    AssignUnion(Expr, Expr),
    AssignStack(usize, usize),
    AssignUnionStack(usize, usize),
    Push(StackRef, usize),
    Pop(StackRef, usize),
    /// Makes a header valid; with `false` its fields keep their values.
    AddHeader(Expr, bool),
    RemoveHeader(Expr),
    /// The header whose `egress_spec` and `mcast_grp` are set, if it is not that of the standard metadata.
    MarkToDrop(Option<usize>),
    Count(usize, Expr),
    ExecuteMeter(usize, Expr, Target),
    RegisterRead(Target, usize, Expr),
    RegisterWrite(usize, Expr, Expr),
    /// Target, base, calculation, size.
    Hash(Target, Expr, usize, Expr),
    Random(Target, Expr, Expr),
    /// A learn list's id.
    Digest(Expr),
    /// Session, field list.
    Clone(Expr, Expr),
    Resubmit(Expr),
    Recirculate(Expr),
    Truncate(Expr),
    Exit,
    Log(String, Vec<Expr>),
    /// Condition; `assert` or `assume`.
    Assert(Expr, &'static str),
    Nothing,
    Jump(usize),
    JumpIfZero(Expr, usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum StackRef {
    Headers(usize),
    Unions(usize),
}

#[derive(Default, Debug)]
pub(crate) struct Pipeline {
    pub nodes: Vec<Node>,
    pub first: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum Node {
    Table(Box<Table>),
    Conditional {
        name: String,
        condition: Expr,
        location: Location,
        then: Option<usize>,
        other: Option<usize>,
    },
    /// Action and next node.
    Action {
        action: usize,
        next: Option<usize>,
    },
}

#[derive(Debug)]
pub(crate) struct Table {
    pub name: String,
    pub location: Location,
    pub keys: Vec<Key>,
    /// Indices of actions.
    pub actions: Vec<usize>,
    pub next: Next,
    /// Position in `actions`, and arguments.
    pub default: Option<(usize, Vec<Bits>)>,
    pub const_default: bool,
    pub entries: Option<Vec<Entry>>,
    pub size: u64,
    pub with_counters: bool,
    pub idle_timeout: bool,
    pub meter: Option<usize>,
    pub profile: Option<usize>,
    /// Generated for a direct call of an action: the control plane does not see it.
    pub hidden: bool,
}

#[derive(Debug)]
pub(crate) enum Next {
    HitMiss(Option<usize>, Option<usize>),
    /// By position in `actions`; and the next node if there is no default action.
    Actions(Vec<Option<usize>>, Option<usize>),
}

#[derive(Debug)]
pub(crate) struct Key {
    pub name: String,
    pub kind: MatchKind,
    pub width: u32,
    pub value: Expr,
    pub mask: Option<Bits>,
    /// A field of 0 bits; represented as a key of one bit with value 0.
    pub empty: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub key: Vec<KeyMatch>,
    /// The lowest number has the highest priority.
    pub priority: u32,
    /// Position in the table's actions.
    pub action: usize,
    pub args: Vec<Bits>,
}

#[derive(Debug)]
pub(crate) struct Profile {
    pub name: String,
    pub location: Location,
    pub size: u64,
    pub selector: Option<Selector>,
}

#[derive(Debug)]
pub(crate) struct Selector {
    pub algorithm: HashAlgorithm,
    pub input: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct FieldList {
    pub id: u32,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct LearnList {
    pub id: u32,
    pub name: String,
    pub location: Location,
    pub fields: Vec<Field>,
}

impl Model {
    pub fn field(&self, field: Field) -> &FieldType {
        &self.header_types[self.headers[field.header].ty].fields[field.field]
    }

    pub fn header_type(&self, header: usize) -> &HeaderType {
        &self.header_types[self.headers[header].ty]
    }

    /// The name of a field in tables and field lists.
    pub fn field_name(&self, field: Field) -> String {
        format!("{}.{}", self.headers[field.header].name, self.field(field).name)
    }
}
