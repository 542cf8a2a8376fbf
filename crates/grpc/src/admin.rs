//! The admin service: for the switch's operator (`proto/sluice/v1/admin.proto`).
//!
//! Knows nothing of the switch: whoever serves gives an [`Operator`], which is called on a blocking thread for each request,
//! because it may wait for a program change to end. What it streams goes through a bounded channel; when the client is gone
//! its [`Stream`] says so.
//!
//! Tests: below, through a socket; `tests/py/test_cli.py` with the real switch.

use crate::proto::sluice::v1 as pb;
use pb::admin_server::{Admin, AdminServer};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// The counters of a moment.
pub type AdminStats = pb::StatsResponse;

/// Messages of a stream that may wait for the client.
const STREAM_MAX: usize = 64;

/// A message with its length in front, as protobuf's libraries read and write several in a row.
pub fn delimited(message: &impl prost::Message) -> Vec<u8> {
    message.encode_length_delimited_to_vec()
}

/// Where an operator's stream goes.
pub struct Stream<T>(mpsc::Sender<Result<T, Status>>);

impl<T> Stream<T> {
    /// Sends a message, and waits while too many wait for the client; false when it is gone.
    pub fn send(&self, message: T) -> bool {
        self.0.blocking_send(Ok(message)).is_ok()
    }

    /// Whether the client is gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// How long a request makes the switch be watched at most.
const WATCH_MAX: Duration = Duration::from_secs(3600);

/// What the service does. Errors are for the operator.
pub trait Operator: Send + Sync + 'static {
    /// All counters; and what is counted only while somebody watches is counted for so long.
    fn stats(&self, watch: Duration) -> AdminStats;
    /// Replaces a program.
    fn load(&self, _request: pb::LoadRequest) -> Result<pb::LoadResponse, String> {
        Err("programs cannot be replaced here".to_string())
    }
    /// Removes a device.
    fn unload(&self, _request: pb::UnloadRequest) -> Result<(), String> {
        Err("there is one device here".to_string())
    }
    /// Gives ports to a device.
    fn bind(&self, _request: pb::BindRequest) -> Result<(), String> {
        Err("there is one device here".to_string())
    }
    /// Makes or removes links.
    fn chain(&self, _request: pb::ChainRequest) -> Result<(), String> {
        Err("there is one device here".to_string())
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

/// The service over an operator.
pub struct AdminService {
    operator: Arc<dyn Operator>,
}

impl AdminService {
    /// For a server's router.
    pub fn server(operator: Arc<dyn Operator>) -> AdminServer<AdminService> {
        AdminServer::new(AdminService { operator }).max_decoding_message_size(crate::serve::MESSAGE_BYTES_MAX)
    }

    /// Runs a streaming request; what it refuses ends the stream.
    fn stream<T: Send + 'static>(
        &self,
        run: impl FnOnce(&dyn Operator, &Stream<T>) -> Result<(), String> + Send + 'static,
    ) -> Response<ReceiverStream<Result<T, Status>>> {
        let (sender, receiver) = mpsc::channel(STREAM_MAX);
        let operator = Arc::clone(&self.operator);
        tokio::task::spawn_blocking(move || {
            let stream = Stream(sender);
            if let Err(reason) = run(&*operator, &stream) {
                // The client may be gone.
                let _ = stream.0.blocking_send(Err(Status::failed_precondition(reason)));
            }
        });
        Response::new(ReceiverStream::new(receiver))
    }

    /// Runs a request that changes something.
    async fn change<R: Send + 'static>(
        &self,
        run: impl FnOnce(&dyn Operator) -> Result<R, String> + Send + 'static,
    ) -> Result<Response<R>, Status> {
        let operator = Arc::clone(&self.operator);
        let done = tokio::task::spawn_blocking(move || run(&*operator)).await;
        let done = done.map_err(|_| Status::internal("the request's task failed"))?;
        done.map(Response::new).map_err(Status::failed_precondition)
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

    type TraceStream = ReceiverStream<Result<pb::TraceResponse, Status>>;

    async fn trace(&self, request: Request<pb::TraceRequest>) -> Result<Response<Self::TraceStream>, Status> {
        let request = request.into_inner();
        Ok(self.stream(move |operator, to| operator.trace(request, to)))
    }

    type CaptureStream = ReceiverStream<Result<pb::CaptureResponse, Status>>;

    async fn capture(&self, request: Request<pb::CaptureRequest>) -> Result<Response<Self::CaptureStream>, Status> {
        let request = request.into_inner();
        Ok(self.stream(move |operator, to| operator.capture(request, to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;
    use control::Control;
    use pb::admin_client::AdminClient;
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

    #[test]
    fn answers_beside_p4runtime_with_what_the_operator_says_now() {
        let operator = Arc::new(Counting::default());
        let address = "127.0.0.1:0".parse().unwrap();
        let options = crate::ServeOptions { operator: Some(operator.clone()), ..Default::default() };
        let server = crate::serve_with(address, Handle::new(Control::new()), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = format!("http://{}", server.address());
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
        let address = "127.0.0.1:0".parse().unwrap();
        let server = {
            let options = crate::ServeOptions { operator: Some(operator.clone()), ..Default::default() };
            crate::serve_with(address, Handle::new(Control::new()), options).unwrap()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = format!("http://{}", server.address());
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
