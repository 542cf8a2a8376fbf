//! The admin service, for the switch's operator (`proto/sluice/v1/admin.proto`).
//!
//! It does not know the switch: the program that serves passes an [`Operator`], which is called on a blocking thread
//! for each request, because it may wait for a change of program. Streamed answers go through a bounded channel; its
//! [`Stream`] tells when the client is gone.
//!
//! Tests: below, through a socket; `tests/py/test_cli.py` with the real switch.

use crate::services::admin::admin_server::{Admin, AdminServer};
use crate::status;
use messages::sluice::v1 as pb;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

/// A snapshot of the counters.
pub type AdminStats = pb::StatsResponse;

/// Messages of a stream that may wait for the client.
const STREAM_MAX: usize = 4;
/// Limit on concurrent traces and captures. Each has a thread, and memory for waiting messages.
const STREAMS_AT_ONCE: usize = 16;

/// A message with a length prefix, as protobuf libraries read and write several messages in a row.
pub fn delimited(message: &impl prost::Message) -> Vec<u8> {
    message.encode_length_delimited_to_vec()
}

/// The destination of an operator's streamed answer.
pub struct Stream<T> {
    messages: mpsc::Sender<Result<T, Status>>,
    patience: Duration,
    runtime: tokio::runtime::Handle,
    /// Whether the client has read nothing for too long.
    stalled: Cell<bool>,
}

impl<T> Stream<T> {
    /// Sends a message; waits while too many wait for the client. Returns false if the client is gone or has read
    /// nothing for too long.
    pub fn send(&self, message: T) -> bool {
        if self.stalled.get() {
            return false;
        }
        let sending = tokio::time::timeout(self.patience, self.messages.send(Ok(message)));
        // This is a thread that may block: `AdminService::stream`.
        match self.runtime.block_on(sending) {
            Ok(sent) => sent.is_ok(),
            Err(_) => {
                self.stalled.set(true);
                false
            }
        }
    }

    /// Whether the client is gone or has read nothing for too long.
    pub fn is_closed(&self) -> bool {
        self.stalled.get() || self.messages.is_closed()
    }
}

/// Limit on the time for which one request enables the extra counters.
const WATCH_MAX: Duration = Duration::from_secs(3600);

/// The implementation of the service. Errors are messages for the operator.
pub trait Operator: Send + Sync + 'static {
    /// All counters. Enables the counters that run only on demand for the time `watch`.
    fn stats(&self, watch: Duration) -> AdminStats;
    /// Replaces a program.
    fn load(&self, _request: pb::LoadRequest) -> Result<pb::LoadResponse, String> {
        Err("programs cannot be replaced here".to_string())
    }
    /// Removes a device.
    fn unload(&self, _request: pb::UnloadRequest) -> Result<(), String> {
        Err("there is one device here".to_string())
    }
    /// Assigns ports to a device.
    fn bind(&self, _request: pb::BindRequest) -> Result<(), String> {
        Err("there is one device here".to_string())
    }
    /// Creates or removes links between devices.
    fn chain(&self, _request: pb::ChainRequest) -> Result<(), String> {
        Err("there is one device here".to_string())
    }
    /// Adds, removes or changes a port.
    fn port(&self, _request: pb::PortRequest) -> Result<pb::PortResponse, String> {
        Err("ports cannot be changed here".to_string())
    }
    /// Configures the queues of a port.
    fn qos(&self, _request: pb::QosRequest) -> Result<pb::QosResponse, String> {
        Err("ports have no queues here".to_string())
    }
    /// Loads, shows or unloads programs of a bridge, or reads or writes their maps.
    fn program(&self, _request: pb::ProgramRequest) -> Result<pb::ProgramResponse, String> {
        Err("there is no OpenFlow bridge here".to_string())
    }
    /// Shows or empties the flow caches of a bridge.
    fn cache(&self, _request: pb::CacheRequest) -> Result<pb::CacheResponse, String> {
        Err("there is no OpenFlow bridge here".to_string())
    }
    /// Changes the log filter, unless `filter` is empty. Returns the filter then in force.
    fn log(&self, _filter: &str) -> Result<String, String> {
        Err("what is logged cannot be changed here".to_string())
    }
    /// Starts the process that takes over, and returns its process id once it can.
    fn restart(&self) -> Result<u32, String> {
        Err("there is nothing to start again here".to_string())
    }
    /// Traces packets until all are traced or the client is gone.
    fn trace(&self, _request: pb::TraceRequest, _to: &Stream<pb::TraceResponse>) -> Result<(), String> {
        Err("there is no tracing here".to_string())
    }
    /// Copies packets until the client is gone.
    fn capture(&self, _request: pb::CaptureRequest, _to: &Stream<pb::CaptureResponse>) -> Result<(), String> {
        Err("there is no capturing here".to_string())
    }
}

