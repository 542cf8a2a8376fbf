//! A verified program with its maps, ready to run.

use crate::code::Compiled;
use crate::compile::compile;
use crate::error::{Error, MapError, VerifyError};
use crate::instruction::{Op, decode};
use crate::interpreter;
use crate::map::{Map, MapSpec};
use crate::object::Object;
use crate::run::{Abort, Frame, Log, Random, Verdict};
use crate::verified::Verified;
use crate::verifier::{refused, verify};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Instructions that a run may take, unless [`Options`] says otherwise.
pub const BUDGET: u32 = 1 << 18;

/// The maps of an object, which programs may share.
#[derive(Clone, Debug)]
pub struct Maps(Vec<Arc<Map>>);

impl Maps {
    /// Makes the maps that an object describes.
    pub fn new(object: &Object) -> Result<Maps, MapError> {
        let map = |spec: &MapSpec| Ok(Arc::new(Map::new(spec.clone())?));
        object.maps().iter().map(map).collect::<Result<_, _>>().map(Maps)
    }

    /// The map of a name.
    pub fn get(&self, name: &str) -> Result<&Arc<Map>, MapError> {
        self.0.iter().find(|map| map.spec().name == name).ok_or_else(|| MapError::Unknown {
            name: name.to_string(),
            known: match self.0.is_empty() {
                true => "none".to_string(),
                false => self.iter().map(|map| map.spec().name.clone()).collect::<Vec<_>>().join(", "),
            },
        })
    }

    /// All maps.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Map>> {
        self.0.iter()
    }
}

/// How to load a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Instructions that a run may take, counted when an iteration of a loop ends and at calls, where helpers count as the
    /// instructions that would take as long; a run that takes more is aborted.
    pub budget: u32,
    /// Where the sequence of `get_prandom_u32` begins; by default somewhere else for each program.
    pub seed: Option<u64>,
    /// Compile the program; otherwise, and on machines that Cranelift does not know, the interpreter runs it.
    pub compile: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { budget: BUDGET, seed: None, compile: true }
    }
}

/// A verified program.
pub struct Program {
    verified: Verified,
    compiled: Option<Compiled>,
}

impl Program {
    /// Loads the program that a function or section names, with maps of its own.
    pub fn load(object: &Object, name: &str) -> Result<Program, VerifyError> {
        Program::load_with(object, name, &Maps::new(object)?, Options::default())
    }

    /// Loads a program with maps that [`Maps::new`] made for the same object.
    pub fn load_with(object: &Object, name: &str, maps: &Maps, options: Options) -> Result<Program, VerifyError> {
        if cfg!(target_endian = "big") {
            return Err(Error::new("BPF objects are read on little-endian machines only").into());
        }
        let linked = object.link(name)?;
        if !maps.iter().map(|map| map.spec()).eq(object.maps()) {
            return Err(Error::new("the maps are those of another object").into());
        }
        let ops = decode(&linked.code).map_err(|(number, reason)| refused(&linked, &[], number, reason))?;
        let roles = verify(&linked, &ops, &maps.0)?.roles;
        let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        let verified = Verified {
            ops,
            roles,
            linked,
            maps: maps.0.clone(),
            budget: options.budget.into(),
            random: Random::new(seed),
            log: Log::default(),
        };
        let compiled = if options.compile { compile(&verified).map_err(VerifyError::Compile)? } else { None };
        Ok(Program { verified, compiled })
    }

    /// Runs the program on a packet. `argument` is what the action passes, `now_ns` what `ktime_get_ns` gives.
    pub fn run(&self, frame: &mut Frame<'_>, port: u32, argument: u64, now_ns: u64) -> Verdict {
        self.run_in(frame, port, argument, now_ns, &mut { i64::MAX })
    }

    /// The same with so many instructions at most, of which it leaves what it has not taken: less than nothing if they were too few.
    /// Then the verdict is [`Abort::Budget`](crate::Abort::Budget), and the packet may be half done. Calls of helpers count as the
    /// instructions that would take as long.
    pub fn run_in(&self, frame: &mut Frame<'_>, port: u32, argument: u64, now_ns: u64, left: &mut i64) -> Verdict {
        let own = self.verified.budget;
        // What it takes without a loop or a call is paid here; a loop's iteration is when it ends.
        let most = left.saturating_sub(self.verified.len_of(0));
        if most < 0 {
            *left = most;
            return Verdict::Aborted(Abort::Budget);
        }
        let mut budget = own.min(most);
        let granted = budget;
        let verdict = match &self.compiled {
            Some(compiled) => compiled.run(&self.verified, frame, port, argument, now_ns, &mut budget),
            None => interpreter::run(&self.verified, frame, port, argument, now_ns, &mut budget),
        };
        *left = most - (granted - budget);
        verdict
    }

    /// Whether [`Program::run`] runs machine code.
    pub fn is_compiled(&self) -> bool {
        self.compiled.is_some()
    }

    /// As [`Program::run`], by the interpreter.
    pub fn interpret(&self, frame: &mut Frame<'_>, port: u32, argument: u64, now_ns: u64) -> Verdict {
        interpreter::run(&self.verified, frame, port, argument, now_ns, &mut { self.verified.budget })
    }

    /// The maps of the program.
    pub fn maps(&self) -> Maps {
        Maps(self.verified.maps.clone())
    }

    /// Takes the newest lines that `trace_printk` wrote out of the log, and how many lines were lost before.
    pub fn take_log(&self) -> (Vec<String>, u64) {
        self.verified.log.take()
    }

    /// The verified instructions as text, one a line, with their numbers.
    pub fn listing(&self) -> String {
        let line = |(number, op): (usize, &Op)| {
            let function = self.verified.linked.functions.iter().find(|f| f.start == number);
            let title = function.map(|f| format!("{}:\n", f.name)).unwrap_or_default();
            format!("{title}{number:5}: {op}\n")
        };
        self.verified.ops.iter().enumerate().filter(|(_, op)| **op != Op::Second).map(line).collect()
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("functions", &self.verified.linked.functions).finish_non_exhaustive()
    }
}
