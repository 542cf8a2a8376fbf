//! A device of the running switch as the control plane's target: compiles programs that controllers send, and installs
//! them on the workers.

use crate::compiler::Compiler;
use crate::compiler::protocol::Wants;
use control::forwarding::{Built, Compiled, Refusal, Target};
use datapath::{CacheUse, CodeOptions, EngineKind, Keep, Limit, Pipeline, PortOf, Specialise, Switch};
use frontend::Options;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;

/// A device of a switch, with the options for compiling its programs.
pub struct SwitchTarget {
    switch: Arc<Switch>,
    device: u64,
    compiler: Arc<Compiler>,
    options: Options,
    code: CodeOptions,
    engine: EngineKind,
    specialise: Specialise,
    cache: CacheUse,
    /// Ports that will be added later; entities may already refer to them.
    announced: Vec<u32>,
}

impl SwitchTarget {
    /// Returns the target for the switch's first device. `compiler` compiles programs with `options`; on
    /// [`EngineKind::Machine`], `code` are the code generator's options, and `specialise` says how running code is
    /// specialised.
    pub fn new(
        switch: Arc<Switch>,
        compiler: Arc<Compiler>,
        options: Options,
        code: CodeOptions,
        engine: EngineKind,
        specialise: Specialise,
    ) -> SwitchTarget {
        let device = switch.first_device();
        let cache = CacheUse::Never;
        SwitchTarget { switch, device, compiler, options, code, engine, specialise, cache, announced: vec![] }
    }

    /// Returns the target for another device of the same switch, with the same options.
    pub fn for_device(&self, device: u64) -> SwitchTarget {
        SwitchTarget {
            switch: Arc::clone(&self.switch),
            device,
            compiler: Arc::clone(&self.compiler),
            options: self.options.clone(),
            code: self.code.clone(),
            engine: self.engine,
            specialise: self.specialise,
            cache: self.cache,
            announced: vec![],
        }
    }

    /// Sets when flow caches are used; the default is never.
    pub fn with_cache(self, cache: CacheUse) -> SwitchTarget {
        SwitchTarget { cache, ..self }
    }

    /// Announces ports that will be added once program and entities are in place.
    pub fn with_ports(self, announced: Vec<u32>) -> SwitchTarget {
        SwitchTarget { announced, ..self }
    }

    /// Starts specialisation and the flow cache of a program that has just been installed.
    fn begin(&self, pipeline: &Pipeline) {
        pipeline.specialise(self.specialise);
        if let Some(cache) = pipeline.flow_cache()
            && let Err(error) = cache.set_use(self.cache)
        {
            tracing::warn!(device = self.device, "packets go without a flow cache: {error}");
        }
    }

    fn pipeline(built: &Built) -> Result<Arc<Pipeline>, String> {
        let handle: Arc<dyn Any + Send + Sync> = Arc::clone(&built.handle);
        handle.downcast::<Pipeline>().map_err(|_| "this config was built for another target".to_string())
    }
}

impl Target for SwitchTarget {
    fn compile(&self, source: &[u8]) -> Result<Compiled, Refusal> {
        self.compile_named(source, "")
    }

    fn compile_named(&self, source: &[u8], name: &str) -> Result<Compiled, Refusal> {
        let text = frontend::form::text(source)?;
        // The name is optional for controllers.
        let name = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("program.p4");
        let output = self.compiler.compile_text(name, text, &self.options, Wants::default())?;
        if output.failed {
            return Err(Refusal::Program(output.messages));
        }
        if let Some(text) = output.unloadable {
            return Err(Refusal::Program(text));
        }
        let (Some(program), Some(p4info)) = (output.program, output.p4info) else {
            return Err("the program has no `main`, so there is nothing to run".into());
        };
        Ok(Compiled { p4info: Arc::new(p4info), program: Arc::new(program) })
    }

    fn other_owner(&self) -> Option<String> {
        let is_bridge = self.switch.pipeline_of(self.device).is_some_and(|pipeline| pipeline.flows().is_some());
        is_bridge.then(|| {
            format!(
                "device {} is an OpenFlow bridge, which has flows instead of P4 tables: `ovs-ofctl dump-flows` and `add-flow` on the \
                 socket of --mgmt show and change them, `sluice cache`, `trace` and `program` the rest",
                self.device
            )
        })
    }

