//! Changes of a device's program in three steps, so that the slow one runs without [`Control`]'s lock.
//!
//! ```text
//!   prepare_*()  with the lock     checks the sender, notes the target and the running program
//!   run()        without           compiles, builds machine code and empty state: seconds, for a large program
//!   *_prepared() with the lock     checks the sender again, carries entries over, changes the program
//! ```
//!
//! Reads and writes of all devices, including this one, continue meanwhile. What was true in the first step may no
//! longer be true in the last: a program that was prepared to share another one's state is refused if that one no
//! longer runs.
//!
//! Tests: `tests/p4runtime/configs.rs`; with real programs, `crates/sluice/tests/compiler.rs`.

use crate::adopt::adopt;
use crate::compare::{Comparison, Side, compare};
use crate::control::{ConfigAction, Control, Device, SetConfigRequest};
use crate::error::{Error, Result};
use crate::forwarding::{Built, Forwarding, ForwardingConfig, Refusal, Target, check_claims, check_platform};
use std::sync::Arc;

/// The step that runs without the lock.
pub struct Preparation {
    pub(crate) target: Arc<dyn Target>,
    config: ForwardingConfig,
    /// The running program whose state the new one takes over.
    earlier: Option<Built>,
}

/// A program that is ready to be installed.
pub struct Prepared {
    pub(crate) config: ForwardingConfig,
    pub(crate) built: Built,
    earlier: Option<(Built, Comparison)>,
}

impl Preparation {
    /// Compiles the program and builds its state.
    ///
    /// # Errors
    ///
    /// The program does not compile, does not match its P4Info, or exceeds a limit of the switch.
    pub fn run(self) -> Result<Prepared> {
        let Preparation { target, config, earlier } = self;
        let mut compiled = target.compile_named(&config.device_config, &config.name).map_err(Refusal::error)?;
        adopt(&mut compiled, &config.claims);
        check_claims(&compiled.p4info, &config.claims)?;
        check_platform(compiled.p4info.pkg_info.platform_properties.as_ref())?;
        check_platform(config.platform.as_ref())?;
        let earlier = earlier.map(|old| {
            let side = |info, program| Side { info, program };
            let comparison = compare(side(&old.p4info, &old.program), side(&compiled.p4info, &compiled.program));
            (old, comparison)
        });
        let shared = earlier.as_ref().map(|(old, comparison)| (old, &comparison.keep));
        let built = target.build(&compiled, shared).map_err(Refusal::error)?;
        Ok(Prepared { config, built, earlier })
    }
}

impl Device {
    /// Prepares a program that takes over the running one's state, or starts with empty state.
    pub(crate) fn prepare(&self, config: ForwardingConfig, takes_over: bool) -> Preparation {
        let earlier = self.running.as_ref().filter(|_| takes_over).map(|old| old.built.clone());
        Preparation { target: Arc::clone(&self.target), config, earlier }
    }

    /// A config that does not take over an earlier program's state.
    pub(crate) fn forwarding(&self, prepared: Prepared) -> Forwarding {
        Forwarding::new(Arc::clone(&self.target), prepared.built, prepared.config, None)
    }

    /// A config that takes over the running program's state, and their comparison; `None` if no program runs.
    ///
    /// # Errors
    ///
    /// ABORTED if another program runs than when it was prepared.
    pub(crate) fn taken_over(&self, prepared: Prepared) -> Result<(Forwarding, Option<Comparison>)> {
        let Prepared { config, built, earlier } = prepared;
        let same = |old: &Built, now: &Built| Arc::ptr_eq(&old.handle, &now.handle);
        let comparison = match (earlier, &self.running) {
            (Some((old, comparison)), Some(now)) if same(&old, &now.built) => Some(comparison),
            (None, None) => None,
            _ => return Err(Error::aborted("the program was changed by another request meanwhile: try again")),
        };
        let old = self.running.as_ref().filter(|_| comparison.is_some());
        Ok((Forwarding::new(Arc::clone(&self.target), built, config, old), comparison))
    }
}

impl Control {
    /// The first step of [`Control::set_config`]; `None` if there is nothing to prepare.
    ///
    /// # Errors
    ///
    /// The sender may not change the program.
    pub fn prepare_config(&mut self, request: &SetConfigRequest) -> Result<Option<Preparation>> {
        let device = self.may_set_config(request)?;
        let takes_over = match request.action {
            ConfigAction::Verify | ConfigAction::VerifyAndSave | ConfigAction::VerifyAndCommit => false,
            ConfigAction::ReconcileAndCommit => true,
            // Unspecified is refused later; COMMIT has no program.
            ConfigAction::Unspecified | ConfigAction::Commit => return Ok(None),
        };
        Ok(request.config.clone().map(|config| device.prepare(config, takes_over)))
    }

    /// The first step of [`Control::load`] or, if the program takes over state, of [`Control::replace`].
    pub fn prepare(&mut self, device_id: u64, config: ForwardingConfig, takes_over: bool) -> Result<Preparation> {
        Ok(self.device(device_id)?.prepare(config, takes_over))
    }
}
