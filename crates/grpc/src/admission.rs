//! Admission control: checks of every call before a service sees it (rights, limits, memory), and its audit record.
//!
//! ```text
//!   headers ──▶ may this peer call this method?                    PERMISSION_DENIED
//!   bytes of a message ──▶ not too long; reserve memory for them   OUT_OF_RANGE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED
//!   whole message ──▶ reserve memory for decoding it (`wire`)      INVALID_ARGUMENT, RESOURCE_EXHAUSTED
//!                 ──▶ if large: is its sender primary?             PERMISSION_DENIED
//!   ──▶ decoded (tonic, prost) ──▶ device and role allowed (`authorise`) ──▶ service ──▶ answer ──▶ audit record
//! ```
//!
//! So nothing is decoded whose cost is unknown, and nothing large is decoded for a client without the right to send it.
//! The right is checked again on the decoded message. Memory is released when the call is over; that of a stream's
//! message when the next one is requested. A streaming answer (a read, a capture, a trace, a stream) ends when its
//! client's rights are revoked.
//!
//! **Invariant.** A call runs to completion in a task of its own, even if its client cancels it, closes the connection
//! or lets its deadline (`grpc-timeout`) pass: a service's effects are not undone by that, so the call's memory stays
//! charged, and the call is counted and recorded.
//!
//! Threads: the runtime's; whatever needs the control plane's lock runs on a blocking thread. Tests: `tests/limits.rs`,
//! `tests/rights.rs`.

use crate::access::{About, Access, Kind};
use crate::audit::{Audit, Entry};
use crate::budget::{Budget, Charge};
use crate::handle::Handle;
use crate::listen::Link;
use crate::peer::{Origin, Peer, PeerKey};
use crate::sender::Sender;
use crate::status;
use crate::wire::{Method, Shape, Value, WireError, packed, schema};
use admission::Busy;
use messages::convert;
use prost::Message;
use prost::bytes::{Buf, Bytes, BytesMut};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::Sleep;
use tonic::body::Body;
use tonic::codegen::Body as HttpBody;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::{Code, Status};
use tower_layer::Layer;
use tower_service::Service;

/// Bytes of the prefix of a message: compressed flag and length (gRPC over HTTP/2, "Length-Prefixed-Message").
const HEADER: usize = 5;
/// Minimum charge of a call, from its start to the end of its answer, in bytes.
const CALL_BYTES: u64 = 32 << 10;
/// Protobuf messages are converted to values of the control plane, and for a moment both exist.
const HELD_TWICE: u64 = 2;
/// Size in bytes from which the sender of a message is checked before it is decoded; decoding less is as quick as
/// checking.
const ASK_FIRST_BYTES: usize = 16 << 10;

/// State that all calls of a server share.
pub(crate) struct Gate {
    pub(crate) handle: Arc<Handle>,
    pub(crate) access: Arc<Access>,
    pub(crate) audit: Audit,
    pub(crate) budget: Arc<Budget>,
    /// The budget of events queued for clients.
    pub(crate) events: Arc<Budget>,
    pub(crate) message_bytes_max: usize,
    /// Deadline for a request, or a message of a stream, from its first byte to its last.
    pub(crate) receive_max: Duration,
}

/// The tower layer that adds admission control to a service.
#[derive(Clone)]
pub(crate) struct Admission(pub(crate) Arc<Gate>);

impl<S> Layer<S> for Admission {
    type Service = Admitted<S>;

    fn layer(&self, inner: S) -> Admitted<S> {
        Admitted { inner, gate: Arc::clone(&self.0) }
    }
}

#[derive(Clone)]
pub(crate) struct Admitted<S> {
    inner: S,
    gate: Arc<Gate>,
}

/// A call in progress.
pub(crate) struct Call {
    gate: Arc<Gate>,
    peer: Peer,
    path: String,
    method: Method,
    start: Instant,
    charge: Mutex<Charge>,
    /// Signals that rights were changed since the call began.
    rights: watch::Receiver<()>,
    /// The device and role of its request, as far as known.
    about: Mutex<About>,
    /// A description of its request, for the audit record.
    what: Mutex<String>,
    /// Marks its connection as in use.
    _busy: Option<Busy>,
}

impl Call {
    fn charge(&self, bytes: u64) -> bool {
        self.charge.lock().unwrap_or_else(PoisonError::into_inner).set(CALL_BYTES.saturating_add(bytes))
    }

