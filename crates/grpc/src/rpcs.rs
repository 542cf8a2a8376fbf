//! Counts of calls, by method and status code.
//!
//! [`Admission`](crate::admission::Admission) counts a call in the task that runs it to completion, so a call that its
//! client cancelled is counted, too. A streaming call is counted with the code with which it began. Unknown methods
//! share one counter, so that a client cannot make the list grow.
//!
//! Threads: the runtime's; one short lock per call. Tests: `tests/loopback.rs`, `tests/rights.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tonic::Code;

/// Counts of calls by method and code.
#[derive(Debug, Default)]
pub struct RpcCounts(Mutex<BTreeMap<(String, String), u64>>);

impl RpcCounts {
    /// `(method, code, calls)`, sorted by method and code.
    pub fn read(&self) -> Vec<(String, String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|((method, code), calls)| (method.clone(), code.clone(), *calls)).collect()
    }

    /// Number of calls that write entities or set programs, whatever their result.
    pub fn changes(&self) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changing = |method: &str| matches!(method, "Write" | "SetForwardingPipelineConfig" | "Load" | "Unload");
        counts.iter().filter(|((method, _), _)| changing(method)).map(|(_, calls)| calls).sum()
    }

    pub(crate) fn count(&self, method: &str, code: Code) {
        // The path begins with the service's name.
        let method = match code {
            Code::Unimplemented => "unknown",
            _ => method.rsplit('/').next().unwrap_or_default(),
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((method.to_string(), format!("{code:?}"))).or_default() += 1;
    }
}
