//! An HTTP server for monitoring: `GET /metrics` answers with the present text of a source.
//!
//! It is in this crate because of the async runtime. The source, which is called on a blocking thread for each request,
//! writes OpenMetrics; clients that do not ask for that (`Accept`) get the same as Prometheus text 0.0.4, converted by
//! [`plain`]. If a token is configured, only requests that present it (`Authorization: Bearer`) are answered.
//!
//! Connections have the limits of P4Runtime's (`listen`); a request's head must arrive within the time of a handshake.
//!
//! RFC 9110, 12.4.2 and 12.5.1 (quality values, Accept); RFC 6750, 2.1 (bearer tokens). Tests: below, through a socket;
//! `tests/py/test_access.py`.

use crate::listen::{Connection, ConnectionLimits, Listener, Protocol, accept_all};
use crate::serve::beat;
use crate::tls::Tls;
use axum::extract::State;
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, VARY, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Returns the metrics as OpenMetrics text.
pub type MetricsSource = Arc<dyn Fn() -> String + Send + Sync>;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Limit on the answers that are produced at the same time.
const ANSWERS_AT_ONCE: usize = 4;

/// Options of the server.
#[derive(Clone)]
pub struct MetricsOptions {
    /// TLS; `None` for plain text.
    pub tls: Option<Tls>,
    /// The token that requests must present, if any.
    pub token: Option<String>,
    /// Limits of connections.
    pub connections: ConnectionLimits,
}

impl Default for MetricsOptions {
    fn default() -> MetricsOptions {
        let connections = ConnectionLimits { connections_max: 64, per_peer_max: 32, ..ConnectionLimits::default() };
        MetricsOptions { tls: None, token: None, connections }
    }
}

/// A running server; dropping it stops it.
pub struct MetricsServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Answering {
    source: MetricsSource,
    token: Option<Arc<str>>,
    turns: Arc<Semaphore>,
}

