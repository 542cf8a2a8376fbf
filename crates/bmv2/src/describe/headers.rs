//! A program's headers and metadata as instances of bmv2's header types, and the fields that expressions refer to.
//!
//! The names are p4c's: the struct of headers has no name of its own (`hdr.ipv4` is `ipv4`), fields of user metadata
//! are fields `STRUCT.FIELD` of one header `scalars`, headers in user metadata are `userMetadata.NAME`, the
//! architecture's metadata are a header of their own. A struct with nested structs is flattened, and all its fields get
//! numbered names.

use super::{is_header_like, object};
use base::Bits;
use sema::TypedProgram;
use sema::typed::{Annotation, Builtin, Callee, Direction, Expr, ExprKind, InstanceId, InstanceOf, find_annotation};
use sema::types::{FieldInfo, StructId, Type, TypeTable};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// Most fields and elements in the description of one struct or header, which nested structs and stacks multiply. A
/// quarter of `lower`'s limit for a variable, since a description takes some hundred bytes for each.
const LEAVES_MAX: usize = 1 << 16;
const SCALARS: &str = "scalars";
const SCALARS_TYPE: &str = "scalars_0";

/// A step of a path into a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Field(u32),
    Element(u32),
}

/// The target of a path into a struct.
#[derive(Clone)]
enum Place {
    /// A header instance.
    Header(String),
    /// A field of a header instance.
    Field(String, String),
}

/// A field of an instance, and the mask of its bits that are used.
pub struct Reference {
    instance: String,
    field: String,
    mask: Option<Bits>,
}

impl Reference {
    /// The target of a key.
    pub fn target(&self) -> Value {
        json!([self.instance, self.field])
    }

    /// A typed value of the format.
    pub fn value(&self) -> Value {
        json!({ "type": "field", "value": self.target() })
    }

    /// The mask of a key.
    pub fn mask(&self) -> Value {
        self.mask.as_ref().map_or(Value::Null, |mask| super::hex(mask).into())
    }
}

/// All header instances of a program.
pub struct Layout<'a> {
    types: &'a TypeTable,
    header_types: Vec<Value>,
    types_done: HashSet<StructId>,
    scalars: Vec<(String, u32)>,
    headers: Vec<Value>,
    names: HashSet<String>,
    stacks: Vec<Value>,
    union_types: Vec<Value>,
    unions: Vec<Value>,
    union_stacks: Vec<Value>,
    field_lists: Vec<(u64, Vec<Value>)>,
    places: HashMap<(StructId, Vec<Step>), Place>,
    structs_done: HashSet<StructId>,
    /// Number of scalars for targets that are no fields themselves.
    computed: usize,
    has_standard_metadata: bool,
}

/// A part of a struct that is no struct itself.
struct Leaf<'a> {
    path: Vec<Step>,
    name: String,
    ty: Type,
    annotations: &'a [Annotation],
}

/// Calls `f` for the package's parsers and controls, with the names of their parameters in the package's constructor.
pub fn for_each_block(typed: &TypedProgram, f: &mut dyn FnMut(&str, InstanceOf)) {
    fn visit(typed: &TypedProgram, id: InstanceId, f: &mut dyn FnMut(&str, InstanceOf)) {
        for arg in &typed.instance(id).args {
            let Some(child) = arg.value.as_instance() else { continue };
            match typed.instance(child).of {
                InstanceOf::Package(_) => visit(typed, child, f),
                of => f(&arg.name, of),
            }
        }
    }
    if let Some(main) = typed.main {
        visit(typed, main, f);
    }
}

