//! Actions, and the primitives of bmv2's core and of simple_switch that they call.

use crate::codes;
use crate::expressions::Type;
use crate::model::{Action, BinaryOp, Call, Expr, Primitive, StackRef, Target, UnaryOp};
use crate::names::Reader;
use crate::read::{At, Read};

/// Most parameters of an action.
const PARAMS_MAX: usize = 256;

impl Reader {
    pub fn actions(&mut self, root: &At<'_>) -> Read<()> {
        for object in root.need("actions")?.list()? {
            let index = self.m.actions.len();
            // Several actions may have the same name: copies that the compiler made for their tables.
            self.actions.add_id("action", &object, index)?;
            let name = object.name()?.to_string();
            let mut params = Vec::new();
            for param in object.list_of("runtime_data")? {
                let bits = param.need("bitwidth")?;
                let width = bits.number()?;
                if width > lower::WIDTH_LIMIT || params.len() == PARAMS_MAX {
                    return bits.fail(codes::RANGE, format!("parameter {} of {width} bits", params.len()));
                }
                // A parameter of 0 bits has one value, which controllers give in one bit.
                params.push((param.name()?.to_string(), width.max(1)));
            }
            let calls = object.list_of("primitives")?;
            self.locals = params.len();
            let count = calls.len();
            let calls: Read<Vec<Call>> = calls.iter().map(|call| self.call(call, count)).collect();
            self.locals = 0;
            let calls = calls?;
            self.m.actions.push(Action { name, params, calls });
        }
        Ok(())
    }

    /// A call of a primitive, in an action of `count` calls.
    pub fn call(&mut self, object: &At<'_>, count: usize) -> Read<Call> {
        let location = self.locations.of(object)?;
        Ok(Call { primitive: self.primitive(object, count)?, location })
    }

