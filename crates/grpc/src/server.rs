//! The P4Runtime service.
//!
//! ```text
//!   client ══stream══▶ task per stream ──▶ Handle::control (one lock) ──▶ switch
//!      ▲                                     │ events
//!      └── bounded channel per client ◀──────┘◀── packet_in, tick: from whoever polls the switch
//! ```
//!
//! Every request takes the control plane's lock on a blocking thread, so a long compilation never holds up the runtime.
//! Events are queued while the lock is held, which keeps them in order. A client that does not read loses packets and
//! notifications once [`EVENTS_MAX`] wait; it never loses an arbitration update: its stream is closed instead.

use crate::capabilities;
use crate::convert::{self, p4info};
use crate::proto::p4::config::v1 as config_pb;
use crate::proto::p4::v1 as pb;
use crate::proto::p4::v1::p4_runtime_server::P4Runtime;
use crate::reads::{self, OpenRead};
use crate::rpcs::RpcCounts;
use crate::status;
use abi::state::DigestMessage;
use control::arbitration::ClientId;
use control::control::{ConfigAction, Events, SetConfigRequest, StreamEvent};
use control::pipeline::ForwardingConfig;
use control::{Control, Error};
use prost::Message;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// Events that may wait for a client.
const EVENTS_MAX: usize = 4096;

type EventSender = mpsc::Sender<Result<pb::StreamMessageResponse, Status>>;

/// The control plane, shared between the service and those who feed it.
#[derive(Default)]
pub struct Handle {
    control: Mutex<Control>,
    clients: Mutex<HashMap<ClientId, EventSender>>,
    lost: [AtomicU64; 3],
    rpcs: Arc<RpcCounts>,
}

