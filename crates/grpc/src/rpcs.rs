//! How many calls there were, by method and answer.
//!
//! [`Admission`](crate::admission::Admission) counts a call in the task that runs it to its end, so one that its client
//! cancelled counts like others. A streaming call counts by how it began. Methods that no service has are counted as one, so that a client cannot make
//! the list longer.
//!
//! Threads: the runtime's; one short lock per call. Tests: `tests/loopback.rs`, `tests/rights.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tonic::Code;

/// Calls by method and code.
#[derive(Debug, Default)]
pub struct RpcCounts(Mutex<BTreeMap<(String, String), u64>>);

impl RpcCounts {
    /// `(method, code, calls)`, sorted.
    pub fn read(&self) -> Vec<(String, String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|((method, code), calls)| (method.clone(), code.clone(), *calls)).collect()
    }

    /// Calls that wrote entities or set programs, however they ended.
    pub fn changes(&self) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changing = |method: &str| matches!(method, "Write" | "SetForwardingPipelineConfig" | "Load" | "Unload");
        counts.iter().filter(|((method, _), _)| changing(method)).map(|(_, calls)| calls).sum()
    }

    pub(crate) fn count(&self, method: &str, code: Code) {
        // The service's name is in front.
        let method = match code {
            Code::Unimplemented => "unknown",
            _ => method.rsplit('/').next().unwrap_or_default(),
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((method.to_string(), format!("{code:?}"))).or_default() += 1;
    }
}
