//! The state of the generator: scopes, and the source text written so far.

use crate::declared::{Callable, Control, ExternInstance, Half, Place, Table, Var};
use crate::types::{Type, Types};
use random::Random;
use std::fmt::Write;
use std::ops::Range;

/// The generator of one program.
pub struct Gen {
    pub(crate) dice: Random,
    pub(crate) types: Types,
    pub(crate) scope: Vec<Var>,
    pub(crate) functions: Vec<Callable>,
    pub(crate) actions: Vec<Callable>,
    pub(crate) tables: Vec<Table>,
    pub(crate) controls: Vec<Control>,
    /// The instances in the current control: name and index of the control.
    pub(crate) instances: Vec<(String, usize)>,
    /// The controls and parsers applied without a named instance in the current one.
    pub(crate) unnamed: Vec<usize>,
    pub(crate) externs: Vec<ExternInstance>,
    pub(crate) setup: Vec<String>,
    pub(crate) place: Place,
    pub(crate) half: Half,
    /// Whether functions may be called here.
    pub(crate) calls: bool,
    /// Whether only compile-time constants may be read.
    pub(crate) only_constants: bool,
    /// The number of enclosing loops.
    pub(crate) loops: u32,
    /// The cost of the current body with all calls inlined.
    pub(crate) cost: u64,
    /// The size of bodies.
    pub(crate) size: u32,
    /// Whether indexes of counters, meters and registers have a `type` of their own.
    pub(crate) typed_index: bool,
    text: String,
    indent: usize,
    names: u32,
    sites: Range<u64>,
    site: u64,
    /// Shadowed variables: position in the scope, type, length of the scope when the shadowing began.
    hidden: Vec<(usize, Type, usize)>,
    /// Constructor parameters, whose values are known once the control is instantiated.
    pub(crate) fixed: Vec<String>,
    /// Variables that conditions have tested, with their widths.
    pub(crate) asked: Vec<(String, u32)>,
    /// The position in the scope at which the innermost block begins.
    pub(crate) block: usize,
}

/// The maximum cost of a callee.
pub const CALL_COST_MAX: u64 = 400;
/// The cost of a body above which it makes no more calls.
pub const BODY_COST_MAX: u64 = 3000;

