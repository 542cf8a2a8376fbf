//! An HTTP server for monitoring: `GET /metrics` answers with what a source says now.
//!
//! Here because this crate has the async runtime; what the text is, the source knows, which is called on a blocking thread
//! for each request.
//!
//! Tests: below, through a socket.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Writes the metrics.
pub type MetricsSource = Arc<dyn Fn() -> String + Send + Sync>;

/// What the text is (OpenMetrics, which Prometheus reads).
const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A running server; dropping it stops it.
pub struct MetricsServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Serves metrics on `address` until the result is dropped. Returns once the socket listens.
pub fn serve(address: SocketAddr, source: MetricsSource) -> io::Result<MetricsServer> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let handler = move || {
        let source = Arc::clone(&source);
        async move {
            match tokio::task::spawn_blocking(move || source()).await {
                Ok(text) => ([(CONTENT_TYPE, TEXT)], text).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
    };
    let router = axum::Router::new().route("/metrics", get(handler));
    let body = move || {
        runtime.block_on(async {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "cannot serve metrics"),
            };
            tokio::select! {
                done = axum::serve(listener, router) => {
                    if let Err(error) = done {
                        tracing::error!(%error, "the metrics server ended");
                    }
                }
                _ = stopped => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name("metrics".to_string()).spawn(body)?;
    Ok(MetricsServer { address, stop: Some(stop), thread: Some(thread) })
}

impl MetricsServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The server may have ended by itself.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn each_request_gets_what_the_source_says_now() {
        let calls = AtomicU64::new(0);
        let source: MetricsSource = Arc::new(move || format!("calls {}\n", calls.fetch_add(1, Ordering::Relaxed)));
        let server = serve("127.0.0.1:0".parse().unwrap(), source).unwrap();
        for n in 0..2 {
            let answer = get(server.address(), "/metrics");
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("openmetrics"), "{answer}");
            assert!(answer.ends_with(&format!("calls {n}\n")), "{answer}");
        }
        assert!(get(server.address(), "/other").starts_with("HTTP/1.1 404"));
        let address = server.address();
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }
}
