//! The server, on a thread with an async runtime of its own, for programs that have none.
//!
//! ```text
//!   TCP listener ──▶ P4Runtime; the admin service for certificates that have the right to it
//!   Unix socket  ──▶ P4Runtime and the admin service
//!       each: connection limits (`listen`) ──▶ counts (`rpcs`) ──▶ rights, memory, audit (`admission`) ──▶ service
//! ```
//!
//! Tests: `tests/loopback.rs`, `tests/load.rs`, `tests/limits.rs`.

use crate::access::Access;
use crate::admin::{AdminService, Operator};
use crate::admission::{Admission, Gate};
use crate::audit::Audit;
use crate::budget::Budget;
use crate::handle::Handle;
use crate::listen::{ConnectionLimits, Listener, Protocol, accept_all};
use crate::server::Service;
use crate::services::p4runtime::p4_runtime_server::P4RuntimeServer;
use crate::socket::Socket;
use crate::tls::Tls;
use heartbeat::Heartbeat;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

/// Default limit on the bytes of a message: more than a program with its P4Info, or the largest batch of ordinary
/// updates.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Default limit on the memory of all requests in progress, in bytes. One peer alone may use half of it: a batch of
/// 50,000 ordinary updates.
pub const MEMORY_BYTES_MAX: u64 = 512 << 20;
/// Events queued for clients have a budget of their own, smaller than that by this factor.
const EVENTS_PART: u64 = 2;
/// Deadline for a request to arrive completely.
const RECEIVE_MAX: Duration = Duration::from_secs(60);
/// Limit on the concurrent calls of one connection, streams included.
const CALLS_MAX: u32 = 128;
/// Limit on the bytes of a call's headers.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// Default time without traffic after which the server sends an HTTP/2 PING.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Deadline for the answer to that PING.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Default time for which a client may leave a message of an answer unread.
const PATIENCE: Duration = Duration::from_secs(60);
/// HTTP/2 flow-control windows (RFC 9113, 5.2): what one side may send, per stream and per connection, before the other
/// has consumed it. The HTTP/2 library closes connections on which too many small frames wait: its budget is half of
/// the connection's window, and each frame is charged what it lacks to 256 bytes. A packet-out may be two frames, one
/// of five bytes. With these windows packet-outs are held back by the stream's window long before they exhaust that
/// budget, however many a controller sends at once.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 256 << 10;
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Worker threads of the runtime; requests themselves run on blocking threads.
const RUNTIME_THREADS: usize = 2;
/// Interval of the runtime's heartbeat.
const BEAT: Duration = Duration::from_secs(1);
/// Nothing slow runs on the runtime's threads, so a runtime without a heartbeat for this long is stuck.
const ROUND_MAX: Duration = Duration::from_secs(30);
/// How long open connections may delay the shutdown.
const SHUTDOWN: Duration = Duration::from_millis(500);
/// Limit on the connections that are ready and wait for the server.
const READY_MAX: usize = 16;

/// A running server; dropping it stops it.
pub struct Server {
    address: Option<SocketAddr>,
    socket: Option<Socket>,
    handle: Arc<Handle>,
    stop: Vec<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Options of a server.
#[derive(Clone)]
pub struct ServeOptions {
    /// Implements the admin service; `None` for no admin service.
    pub operator: Option<Arc<dyn Operator>>,
    /// TLS for TCP connections; `None` for plain text.
    pub tls: Option<Tls>,
    /// Access rights.
    pub access: Arc<Access>,
    /// The audit log.
    pub audit: Audit,
    /// Limits of each listener's connections.
    pub connections: ConnectionLimits,
    /// Limit on the bytes of a message in either direction.
    pub message_bytes_max: usize,
    /// Limit on the memory of all requests in progress, in bytes, from reception to completion. One peer may use half
    /// of it.
    pub memory_bytes_max: u64,
    /// Deadline for a request, or a message of a stream, from its first byte to its last.
    pub receive_max: Duration,
    /// Time without traffic after which the server sends an HTTP/2 PING.
    pub keepalive: Duration,
    /// Deadline for the answer to that; then the client's streams end, and another client can become primary.
    pub keepalive_answer: Duration,
    /// How long a client may leave a message of a read's answer, a capture or a trace unread before that ends.
    pub patience: Duration,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            operator: None,
            tls: None,
            access: Arc::default(),
            audit: Audit::default(),
            connections: ConnectionLimits::default(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            memory_bytes_max: MEMORY_BYTES_MAX,
            receive_max: RECEIVE_MAX,
            keepalive: KEEPALIVE,
            keepalive_answer: KEEPALIVE_ANSWER,
            patience: PATIENCE,
        }
    }
}

/// Serves P4Runtime on `address` (port 0 for any free port) until the result is dropped. Returns once the socket
/// listens.
pub fn serve(address: SocketAddr, handle: Arc<Handle>) -> io::Result<Server> {
    serve_with(address, handle, ServeOptions::default())
}

/// As [`serve`], with options.
pub fn serve_with(address: SocketAddr, handle: Arc<Handle>, options: ServeOptions) -> io::Result<Server> {
    serve_on(Some(address), |_| Ok(None), handle, options)
}