impl Gen {
    /// A generator with an empty text. Constructs with a number in `sites` are written in their alternative form.
    pub(crate) fn new(seed: u64, size: u32, sites: Range<u64>) -> Gen {
        let mut dice = Random::new(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x9e37_79b9_7f4a_7c15));
        let typed_index = dice.one_in(2);
        Gen {
            dice,
            types: Types::default(),
            scope: Vec::new(),
            asked: Vec::new(),
            functions: Vec::new(),
            actions: Vec::new(),
            tables: Vec::new(),
            controls: Vec::new(),
            instances: Vec::new(),
            unnamed: Vec::new(),
            externs: Vec::new(),
            setup: Vec::new(),
            place: Place::Top,
            half: Half::Both,
            calls: false,
            only_constants: false,
            loops: 0,
            cost: 0,
            size,
            typed_index,
            text: String::new(),
            indent: 0,
            names: 0,
            sites,
            site: 0,
            hidden: Vec::new(),
            fixed: Vec::new(),
            block: 0,
        }
    }

    /// The number of constructs with an alternative form so far.
    pub(crate) fn site(&self) -> u64 {
        self.site
    }

    /// The program text.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// Adds a variable with all its components to the scope.
    pub(crate) fn declare(&mut self, path: &str, ty: &Type, writable: bool) {
        self.scope.push(Var { path: path.into(), ty: ty.clone(), writable, constant: false });
        match ty {
            Type::Struct(_) | Type::Header(_) | Type::Union(_) => {
                for (field, t) in self.types.fields(ty).to_vec() {
                    self.declare(&format!("{path}.{field}"), &t, writable);
                }
            }
            Type::Stack(element, n) => {
                for i in 0..*n {
                    self.declare(&format!("{path}[{i}]"), element, writable);
                }
                if !path.contains('@') {
                    self.declare(&format!("{path}[@]"), element, writable);
                }
            }
            Type::Tuple(list) => {
                for (i, t) in list.iter().enumerate() {
                    self.declare(&format!("{path}[{i}]"), t, false);
                }
            }
            _ => {}
        }
    }

    /// Removes the declarations from position `mark` on from the scope.
    pub(crate) fn forget(&mut self, mark: usize) {
        while let Some((at, ty, _)) = self.hidden.pop_if(|(_, _, from)| *from >= mark) {
            if let Some(var) = self.scope.get_mut(at) {
                var.ty = ty;
            }
        }
        self.scope.truncate(mark);
    }

    /// Shadows a variable of an outer block, and returns its name for the new declaration.
    pub(crate) fn hide_one(&mut self) -> Option<String> {
        let local = |v: &Var| v.path.starts_with('v') && v.path[1..].bytes().all(|b| b.is_ascii_digit());
        let fit: Vec<usize> = (0..self.block.min(self.scope.len()))
            .filter(|&i| local(&self.scope[i]) && self.scope[i].ty != Type::Hidden)
            .collect();
        // Names that the innermost block has declared cannot be declared again.
        let taken = |name: &str| self.scope[self.block.min(self.scope.len())..].iter().any(|v| v.path == name);
        let fit: Vec<usize> = fit.into_iter().filter(|&i| !taken(&self.scope[i].path)).collect();
        if fit.is_empty() {
            return None;
        }
        let name = self.scope[*self.dice.pick(&fit)].path.clone();
        let end = self.scope.len();
        for (at, var) in self.scope.iter_mut().enumerate() {
            let rest = var.path.strip_prefix(&name);
            if var.ty != Type::Hidden && rest.is_some_and(|r| r.is_empty() || r.starts_with(['.', '['])) {
                self.hidden.push((at, std::mem::replace(&mut var.ty, Type::Hidden), end));
            }
        }
        Some(name)
    }

    /// All stacks in scope: path, element type, size.
    pub(crate) fn stacks(&self) -> Vec<(String, Type, u32)> {
        self.scope
            .iter()
            .filter_map(|v| match &v.ty {
                Type::Stack(element, n) => Some((v.path.clone(), (**element).clone(), *n)),
                _ => None,
            })
            .collect()
    }

    /// A fresh name.
    pub(crate) fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.text, "{:width$}{}", "", text.as_ref(), width = self.indent * 4);
    }

    /// Writes a line that opens a block.
    pub(crate) fn open(&mut self, text: impl AsRef<str>) {
        self.line(text);
        self.indent += 1;
    }

    /// Whether the current construct is written in its alternative form. Uses no random choice, so that the rest of the
    /// program stays the same.
    pub(crate) fn rewrites(&mut self) -> bool {
        self.site += 1;
        self.sites.contains(&(self.site - 1))
    }

    /// As [`Self::rewrites`], for constructs that need a fresh name, which the program does not use otherwise.
    pub(crate) fn rewritten_name(&mut self) -> Option<String> {
        self.rewrites().then(|| format!("z{}", self.site))
    }

    /// The length of the text.
    pub(crate) fn end(&self) -> usize {
        self.text.len()
    }

    /// Removes and returns the text from position `from` on.
    pub(crate) fn take_text(&mut self, from: usize) -> String {
        self.text.split_off(from)
    }

    /// Appends text that was removed.
    pub(crate) fn put_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Ends a block whose closing brace is written elsewhere.
    pub(crate) fn close_silently(&mut self) {
        self.indent -= 1;
    }

    /// Begins a block whose opening brace has been written.
    pub(crate) fn open_silently(&mut self) {
        self.indent += 1;
    }

    /// Writes a line that closes the innermost block.
    pub(crate) fn close(&mut self, text: impl AsRef<str>) {
        self.indent -= 1;
        self.line(text);
    }

    /// Whether the current body may still call something of this cost.
    pub(crate) fn affords(&self, cost: u64) -> bool {
        cost <= CALL_COST_MAX && self.cost + cost * (1 + u64::from(self.loops) * 3) < BODY_COST_MAX
    }
}