    fn primitive(&self, object: &At<'_>, count: usize) -> Read<Primitive> {
        let name = object.need("op")?;
        let args = object.need("parameters")?;
        let op = name.text()?;
        let arithmetic = |which: BinaryOp| -> Read<Primitive> {
            let [to, a, b] = args.tuple()?;
            let value = Expr::Binary(which, Box::new(self.number(&a)?), Box::new(self.number(&b)?));
            Ok(Primitive::Assign(self.target(&to)?, value))
        };
        let in_place = |which: BinaryOp| -> Read<Primitive> {
            let [to, by] = args.tuple()?;
            let value = Expr::Binary(which, Box::new(self.number(&to)?), Box::new(self.number(&by)?));
            Ok(Primitive::Assign(self.target(&to)?, value))
        };
        let headers = || -> Read<(Expr, Expr)> {
            let [to, from] = args.tuple()?;
            let ((a, a_type), (b, b_type)) = (self.header_or_metadata(&to)?, self.header_or_metadata(&from)?);
            match a_type == b_type {
                true => Ok((a, b)),
                false => from.fail(codes::CONTRADICTION, "headers of different types"),
            }
        };
        let number = || -> Read<Expr> {
            let [value] = args.tuple()?;
            self.number(&value)
        };
        let header = || -> Read<Expr> {
            let [value] = args.tuple()?;
            Ok(self.header(&value)?.0)
        };
        let array = |names: &crate::names::Names, what: &str, ty: &str, value: &At<'_>| -> Read<usize> {
            let found = value.need("type")?;
            match found.text()? == ty {
                true => names.named(what, &value.need("value")?),
                false => found.fail(codes::CONTRADICTION, format!("this is not a `{ty}`")),
            }
        };
        let counter = |value: &At<'_>| array(&self.counters, "counter array", "counter_array", value);
        let meter = |value: &At<'_>| array(&self.meters, "meter array", "meter_array", value);
        let register = |value: &At<'_>| array(&self.registers, "register array", "register_array", value);
        let clone = || -> Read<Primitive> {
            let [session, list] = args.tuple()?;
            Ok(Primitive::Clone(self.number(&session)?, self.number(&list)?))
        };
        let assertion = |text: &'static str| -> Read<Primitive> {
            let [condition] = args.tuple()?;
            Ok(Primitive::Assert(self.condition_or_number(&condition)?, text))
        };
        use BinaryOp as B;
        Ok(match op {
            "assign" | "modify_field" => {
                let [to, value] = args.tuple()?;
                let (value_expr, ty) = self.expression(&value)?;
                let value_expr = match ty {
                    Type::Number => value_expr,
                    Type::Bool => Expr::Unary(UnaryOp::BoolToData, Box::new(value_expr)),
                    _ => return value.fail(codes::CONTRADICTION, "only numbers can be assigned to fields"),
                };
                Primitive::Assign(self.target(&to)?, value_expr)
            }
            "assign_VL" => {
                let [to, from] = args.tuple()?;
                let field = |at: &At<'_>| -> Read<crate::model::Field> {
                    let value = at.need("value")?;
                    match self.field(&value)? {
                        Some(field) if self.m.field(field).varbit => Ok(field),
                        _ => value.fail(codes::CONTRADICTION, "the field has no variable length"),
                    }
                };
                let (a, b) = (field(&to)?, field(&from)?);
                if self.m.field(a).width < self.m.field(b).width {
                    return from.fail(codes::CONTRADICTION, "the field can be longer than what it is assigned to");
                }
                Primitive::AssignVarbit(a, b)
            }
            "add_to_field" => in_place(B::Add)?,
            "subtract_from_field" => in_place(B::Sub)?,
            "add" => arithmetic(B::Add)?,
            "subtract" => arithmetic(B::Sub)?,
            "bit_xor" => arithmetic(B::BitXor)?,
            "bit_or" => arithmetic(B::BitOr)?,
            "bit_and" => arithmetic(B::BitAnd)?,
            "shift_left" => arithmetic(B::Shl)?,
            "shift_right" => arithmetic(B::Shr)?,
            "assign_header" | "copy_header" => {
                let (to, from) = headers()?;
                Primitive::AssignHeader(to, from)
            }
            "assign_union" => {
                let [to, from] = args.tuple()?;
                let (a, b) = (self.union(&to)?, self.union(&from)?);
                if !self.same_unions(&a, &b) {
                    return from.fail(codes::CONTRADICTION, "header unions of different types");
                }
                Primitive::AssignUnion(a, b)
            }
            "assign_header_stack" => {
                let [to, from] = args.tuple()?;
                match (self.expression(&to)?.1, self.expression(&from)?.1) {
                    (Type::Stack(a), Type::Stack(b)) => {
                        let [x, y] = [a, b].map(|s| &self.m.stacks[s]);
                        if x.ty != y.ty || x.elements.len() != y.elements.len() {
                            return from.fail(codes::CONTRADICTION, "header stacks of different types or sizes");
                        }
                        Primitive::AssignStack(a, b)
                    }
                    _ => return args.fail(codes::CONTRADICTION, "these are not header stacks"),
                }
            }
            "assign_union_stack" => {
                let [to, from] = args.tuple()?;
                match (self.expression(&to)?.1, self.expression(&from)?.1) {
                    (Type::UnionStack(a), Type::UnionStack(b)) => {
                        let [x, y] = [a, b].map(|s| &self.m.union_stacks[s].elements);
                        let same = x.iter().zip(y).all(|(x, y)| self.same_unions(&Expr::Union(*x), &Expr::Union(*y)));
                        if x.len() != y.len() || !same {
                            return from.fail(codes::CONTRADICTION, "stacks of different types or sizes");
                        }
                        Primitive::AssignUnionStack(a, b)
                    }
                    _ => return args.fail(codes::CONTRADICTION, "these are not stacks of header unions"),
                }
            }
            "push" | "pop" => {
                let [stack, by] = args.tuple()?;
                let which = match self.expression(&stack)?.1 {
                    Type::Stack(stack) => StackRef::Headers(stack),
                    Type::UnionStack(stack) => StackRef::Unions(stack),
                    _ => return stack.fail(codes::CONTRADICTION, "this is not a stack"),
                };
                let Expr::Number(n) = self.number(&by)? else {
                    return by.fail(codes::UNSUPPORTED, "a number of elements that is known at run time only");
                };
                let count = usize::try_from(&n).unwrap_or(usize::MAX);
                if op == "push" { Primitive::Push(which, count) } else { Primitive::Pop(which, count) }
            }
            "add_header" => Primitive::AddHeader(header()?, true),
            "add_header_fast" => Primitive::AddHeader(header()?, false),
            "remove_header" => Primitive::RemoveHeader(header()?),
            "drop" => {
                let [] = args.tuple()?;
                Primitive::MarkToDrop(None)
            }
            "mark_to_drop" => {
                // Older compilers name no header.
                if args.list()?.is_empty() {
                    return Ok(Primitive::MarkToDrop(None));
                }
                let [metadata] = args.tuple()?;
                let header = self.headers.named("header", &metadata.need("value")?)?;
                if !self.m.headers[header].metadata
                    || !self.fields[self.m.headers[header].ty].contains_key("egress_spec")
                {
                    return metadata.fail(codes::CONTRADICTION, "this is not standard metadata");
                }
                Primitive::MarkToDrop(Some(header))
            }
            "count" => {
                let [array, index] = args.tuple()?;
                let which = counter(&array)?;
                if self.m.counters[which].table.is_some() {
                    return array.fail(codes::CONTRADICTION, "this is the counter of a table");
                }
                Primitive::Count(which, self.number(&index)?)
            }
            "execute_meter" => {
                let [array, index, to] = args.tuple()?;
                let which = meter(&array)?;
                if self.m.meters[which].direct {
                    return array.fail(codes::CONTRADICTION, "this is the meter of a table");
                }
                Primitive::ExecuteMeter(which, self.number(&index)?, self.target(&to)?)
            }
            "register_read" => {
                let [to, array, index] = args.tuple()?;
                Primitive::RegisterRead(self.target(&to)?, register(&array)?, self.number(&index)?)
            }
            "register_write" => {
                let [array, index, value] = args.tuple()?;
                Primitive::RegisterWrite(register(&array)?, self.number(&index)?, self.number(&value)?)
            }
            "modify_field_with_hash_based_offset" => {
                let [to, base, calculation, size] = args.tuple()?;
                let which = array(&self.calculations, "calculation", "calculation", &calculation)?;
                Primitive::Hash(self.target(&to)?, self.number(&base)?, which, self.number(&size)?)
            }
            "modify_field_rng_uniform" => {
                let [to, low, high] = args.tuple()?;
                Primitive::Random(self.target(&to)?, self.number(&low)?, self.number(&high)?)
            }
            "generate_digest" => {
                let [_, list] = args.tuple()?;
                Primitive::Digest(self.number(&list)?)
            }
            // Both request a clone in the pipeline that calls them.
            "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => clone()?,
            "resubmit" => Primitive::Resubmit(number()?),
            "recirculate" => Primitive::Recirculate(number()?),
            "truncate" => Primitive::Truncate(number()?),
            "exit" => {
                let [] = args.tuple()?;
                Primitive::Exit
            }
            "log_msg" => {
                let [format, values] = args.tuple()?;
                let text = format.need("value")?.text()?.to_string();
                let mut list = Vec::new();
                let values = values.need("value")?;
                // An empty list of values is written as an object.
                let values = if values.is_object() { Vec::new() } else { values.list()? };
                for value in values {
                    let (expr, ty) = self.expression(&value)?;
                    list.push(match ty {
                        Type::Number => expr,
                        Type::Bool => Expr::Unary(UnaryOp::BoolToData, Box::new(expr)),
                        _ => return value.fail(codes::CONTRADICTION, "only numbers can be logged"),
                    });
                }
                Primitive::Log(text, list)
            }
            "assert" => assertion("assert")?,
            "assume" => assertion("assume")?,
            "no_op" => Primitive::Nothing,
            "_jump" => {
                let [to] = args.tuple()?;
                Primitive::Jump(self.offset(&to, count)?)
            }
            "_jump_if_zero" => {
                let [condition, to] = args.tuple()?;
                Primitive::JumpIfZero(self.condition_or_number(&condition)?, self.offset(&to, count)?)
            }
            other => return name.fail(codes::UNSUPPORTED, format!("there is no primitive `{other}`")),
        })
    }

    /// The target of a jump, at most the position after the last of `count` calls.
    fn offset(&self, to: &At<'_>, count: usize) -> Read<usize> {
        let Expr::Number(n) = self.number(to)? else {
            return to.fail(codes::UNSUPPORTED, "a jump to a target that is known at run time only");
        };
        match usize::try_from(&n).ok().filter(|n| *n <= count) {
            Some(n) => Ok(n),
            None => to.fail(codes::RANGE, format!("a jump to {n} among {count} primitives")),
        }
    }

    /// Whether two unions have the same members.
    fn same_unions(&self, a: &Expr, b: &Expr) -> bool {
        let types = |e: &Expr| -> Vec<usize> {
            let union = match e {
                Expr::Union(union) => *union,
                Expr::UnionElement(stack, _) => self.m.union_stacks[*stack].elements[0],
                _ => return Vec::new(),
            };
            self.m.unions[union].members.iter().map(|h| self.m.headers[*h].ty).collect()
        };
        types(a) == types(b)
    }
}

impl Target {
    /// The field itself, if it is statically known.
    pub fn field(&self) -> Option<crate::model::Field> {
        match self {
            Target::Field(field) => Some(*field),
            _ => None,
        }
    }
}