/// Serves over TCP, a Unix socket, or both; `socket` gets the TCP address. On failure, sockets already open are closed.
pub fn serve_on(
    address: Option<SocketAddr>,
    socket: impl FnOnce(Option<SocketAddr>) -> io::Result<Option<Socket>>,
    handle: Arc<Handle>,
    options: ServeOptions,
) -> io::Result<Server> {
    let gate = Arc::new(Gate {
        handle: Arc::clone(&handle),
        access: Arc::clone(&options.access),
        audit: options.audit.clone(),
        budget: Budget::new(options.memory_bytes_max),
        events: Budget::new(options.memory_bytes_max / EVENTS_PART),
        message_bytes_max: options.message_bytes_max,
        receive_max: options.receive_max,
    });
    let tcp = address.map(TcpListener::bind).transpose()?;
    let address = tcp.as_ref().map(TcpListener::local_addr).transpose()?;
    if let Some(listener) = &tcp {
        listener.set_nonblocking(true)?;
    }
    let socket = socket(address)?;
    let unix = socket.as_ref().map(Socket::listener).transpose()?;
    let runtime = runtime("p4runtime")?;
    let (stop_tcp, tcp_stopped) = oneshot::channel();
    let (stop_unix, unix_stopped) = oneshot::channel();
    let admin = options.operator.clone().map(|operator| AdminService::new(operator, options.patience));
    let body = move || {
        runtime.block_on(async {
            let of_tcp = tcp.map(|tcp| {
                let listener = tokio::net::TcpListener::from_std(tcp).map(Listener::Tcp);
                // Without roles nobody has the right to use it over TCP, and callers get an error that says so.
                let admin = admin.clone().filter(|_| options.access.has_roles());
                listen(listener, options.tls.clone(), admin, Arc::clone(&gate), &options, tcp_stopped)
            });
            let of_unix = unix.map(|unix| {
                let listener = tokio::net::UnixListener::from_std(unix).map(Listener::Unix);
                listen(listener, None, admin.clone(), Arc::clone(&gate), &options, unix_stopped)
            });
            tokio::join!(optional(of_tcp), optional(of_unix));
        });
        runtime.shutdown_timeout(SHUTDOWN);
    };
    let thread = std::thread::Builder::new().name("p4runtime".to_string()).spawn(body)?;
    Ok(Server { address, socket, handle, stop: vec![stop_tcp, stop_unix], thread: Some(thread) })
}

/// An async runtime with a heartbeat, which stops when none of its threads runs tasks.
fn runtime(name: &'static str) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(RUNTIME_THREADS).thread_name(name).enable_all().build()?;
    runtime.spawn(beat(name));
    Ok(runtime)
}

/// Sends heartbeats as long as the runtime that it is spawned on runs tasks.
pub(crate) async fn beat(name: &'static str) {
    let heart = Heartbeat::new(name, ROUND_MAX);
    loop {
        heart.beat();
        tokio::time::sleep(BEAT).await;
    }
}

async fn optional(task: Option<impl Future<Output = ()>>) {
    if let Some(task) = task {
        task.await;
    }
}

/// Serves one listener until `stopped` is signalled.
async fn listen(
    listener: io::Result<Listener>,
    tls: Option<Tls>,
    admin: Option<AdminService>,
    gate: Arc<Gate>,
    options: &ServeOptions,
    stopped: oneshot::Receiver<()>,
) {
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot serve P4Runtime"),
    };
    let service = P4RuntimeServer::new(Service::new(Arc::clone(&gate.handle), options.patience))
        .max_decoding_message_size(options.message_bytes_max)
        .max_encoding_message_size(options.message_bytes_max);
    let admin = admin.map(|admin| admin.server(options.message_bytes_max));
    let router = tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .http2_keepalive_interval(Some(options.keepalive))
        .http2_keepalive_timeout(Some(options.keepalive_answer))
        .layer(Admission(gate))
        .add_service(service)
        .add_optional_service(admin);
    let (ready, connections) = mpsc::channel(READY_MAX);
    tokio::spawn(accept_all(listener, options.connections, tls, Protocol::Http2, ready));
    tokio::select! {
        done = router.serve_with_incoming(ReceiverStream::new(connections)) => {
            if let Err(error) = done {
                tracing::error!(%error, "P4Runtime server ended");
            }
        }
        _ = stopped => {}
    }
}

impl Server {
    /// The TCP address; unspecified with port 0 if the server does not listen on TCP.
    pub fn address(&self) -> SocketAddr {
        self.address.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// The path of the Unix socket, if there is one.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(Socket::path)
    }

    /// Ends all streams and connections, and waits for the server's threads.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.close_streams();
        for stop in self.stop.drain(..) {
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
    use heartbeat::Monitor;
    use std::time::Instant;

    #[test]
    fn the_watchdog_hears_of_a_runtime_whose_threads_are_all_stuck() {
        const NAME: &str = "a stuck runtime";
        let runtime = runtime(NAME).unwrap();
        let blocked = Arc::new(std::sync::Barrier::new(RUNTIME_THREADS + 1));
        let release = Arc::new(std::sync::Barrier::new(RUNTIME_THREADS + 1));
        for _ in 0..RUNTIME_THREADS {
            let (blocked, release) = (Arc::clone(&blocked), Arc::clone(&release));
            runtime.spawn(async move {
                blocked.wait();
                release.wait();
            });
        }
        blocked.wait();
        // Tells what the monitor would see later, without waiting.
        let (mut monitor, now) = (Monitor::default(), Instant::now());
        let mut is_stuck = |after| monitor.stuck_at(now + after).iter().any(|stuck| stuck.thread == NAME);
        assert!(!is_stuck(Duration::ZERO), "that was the first look");
        assert!(is_stuck(ROUND_MAX + BEAT));
        release.wait();
        let deadline = Instant::now() + Duration::from_secs(60);
        while is_stuck(2 * ROUND_MAX) {
            assert!(Instant::now() < deadline, "it does not go on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