/// Events that clients did not take in time, so that they were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "what they are called everywhere")]
pub struct LostEvents {
    pub packets: u64,
    pub digests: u64,
    pub idle_timeouts: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handle {
    /// Shares a control plane.
    pub fn new(control: Control) -> Arc<Handle> {
        Arc::new(Handle { control: Mutex::new(control), ..Handle::default() })
    }

    /// Does something with the control plane, for the command line.
    pub fn with<R>(&self, f: impl FnOnce(&mut Control) -> R) -> R {
        f(&mut lock(&self.control))
    }

    /// A frame that the data plane sent to the controller.
    pub fn packet_in(&self, device_id: u64, frame: &[u8]) {
        self.run(|control| control.packet_in(device_id, frame));
    }

    /// Digest messages since the last call, and the passing of time on any steady clock.
    pub fn tick(&self, device_id: u64, digests: &[DigestMessage], now_ns: u64) {
        self.run(|control| control.tick(device_id, digests, now_ns));
    }

    /// Calls so far.
    pub fn rpcs(&self) -> &Arc<RpcCounts> {
        &self.rpcs
    }

    /// Events that clients did not take in time.
    pub fn lost_events(&self) -> LostEvents {
        let [packets, digests, idle_timeouts] = [0, 1, 2].map(|i: usize| self.lost[i].load(Ordering::Relaxed));
        LostEvents { packets, digests, idle_timeouts }
    }

    fn run(&self, f: impl FnOnce(&mut Control) -> Events) {
        let mut control = lock(&self.control);
        let mut events = f(&mut control);
        // Closing a stream makes its client leave, of which others hear.
        while !events.is_empty() {
            events = self.deliver(events).into_iter().flat_map(|gone| control.disconnect(gone)).collect();
        }
    }

    /// Queues events; returns clients that had to be dropped.
    fn deliver(&self, events: Events) -> Vec<ClientId> {
        let mut clients = lock(&self.clients);
        let mut gone = Vec::new();
        for (client, event) in events {
            let Some(sender) = clients.get(&client) else { continue };
            // Nothing is made for who has no room for it.
            if let Ok(room) = sender.try_reserve() {
                room.send(Ok(convert::event_to_proto(event)));
                continue;
            }
            match event {
                StreamEvent::PacketIn(_) => self.count_lost(0),
                StreamEvent::Digest(_) => self.count_lost(1),
                StreamEvent::IdleTimeout(_) => self.count_lost(2),
                // The client's own doing, and news to nobody else.
                StreamEvent::Error(_) => {}
                StreamEvent::Arbitration(_) => {
                    clients.remove(&client);
                    gone.push(client);
                }
            }
        }
        gone
    }

    /// Removes a device and ends the streams of its clients, who are told.
    pub fn remove_device(&self, device_id: u64) -> Result<(), Error> {
        let gone = self.with(|control| control.remove_device(device_id))?;
        let mut clients = lock(&self.clients);
        for client in gone {
            if let Some(sender) = clients.remove(&client) {
                // Who does not read finds out when the stream ends.
                let _ = sender.try_send(Err(Status::not_found(format!("device {device_id} was unloaded"))));
            }
        }
        Ok(())
    }

    fn count_lost(&self, kind: usize) {
        self.lost[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// Ends all streams.
    pub(crate) fn close_streams(&self) {
        lock(&self.clients).clear();
    }

    fn leave(&self, client: ClientId) {
        lock(&self.clients).remove(&client);
        self.run(|control| control.disconnect(client));
    }
}

/// The service; cheap to clone.
#[derive(Clone)]
pub struct Service {
    handle: Arc<Handle>,
    patience: Duration,
}

impl Service {
    /// For a shared control plane. Reads end when nothing of their answer is taken for so long.
    pub fn new(handle: Arc<Handle>, patience: Duration) -> Service {
        Service { handle, patience }
    }

    /// Runs a request on a blocking thread.
    async fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Control) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Status> {
        let handle = Arc::clone(&self.handle);
        let done = tokio::task::spawn_blocking(move || f(&mut lock(&handle.control))).await;
        done.map_err(|_| Status::internal("the request's task failed"))?.map_err(|e| status::of_error(&e))
    }

    /// As `call`, and answers only when all that the request did or saw would come back after a crash. The disk is waited for
    /// without the lock, so that requests share its syncs.
    async fn call_kept<R: Send + 'static>(
        &self,
        device_id: u64,
        f: impl FnOnce(&mut Control) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Status> {
        let handle = Arc::clone(&self.handle);
        let done = tokio::task::spawn_blocking(move || {
            let (result, change) = {
                let mut control = lock(&handle.control);
                (f(&mut control)?, control.last_change(device_id))
            };
            if let Some((journal, ticket)) = change
                && let Err(why) = journal.wait(ticket)
            {
                lock(&handle.control).take_back();
                return Err(Error::unavailable(format!("nothing of the request is kept or in force: {why}")));
            }
            Ok(result)
        });
        done.await.map_err(|_| Status::internal("the request's task failed"))?.map_err(|e| status::of_error(&e))
    }
}

pub(crate) type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl P4Runtime for Service {
    async fn write(&self, request: Request<pb::WriteRequest>) -> Result<Response<pb::WriteResponse>, Status> {
        let request = Arc::new(convert::write_request(request.into_inner()));
        let results = self.call_kept(request.device_id, move |control| control.write_shared(&request)).await?;
        match status::of_batch(&results, "updates") {
            None => Ok(Response::new(pb::WriteResponse {})),
            Some(status) => Err(status),
        }
    }

    type ReadStream = BoxStream<pb::ReadResponse>;

    async fn read(&self, request: Request<pb::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        let device_id = request.device_id;
        let entities = convert::read_entities(request.entities);
        let role = convert::role(request.role, 0);
        let handle = Arc::clone(&self.handle);
        let open = move |control: &mut Control| {
            let (id, results) = control.open_read(device_id, &role, &entities)?;
            Ok((OpenRead { handle, id }, results))
        };
        let (read, results) = self.call_kept(device_id, open).await?;
        Ok(Response::new(Box::pin(reads::answer(read, results, self.patience))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<pb::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<pb::SetForwardingPipelineConfigResponse>, Status> {
        use pb::set_forwarding_pipeline_config_request::Action;
        let request = request.into_inner();
        let action = match Action::try_from(request.action) {
            Ok(Action::Verify) => ConfigAction::Verify,
            Ok(Action::VerifyAndSave) => ConfigAction::VerifyAndSave,
            Ok(Action::VerifyAndCommit) => ConfigAction::VerifyAndCommit,
            Ok(Action::Commit) => ConfigAction::Commit,
            Ok(Action::ReconcileAndCommit) => ConfigAction::ReconcileAndCommit,
            Ok(Action::Unspecified) | Err(_) => ConfigAction::Unspecified,
        };
        let config = request.config.map(|config| ForwardingConfig {
            device_config: config.p4_device_config,
            p4info: config.p4info.as_ref().map(Message::encode_to_vec).unwrap_or_default(),
            claims: config.p4info.as_ref().map(p4info::claims).unwrap_or_default(),
            cookie: config.cookie.map(|cookie| cookie.cookie),
            name: String::new(),
        });
        #[allow(deprecated, reason = "older controllers give their role by number")]
        let role = convert::role(request.role, request.role_id);
        let election_id = convert::election_id(request.election_id);
        let request = SetConfigRequest { device_id: request.device_id, role, election_id, action, config };
        self.call(move |control| control.set_config(request)).await?;
        Ok(Response::new(pb::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<pb::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<pb::GetForwardingPipelineConfigResponse>, Status> {
        use pb::get_forwarding_pipeline_config_request::ResponseType;
        let request = request.into_inner();
        let view = self.call(move |control| control.config(request.device_id)).await?;
        let wanted = ResponseType::try_from(request.response_type).unwrap_or(ResponseType::All);
        let with_p4info = matches!(wanted, ResponseType::All | ResponseType::P4infoAndCookie);
        let with_program = matches!(wanted, ResponseType::All | ResponseType::DeviceConfigAndCookie);
        let config = view.map(|view| {
            // What was set is returned as it was; without one, the program's own.
            let p4info = || match config_pb::P4Info::decode(view.config.p4info.as_slice()) {
                Ok(set) if !view.config.p4info.is_empty() => set,
                _ => p4info::to_proto(&view.p4info),
            };
            pb::ForwardingPipelineConfig {
                p4info: with_p4info.then(p4info),
                p4_device_config: if with_program { view.config.device_config.clone() } else { vec![] },
                cookie: view.config.cookie.map(|cookie| pb::forwarding_pipeline_config::Cookie { cookie }),
            }
        });
        Ok(Response::new(pb::GetForwardingPipelineConfigResponse { config }))
    }

    type StreamChannelStream = BoxStream<pb::StreamMessageResponse>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<pb::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let handle = Arc::clone(&self.handle);
        let client = self.call(|control| Ok(control.connect())).await?;
        lock(&handle.clients).insert(client, sender.clone());
        tokio::spawn(serve_stream(handle, client, sender, request.into_inner()));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn capabilities(
        &self,
        request: Request<pb::CapabilitiesRequest>,
    ) -> Result<Response<pb::CapabilitiesResponse>, Status> {
        let device_id = request.into_inner().device_id;
        let version = self.call(move |control| control.capabilities(device_id)).await?;
        Ok(Response::new(capabilities::response(version)))
    }
}

/// Handles a client's messages until it leaves, the server closes the stream, or a message ends it.
async fn serve_stream(
    handle: Arc<Handle>,
    client: ClientId,
    sender: EventSender,
    mut requests: Streaming<pb::StreamMessageRequest>,
) {
    // The sender in `clients` is what keeps the client's side open; this one must not.
    let closed = sender.clone().downgrade();
    drop(sender);
    loop {
        let message = match requests.next().await {
            Some(Ok(message)) => message,
            Some(Err(_)) | None => break,
        };
        let on = Arc::clone(&handle);
        let done = tokio::task::spawn_blocking(move || {
            let mut refused = None;
            on.run(|control| {
                control.stream_request(client, convert::stream_request(message)).unwrap_or_else(|error| {
                    refused = Some(error);
                    vec![]
                })
            });
            refused
        });
        match done.await {
            Ok(None) => {}
            Ok(Some(error)) => {
                if let Some(sender) = closed.upgrade() {
                    let _ = sender.send(Err(status::of_error(&error))).await;
                }
                break;
            }
            Err(_) => break,
        }
    }
    let _ = tokio::task::spawn_blocking(move || handle.leave(client)).await;
}