/// Serves metrics on `address` until the result is dropped. Returns once the socket listens.
///
/// # Errors
///
/// The socket cannot be bound, or the thread cannot be started.
pub fn serve(address: SocketAddr, source: MetricsSource, options: MetricsOptions) -> io::Result<MetricsServer> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let MetricsOptions { tls, token, connections } = options;
    let turns = Arc::new(Semaphore::new(ANSWERS_AT_ONCE));
    let answering = Answering { source, token: token.map(Into::into), turns };
    let router = axum::Router::new().route("/metrics", get(answer)).with_state(answering);
    let body = move || {
        runtime.block_on(async {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => Listener::Tcp(listener),
                Err(error) => return tracing::error!(%error, "cannot serve metrics"),
            };
            tokio::spawn(beat("metrics"));
            let (ready, mut waiting) = mpsc::channel::<io::Result<Connection>>(1);
            tokio::spawn(accept_all(listener, connections, tls, Protocol::Http1, ready));
            let serve = async {
                while let Some(Ok(connection)) = waiting.recv().await {
                    let service = TowerToHyperService::new(router.clone());
                    let mut http = hyper::server::conn::http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(connections.handshake);
                    tokio::spawn(async move {
                        if let Err(error) = http.serve_connection(TokioIo::new(connection), service).await {
                            tracing::debug!("a connection for metrics ended: {error}");
                        }
                    });
                }
            };
            tokio::select! {
                () = serve => {}
                _ = stopped => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name("metrics".to_string()).spawn(body)?;
    Ok(MetricsServer { address, stop: Some(stop), thread: Some(thread) })
}

async fn answer(State(answering): State<Answering>, headers: HeaderMap) -> Response {
    let Answering { source, token, turns } = answering;
    if token.is_some_and(|token| !shows(&headers, &token)) {
        let how = [(WWW_AUTHENTICATE, "Bearer realm=\"sluice metrics\"")];
        return (StatusCode::UNAUTHORIZED, how, "a bearer token is needed\n").into_response();
    }
    let wanted: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let open = wants_openmetrics(&wanted.join(","));
    // The semaphore is never closed, so this always succeeds.
    let _turn = turns.acquire().await;
    let text = tokio::task::spawn_blocking(move || if open { source() } else { plain(&source()) }).await;
    let kind = if open { OPENMETRICS } else { PLAIN };
    match text {
        Ok(text) => ([(CONTENT_TYPE, kind), (VARY, "Accept")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Whether a request presents the token, compared in constant time.
fn shows(headers: &HeaderMap, token: &str) -> bool {
    let Some(shown) = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer ")) else {
        return false;
    };
    let differing = shown.iter().zip(token.as_bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    shown.len() == token.len() && differing == 0
}

/// Whether a client prefers OpenMetrics over plain text. Without a preference it gets plain text, which every client
/// understands.
fn wants_openmetrics(accept: &str) -> bool {
    let (mut open, mut plain) = (0.0, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter =
            |name: &str| parameters.iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
        let quality: f32 = parameter("q").and_then(|q| q.parse().ok()).unwrap_or(1.0);
        match kind.as_str() {
            "application/openmetrics-text" if matches!(parameter("version"), None | Some("0.0.1" | "1.0.0")) => {
                open = quality.max(open);
            }
            "text/plain" | "text/*" | "*/*" => plain = quality.max(plain),
            _ => {}
        }
    }
    open > 0.0 && open >= plain
}

/// Converts OpenMetrics to Prometheus text 0.0.4: a counter's family has the name of its samples, and there are no
/// units and no end marker.
pub fn plain(text: &str) -> String {
    let is_counter = |name: &str| {
        let line = format!("# TYPE {name} counter");
        text.lines().any(|l| l == line)
    };
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "EOF"] | ["#", "UNIT", ..] => continue,
            ["#", kind @ ("HELP" | "TYPE"), name, rest] => {
                let suffix = if is_counter(name) { "_total" } else { "" };
                let rest = if *rest == "unknown" { "untyped" } else { rest };
                out += &format!("# {kind} {name}{suffix} {rest}\n");
            }
            _ => {
                out += line;
                out.push('\n');
            }
        }
    }
    out
}

impl MetricsServer {
    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The server may have ended already.
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
    use std::time::Duration;

    fn get(address: SocketAddr, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    const TEXT: &str =
        "# HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{x=\"1\"} 5\n# EOF\n";

    #[test]
    fn each_request_gets_what_the_source_says_now() {
        let calls = AtomicU64::new(0);
        let source: MetricsSource = Arc::new(move || format!("calls {}\n", calls.fetch_add(1, Ordering::Relaxed)));
        let server = serve(any(), source, MetricsOptions::default()).unwrap();
        for n in 0..2 {
            let answer = get(server.address(), "/metrics", "Accept: application/openmetrics-text\r\n");
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("openmetrics"), "{answer}");
            assert!(answer.ends_with(&format!("calls {n}\n")), "{answer}");
        }
        assert!(get(server.address(), "/other", "").starts_with("HTTP/1.1 404"));
        let address = server.address();
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn accept_is_honoured() {
        let server = serve(any(), Arc::new(|| TEXT.to_string()), MetricsOptions::default()).unwrap();
        let prometheus = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n";
        for (headers, open) in [
            (prometheus, true),
            ("", false),
            ("Accept: */*\r\n", false),
            ("Accept: text/plain\r\n", false),
            ("Accept: application/openmetrics-text; version=1.0.0\r\n", true),
            ("Accept: application/openmetrics-text; version=9.0.0, */*\r\n", false),
            ("Accept: application/openmetrics-text;q=0.1, text/plain;q=0.9\r\n", false),
        ] {
            let answer = get(server.address(), "/metrics", headers);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!(head.contains("openmetrics-text"), open, "{headers}: {head}");
            let plain = "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\na_bytes_total{x=\"1\"} 5\n";
            assert_eq!(body, if open { TEXT } else { plain }, "{headers}");
        }
    }

    #[test]
    fn without_the_token_nothing_is_told() {
        let options = MetricsOptions { token: Some("s3cret".into()), ..Default::default() };
        let server = serve(any(), Arc::new(|| TEXT.to_string()), options).unwrap();
        for wrong in
            ["", "Authorization: Bearer s3cre\r\n", "Authorization: Bearer s3creT\r\n", "Authorization: s3cret\r\n"]
        {
            let answer = get(server.address(), "/metrics", wrong);
            assert!(answer.starts_with("HTTP/1.1 401") && !answer.contains("a_bytes"), "{answer}");
        }
        assert!(get(server.address(), "/metrics", "Authorization: Bearer s3cret\r\n").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn who_says_nothing_is_cut_off_and_others_are_served_meanwhile() {
        let limits = ConnectionLimits {
            connections_max: 8,
            per_peer_max: 4,
            handshake: Duration::from_millis(300),
            ..ConnectionLimits::default()
        };
        let options = MetricsOptions { connections: limits, ..Default::default() };
        let server = serve(any(), Arc::new(|| TEXT.to_string()), options).unwrap();
        let mut idle: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        // All are closed: those over the limit at once, the others after their deadline.
        for stream in &mut idle {
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let ended = stream.read(&mut [0; 1024]);
            let waits = matches!(&ended, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            assert!(!waits, "a silent connection is held");
        }
        drop(idle);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let answered = TcpStream::connect(server.address()).is_ok_and(|mut stream| {
                let mut answer = String::new();
                write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").is_ok()
                    && stream.read_to_string(&mut answer).is_ok()
                    && answer.starts_with("HTTP/1.1 200")
            });
            if answered {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "idle connections keep others out");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
