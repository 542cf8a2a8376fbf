//! A program with what its script shows: packets, set-up lines, and the values of keys.

use anyhow::{Context, Result, bail, ensure};
use base::Bits;
use datapath::oracle::Oracle;
use datapath::{Local, Pipeline};
use frontend::{Input, Options, Until};
use interp::Event;
use ir::{Op, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use stf::{Command, Line, Setup, Target};

/// A program under test.
pub struct Subject {
    /// The name for messages.
    pub name: String,
    /// The IR before optimisation.
    pub raw: Arc<Program>,
    /// The IR after all passes.
    pub optimised: Arc<Program>,
    /// The script's packets with their ingress ports.
    pub packets: Vec<(u32, Vec<u8>)>,
    /// The script's set-up lines.
    pub setup: Vec<Line>,
    /// The keys that the seed packets looked up, by table name.
    pub keys: BTreeMap<String, Vec<Vec<Bits>>>,
}

impl Subject {
    /// Reads a program and its script.
    ///
    /// # Errors
    /// If they cannot be read, compiled or run, or the program uses random numbers.
    pub fn read(program: &Path, script: &Path) -> Result<Subject> {
        let name = program.display().to_string();
        let compiled = frontend::compile(Input::File(program), &Options::default(), Until::Ir)?;
        ensure!(!compiled.failed(), "{}", compiled.render(false));
        let raw = Arc::new(compiled.raw.with_context(|| format!("{name} has no `main`"))?);
        let optimised = Arc::new(compiled.optimised.context("raw IR is optimised")?);
        let draws = |op: &Op| matches!(op, Op::Random { .. } | Op::Hash { algorithm: ir::HashAlgorithm::Random, .. });
        if raw.stages.iter().flat_map(|s| &s.blocks).flat_map(|b| &b.insts).any(|i| draws(&i.op)) {
            bail!("{name} draws random numbers, so its runs cannot be compared");
        }
        let text = std::fs::read_to_string(script)?;
        let lines = stf::parse(&text).map_err(|e| anyhow::anyhow!("{}: {}", script.display(), e[0]))?;
        let mut subject = Subject { name, raw, optimised, packets: vec![], setup: vec![], keys: BTreeMap::new() };
        subject.learn(&lines)?;
        ensure!(!subject.packets.is_empty(), "{} sends no packets", script.display());
        Ok(subject)
    }

    /// Runs the script in the interpreter, and records packets, set-up lines and keys.
    fn learn(&mut self, lines: &[Line]) -> Result<()> {
        let oracle = Oracle::new(Arc::clone(&self.raw), true);
        let output = oracle.output();
        let mut local = Local::new(Arc::new(Pipeline::new(Arc::clone(&self.raw), Box::new(oracle), 1)));
        let mut setup = Setup::new();
        let mut seen: BTreeSet<(String, Vec<String>)> = BTreeSet::new();
        for line in lines {
            if let Command::Packet { port, frame } = &line.command {
                self.packets.push((*port, frame.clone()));
                local.receive(*port, frame).context("a seed packet is too long")?;
                for (_, trace) in output.take_traces() {
                    for step in trace.steps {
                        let Event::Apply { table, keys, .. } = step.event else { continue };
                        let values: Vec<Bits> = keys.into_iter().map(|(_, value)| value).collect();
                        if seen.insert((table.clone(), values.iter().map(Bits::to_string).collect())) {
                            self.keys.entry(table).or_default().push(values);
                        }
                    }
                }
                continue;
            }
            let pipeline = Arc::clone(local.pipeline());
            let replication = Arc::clone(local.replication());
            let target =
                Target { program: pipeline.program(), state: pipeline.state().as_ref(), replication: &replication };
            match setup.apply(&line.command, target) {
                Ok(Some(_)) => self.setup.push(line.clone()),
                Ok(None) => {}
                Err(message) => bail!("{}: line {}: {message}", self.name, line.number),
            }
        }
        Ok(())
    }
}