impl<'a> Layout<'a> {
    /// The layout of the parameters of a program's blocks.
    pub fn new(typed: &'a TypedProgram) -> Layout<'a> {
        let mut layout = Layout {
            types: &typed.types,
            header_types: Vec::new(),
            types_done: HashSet::new(),
            scalars: Vec::new(),
            headers: vec![
                json!({ "name": SCALARS, "id": 0, "header_type": SCALARS_TYPE, "metadata": true, "pi_omit": true }),
            ],
            names: HashSet::from([SCALARS.to_string()]),
            stacks: Vec::new(),
            union_types: Vec::new(),
            unions: Vec::new(),
            union_stacks: Vec::new(),
            field_lists: Vec::new(),
            places: HashMap::new(),
            structs_done: HashSet::new(),
            computed: 0,
            has_standard_metadata: false,
        };
        // The architecture's metadata come first, then the struct that a parser fills, then the others.
        let mut params: Vec<(u8, StructId, bool)> = Vec::new();
        for_each_block(typed, &mut |_, of| {
            let (of_parser, list) = match of {
                InstanceOf::Parser(id) => (true, &typed.parsers[id.index()].params),
                InstanceOf::Control(id) => (false, &typed.controls[id.index()].params),
                _ => return,
            };
            for param in list {
                let Type::Struct(id) = param.ty else { continue };
                let filled = of_parser && param.direction == Direction::Out;
                let order = if layout.architecture_name(id).is_some() { 0 } else { 2 - u8::from(filled) };
                params.push((order, id, filled));
            }
        });
        params.sort_by_key(|(order, _, _)| *order);
        for (_, id, filled) in params {
            if layout.structs_done.insert(id) {
                layout.add(id, filled);
            }
        }
        layout
    }

    /// The instance name of an architecture's metadata struct; `None` for other structs.
    fn architecture_name(&self, id: StructId) -> Option<String> {
        let name = &*self.types.fields_of(id).name;
        match name {
            "standard_metadata_t" => Some("standard_metadata".to_string()),
            _ if name.starts_with("psa_") || name.starts_with("pna_") => {
                Some(name.strip_suffix("_t").unwrap_or(name).to_string())
            }
            _ => None,
        }
    }

    /// The parts of a struct or header in order, with p4c's names.
    fn leaves(&self, id: StructId) -> Vec<Leaf<'a>> {
        let mut found = Vec::new();
        self.collect(id, &mut Vec::new(), &mut Vec::new(), &mut found);
        if found.iter().any(|(leaf, _)| leaf.path.len() > 1) {
            for (at, (leaf, names)) in found.iter_mut().enumerate() {
                leaf.name = format!("_{}{at}", names.join("_"));
            }
        }
        found.into_iter().map(|(leaf, _)| leaf).collect()
    }

