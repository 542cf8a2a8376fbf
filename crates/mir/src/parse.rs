//! The parser of the text form. The module that it returns need not be well-formed: [`crate::verify`] checks it.
//!
//! ```text
//! table @NAME words N handle N lookup N
//! runtime @NAME(TYPE, …) [-> TYPE] EFFECTS at N            EFFECTS: any, or [reads REGIONS] [writes REGIONS] [ends]
//! function @NAME [-> TYPE] EFFECTS {
//!   slot s0 BYTES align N
//! b0(v0: TYPE, …):                                         the entry, whose parameters are the function's
//!   v1 = INSTRUCTION [#PLACE]                              REGIONS: frame|stack
//!   TERMINATOR                                             EDGE: b1(v1, …) [weight N]
//! }
//! ```
//!
//! Instructions are written as by `print.rs`; `tests/passes/` has one of each. In the text, a value may be used before
//! its definition, and a function called before its own. Numbers are decimal, or hexadecimal with the prefix `0x`.

mod body;

use crate::function::{BlockData, Function, Module, Runtime, Table};
use crate::lexer::{ParseError, Token, lex};
use crate::print::region;
use crate::types::{Block, Effects, FunctionId, Regions, RuntimeId, TableId, Type, Value};
use std::collections::HashMap;

/// Parses a module.
///
/// # Errors
///
/// The first syntax error or unknown name.
pub fn parse(text: &str) -> Result<Module> {
    let tokens = lex(text)?;
    let mut functions = HashMap::new();
    let heads = tokens.windows(2).filter_map(|pair| match pair {
        [(_, Token::Word(word)), (line, Token::Name(name))] if word == "function" => Some((line, name)),
        _ => None,
    });
    for (i, (line, name)) in heads.enumerate() {
        if functions.insert(name.clone(), FunctionId(i as u32)).is_some() {
            return Err(ParseError { line: *line, message: format!("there is another function `{name}`") });
        }
    }
    let results = results(&tokens);
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        module: Module::default(),
        tables: HashMap::new(),
        runtime: HashMap::new(),
        functions,
        results,
    };
    while parser.at < tokens.len() {
        parser.item()?;
    }
    Ok(parser.module)
}

/// The result types of functions, where they can be read off: calls may come before the function.
fn results(tokens: &[(u32, Token)]) -> Vec<Option<Type>> {
    let heads = tokens.iter().enumerate().filter(|(i, (_, token))| {
        let is_head = matches!(token, Token::Word(word) if word == "function");
        is_head && matches!(tokens.get(i + 1), Some((_, Token::Name(_))))
    });
    let result = |(at, _): (usize, &(u32, Token))| match tokens.get(at + 2..at + 5)? {
        [(_, Token::Mark('-')), (_, Token::Mark('>')), (_, Token::Word(ty))] => integer(ty),
        _ => None,
    };
    heads.map(result).collect()
}

fn integer(name: &str) -> Option<Type> {
    name.strip_prefix('i').and_then(|bits| bits.parse().ok()).and_then(Type::of_bits)
}

struct Parser<'t> {
    tokens: &'t [(u32, Token)],
    at: usize,
    module: Module,
    tables: HashMap<String, TableId>,
    runtime: HashMap<String, RuntimeId>,
    functions: HashMap<String, FunctionId>,
    results: Vec<Option<Type>>,
}

/// A function being parsed: its numbers are those of the text and not yet ids.
struct Body {
    function: Function,
    values: HashMap<u32, Value>,
    blocks: HashMap<u32, Block>,
}

