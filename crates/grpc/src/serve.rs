//! The server: a thread with an async runtime of its own, for programs that have none.

use crate::admin::{AdminService, StatsSource};
use crate::proto::p4::v1::p4_runtime_server::P4RuntimeServer;
use crate::server::{Handle, Service};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;

/// Largest message: a program, or a batch of some hundred thousand updates.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
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

/// Serves P4Runtime on `address` (port 0: any) until the result is dropped. Returns once the socket listens.
pub fn serve(address: SocketAddr, handle: Arc<Handle>) -> io::Result<Server> {
    serve_all(address, handle, None)
}

/// Serves P4Runtime and the admin service.
pub fn serve_with_admin(address: SocketAddr, handle: Arc<Handle>, stats: StatsSource) -> io::Result<Server> {
    serve_all(address, handle, Some(stats))
}

fn serve_all(address: SocketAddr, handle: Arc<Handle>, stats: Option<StatsSource>) -> io::Result<Server> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .thread_name("p4runtime")
        .enable_all()
        .build()?;
    let (stop, stopped) = oneshot::channel();
    let service = P4RuntimeServer::new(Service::new(Arc::clone(&handle)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let body = move || {
        runtime.block_on(async {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "cannot serve P4Runtime"),
            };
            let router = tonic::transport::Server::builder()
                .tcp_nodelay(true)
                .add_service(service)
                .add_optional_service(stats.map(AdminService::server));
            tokio::select! {
                done = router.serve_with_incoming(TcpListenerStream::new(listener)) => {
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
