//! The running switch as the control plane's target: compiling what a controller sends, and making workers run it.

use control::pipeline::{Built, Target};
use datapath::{EngineKind, Pipeline, Specialise, Switch};
use frontend::{Compiled, Input, Options, Until};
use std::any::Any;
use std::sync::Arc;

/// A switch and how programs for it are compiled.
pub struct SwitchTarget {
    switch: Arc<Switch>,
    options: Options,
    code: jit::Options,
    engine: EngineKind,
    specialise: Specialise,
}

impl SwitchTarget {
    /// Programs are compiled with `options` and, if they run on [`EngineKind::Machine`], `code`, and while they run again
    /// as `specialise` says.
    pub fn new(
        switch: Arc<Switch>,
        options: Options,
        code: jit::Options,
        engine: EngineKind,
        specialise: Specialise,
    ) -> SwitchTarget {
        SwitchTarget { switch, options, code, engine, specialise }
    }

    /// Sets up a compiled program's state and code.
    fn load(&self, compiled: Compiled) -> Result<Built, String> {
        let (Some(program), Some(p4info)) = (compiled.optimised, compiled.p4info) else {
            return Err("the program has no `main`, so there is nothing to run".to_string());
        };
        let program = Arc::new(program);
        let ports = self.switch.ports().into_iter().map(|p| p.number).chain(self.switch.cpu_port());
        if let Some(problem) = ports.into_iter().find_map(|number| port_problem(&program, number)) {
            return Err(problem);
        }
        let pipeline = datapath::load_with(Arc::clone(&program), self.engine, self.switch.workers(), &self.code)
            .map_err(|e| e.to_string())?;
        let pipeline = Arc::new(pipeline);
        let (state, replication) = (Arc::clone(pipeline.state()), Arc::clone(pipeline.replication()));
        Ok(Built { p4info, program, state, replication, handle: pipeline })
    }
}

/// Why a program cannot have a port of this number, if it cannot.
pub fn port_problem(program: &ir::Program, number: u32) -> Option<String> {
    let width = program.intrinsic(ir::Intrinsic::IngressPort).map(|slot| program.width(slot))?;
    if width < 32 && number >> width != 0 {
        return Some(format!("port {number} does not fit in the program's port numbers, which are bit<{width}>"));
    }
    (program.drop_port == Some(u64::from(number)))
        .then(|| format!("port {number} means «drop» in this program's architecture"))
}

impl Target for SwitchTarget {
    fn build(&self, source: &[u8]) -> Result<Built, String> {
        let text = std::str::from_utf8(source).map_err(|e| {
            format!(
                "the device config must be P4 source text, but it is no UTF-8: {e} (a compiled bmv2 JSON or other \
                     binary config is not taken)"
            )
        })?;
        let input = Input::Text { name: "device_config.p4", text };
        let compiled = frontend::compile(input, &self.options, Until::Ir).map_err(|e| e.to_string())?;
        if compiled.failed() {
            return Err(compiled.render(false));
        }
        if let Some(text) = compiled.render_unloadable(false) {
            return Err(text);
        }
        self.load(compiled)
    }

    fn activate(&self, built: &Built) -> Result<(), String> {
        let handle: Arc<dyn Any + Send + Sync> = Arc::clone(&built.handle);
        let pipeline = handle.downcast::<Pipeline>().map_err(|_| "this config was built for another target")?;
        self.switch.set_pipeline(Some(Arc::clone(&pipeline))).map_err(|e| e.to_string())?;
        pipeline.specialise(self.specialise);
        Ok(())
    }

    fn ports(&self) -> Vec<u32> {
        self.switch.ports().iter().map(|p| p.number).collect()
    }

    fn cpu_port(&self) -> Option<u32> {
        self.switch.cpu_port()
    }

    fn inject(&self, port: u32, frame: Vec<u8>) -> Result<(), String> {
        self.switch.inject(port, frame).map_err(|e| e.to_string())
    }
}