type Result<T> = std::result::Result<T, ParseError>;

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        let line = self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(line, _)| *line);
        Err(ParseError { line, message: message.into() })
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        match self.peek() {
            Some(Token::Word(word)) => self.error(format!("expected {what}, found `{word}`")),
            Some(Token::Name(name)) => self.error(format!("expected {what}, found `@{name}`")),
            Some(Token::Number(number)) => self.error(format!("expected {what}, found `{number}`")),
            Some(Token::Mark(mark)) => self.error(format!("expected {what}, found `{mark}`")),
            None => self.error(format!("expected {what}, found the end of the text")),
        }
    }

    fn has(&mut self, mark: char) -> bool {
        let has = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(has);
        has
    }

    fn mark(&mut self, mark: char) -> Result<()> {
        if self.has(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    fn has_word(&mut self, word: &str) -> bool {
        let has = matches!(self.peek(), Some(Token::Word(w)) if w == word);
        self.at += usize::from(has);
        has
    }

    fn word(&mut self, word: &str) -> Result<()> {
        if self.has_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    fn any_word(&mut self, what: &str) -> Result<String> {
        let Some(Token::Word(word)) = self.peek() else { return self.expected(what) };
        let word = word.clone();
        self.at += 1;
        Ok(word)
    }

    fn name(&mut self) -> Result<String> {
        let Some(Token::Name(name)) = self.peek() else { return self.expected("a name after `@`") };
        let name = name.clone();
        self.at += 1;
        Ok(name)
    }

    /// A number that fits the type of the result.
    fn number<T: TryFrom<u128>>(&mut self) -> Result<T> {
        let Some(Token::Number(number)) = self.peek() else { return self.expected("a number") };
        let Ok(number) = T::try_from(*number) else { return self.error(format!("{number} is too large here")) };
        self.at += 1;
        Ok(number)
    }

    /// A number after a letter, as in `v7`.
    fn numbered(&mut self, prefix: char, what: &str) -> Result<u32> {
        let number = match self.peek() {
            Some(Token::Word(word)) => word.strip_prefix(prefix).and_then(|digits| digits.parse().ok()),
            _ => None,
        };
        let Some(number) = number else { return self.expected(what) };
        self.at += 1;
        Ok(number)
    }

    /// Items separated by commas, up to `)`.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        if self.has(')') {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if !self.has(',') {
                self.mark(')')?;
                return Ok(items);
            }
        }
    }

    fn ty(&mut self) -> Result<Type> {
        let word = self.any_word("a type")?;
        if word == "probe" {
            return self.table().map(Type::Probe);
        }
        self.integer(&word)
    }

    fn integer(&mut self, name: &str) -> Result<Type> {
        match integer(name) {
            Some(ty) => Ok(ty),
            None => {
                self.error(format!("`{name}` is not a type; there are i1, i8, i16, i32, i64, i128 and `probe @TABLE`"))
            }
        }
    }

    fn table(&mut self) -> Result<TableId> {
        let name = self.name()?;
        match self.tables.get(&name) {
            Some(table) => Ok(*table),
            None => self.error(format!("there is no table `{name}`")),
        }
    }

    fn regions(&mut self) -> Result<Regions> {
        let mut regions = Regions::NONE;
        loop {
            let name = self.any_word("a region")?;
            match region(&name) {
                Some(region) => regions = regions | region,
                None if name == "none" => {}
                None => return self.error(format!("there is no region `{name}`")),
            }
            if !self.has('|') {
                return Ok(regions);
            }
        }
    }

    fn effects(&mut self) -> Result<Effects> {
        if self.has_word("any") {
            return Ok(Effects::ANY);
        }
        let mut effects = Effects::PURE;
        if self.has_word("reads") {
            effects.reads = self.regions()?;
        }
        if self.has_word("writes") {
            effects.writes = self.regions()?;
        }
        effects.ends = self.has_word("ends");
        Ok(effects)
    }

    fn result(&mut self) -> Result<Option<Type>> {
        if !self.has('-') {
            return Ok(None);
        }
        self.mark('>')?;
        self.ty().map(Some)
    }

    fn item(&mut self) -> Result<()> {
        match self.any_word("`table`, `runtime` or `function`")?.as_str() {
            "table" => {
                let name = self.name()?;
                self.word("words")?;
                let words = self.number()?;
                self.word("handle")?;
                let handle = self.number()?;
                self.word("lookup")?;
                let lookup = self.number()?;
                let id = self.module.add_table(Table { name: name.clone(), words, handle, lookup });
                self.tables.insert(name, id);
            }
            "runtime" => {
                let name = self.name()?;
                self.mark('(')?;
                let params = self.list(Self::ty)?;
                let (result, effects) = (self.result()?, self.effects()?);
                self.word("at")?;
                let address = self.number()?;
                let runtime = Runtime { name: name.clone(), params, result, effects, address };
                let id = self.module.add_runtime(runtime);
                self.runtime.insert(name, id);
            }
            "function" => self.function()?,
            _ => {
                self.at -= 1;
                return self.expected("`table`, `runtime` or `function`");
            }
        }
        Ok(())
    }

    fn function(&mut self) -> Result<()> {
        let name = self.name()?;
        let result = self.result()?;
        let effects = self.effects()?;
        self.mark('{')?;
        let function = Function {
            name,
            result,
            effects,
            slots: Vec::new(),
            values: Vec::new(),
            blocks: Vec::new(),
            layout: Vec::new(),
        };
        let mut body = Body { function, values: HashMap::new(), blocks: HashMap::new() };
        while self.has_word("slot") {
            let number = self.numbered('s', "a slot")?;
            if number as usize != body.function.slots.len() {
                return self.error("slots are numbered in order");
            }
            let bytes = self.number()?;
            self.word("align")?;
            let align = self.number()?;
            body.function.add_slot(bytes, align);
        }
        while !self.has('}') {
            self.block(&mut body)?;
        }
        if body.function.layout.is_empty() {
            return self.error("a function has at least one block");
        }
        self.rename(body)
    }

    /// Replaces the text's numbers by ids.
    fn rename(&mut self, body: Body) -> Result<()> {
        let Body { mut function, values, blocks } = body;
        let mut missing = None;
        for block in &mut function.blocks {
            let mut value = |value: &mut Value| match values.get(&value.0) {
                Some(id) => *value = *id,
                None => missing = Some(value.to_string()),
            };
            block.insts.iter_mut().for_each(|inst| inst.op.operands_mut(&mut value));
            block.terminator.operands_mut(&mut value);
            for edge in block.terminator.edges_mut() {
                match blocks.get(&edge.block.0) {
                    Some(id) => edge.block = *id,
                    None => missing = Some(edge.block.to_string()),
                }
            }
        }
        if let Some(missing) = missing {
            self.at -= 1;
            return self.error(format!("`{missing}` is not defined in function `{}`", function.name));
        }
        self.module.functions.push(function);
        Ok(())
    }

    fn define(&self, body: &mut Body, number: u32, ty: Type) -> Result<Value> {
        let value = body.function.add_value(ty);
        match body.values.insert(number, value) {
            None => Ok(value),
            Some(_) => {
                let line = self.tokens[self.at - 1].0;
                Err(ParseError { line, message: format!("`v{number}` is defined twice") })
            }
        }
    }

    fn block(&mut self, body: &mut Body) -> Result<()> {
        let number = self.numbered('b', "a block or `}`")?;
        let block = Block(body.function.blocks.len() as u32);
        if body.blocks.insert(number, block).is_some() {
            return self.error(format!("`b{number}` is defined twice"));
        }
        let mut params = Vec::new();
        if self.has('(') {
            params = self.list(|parser| {
                let number = parser.numbered('v', "a value")?;
                parser.mark(':')?;
                let ty = parser.ty()?;
                parser.define(body, number, ty)
            })?;
        }
        self.mark(':')?;
        let mut insts = Vec::new();
        let terminator = loop {
            if let Some(terminator) = self.terminator()? {
                break terminator;
            }
            insts.push(self.instruction(body)?);
        };
        body.function.blocks.push(BlockData { params, insts, terminator });
        body.function.layout.push(block);
        Ok(())
    }
}
