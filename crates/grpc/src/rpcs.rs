//! How many calls there were, by method and answer: a layer around the server's services.
//!
//! A streaming call counts by how it began. Methods that no service has are counted as one, so that a client cannot make
//! the list longer.
//!
//! Threads: the runtime's; one short lock per call. Tests: `tests/loopback.rs`.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

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

    fn count(&self, method: &str, code: Code) {
        // The service's name is in front.
        let method = match code {
            Code::Unimplemented => "unknown",
            _ => method.rsplit('/').next().unwrap_or_default(),
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((method.to_string(), format!("{code:?}"))).or_default() += 1;
    }
}

/// Counts the calls of the services below it.
#[derive(Clone)]
pub(crate) struct Counting(pub(crate) Arc<RpcCounts>);

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counts: Arc::clone(&self.0) }
    }
}

#[derive(Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    counts: Arc<RpcCounts>,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.uri().path().to_string();
        let counts = Arc::clone(&self.counts);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // A refusal has its code in the headers; an answer has it behind the last message, and is one.
            let code = answer.headers().get("grpc-status").map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()));
            counts.count(&method, code);
            Ok(answer)
        })
    }
}