/// The service of an operator; cheap to clone.
#[derive(Clone)]
pub struct AdminService {
    operator: Arc<dyn Operator>,
    patience: Duration,
    streams: Arc<Semaphore>,
}

impl AdminService {
    /// The service of `operator`. Streams end when their client reads nothing for `patience`.
    pub fn new(operator: Arc<dyn Operator>, patience: Duration) -> AdminService {
        AdminService { operator, patience, streams: Arc::new(Semaphore::new(STREAMS_AT_ONCE)) }
    }

    /// The service, for a server's router.
    pub(crate) fn server(self, message_bytes_max: usize) -> AdminServer<AdminService> {
        AdminServer::new(self).max_decoding_message_size(message_bytes_max)
    }

    /// Runs a streaming request; an error ends the stream.
    fn stream<T: Send + 'static>(
        &self,
        run: impl FnOnce(&dyn Operator, &Stream<T>) -> Result<(), String> + Send + 'static,
    ) -> Result<Response<ReceiverStream<Result<T, Status>>>, Status> {
        let Ok(turn) = Arc::clone(&self.streams).try_acquire_owned() else {
            let why = format!("{STREAMS_AT_ONCE} traces and captures are running; end one of them");
            return Err(status::new(Code::ResourceExhausted, why));
        };
        let (sender, receiver) = mpsc::channel(STREAM_MAX + 1);
        // One slot is reserved for the reason why the stream ends.
        let last = sender.clone().try_reserve_owned();
        let (operator, patience, runtime) =
            (Arc::clone(&self.operator), self.patience, tokio::runtime::Handle::current());
        tokio::task::spawn_blocking(move || {
            let stream = Stream { messages: sender, patience, runtime, stalled: Cell::new(false) };
            let done = run(&*operator, &stream);
            let reason = match done {
                _ if stream.stalled.get() => {
                    let why = format!("nothing of the stream was taken for {patience:?}, so it ends here");
                    tracing::warn!("a trace or capture: {why}");
                    Some(status::new(Code::Aborted, why))
                }
                Err(reason) => Some(status::new(Code::FailedPrecondition, reason)),
                Ok(()) => None,
            };
            if let (Some(reason), Ok(last)) = (reason, last) {
                last.send(Err(reason));
            }
            drop(turn);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    /// Runs a request that changes something.
    async fn change<R: Send + 'static>(
        &self,
        run: impl FnOnce(&dyn Operator) -> Result<R, String> + Send + 'static,
    ) -> Result<Response<R>, Status> {
        let operator = Arc::clone(&self.operator);
        let done = tokio::task::spawn_blocking(move || run(&*operator)).await;
        let done = done.map_err(|_| Status::internal("the request's task failed"))?;
        done.map(Response::new).map_err(|reason| status::new(Code::FailedPrecondition, reason))
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn stats(&self, request: Request<pb::StatsRequest>) -> Result<Response<AdminStats>, Status> {
        let operator = Arc::clone(&self.operator);
        let watch = Duration::from_millis(request.into_inner().watch_ms.into()).min(WATCH_MAX);
        let stats = tokio::task::spawn_blocking(move || operator.stats(watch)).await;
        stats.map(Response::new).map_err(|_| Status::internal("the counters could not be read"))
    }

    async fn load(&self, request: Request<pb::LoadRequest>) -> Result<Response<pb::LoadResponse>, Status> {
        self.change(move |operator| operator.load(request.into_inner())).await
    }

    async fn unload(&self, request: Request<pb::UnloadRequest>) -> Result<Response<pb::UnloadResponse>, Status> {
        self.change(move |on| on.unload(request.into_inner()).map(|()| pb::UnloadResponse {})).await
    }

    async fn bind(&self, request: Request<pb::BindRequest>) -> Result<Response<pb::BindResponse>, Status> {
        self.change(move |on| on.bind(request.into_inner()).map(|()| pb::BindResponse {})).await
    }

    async fn chain(&self, request: Request<pb::ChainRequest>) -> Result<Response<pb::ChainResponse>, Status> {
        self.change(move |on| on.chain(request.into_inner()).map(|()| pb::ChainResponse {})).await
    }

    async fn port(&self, request: Request<pb::PortRequest>) -> Result<Response<pb::PortResponse>, Status> {
        self.change(move |on| on.port(request.into_inner())).await
    }

    async fn qos(&self, request: Request<pb::QosRequest>) -> Result<Response<pb::QosResponse>, Status> {
        self.change(move |on| on.qos(request.into_inner())).await
    }

    async fn program(&self, request: Request<pb::ProgramRequest>) -> Result<Response<pb::ProgramResponse>, Status> {
        self.change(move |on| on.program(request.into_inner())).await
    }

    async fn cache(&self, request: Request<pb::CacheRequest>) -> Result<Response<pb::CacheResponse>, Status> {
        self.change(move |on| on.cache(request.into_inner())).await
    }

    async fn log(&self, request: Request<pb::LogRequest>) -> Result<Response<pb::LogResponse>, Status> {
        self.change(move |on| on.log(&request.into_inner().filter).map(|filter| pb::LogResponse { filter })).await
    }

    async fn restart(&self, _: Request<pb::RestartRequest>) -> Result<Response<pb::RestartResponse>, Status> {
        self.change(move |on| on.restart().map(|pid| pb::RestartResponse { pid })).await
    }

    type TraceStream = ReceiverStream<Result<pb::TraceResponse, Status>>;

    async fn trace(&self, request: Request<pb::TraceRequest>) -> Result<Response<Self::TraceStream>, Status> {
        let request = request.into_inner();
        self.stream(move |operator, to| operator.trace(request, to))
    }

    type CaptureStream = ReceiverStream<Result<pb::CaptureResponse, Status>>;

    async fn capture(&self, request: Request<pb::CaptureRequest>) -> Result<Response<Self::CaptureStream>, Status> {
        let request = request.into_inner();
        self.stream(move |operator, to| operator.capture(request, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;
    use crate::services::admin::admin_client::AdminClient;
    use control::Control;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct Counting {
        calls: AtomicU64,
        captures_ended: AtomicU64,
    }

    impl Operator for Counting {
        fn stats(&self, _: Duration) -> AdminStats {
            AdminStats {
                uptime_us: self.calls.fetch_add(1, Ordering::Relaxed) + 1,
                drops: vec![pb::Drop { reason: "no such port".to_string(), packets: 3, device_id: 1 }],
                ..AdminStats::default()
            }
        }

        fn capture(&self, _: pb::CaptureRequest, to: &Stream<pb::CaptureResponse>) -> Result<(), String> {
            let mut lost = 0;
            while to.send(pb::CaptureResponse { frames: vec![], lost }) {
                lost += 1;
            }
            self.captures_ended.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn serve(operator: Arc<dyn Operator>) -> (crate::Server, String) {
        serve_with(operator, Duration::from_secs(3600))
    }

    /// Serves on a socket, and returns its address.
    fn serve_with(operator: Arc<dyn Operator>, patience: Duration) -> (crate::Server, String) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sluice-admin-{}-{number}", std::process::id()));
        let options = crate::ServeOptions { operator: Some(operator), patience, ..Default::default() };
        let socket = crate::Socket::bind(&path).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let server =
            crate::serve_on(Some(address), |_| Ok(Some(socket)), Handle::new(Control::new()), options).unwrap();
        (server, format!("unix:{}", path.display()))
    }

    #[test]
    fn the_admin_service_is_not_on_p4runtimes_listener() {
        let (server, url) = serve(Arc::new(Counting::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut local = AdminClient::connect(url).await.unwrap();
            local.stats(pb::StatsRequest::default()).await.unwrap();
            let mut remote = AdminClient::connect(format!("http://{}", server.address())).await.unwrap();
            let refused = remote.load(pb::LoadRequest::default()).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied);
            assert!(refused.message().contains("Unix socket"), "{refused}");
        });
    }

    #[test]
    fn more_captures_than_threads_are_refused_not_queued() {
        let operator = Arc::new(Counting::default());
        let (server, url) = serve(operator);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = AdminClient::connect(url).await.unwrap();
            let mut open = Vec::new();
            for _ in 0..STREAMS_AT_ONCE {
                open.push(client.capture(pb::CaptureRequest::default()).await.unwrap());
            }
            let refused = client.capture(pb::CaptureRequest::default()).await.unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted);
            client.stats(pb::StatsRequest::default()).await.unwrap();
        });
        drop((runtime, server));
    }

    /// Connects with the command line's settings.
    async fn connected(url: String) -> tonic::transport::Channel {
        crate::client::configured(tonic::transport::Endpoint::from_shared(url).unwrap()).connect().await.unwrap()
    }

    #[test]
    fn a_capture_that_nobody_takes_ends() {
        let operator = Arc::new(Counting::default());
        let (server, url) = serve_with(operator.clone(), Duration::from_millis(300));
        // This runtime does not run between calls, so nothing is read.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut stream = runtime.block_on(async {
            let mut client = AdminClient::new(connected(url).await);
            client.capture(pb::CaptureRequest::default()).await.unwrap().into_inner()
        });
        let deadline = std::time::Instant::now() + Duration::from_secs(120);
        while operator.captures_ended.load(Ordering::Relaxed) == 0 {
            assert!(std::time::Instant::now() < deadline, "the capture goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = runtime.block_on(async {
            loop {
                if let Err(status) = stream.message().await {
                    break status;
                }
            }
        });
        assert_eq!(ended.code(), Code::Aborted, "{ended}");
        drop(server);
    }

    #[test]
    fn small_messages_wait_for_a_reader_that_pauses() {
        let (server, url) = serve(Arc::new(Counting::default()));
        // This runtime does not run between calls, so small messages accumulate in the socket and in the stream's
        // window.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut stream = runtime.block_on(async {
            let mut client = AdminClient::new(connected(url).await);
            client.capture(pb::CaptureRequest::default()).await.unwrap().into_inner()
        });
        for lost in 0..200_000 {
            if lost % 50_000 == 0 {
                std::thread::sleep(Duration::from_millis(500));
            }
            let message = runtime.block_on(stream.message()).unwrap().expect("the capture goes on");
            assert_eq!(message.lost, lost);
        }
        drop((stream, runtime, server));
    }

    #[test]
    fn answers_beside_p4runtime_with_what_the_operator_says_now() {
        let operator = Arc::new(Counting::default());
        let (server, url) = serve(operator.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = AdminClient::connect(url.clone()).await.unwrap();
            let first = client.stats(pb::StatsRequest::default()).await.unwrap().into_inner();
            let second = client.stats(pb::StatsRequest::default()).await.unwrap().into_inner();
            assert_eq!((first.uptime_us, second.uptime_us), (1, 2));
            assert_eq!(second.drops, [pb::Drop { reason: "no such port".to_string(), packets: 3, device_id: 1 }]);
            let refused = client.load(pb::LoadRequest::default()).await.unwrap_err();
            assert_eq!(refused.message(), "programs cannot be replaced here");
            let refused = client.unload(pb::UnloadRequest::default()).await.unwrap_err();
            assert_eq!(refused.message(), "there is one device here");
            let mut traces = client.trace(pb::TraceRequest::default()).await.unwrap().into_inner();
            assert_eq!(traces.message().await.unwrap_err().message(), "there is no tracing here");
        });
        drop(server);
        assert_eq!(operator.calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_stream_ends_when_its_client_goes() {
        let operator = Arc::new(Counting::default());
        let (server, url) = serve(operator.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = AdminClient::connect(url).await.unwrap();
            let mut frames = client.capture(pb::CaptureRequest::default()).await.unwrap().into_inner();
            for lost in 0..3 {
                assert_eq!(frames.message().await.unwrap().map(|m| m.lost), Some(lost));
            }
        });
        drop(runtime);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while operator.captures_ended.load(Ordering::Relaxed) == 0 {
            assert!(std::time::Instant::now() < deadline, "the capture goes on");
            std::thread::yield_now();
        }
        drop(server);
    }
}
