//! The P4Runtime service: its RPCs over a [`Handle`].
//!
//! ```text
//!   client ══stream══▶ task per stream ──▶ Handle (one lock) ──▶ switch
//!      ▲                                     │ events
//!      └── bounded channel per client ◀──────┘◀── packet_in, tick: from the thread that polls the switch
//! ```
//!
//! A request takes the control plane's lock on a blocking thread, so a long one does not block the async runtime. A large
//! batch of updates is written in turns, so it does not block other requests either ([`Handle::write`]).
//! Programs are compiled without that lock ([`Handle::prepared`]), so writes, reads and packet-ins continue meanwhile.
//! A stream is closed when its client's queue is full and the client reads nothing for `patience`, and when its
//! client's rights are revoked.
//!
//! Services access a request only through `authorise`. Tests: `tests/loopback.rs`, `tests/load.rs`, `tests/limits.rs`,
//! `tests/rights.rs`.

use crate::admission::Call;
use crate::audit::GRANTED;
use crate::authorise::{self, authorised};
use crate::capabilities;
use crate::events::{self, Outgoing};
use crate::handle::{Handle, blocking};
use crate::reads::{self, OpenRead};
use crate::services::p4runtime::p4_runtime_server::P4Runtime;
use crate::status;
use control::arbitration::{ArbitrationUpdate, ClientId};
use control::control::{ConfigAction, SetConfigRequest, StreamEvent, StreamRequest};
use control::entity::{Entity, WriteRequest};
use control::forwarding::ForwardingConfig;
use control::journal::{Journal, Ticket};
use control::objects::Objects;
use control::schema::Schema;
use control::writes::Written;
use control::{Control, Error};
use messages::convert::{self, p4info};
use messages::p4::config::v1 as config_pb;
use messages::p4::v1 as pb;
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

/// Lower bound of the interval at which a stream checks whether its client reads.
const SHORTEST_LOOK: Duration = Duration::from_millis(20);

/// The P4Runtime service; cheap to clone.
#[derive(Clone)]
pub struct Service {
    handle: Arc<Handle>,
    patience: Duration,
}

impl Service {
    /// The service of a shared control plane. A read or stream ends when its client takes no message for `patience`.
    pub fn new(handle: Arc<Handle>, patience: Duration) -> Service {
        Service { handle, patience }
    }

    /// Runs a request on a blocking thread.
    async fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Control) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Status> {
        let handle = Arc::clone(&self.handle);
        let done = tokio::task::spawn_blocking(move || handle.with(f)).await;
        done.map_err(|_| status::new(Code::Internal, "the request's task failed"))?.map_err(|e| status::of_error(&e))
    }

    /// As `call`, for a read of a device's state; answers only when everything that it saw is durable. It waits for the
    /// disk without the lock, so that requests share syncs (group commit).
    async fn call_kept<R: Send + 'static>(
        &self,
        device_id: u64,
        queries: Arc<Vec<Option<Entity>>>,
        f: impl FnOnce(&mut Control) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Status> {
        let objects = move |schema: &Schema| Objects::of(schema, queries.iter().map(Option::as_ref));
        let read = move |control: &mut Control| Ok::<_, Error>((f(control)?, control.last_change(device_id)));
        let done = self.handle.read_objects(device_id, objects, read).await.flatten();
        let (result, change) = done.map_err(|e| status::of_error(&e))?;
        match durable(&self.handle, change).await {
            Ok(()) => Ok(result),
            Err(error) => {
                // An open read is closed under a lock, so on a blocking thread.
                let _ = blocking(move || drop(result)).await;
                Err(status::of_error(&error))
            }
        }
    }

    /// Writes a batch of updates, and answers when all of it is durable.
    pub(crate) async fn written(&self, request: Arc<WriteRequest>) -> Result<Vec<Result<(), Error>>, Status> {
        let device_id = request.device_id;
        let written = move |handle: &Handle, Written { results, ticket }: Written| {
            (results, ticket.and_then(|ticket| Some((handle.with(|control| control.journal(device_id))?, ticket))))
        };
        let done = self.handle.write_as_task(request, written).await;
        let (results, change) = done.map_err(|e| status::of_error(&e))?;
        durable(&self.handle, change).await.map_err(|e| status::of_error(&e))?;
        Ok(results)
    }
}

