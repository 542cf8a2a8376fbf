//! The server: a thread with an async runtime of its own, for programs that have none.

use crate::admin::{AdminService, Operator};
use crate::proto::p4::v1::p4_runtime_server::P4RuntimeServer;
use crate::rpcs::Counting;
use crate::server::{Handle, Service};
use crate::tls::Tls;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::transport::server::TcpIncoming;

/// Largest message unless said otherwise: a program, or a batch of some hundred thousand updates.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// How long a connection may be silent, unless said otherwise, before the client is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long it may take to answer that.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);
/// How long a client may leave a message of a read's answer waiting.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a client may send on one stream, and on one connection, before the server has taken it. The HTTP/2 library ends connections on
/// which more small frames wait than a budget allows: half of the connection's window, and each frame costs what it is short of
/// 256 bytes. A packet-out may be two frames, one of five bytes. With these windows packet-outs wait at the stream's window long before
/// they use the budget up, however many a controller sends at once.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Threads of the runtime; requests themselves run on blocking threads.
const RUNTIME_THREADS: usize = 2;
/// How long open connections may hold up the end.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// A running server; dropping it stops it.
pub struct Server {
    address: SocketAddr,
    handle: Arc<Handle>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How to serve.
#[derive(Clone)]
pub struct ServeOptions {
    /// Answers the admin service; without it there is none.
    pub operator: Option<Arc<dyn Operator>>,
    /// Certificates; without them connections are in clear text.
    pub tls: Option<Tls>,
    /// Largest message in either direction.
    pub message_bytes_max: usize,
    /// Silence after which a client is asked whether it is still there.
    pub keepalive: Duration,
    /// How long it may take to answer that; then its streams end, and another client can become primary.
    pub keepalive_answer: Duration,
    /// How long a client may leave a message of a read's answer waiting before the read ends.
    pub patience: Duration,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            operator: None,
            tls: None,
            message_bytes_max: MESSAGE_BYTES_MAX,
            keepalive: KEEPALIVE,
            keepalive_answer: KEEPALIVE_ANSWER,
            patience: PATIENCE,
        }
    }
}

/// Serves P4Runtime on `address` (port 0: any) until the result is dropped. Returns once the socket listens.
pub fn serve(address: SocketAddr, handle: Arc<Handle>) -> io::Result<Server> {
    serve_with(address, handle, ServeOptions::default())
}

/// As [`serve`], with options.
pub fn serve_with(address: SocketAddr, handle: Arc<Handle>, options: ServeOptions) -> io::Result<Server> {
    let mut builder = tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(options.keepalive))
        .http2_keepalive_timeout(Some(options.keepalive_answer));
    if let Some(tls) = &options.tls {
        builder = builder.tls_config(tls.config()).map_err(io::Error::other)?;
    }
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .thread_name("p4runtime")
        .enable_all()
        .build()?;
    let (stop, stopped) = oneshot::channel();
    let service = P4RuntimeServer::new(Service::new(Arc::clone(&handle), options.patience))
        .max_decoding_message_size(options.message_bytes_max)
        .max_encoding_message_size(options.message_bytes_max);
    let operator = options.operator;
    let counting = Counting(Arc::clone(handle.rpcs()));
    let body = move || {
        runtime.block_on(async {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "cannot serve P4Runtime"),
            };
            // Said of the server, this would count only for sockets that it opens itself. Answers are small: without it they
            // wait for the client's delayed acknowledgements.
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let router =
                builder.layer(counting).add_service(service).add_optional_service(operator.map(AdminService::server));
            tokio::select! {
                done = router.serve_with_incoming(incoming) => {
                    if let Err(error) = done {
                        tracing::error!(%error, "P4Runtime server ended");
                    }
                }
                _ = stopped => {}
            }
        });
        runtime.shutdown_timeout(SHUTDOWN);
    };
    let thread = std::thread::Builder::new().name("p4runtime".to_string()).spawn(body)?;
    Ok(Server { address, handle, stop: Some(stop), thread: Some(thread) })
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all streams and connections and waits for the server's threads.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.close_streams();
        if let Some(stop) = self.stop.take() {
            // The server may have ended by itself.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
