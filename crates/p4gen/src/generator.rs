//! The state of the generator: scopes, and the text that grows.

use crate::declared::{Callable, Control, ExternInstance, Half, Place, Table, Var};
use crate::types::{Type, Types};
use random::Random;
use std::fmt::Write;
use std::ops::Range;

/// The generator.
pub struct Gen {
    pub(crate) dice: Random,
    pub(crate) types: Types,
    pub(crate) scope: Vec<Var>,
    pub(crate) functions: Vec<Callable>,
    pub(crate) actions: Vec<Callable>,
    pub(crate) tables: Vec<Table>,
    pub(crate) controls: Vec<Control>,
    /// Instances in the control being written: name and control.
    pub(crate) instances: Vec<(String, usize)>,
    /// Controls and parsers that were applied without an instance here.
    pub(crate) unnamed: Vec<usize>,
    pub(crate) externs: Vec<ExternInstance>,
    pub(crate) setup: Vec<String>,
    pub(crate) place: Place,
    pub(crate) half: Half,
    /// Whether functions may be called here.
    pub(crate) calls: bool,
    /// Whether only what is known at compile time may be read.
    pub(crate) only_constants: bool,
    /// Loops around this place.
    pub(crate) loops: u32,
    /// What the body being written costs when all calls are inlined.
    pub(crate) cost: u64,
    /// How large bodies become.
    pub(crate) size: u32,
    /// Whether indexes of counters, meters and registers have a type of their own.
    pub(crate) typed_index: bool,
    text: String,
    indent: usize,
    names: u32,
    sites: Range<u64>,
    site: u64,
    /// Variables whose names mean others: place in the scope, type, where the scope ended when that began.
    hidden: Vec<(usize, Type, usize)>,
    /// Constructor parameters: known once they are instantiated.
    pub(crate) fixed: Vec<String>,
    /// Variables that conditions were about, and their widths.
    pub(crate) asked: Vec<(String, u32)>,
    /// Where in the scope the innermost block begins.
    pub(crate) block: usize,
}

/// Calls of what costs more than this are not made.
pub const CALL_COST_MAX: u64 = 400;
/// A body that costs more than this calls nothing any more.
pub const BODY_COST_MAX: u64 = 3000;

impl Gen {
    /// Before the first line. Constructs whose number is in `sites` are written another way.
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

    /// How many constructs there were that can be written another way.
    pub(crate) fn site(&self) -> u64 {
        self.site
    }

    /// The program.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// Puts a variable with everything in it into scope.
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

    /// Ends the scope of what was declared behind a place.
    pub(crate) fn forget(&mut self, mark: usize) {
        while let Some((at, ty, _)) = self.hidden.pop_if(|(_, _, from)| *from >= mark) {
            if let Some(var) = self.scope.get_mut(at) {
                var.ty = ty;
            }
        }
        self.scope.truncate(mark);
    }

    /// The name of a variable of an outer block, which from now on is to mean another one.
    pub(crate) fn hide_one(&mut self) -> Option<String> {
        let local = |v: &Var| v.path.starts_with('v') && v.path[1..].bytes().all(|b| b.is_ascii_digit());
        let fit: Vec<usize> = (0..self.block.min(self.scope.len()))
            .filter(|&i| local(&self.scope[i]) && self.scope[i].ty != Type::Hidden)
            .collect();
        // A name that the innermost block has declared itself cannot be declared again.
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

    /// All stacks in scope: path, element, size.
    pub(crate) fn stacks(&self) -> Vec<(String, Type, u32)> {
        self.scope
            .iter()
            .filter_map(|v| match &v.ty {
                Type::Stack(element, n) => Some((v.path.clone(), (**element).clone(), *n)),
                _ => None,
            })
            .collect()
    }

    /// A new name.
    pub(crate) fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.text, "{:width$}{}", "", text.as_ref(), width = self.indent * 4);
    }

    /// Writes a line that ends with a brace.
    pub(crate) fn open(&mut self, text: impl AsRef<str>) {
        self.line(text);
        self.indent += 1;
    }

    /// Whether the construct that is written now is to be written another way. Draws nothing: all else stays as it is.
    pub(crate) fn rewrites(&mut self) -> bool {
        self.site += 1;
        self.sites.contains(&(self.site - 1))
    }

    /// The same for constructs that need a name; it is none that the program has.
    pub(crate) fn rewritten_name(&mut self) -> Option<String> {
        self.rewrites().then(|| format!("z{}", self.site))
    }

    /// Where the text ends.
    pub(crate) fn end(&self) -> usize {
        self.text.len()
    }

    /// Takes back what was written behind a place.
    pub(crate) fn take_text(&mut self, from: usize) -> String {
        self.text.split_off(from)
    }

    /// Writes lines that were taken back.
    pub(crate) fn put_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Ends a block whose closing brace is written elsewhere.
    pub(crate) fn close_silently(&mut self) {
        self.indent -= 1;
    }

    /// Begins a block whose brace is written already.
    pub(crate) fn open_silently(&mut self) {
        self.indent += 1;
    }

    /// Closes the innermost brace.
    pub(crate) fn close(&mut self, text: impl AsRef<str>) {
        self.indent -= 1;
        self.line(text);
    }

    /// Whether the body being written may still call something of this cost.
    pub(crate) fn affords(&self, cost: u64) -> bool {
        cost <= CALL_COST_MAX && self.cost + cost * (1 + u64::from(self.loops) * 3) < BODY_COST_MAX
    }
}
