//! One program on every engine: the same changes, the same packets, and what becomes of them compared.

use datapath::{EngineKind, Local, Pipeline, Sent, Specialise};
use std::sync::Arc;

/// The same program on every engine.
pub struct Engines {
    pipelines: Vec<(&'static str, Arc<Pipeline>)>,
    locals: Vec<Local>,
}

impl Engines {
    /// Loads the program on each.
    pub fn new(program: &Arc<ir::Program>) -> Engines {
        let engines = [
            ("interpreted", EngineKind::Interpreter),
            ("generic", EngineKind::Machine),
            ("compiled again", EngineKind::Machine),
            ("staged", EngineKind::Staged),
        ];
        let load = |(name, engine)| (name, Arc::new(datapath::load(Arc::clone(program), engine, 1).expect("it loads")));
        let pipelines: Vec<_> = engines.into_iter().map(load).collect();
        let locals = pipelines.iter().map(|(_, p)| Local::new(Arc::clone(p))).collect();
        Engines { pipelines, locals }
    }

    /// Changes the state of each.
    pub fn each(&self, change: impl Fn(&dyn abi::PipelineState)) {
        self.pipelines.iter().for_each(|(_, p)| change(p.state().as_ref()));
    }

    /// Compiles the code of one engine again.
    pub fn recompile(&self, mode: Specialise) {
        let (_, pipeline) = self.pipelines.iter().find(|(name, _)| *name == "compiled again").expect("it is there");
        pipeline.recompile(mode).expect("it compiles");
    }

    /// Sends a frame that begins like this through all engines, which must agree.
    pub fn check(&mut self, frame: &[u8], what: &str) {
        let mut frame = frame.to_vec();
        frame.resize(60, 0);
        let mut expected: Option<Vec<Sent>> = None;
        for ((name, _), local) in self.pipelines.iter().zip(&mut self.locals) {
            let sent = local.receive(1, &frame).expect("it fits");
            match &expected {
                None => expected = Some(sent),
                Some(expected) => assert_eq!(&sent, expected, "{what}: {name} (left), interpreted, for {frame:02x?}"),
            }
        }
    }
}