    /// Reserves memory for an answer, in addition to what the call has.
    ///
    /// # Errors
    ///
    /// RESOURCE_EXHAUSTED if the budget does not allow it.
    pub(crate) fn charge_more(&self, bytes: u64) -> Result<(), Status> {
        let mut charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = charge.bytes().saturating_add(bytes);
        if charge.set(bytes) { Ok(()) } else { Err(no_memory()) }
    }

    /// An empty charge, for events queued for the caller.
    pub(crate) fn open_events(&self) -> Charge {
        self.gate.events.open(self.peer.origin.key())
    }

    fn kind(&self) -> Kind {
        Kind::of(&self.path)
    }

    /// The caller.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Checks the caller's right to a decoded request, and remembers it for the record and for [`Call::still_allowed`].
    ///
    /// # Errors
    ///
    /// PERMISSION_DENIED.
    pub(crate) fn admit(&self, about: About, what: String) -> Result<(), Status> {
        // Stored before the check, so that a concurrent replacement of the rules checks it too.
        about.clone_into(&mut lock(&self.about));
        *lock(&self.what) = what;
        self.gate.access.check(&self.peer, self.kind(), &about).map_err(|why| status::new(Code::PermissionDenied, why))
    }

    /// Checks the call again, against the rules now in force.
    ///
    /// # Errors
    ///
    /// PERMISSION_DENIED if they no longer allow it.
    pub(crate) fn still_allowed(&self) -> Result<(), Status> {
        let about = lock(&self.about).clone();
        self.gate.access.check(&self.peer, self.kind(), &about).map_err(|why| {
            status::new(Code::PermissionDenied, format!("the rights of this client were changed: {why}"))
        })
    }

    /// Signals that rights were changed since the call began.
    pub(crate) fn rights(&self) -> watch::Receiver<()> {
        self.rights.clone()
    }

    async fn record(&self, code: Code, message: &str) {
        let reads = matches!(self.kind(), Kind::Reads | Kind::Counters);
        // Opening a stream changes nothing; its claims are recorded.
        let harmless = reads && code != Code::PermissionDenied || self.method.streams_requests && code == Code::Ok;
        if harmless {
            return;
        }
        let entry = Entry {
            method: self.path.clone(),
            what: lock(&self.what).clone(),
            outcome: format!("{code:?}"),
            message: message.to_string(),
            took: self.start.elapsed(),
            limited: code != Code::Ok,
        };
        self.gate.audit.record(&self.peer, entry).await;
    }

    /// Records a claim to be primary, with its outcome.
    pub(crate) async fn record_claim(&self, what: String, outcome: String, message: &str) {
        let (method, message) = (self.path.clone(), message.to_string());
        let entry = Entry { method, what, outcome, message, took: Duration::ZERO, limited: true };
        self.gate.audit.record(&self.peer, entry).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_memory() -> Status {
    status::new(
        Code::ResourceExhausted,
        "requests in progress use all memory that there is for them; send it again later",
    )
}

impl<S> Service<Request<Body>> for Admitted<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path().to_string();
        let Some(method) = schema().method(&path).cloned() else {
            // The router answers that the method is unknown.
            self.gate.handle.rpcs().count(&path, Code::Unimplemented);
            return Box::pin(self.inner.call(request));
        };
        // Every connection has a link. A call without one gets the fewest rights.
        let nobody = || Peer { origin: Origin::Tcp(([0, 0, 0, 0], 0).into()), names: Arc::new([]), private: false };
        let link = request.extensions().get::<Link>();
        let busy = link.map(|link| link.activity.call());
        let peer = link.map(|link| link.peer.clone()).unwrap_or_else(nobody);
        let key: PeerKey = peer.origin.key();
        let gate = Arc::clone(&self.gate);
        let charge = Mutex::new(gate.budget.open(key));
        // Subscribed before the first check, so that no later change is missed.
        let rights = gate.access.watch();
        let (start, about, what) = (Instant::now(), Mutex::default(), Mutex::default());
        let call = Arc::new(Call { gate, peer, path, method, start, charge, rights, about, what, _busy: busy });
        let allowed = call.gate.access.check(&call.peer, call.kind(), &About::default());
        let refused = match allowed {
            Err(why) => Some(status::new(Code::PermissionDenied, why)),
            Ok(()) if !call.charge(0) => Some(no_memory()),
            Ok(()) => None,
        };
        if let Some(status) = refused {
            call.gate.handle.rpcs().count(&call.path, status.code());
            return Box::pin(async move {
                call.record(status.code(), status.message()).await;
                Ok(status.into_http())
            });
        }
        let (mut head, body) = request.into_parts();
        head.extensions.insert(Arc::clone(&call));
        let body = Body::new(Checked::new(Arc::clone(&call), body));
        let answer = self.inner.call(Request::from_parts(head, body));
        let done = tokio::spawn(async move {
            let answer = answer.await?;
            let (code, message) = outcome(answer.headers());
            call.gate.handle.rpcs().count(&call.path, code);
            call.record(code, &message).await;
            // The call holds its memory until the answer is sent.
            Ok(answer.map(|body| Body::new(Held::new(body, call))))
        });
        // If the client does not wait for the answer, this future is dropped, but not the task.
        let failed = |_| Ok(status::new(Code::Internal, "the request's task failed").into_http());
        Box::pin(async move { done.await.unwrap_or_else(failed) })
    }
}