    fn collect(
        &self,
        id: StructId,
        path: &mut Vec<Step>,
        names: &mut Vec<String>,
        into: &mut Vec<(Leaf<'a>, Vec<String>)>,
    ) {
        for (at, field) in self.types.fields_of(id).fields.iter().enumerate() {
            if into.len() > LEAVES_MAX {
                return;
            }
            path.push(Step::Field(at as u32));
            names.push(control_name(field));
            match self.types.underlying(&field.ty) {
                Type::Struct(inner) => self.collect(inner, path, names, into),
                ty => {
                    let leaf =
                        Leaf { path: path.clone(), name: control_name(field), ty, annotations: &field.annotations };
                    into.push((leaf, names.clone()));
                }
            }
            names.pop();
            path.pop();
        }
    }

    /// Adds the instances of a struct that is a parameter of blocks.
    fn add(&mut self, id: StructId, filled: bool) {
        if let Some(name) = self.architecture_name(id) {
            self.has_standard_metadata |= name == "standard_metadata";
            let leaves = self.leaves(id);
            let mut fields: Vec<(String, u32)> =
                leaves.iter().map(|leaf| (leaf.name.clone(), self.width(&leaf.ty))).collect();
            pad(&mut fields, "_padding");
            self.header_type(
                &name,
                fields.into_iter().map(|(name, width)| json!([name, width, false])).collect(),
                None,
            );
            self.instance(&name, &name, true);
            for leaf in leaves {
                self.places.insert((id, leaf.path), Place::Field(name.clone(), leaf.name));
            }
            return;
        }
        let prefix = if filled { "" } else { "userMetadata." };
        let of = self.types.fields_of(id).name.clone();
        let (headers, others): (Vec<Leaf>, Vec<Leaf>) =
            self.leaves(id).into_iter().partition(|leaf| is_header_like(&leaf.ty));
        for leaf in others {
            let width = self.width(&leaf.ty);
            let reference = self.scalar_named(format!("{of}.{}", leaf.name), width);
            for list in field_lists(leaf.annotations) {
                match self.field_lists.iter_mut().find(|(index, _)| *index == list) {
                    Some((_, elements)) => elements.push(reference.value()),
                    None => self.field_lists.push((list, vec![reference.value()])),
                }
            }
            self.places.insert((id, leaf.path), Place::Field(reference.instance, reference.field));
        }
        // Single headers, then stacks, then unions.
        let rank = |leaf: &Leaf| match leaf.ty {
            Type::Header(_) => 0,
            Type::Stack(..) => 1,
            _ => 2,
        };
        let mut headers = headers;
        headers.sort_by_key(rank);
        for leaf in headers {
            self.header(id, leaf.path, &format!("{prefix}{}", leaf.name), &leaf.ty);
        }
    }

    /// Adds a header, stack or union, and records the target of its path. Returns the id of a header or union.
    fn header(&mut self, root: StructId, path: Vec<Step>, name: &str, ty: &Type) -> Option<usize> {
        match ty {
            Type::Header(id) => {
                let type_name = self.declare(*id);
                let number = self.instance(name, &type_name, false);
                self.places.insert((root, path), Place::Header(name.to_string()));
                number
            }
            Type::HeaderUnion(id) => {
                let info = self.types.fields_of(*id);
                let (mut members, mut ids) = (Vec::new(), Vec::new());
                for (at, field) in info.fields.iter().enumerate() {
                    let inner = [path.clone(), vec![Step::Field(at as u32)]].concat();
                    ids.extend(self.header(root, inner, &format!("{name}.{}", field.name), &field.ty));
                    if let Type::Header(of) = field.ty {
                        members.push(json!([&*field.name, self.declare(of)]));
                    }
                }
                let union_type = info.name.to_string();
                if self.types_done.insert(*id) {
                    self.union_types
                        .push(json!({ "name": union_type, "id": self.union_types.len(), "headers": members }));
                }
                let number = self.unions.len();
                self.unions.push(json!({
                    "name": name, "id": number, "union_type": union_type, "header_ids": ids, "pi_omit": true,
                }));
                Some(number)
            }
            Type::Stack(element, size) => {
                let mut ids = Vec::new();
                for at in 0..*size {
                    let inner = [path.clone(), vec![Step::Element(at)]].concat();
                    ids.extend(self.header(root, inner, &format!("{name}[{at}]"), element));
                }
                let of = self.types.struct_info(element).map_or_else(String::new, |info| info.name.to_string());
                match **element {
                    Type::HeaderUnion(_) => self.union_stacks.push(json!({
                        "name": name, "id": self.union_stacks.len(), "union_type": of, "size": size, "header_union_ids": ids,
                    })),
                    _ => self.stacks.push(json!({
                        "name": name, "id": self.stacks.len(), "header_type": of, "size": size, "header_ids": ids,
                    })),
                }
                None
            }
            _ => None,
        }
    }

    /// Lists a header type if it is not listed yet; returns its name.
    fn declare(&mut self, id: StructId) -> String {
        let info = self.types.fields_of(id);
        let name = control(&info.name, &info.annotations);
        if self.types_done.insert(id) {
            let mut longest = None;
            let mut fields = Vec::new();
            for leaf in self.leaves(id) {
                let signed = matches!(leaf.ty, Type::Bits { signed: true, .. });
                let width = match leaf.ty {
                    Type::Varbit(_) => {
                        longest = self.types.width_bits(&Type::Header(id), true).map(|bits| bits.div_ceil(8));
                        Value::from("*")
                    }
                    ref ty => self.width(ty).into(),
                };
                fields.push(json!([leaf.name, width, signed]));
            }
            self.header_type(&name, fields, longest);
        }
        name
    }

    fn header_type(&mut self, name: &str, fields: Vec<Value>, max_length: Option<u64>) {
        // Id 0 is the type of the scalars.
        let mut json = json!({ "name": name, "id": self.header_types.len() + 1, "fields": fields });
        if let Some(bytes) = max_length {
            json["length_exp"] = Value::Null;
            json["max_length"] = bytes.into();
        }
        self.header_types.push(json);
    }

    /// Adds an instance and returns its id; `None` if another struct has an instance of this name.
    fn instance(&mut self, name: &str, header_type: &str, metadata: bool) -> Option<usize> {
        self.names.insert(name.to_string()).then(|| {
            let id = self.headers.len();
            self.headers.push(json!({
                "name": name, "id": id, "header_type": header_type, "metadata": metadata, "pi_omit": true,
            }));
            id
        })
    }

    /// Width of a field in bits.
    fn width(&self, ty: &Type) -> u32 {
        match ty {
            Type::Error | Type::Enum(_) => 32,
            ty => self.types.width_bits(ty, true).and_then(|bits| u32::try_from(bits).ok()).unwrap_or(0),
        }
    }

    /// Adds a scalar for a computed value.
    pub fn scalar(&mut self, what: &str, width: u32) -> Reference {
        let number = self.computed;
        self.computed += 1;
        self.scalar_named(format!("{what}_{number}"), width)
    }

    /// The scalar of this name, added if it does not exist.
    pub fn scalar_named(&mut self, field: String, width: u32) -> Reference {
        if self.scalars.iter().all(|(name, _)| *name != field) {
            self.scalars.push((field.clone(), width));
        }
        Reference { instance: SCALARS.to_string(), field, mask: None }
    }

    /// The field that a key's expression refers to; for a computed value, a scalar.
    pub fn reference(&mut self, expr: &Expr) -> Reference {
        let (inner, mask) = masked(expr, |ty| self.width(ty));
        if let Some((instance, field)) = self.find(inner) {
            return Reference { instance, field, mask };
        }
        let width = self.width(&self.types.underlying(&expr.ty));
        self.scalar("key", width)
    }

    fn find(&self, expr: &Expr) -> Option<(String, String)> {
        if let ExprKind::Call(call) = &expr.kind {
            let Callee::Builtin(Builtin::IsValid, of) = &call.callee else { return None };
            return match self.place(of)? {
                (Place::Header(name), path) if path.is_empty() => Some((name, "$valid$".to_string())),
                _ => None,
            };
        }
        match self.place(expr)? {
            (Place::Field(instance, field), path) if path.is_empty() => Some((instance, field)),
            (Place::Header(name), path) if !path.is_empty() => {
                let id = self.header_of(expr)?;
                let leaf = self.leaves(id).into_iter().find(|leaf| leaf.path == path)?;
                Some((name, leaf.name))
            }
            _ => None,
        }
    }

    /// The type of the header whose field an expression is.
    fn header_of(&self, expr: &Expr) -> Option<StructId> {
        match (&expr.ty, &expr.kind) {
            (Type::Header(id), _) => Some(*id),
            (_, ExprKind::Field(inner, _)) => self.header_of(inner),
            (_, ExprKind::Cast(inner)) => self.header_of(inner),
            _ => None,
        }
    }

    /// The target of the longest known prefix of an access path, and the remaining steps.
    fn place(&self, expr: &Expr) -> Option<(Place, Vec<Step>)> {
        let mut path = Vec::new();
        let mut at = expr;
        let root = loop {
            match &at.kind {
                ExprKind::Field(inner, field) => {
                    path.push(Step::Field(*field));
                    at = inner;
                }
                ExprKind::Local(_) => break at.ty.fields_id()?,
                // Also for elements of stacks: p4c copies them before the lookup.
                _ => return None,
            }
        };
        path.reverse();
        let mut rest = Vec::new();
        loop {
            if let Some(place) = self.places.get(&(root, path.clone())) {
                rest.reverse();
                return Some((place.clone(), rest));
            }
            rest.push(path.pop()?);
        }
    }

    /// The names of these fields in programs translated from P4_14.
    pub fn aliases(&self) -> Value {
        const QUEUEING: [&str; 4] = ["enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"];
        const INTRINSIC: [&str; 5] =
            ["ingress_global_timestamp", "egress_global_timestamp", "mcast_grp", "egress_rid", "priority"];
        if !self.has_standard_metadata {
            return json!([]);
        }
        let alias =
            |of: &'static str| move |field: &&str| json!([format!("{of}.{field}"), ["standard_metadata", field]]);
        let queueing = QUEUEING.iter().map(alias("queueing_metadata"));
        queueing.chain(INTRINSIC.iter().map(alias("intrinsic_metadata"))).collect()
    }

    /// The file's members that describe the layout.
    pub fn json(mut self) -> Map<String, Value> {
        pad(&mut self.scalars, "_padding_0");
        let fields: Vec<Value> = self.scalars.iter().map(|(name, width)| json!([name, width, false])).collect();
        self.header_types.insert(0, json!({ "name": SCALARS_TYPE, "id": 0, "fields": fields }));
        self.field_lists.sort_by_key(|(index, _)| *index);
        let list = |(id, (index, elements)): (usize, (u64, Vec<Value>))| json!({ "id": id + 1, "name": format!("field_list{index}"), "elements": elements });
        let field_lists = self.field_lists.into_iter().enumerate().map(list).collect();
        object([
            ("header_types", self.header_types),
            ("headers", self.headers),
            ("header_stacks", self.stacks),
            ("header_union_types", self.union_types),
            ("header_unions", self.unions),
            ("header_union_stacks", self.union_stacks),
            ("field_lists", field_lists),
        ])
    }
}

/// The operand and mask of a field with a constant mask: `field & mask`, `field[high:low]`.
fn masked(expr: &Expr, width: impl Fn(&Type) -> u32) -> (&Expr, Option<Bits>) {
    match &expr.kind {
        ExprKind::Binary(sema::typed::BinaryOp::BitAnd, a, b) => match (a.as_const(), b.as_const()) {
            (None, Some(mask)) => (a, mask.as_bits().cloned()),
            (Some(mask), None) => (b, mask.as_bits().cloned()),
            _ => (expr, None),
        },
        ExprKind::Slice { base, high, low } => {
            let bits = width(&base.ty);
            let mask = Bits::ones(bits).lshr(u64::from(bits - 1 - high + low)).shl(u64::from(*low));
            (base, Some(mask))
        }
        _ => (expr, None),
    }
}

/// The indices in `@field_list(...)`.
fn field_lists(annotations: &[Annotation]) -> Vec<u64> {
    let values = find_annotation(annotations, "field_list").and_then(Annotation::values).unwrap_or_default();
    values.iter().filter_map(sema::value::Value::to_u64).collect()
}

fn control_name(field: &FieldInfo) -> String {
    control(&field.name, &field.annotations)
}

/// The control-plane name: `@name`, or the declared name.
fn control(declared: &str, annotations: &[Annotation]) -> String {
    let given = find_annotation(annotations, "name").and_then(Annotation::as_str);
    given.map_or(declared, |name| name.trim_start_matches('.')).to_string()
}

/// Pads the widths to whole bytes.
fn pad(fields: &mut Vec<(String, u32)>, name: &str) {
    let bits: u64 = fields.iter().map(|(_, width)| u64::from(*width)).sum();
    let missing = bits.next_multiple_of(8) - bits;
    if missing > 0 {
        fields.push((name.to_string(), missing as u32));
    }
}