/// Waits until a change of the journal is durable; if it cannot be kept, it is undone. Those that wait have no thread: they
/// may be as many as there are calls, and a slow disk must not take the threads from calls that need none.
async fn durable(handle: &Arc<Handle>, change: Option<(Arc<dyn Journal>, Ticket)>) -> Result<(), Error> {
    let Some((journal, ticket)) = change else { return Ok(()) };
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // Nobody is told whose call has ended.
    journal.when_kept(ticket, Box::new(move |done| _ = sender.send(done)));
    let Err(why) = receiver.await.unwrap_or_else(|_| Err("the journal was closed".to_string())) else { return Ok(()) };
    let handle = Arc::clone(handle);
    Err(blocking(move || rolled_back(&handle, &why)).await?)
}

/// Undoes what the journal could not keep, after which it returns the error for the request.
fn rolled_back(handle: &Handle, why: &str) -> Error {
    match handle.with(Control::roll_back) {
        Ok(()) => Error::unavailable(format!("the request was rolled back: {why}")),
        Err(e) => Error::unavailable(format!("the request could not be kept ({why}), and {e}")),
    }
}

pub(crate) type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl P4Runtime for Service {
    async fn write(&self, request: Request<pb::WriteRequest>) -> Result<Response<pb::WriteResponse>, Status> {
        let (request, _call) = authorised(request)?;
        let request = convert::write_request(request).map_err(|error| status::of_error(&error))?;
        let results = self.written(Arc::new(request)).await?;
        match status::of_batch(&results, "updates") {
            None => Ok(Response::new(pb::WriteResponse {})),
            Some(status) => Err(status),
        }
    }

    type ReadStream = BoxStream<pb::ReadResponse>;

    async fn read(&self, request: Request<pb::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let (request, call) = authorised(request)?;
        let device_id = request.device_id;
        let entities = Arc::new(convert::read_entities(request.entities));
        let role = convert::role(request.role, 0);
        let (handle, queries) = (Arc::clone(&self.handle), Arc::clone(&entities));
        let open = move |control: &mut Control| {
            let (id, results) = control.open_read(device_id, &role, &queries)?;
            let cost = control.read_cost(id);
            Ok((OpenRead { handle, id }, results, cost))
        };
        let (read, results, cost) = self.call_kept(device_id, entities, open).await?;
        if let Err(status) = call.charge_more(cost) {
            // Closing takes a lock, so it is done on a blocking thread.
            let _ = tokio::task::spawn_blocking(move || drop(read)).await;
            return Err(status);
        }
        Ok(Response::new(Box::pin(reads::answer(read, results, self.patience))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<pb::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<pb::SetForwardingPipelineConfigResponse>, Status> {
        use pb::set_forwarding_pipeline_config_request::Action;
        let (request, _call) = authorised(request)?;
        let action = match Action::try_from(request.action) {
            Ok(Action::Verify) => ConfigAction::Verify,
            Ok(Action::VerifyAndSave) => ConfigAction::VerifyAndSave,
            Ok(Action::VerifyAndCommit) => ConfigAction::VerifyAndCommit,
            Ok(Action::Commit) => ConfigAction::Commit,
            Ok(Action::ReconcileAndCommit) => ConfigAction::ReconcileAndCommit,
            Ok(Action::Unspecified) | Err(_) => ConfigAction::Unspecified,
        };
        if request.config.as_ref().is_some_and(|config| config.p4info.is_none()) {
            return Err(Status::invalid_argument("the config has no P4Info; `sluice p4info` prints a program's"));
        }
        let config = request.config.map(|config| ForwardingConfig {
            name: config
                .p4info
                .as_ref()
                .map_or_else(String::new, |i| p4info::program_name(i, &config.p4_device_config)),
            device_config: config.p4_device_config,
            p4info: config.p4info.as_ref().map(Message::encode_to_vec).unwrap_or_default(),
            claims: config.p4info.as_ref().map(p4info::claims).unwrap_or_default(),
            platform: config.p4info.as_ref().and_then(p4info::platform),
            cookie: config.cookie.map(|cookie| cookie.cookie),
        });
        #[allow(deprecated, reason = "older controllers give their role by number")]
        let role = convert::role(request.role, request.role_id);
        let election_id = convert::election_id(request.election_id);
        let request = SetConfigRequest { device_id: request.device_id, role, election_id, action, config };
        let handle = Arc::clone(&self.handle);
        let device_id = request.device_id;
        let prepare = move || {
            let preparation = handle.with(|control| control.prepare_config(&request))?;
            let prepared = preparation.map(|preparation| handle.prepared(preparation)).transpose()?;
            Ok((request, prepared))
        };
        let done = tokio::task::spawn_blocking(prepare).await;
        let done = done.map_err(|_| Status::internal("the request's task failed"))?;
        let (request, prepared) = done.map_err(|e: Error| status::of_error(&e))?;
        let set = |_: &Handle, control: &mut Control| control.set_config_prepared(request, prepared);
        self.handle.on_device(device_id, set).await.flatten().map_err(|e| status::of_error(&e))?;
        Ok(Response::new(pb::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<pb::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<pb::GetForwardingPipelineConfigResponse>, Status> {
        use pb::get_forwarding_pipeline_config_request::ResponseType;
        let (request, call) = authorised(request)?;
        let view = self.call(move |control| control.config(request.device_id)).await?;
        if let Some(view) = &view {
            // The answer exists as messages and as encoded bytes until the client has received it.
            call.charge_more(2 * (view.config.device_config.len() + view.config.p4info.len()) as u64)?;
        }
        let wanted = ResponseType::try_from(request.response_type).unwrap_or(ResponseType::All);
        let with_p4info = matches!(wanted, ResponseType::All | ResponseType::P4infoAndCookie);
        let with_program = matches!(wanted, ResponseType::All | ResponseType::DeviceConfigAndCookie);
        let config = view.map(|view| {
            // Returns the P4Info as it was set; if none was set, the program's own.
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
        // Only arbitration updates name a device and a role, so rights are checked in `ClientStream::answer`.
        let call = request.extensions().get::<Arc<Call>>().cloned();
        let call = call.ok_or_else(|| status::new(Code::PermissionDenied, "the call came without its sender"))?;
        let (sender, events) = events::queue(call.open_events());
        let handle = Arc::clone(&self.handle);
        let client = self.call(|control| Ok(control.connect())).await?;
        let outgoing = Arc::clone(sender.outgoing());
        handle.enter(client, sender);
        let stream = ClientStream { handle, client, outgoing, call, patience: self.patience };
        tokio::spawn(stream.serve(request.into_inner()));
        Ok(Response::new(Box::pin(events)))
    }

    async fn capabilities(
        &self,
        request: Request<pb::CapabilitiesRequest>,
    ) -> Result<Response<pb::CapabilitiesResponse>, Status> {
        let device_id = authorised(request)?.0.device_id;
        let version = self.call(move |control| control.capabilities(device_id)).await?;
        Ok(Response::new(capabilities::response(version)))
    }
}

/// A client's stream, as seen by the task that serves it.
struct ClientStream {
    handle: Arc<Handle>,
    client: ClientId,
    outgoing: Arc<Outgoing>,
    call: Arc<Call>,
    /// How long a full queue may remain unread.
    patience: Duration,
}

impl ClientStream {
    /// Handles the client's messages until the client disconnects, the server closes the stream, or a message ends it.
    /// The sender in `Handle::clients` alone keeps the stream to the client open.
    async fn serve(self, mut requests: Streaming<pb::StreamMessageRequest>) {
        let mut rights = self.call.rights();
        let mut looks = tokio::time::interval((self.patience / 4).max(SHORTEST_LOOK));
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // Reasons to end the stream have priority over the client's messages.
            let message = tokio::select! {
                biased;
                () = self.outgoing.gone() => break,
                Ok(()) = rights.changed() => match self.call.still_allowed() {
                    Ok(()) => continue,
                    Err(status) => {
                        self.outgoing.cut(status);
                        break;
                    }
                },
                _ = looks.tick() => {
                    if self.outgoing.stuck() < self.patience {
                        continue;
                    }
                    let status = events::not_read(&format!("its queue was full for {:?}", self.patience));
                    tracing::warn!(peer = %self.call.peer(), "a stream is closed: {}", status.message());
                    self.outgoing.cut(status);
                    break;
                }
                message = requests.next() => message,
            };
            match message {
                Some(Ok(message)) => {
                    if let Err(status) = self.answer(message).await {
                        self.outgoing.end(status);
                        break;
                    }
                }
                // The message is too long or malformed, or the connection is closed and nobody receives this.
                Some(Err(status)) => {
                    self.outgoing.end(status);
                    break;
                }
                None => break,
            }
        }
        let _ = tokio::task::spawn_blocking(move || self.handle.leave(self.client)).await;
    }

    /// Handles a message; an error ends the stream. A claim is recorded in the audit log with its outcome.
    async fn answer(&self, message: pb::StreamMessageRequest) -> Result<(), Status> {
        let request = convert::stream_request(message);
        let claim = match &request {
            StreamRequest::Arbitration(claim) => Some(authorise::described_claim(claim)),
            _ => None,
        };
        let allowed = match &request {
            StreamRequest::Arbitration(request) => self.call.admit(authorise::about_claim(request), String::new()),
            // Covered by the check of the arbitration update before.
            _ => Ok(()),
        };
        let done = match allowed {
            Ok(()) => self.carry_out(request).await,
            Err(status) => Err(status),
        };
        if let Some(what) = claim {
            let (outcome, message) = match &done {
                Ok(true) => (GRANTED.to_string(), ""),
                Ok(false) => ("Backup".to_string(), ""),
                Err(status) => (format!("{:?}", status.code()), status.message()),
            };
            self.call.record_claim(what, outcome, message).await;
        }
        done.map(drop)
    }

    /// Passes a message to the control plane. Returns whether it made the client primary.
    async fn carry_out(&self, request: StreamRequest) -> Result<bool, Status> {
        let client = self.client;
        let device = match &request {
            StreamRequest::Arbitration(claim) => Some(claim.device_id),
            _ => None,
        };
        let carry_out = move |handle: &Handle, control: &mut Control| {
            let events = control.stream_request(client, request)?;
            let is_primary = |(to, event): &(ClientId, StreamEvent)| {
                let is = |update: &ArbitrationUpdate| update.status == control::Code::Ok;
                *to == client && matches!(event, StreamEvent::Arbitration(update) if is(update))
            };
            let done = events.iter().any(is_primary);
            handle.deliver_all(events, control);
            Ok::<_, Error>(done)
        };
        // A batch of updates that began under a primary is finished before another one is told that it is primary.
        let done = match device {
            Some(device) => self.handle.on_device(device, carry_out).await.flatten(),
            None => {
                let handle = Arc::clone(&self.handle);
                let done =
                    tokio::task::spawn_blocking(move || handle.with(|control| carry_out(&handle, control))).await;
                done.map_err(|_| status::new(Code::Internal, "the message's task failed"))?
            }
        };
        done.map_err(|error| status::of_error(&error))
    }
}