/// The code and message in an answer's headers: a refusal has its status there.
fn outcome(headers: &HeaderMap) -> (Code, String) {
    match Status::from_header_map(headers) {
        Some(status) => (status.code(), status.message().to_string()),
        None => (Code::Ok, String::new()),
    }
}

/// An answer's body, which holds its call and ends when the call is no longer allowed.
struct Held {
    /// `None` when it was cut off.
    inner: Option<Body>,
    call: Arc<Call>,
    changed: Changed,
}

impl Held {
    fn new(inner: Body, call: Arc<Call>) -> Held {
        let changed = changed(call.rights());
        Held { inner: Some(inner), call, changed }
    }
}

/// Ready when rights were changed.
type Changed = Pin<Box<dyn Future<Output = watch::Receiver<()>> + Send>>;

fn changed(mut rights: watch::Receiver<()>) -> Changed {
    Box::pin(async move {
        if rights.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        rights
    })
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        while let Poll::Ready(rights) = self.changed.as_mut().poll(cx) {
            self.changed = changed(rights);
            if let Err(status) = self.call.still_allowed() {
                self.inner = None;
                let mut trailers = HeaderMap::new();
                status.add_header(&mut trailers)?;
                return Poll::Ready(Some(Ok(http_body::Frame::trailers(trailers))));
            }
        }
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

type Asking = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// A request's body: yields complete messages, each after its checks.
struct Checked {
    call: Arc<Call>,
    inner: Body,
    buffer: BytesMut,
    /// For the message that is arriving; for a call with a single request, for the whole request.
    deadline: Option<Pin<Box<Sleep>>>,
    /// A message whose sender is being checked, after it passed the other checks.
    asking: Option<(Asking, Bytes)>,
    /// A message was passed on, and its memory is not released yet.
    handed_on: bool,
}

impl Checked {
    fn new(call: Arc<Call>, inner: Body) -> Checked {
        let mut new = Checked { call, inner, buffer: BytesMut::new(), deadline: None, asking: None, handed_on: false };
        if !new.call.method.streams_requests {
            new.hurry();
        }
        new
    }

    fn hurry(&mut self) {
        let time = self.call.gate.receive_max;
        self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
    }

    /// The next message, if all its bytes have arrived.
    fn message(&mut self) -> Result<Option<Bytes>, Status> {
        if self.buffer.len() < HEADER {
            return Ok(None);
        }
        let mut header = &self.buffer[..HEADER];
        if header.get_u8() != 0 {
            return Err(status::new(Code::Unimplemented, "compressed messages are not taken"));
        }
        let (length, max) = (header.get_u32() as usize, self.call.gate.message_bytes_max);
        if length > max {
            let why = format!("the message has {length} bytes, the limit is {max}; send it in parts");
            return Err(status::new(Code::OutOfRange, why));
        }
        // Its bytes are here and in the decoder's buffer.
        if !self.call.charge(HELD_TWICE * length as u64) {
            return Err(no_memory());
        }
        if self.buffer.len() < HEADER + length {
            let missing = HEADER + length - self.buffer.len();
            self.buffer.reserve(missing);
            return Ok(None);
        }
        let message = self.buffer.split_to(HEADER + length).freeze();
        if self.call.method.streams_requests {
            self.deadline = None;
            if !self.buffer.is_empty() {
                // The next message has already begun.
                self.hurry();
            }
        }
        Ok(Some(message))
    }

    /// Checks a message. Returns the check of its sender, if one is needed.
    fn check(&self, message: &[u8]) -> Result<Option<Asking>, Status> {
        let (call, payload) = (&self.call, &message[HEADER..]);
        let most = call.gate.budget.per_peer() / HELD_TWICE;
        let cost = schema().cost(call.method.input, payload, most).map_err(|error| match error {
            WireError::Malformed { .. } => status::new(Code::InvalidArgument, error.to_string()),
            WireError::TooLarge { .. } => {
                status::new(Code::ResourceExhausted, format!("{error}; send it in smaller parts"))
            }
        })?;
        if !call.charge(HELD_TWICE * (payload.len() as u64 + cost)) {
            return Err(no_memory());
        }
        if call.kind() == Kind::Admin {
            *lock(&call.what) = described(&call.method, payload);
        }
        let writes = call.kind() == Kind::P4Runtime && !call.method.streams_requests;
        if !writes || message.len() < ASK_FIRST_BYTES {
            return Ok(None);
        }
        // If these fields cannot be decoded, the whole message cannot either, and its decoder reports why.
        let Ok(sender) = Sender::decode(payload) else { return Ok(None) };
        call.admit(sender.about(), sender.described())?;
        let handle = Arc::clone(&call.gate.handle);
        let asked = tokio::task::spawn_blocking(move || {
            let election_id = convert::election_id(sender.election_id);
            handle.with(|control| control.check_writer(sender.device_id, &sender.role(), election_id))
        });
        Ok(Some(Box::pin(async move {
            let asked = asked.await.map_err(|_| status::new(Code::Internal, "the request's task failed"))?;
            asked.map_err(|error| status::of_error(&error))
        })))
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        if std::mem::take(&mut self.handed_on) && self.call.method.streams_requests {
            // The previous message was consumed. Releasing memory always succeeds.
            let _ = self.call.charge(0);
        }
        loop {
            if let Some((asking, message)) = &mut self.asking {
                let done = ready!(asking.as_mut().poll(cx));
                let message = std::mem::take(message);
                self.asking = None;
                self.handed_on = true;
                return Poll::Ready(Some(done.map(|()| http_body::Frame::data(message))));
            }
            if let Some(message) = self.message()? {
                match self.check(&message)? {
                    Some(asking) => self.asking = Some((asking, message)),
                    None => {
                        self.handed_on = true;
                        return Poll::Ready(Some(Ok(http_body::Frame::data(message))));
                    }
                }
                continue;
            }
            if let Some(deadline) = &mut self.deadline
                && deadline.as_mut().poll(cx).is_ready()
            {
                let why = format!("the request was not there whole after {:?}", self.call.gate.receive_max);
                return Poll::Ready(Some(Err(status::new(Code::DeadlineExceeded, why))));
            }
            let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()? else {
                return Poll::Ready(match self.buffer.is_empty() {
                    true => None,
                    false => Some(Err(status::new(Code::Internal, "the request ends within a message"))),
                });
            };
            match frame.into_data() {
                Ok(data) => {
                    self.buffer.extend_from_slice(&data);
                    if !self.buffer.is_empty() {
                        self.hurry();
                    }
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }
}

impl HttpBody for Checked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        self.poll_message(cx)
    }
}

/// A description of an admin request, for its record; nothing is decided by it.
fn described(method: &Method, payload: &[u8]) -> String {
    let mut fields: Vec<_> = schema().fields(method.input, payload).take(PARTS_MAX).collect();
    fields.sort_by_key(|(name, ..)| *name != "device_id");
    let text = |(name, shape, value): (&str, Shape, Value<'_>)| match (name, value.number()) {
        ("device_id", Some(device)) => format!("device {device}"),
        _ => shown(name, shape, value),
    };
    fields.into_iter().map(text).collect::<Vec<String>>().join(", ")
}

/// A description of one field, for the record.
fn shown(name: &str, shape: Shape, value: Value<'_>) -> String {
    match (shape, value) {
        (_, Value::Number(number)) => format!("{name}={number}"),
        (_, Value::Bytes(bytes)) if bytes.len() > SHOWN_MAX => format!("{name}: {} bytes", bytes.len()),
        (Shape::Number, Value::Bytes(bytes)) => {
            let numbers: Vec<String> = packed(bytes).map(|n| n.to_string()).collect();
            format!("{name}={}", numbers.join(","))
        }
        (Shape::Bytes, Value::Bytes(bytes)) => format!("{name}={}", lossy(bytes)),
        (Shape::Message(of), Value::Bytes(bytes)) => {
            let inner: Vec<String> =
                schema().fields(of, bytes).map(|(name, shape, value)| shown(name, shape, value)).collect();
            format!("{name}({})", inner.join(" "))
        }
    }
}

/// Limit on the bytes that are shown as text.
const SHOWN_MAX: usize = 64;
/// Limit on the fields of a request that are named in its record.
const PARTS_MAX: usize = 24;

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
