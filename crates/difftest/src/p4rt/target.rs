//! The switch under test, without packet I/O: programs, their state, and ports.

use control::forwarding::{Built, Compiled, Refusal, Target};
use datapath::{EngineKind, Keep};
use frontend::{Input, Options, Until};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

/// The port numbers of the switch under test.
pub const PORTS: [u32; 4] = [1, 2, 3, 4];
/// The controller's port number.
pub const CPU_PORT: u32 = 510;

pub(super) struct Switch {
    engine: EngineKind,
    options: Options,
}

impl Switch {
    /// A switch whose programs may include files in `folder`.
    pub(super) fn new(engine: EngineKind, folder: Option<&Path>) -> Switch {
        let include_dirs = folder.map(|f| f.display().to_string()).into_iter().collect();
        Switch { engine, options: Options { include_dirs, ..Options::default() } }
    }

    fn compile_anew(&self, source: &[u8]) -> Result<Compiled, String> {
        let text = std::str::from_utf8(source).map_err(|e| e.to_string())?;
        let input = Input::Text { name: "device_config.p4", text };
        let compiled = frontend::compile(input, &self.options, Until::Ir).map_err(|e| e.to_string())?;
        if compiled.failed() {
            return Err(compiled.render(false));
        }
        let (Some(program), Some(p4info)) = (compiled.optimised, compiled.p4info) else {
            return Err("the program has no `main`".to_string());
        };
        Ok(Compiled { p4info, program: Arc::new(program) })
    }
}

impl Target for Switch {
    fn compile(&self, source: &[u8]) -> Result<Compiled, Refusal> {
        // Cached, since fuzz targets load the same program repeatedly.
        thread_local! {
            static LAST: RefCell<Option<(Vec<u8>, Compiled)>> = const { RefCell::new(None) };
        }
        if let Some(known) = LAST.with_borrow(|last| last.as_ref().filter(|(s, _)| s == source).map(|(_, c)| c.clone()))
        {
            return Ok(known);
        }
        let compiled = self.compile_anew(source)?;
        LAST.set(Some((source.to_vec(), compiled.clone())));
        Ok(compiled)
    }

    fn build(&self, compiled: &Compiled, _: Option<(&Built, &Keep)>) -> Result<Built, Refusal> {
        let Compiled { p4info, program } = compiled.clone();
        let pipeline = datapath::load(Arc::clone(&program), self.engine, 1).map_err(|e| e.to_string())?;
        let pipeline = Arc::new(pipeline);
        let (state, replication) = (Arc::clone(pipeline.state()), Arc::clone(pipeline.replication()));
        Ok(Built { p4info, program, state, replication, shares: false, handle: pipeline })
    }

    fn activate(&self, _: &Built) -> Result<(), String> {
        Ok(())
    }

    fn ports(&self) -> Vec<u32> {
        PORTS.to_vec()
    }

    fn cpu_port(&self) -> Option<u32> {
        Some(CPU_PORT)
    }

    fn inject(&self, _: u32, _: Vec<u8>) -> Result<(), String> {
        Ok(())
    }
}
