//! Loaded programs: verified, with their maps, ready to run.

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

/// The default budget of a run in instructions.
pub const BUDGET: u32 = 1 << 18;

/// The maps of an object, which several programs may share.
#[derive(Clone, Debug)]
pub struct Maps(Vec<Arc<Map>>);

impl Maps {
    /// Creates the maps that an object defines.
    ///
    /// # Errors
    /// If a map cannot be created.
    pub fn new(object: &Object) -> Result<Maps, MapError> {
        let map = |spec: &MapSpec| Ok(Arc::new(Map::new(spec.clone())?));
        object.maps().iter().map(map).collect::<Result<_, _>>().map(Maps)
    }

    /// The map with a name.
    ///
    /// # Errors
    /// [`MapError::Unknown`] if there is none.
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
    /// The budget of a run in instructions; a run that exceeds it is aborted. It is charged at the end of each loop
    /// iteration and at calls; a helper costs as many instructions as take the same time.
    pub budget: u32,
    /// The seed of `get_prandom_u32`; by default, different for each program.
    pub seed: Option<u64>,
    /// Whether to compile the program. Otherwise, and on machines that Cranelift does not support, it is interpreted.
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
    /// Loads the program with the name of a function or section, with its own maps.
    ///
    /// # Errors
    /// If there is no such program, a map cannot be created, or the program cannot be linked, verified or compiled.
    pub fn load(object: &Object, name: &str) -> Result<Program, VerifyError> {
        Program::load_with(object, name, &Maps::new(object)?, Options::default())
    }

    /// Loads a program with maps that [`Maps::new`] created for the same object.
    ///
    /// # Errors
    /// As [`Program::load`]; also if the maps are those of another object.
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

    /// Runs the program on a packet. `argument` is the action's argument, `now_ns` the result of `ktime_get_ns`.
    pub fn run(&self, frame: &mut Frame<'_>, port: u32, argument: u64, now_ns: u64) -> Verdict {
        self.run_in(frame, port, argument, now_ns, &mut { i64::MAX })
    }

    /// As [`Program::run`], with a further budget of `left` instructions, from which the cost is subtracted. If it
    /// becomes negative, the verdict is [`Abort::Budget`](crate::Abort::Budget), and the packet may be partly modified.
    pub fn run_in(&self, frame: &mut Frame<'_>, port: u32, argument: u64, now_ns: u64, left: &mut i64) -> Verdict {
        let own = self.verified.budget;
        // The entry function's length is charged here, for everything outside loops and calls; loops are charged at the
        // end of each iteration.
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

    /// Runs the program in the interpreter; otherwise as [`Program::run`].
    pub fn interpret(&self, frame: &mut Frame<'_>, port: u32, argument: u64, now_ns: u64) -> Verdict {
        interpreter::run(&self.verified, frame, port, argument, now_ns, &mut { self.verified.budget })
    }

    /// The maps of the program.
    pub fn maps(&self) -> Maps {
        Maps(self.verified.maps.clone())
    }

    /// Removes the log's lines, the newest that `trace_printk` wrote; and the number of lines lost before.
    pub fn take_log(&self) -> (Vec<String>, u64) {
        self.verified.log.take()
    }

    /// The verified instructions as text, one per line, with their numbers.
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