    fn build(&self, compiled: &Compiled, earlier: Option<(&Built, &Keep)>) -> Result<Built, Refusal> {
        let Compiled { p4info, program } = compiled.clone();
        if self.switch.pipeline_of(self.device).is_some_and(|pipeline| pipeline.flows().is_some()) {
            return Err(
                format!("device {} is an OpenFlow bridge (--openflow), so it keeps its program", self.device).into()
            );
        }
        let ports = self.ports().into_iter().chain(self.switch.cpu_port());
        if let Some(problem) = ports.into_iter().find_map(|number| port_problem(&program, number)) {
            return Err(problem.into());
        }
        let (workers, engine) = (self.switch.workers(), self.engine);
        let earlier = earlier.map(|(built, keep)| SwitchTarget::pipeline(built).map(|pipeline| (pipeline, keep)));
        let earlier = earlier.transpose()?;
        let earlier = earlier.as_ref().map(|(pipeline, keep)| (&**pipeline, *keep));
        let pipeline =
            datapath::load_keeping(Arc::clone(&program), engine, workers, &self.code, earlier).map_err(|error| {
                let option = match error.limit {
                    Some(Limit::CompileTime) => "--compile-time",
                    Some(Limit::StateMemory) => "--state-memory",
                    None => return Refusal::Program(error.to_string()),
                };
                Refusal::Limit(format!("{}; start the switch with a larger {option}", error.reason))
            })?;
        let pipeline = Arc::new(pipeline);
        let (state, replication) = (Arc::clone(pipeline.state()), Arc::clone(pipeline.replication()));
        Ok(Built { p4info, program, state, replication, shares: pipeline.shares(), handle: pipeline })
    }

    fn activate(&self, built: &Built) -> Result<(), String> {
        let pipeline = SwitchTarget::pipeline(built)?;
        // Ports may have been added since it was built.
        let ports = self.ports().into_iter().chain(self.switch.cpu_port());
        if let Some(problem) = ports.into_iter().find_map(|number| port_problem(&built.program, number)) {
            return Err(problem);
        }
        self.switch.set_pipeline_of(self.device, Some(Arc::clone(&pipeline))).map_err(|e| e.to_string())?;
        self.begin(&pipeline);
        Ok(())
    }

    fn replace(&self, earlier: &Built, built: &Built, keep: &Keep) -> Result<(), String> {
        let (old, new) = (SwitchTarget::pipeline(earlier)?, SwitchTarget::pipeline(built)?);
        if !new.takes_registers(&old, keep) {
            self.activate(built)?;
        } else {
            let copy = || new.take_registers(&old, keep);
            self.switch.replace_pipeline_of(self.device, Arc::clone(&new), copy).map_err(|e| e.to_string())?;
            self.begin(&new);
        }
        // No packet runs through the earlier program any more, so its final counts can be carried over.
        new.inherit(&old, keep);
        Ok(())
    }

    fn hold(&self) -> Result<Box<dyn Any>, String> {
        self.switch.hold().map(|held| Box::new(held) as Box<dyn Any>).map_err(|e| e.to_string())
    }

    fn port_is_up(&self, port: u32) -> bool {
        self.switch.port_is_up(PortOf { device: self.device, port })
    }

    fn ports(&self) -> Vec<u32> {
        let there = self.switch.ports_of(self.device);
        // An announced port that exists by now may belong to another device.
        let all: Vec<u32> = self.switch.ports().iter().map(|p| p.number).collect();
        let announced = self.announced.iter().copied().filter(|number| !all.contains(number));
        there.into_iter().chain(announced).collect()
    }

    /// Like bmv2, accepts every port number in entities, whether the port exists or not.
    fn ports_to_come(&self) -> Option<u32> {
        self.options.bmv2.then_some(crate::bmv2::switch::DROP_PORT - 1)
    }

    fn cpu_port(&self) -> Option<u32> {
        self.switch.cpu_port()
    }

    fn frame_bytes_max(&self) -> usize {
        pktio::LARGE_CAPACITY - pktio::HEADROOM
    }

    fn settle_counts(&self, built: &Built) {
        if let Ok(pipeline) = SwitchTarget::pipeline(built) {
            pipeline.settle_counts();
        }
    }

    fn inject(&self, port: u32, frame: Vec<u8>) -> Result<(), String> {
        self.switch.inject_into(self.device, port, frame).map_err(|e| e.to_string())
    }
}

/// Returns why a program cannot have a port of this number, if so.
pub fn port_problem(program: &ir::Program, number: u32) -> Option<String> {
    let width = program.intrinsic(ir::Intrinsic::IngressPort).map(|slot| program.width(slot))?;
    if width < 32 && number >> width != 0 {
        return Some(format!("port {number} does not fit in the program's port numbers, which are bit<{width}>"));
    }
    let meanings =
        [(program.drop_port, "«drop»"), (program.cpu_port, "the controller"), (program.recirculation_port, "ingress")];
    let (_, meaning) = meanings.into_iter().find(|(port, _)| *port == Some(u64::from(number)))?;
    Some(format!("port {number} means {meaning} in this program's architecture"))
}

#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod tests;
