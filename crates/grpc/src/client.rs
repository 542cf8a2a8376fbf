//! A blocking client of a running switch, for the command line: P4Runtime and the admin service over one connection.
//!
//! It is in this crate, and not in the binary, so that no other crate needs the async runtime. Calls block the calling
//! thread until they are answered; between calls nothing runs. Answers are not trusted: none of them causes a panic.
//!
//! Tests: below, and `tests/py/test_cli.py` with the real switch.

pub mod encoded;

use crate::admin::AdminStats;
use crate::serve::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES};
use crate::services::admin::admin_client::AdminClient;
use crate::services::p4runtime::p4_runtime_client::P4RuntimeClient;
use crate::status;
pub use crate::tls::ClientTls;
use messages::google::rpc;
use messages::p4::config::v1::P4Info;
use messages::p4::v1 as pb;
use messages::sluice::v1 as admin;
pub use pb::stream_message_response::Update as StreamUpdate;
use prost::Message;
use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

/// Timeout of connecting.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Timeout of the answer to a claim: the switch may be busy with another controller's large program.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Timeout of the check whether anything still accepts connections.
const THERE_MAX: Duration = Duration::from_secs(2);
/// A switch that shuts down closes its connections this long, or less, before it stops listening.
const ENDING: Duration = Duration::from_millis(200);
/// Limit on the bytes of a message in either direction.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Limit on the bytes of headers and trailers: a trailer holds the reasons for which a switch refuses a batch, one per
/// update.
const HEADERS_BYTES_MAX: u32 = 32 << 20;

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not HOST:PORT.
    #[error("`{0}` is not an address: a host and a port are needed, as in 127.0.0.1:9559")]
    BadAddress(String),
    /// The certificates or the key cannot be used.
    #[error("TLS: {0}")]
    BadTls(String),
    /// The server does not present a certificate that this client trusts.
    #[error("the switch on {address} is not trusted: {cause}")]
    Untrusted {
        /// The address.
        address: String,
        /// The reason.
        cause: String,
    },
    /// Nothing accepts connections there.
    #[error("no switch answers on {address}: {cause}")]
    Unreachable {
        /// The address.
        address: String,
        /// The reason.
        cause: String,
    },
    /// The Unix socket's mode does not let this user connect.
    #[error("this user may not connect to {0}: its mode says who may (`ls -l`)")]
    NoRight(String),
    /// The server refused a whole request, or the connection broke.
    #[error("{0}")]
    Refused(String),
    /// The server refused elements of a batch: index and reason, in order.
    #[error("{} of the request's elements were refused", .0.len())]
    Elements(Vec<(usize, String)>),
    /// The device has no program.
    #[error("device {0} runs no program yet")]
    NoProgram(u64),
    /// Another client is primary, or was with a higher election id.
    #[error("{0}")]
    NotPrimary(String),
}

/// A connection to a switch.
///
/// # Errors
///
/// Every call returns [`ClientError::Refused`] if the switch refuses it as a whole or the connection breaks; the methods
/// below state other errors.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    place: Place,
    /// Added to the message of a call that was refused for lack of rights.
    note: Option<String>,
}

/// The address of the switch.
#[derive(Clone)]
enum Place {
    Tcp(String),
    Unix(PathBuf),
}

impl Place {
    /// Whether the address still accepts connections.
    fn answers(&self) -> bool {
        let once = || {
            let place = self.clone();
            let (done, answer) = std::sync::mpsc::channel();
            // In a thread, because either call may block for long.
            std::thread::spawn(move || {
                done.send(match &place {
                    Place::Tcp(address) => std::net::TcpStream::connect(address).is_ok(),
                    Place::Unix(path) => std::os::unix::net::UnixStream::connect(path).is_ok(),
                })
            });
            answer.recv_timeout(THERE_MAX).unwrap_or(false)
        };
        once() && {
            std::thread::sleep(ENDING);
            once()
        }
    }
}

/// Applies this client's limits. The flow-control windows are as large as the server's, because nothing is read between
/// calls, so many small messages may arrive meanwhile.
pub(crate) fn configured(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
}

impl Client {
    /// Connects to `HOST:PORT` in plain text.
    ///
    /// # Errors
    ///
    /// As for [`Client::connect_with`].
    pub fn connect(address: &str) -> Result<Client, ClientError> {
        Client::connect_with(address, None)
    }

    /// Connects to `HOST:PORT`, over TLS if `tls` is given.
    ///
    /// # Errors
    ///
    /// The address is malformed, nothing answers there, or the server is not trusted.
    pub fn connect_with(address: &str, tls: Option<&ClientTls>) -> Result<Client, ClientError> {
        let unreachable = |cause| ClientError::Unreachable { address: address.to_string(), cause };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| unreachable(e.to_string()))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let uri: tonic::transport::Uri =
            format!("{scheme}://{address}").parse().map_err(|_| ClientError::BadAddress(address.to_string()))?;
        if uri.port_u16().is_none() || uri.path() != "/" {
            return Err(ClientError::BadAddress(address.to_string()));
        }
        let mut endpoint = configured(Endpoint::from(uri));
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls.config()).map_err(|e| ClientError::BadTls(innermost(&e)))?;
        }
        let channel = runtime.block_on(endpoint.connect()).map_err(|e| match tls_problem(&e) {
            Some(cause) => ClientError::Untrusted { address: address.to_string(), cause },
            None => unreachable(innermost(&e)),
        })?;
        Ok(Client { runtime, channel, place: Place::Tcp(address.to_string()), note: None })
    }

    /// Connects to the Unix socket of a switch on this machine.
    ///
    /// # Errors
    ///
    /// This user may not connect, or nothing answers there.
    pub fn connect_local(path: &Path) -> Result<Client, ClientError> {
        let address = path.display().to_string();
        let unreachable = |cause: String| ClientError::Unreachable { address: address.clone(), cause };
        // Fails sooner than the library, and with a better reason.
        std::os::unix::net::UnixStream::connect(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => ClientError::NoRight(address.clone()),
            _ => unreachable(error.to_string()),
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| unreachable(e.to_string()))?;
        let endpoint = Endpoint::from_shared(format!("unix:{address}")).map_err(|e| unreachable(innermost(&e)))?;
        let channel = runtime.block_on(configured(endpoint).connect());
        let channel = channel.map_err(|e| unreachable(innermost(&e)))?;
        Ok(Client { runtime, channel, place: Place::Unix(path.to_path_buf()), note: None })
    }

    /// Whether the connection is to a Unix socket, so that the switch is certainly on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self.place, Place::Unix(_))
    }

    /// Sets a note for the message of calls that are refused for lack of rights.
    pub fn noting(self, note: Option<String>) -> Client {
        Client { note, ..self }
    }

    /// The error for a failed call.
    fn refusal(&self, status: &Status) -> ClientError {
        match (refusal(status), &self.note) {
            // A status made on this side: no answer came, and the transport's own message is of no use.
            _ if status.source().is_some() => ClientError::Refused(self.broken(status)),
            (ClientError::Refused(why), Some(note)) if status.code() == Code::PermissionDenied => {
                ClientError::Refused(format!("{why}\n{note}"))
            }
            (other, _) => other,
        }
    }

    /// Explains a broken connection: whether the switch is gone, or still there and refuses this kind of connection.
    fn broken(&self, status: &Status) -> String {
        let cause = innermost(status);
        match (&self.place, self.place.answers()) {
            (Place::Tcp(_), true) => format!(
                "the connection broke before the switch answered ({cause}); has it TLS, or TLS for known clients only?"
            ),
            (Place::Unix(_), true) => {
                format!("the connection broke before the switch answered ({cause}); the switch runs: try again")
            }
            (_, false) => format!("the switch has stopped: the connection broke before it answered ({cause})"),
        }
    }

    fn p4runtime(&self) -> P4RuntimeClient<Channel> {
        P4RuntimeClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// All counters; `None` if the server has no admin service, like other P4Runtime switches.
    pub fn stats(&self) -> Result<Option<AdminStats>, ClientError> {
        self.stats_watching(Duration::ZERO)
    }

    /// As [`Client::stats`]; the switch also counts actions and samples cycles for `time` from now on.
    pub fn stats_watching(&self, time: Duration) -> Result<Option<AdminStats>, ClientError> {
        let watch_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        match self.runtime.block_on(self.admin().stats(admin::StatsRequest { watch_ms })) {
            Ok(answer) => Ok(Some(answer.into_inner())),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(self.refusal(&status)),
        }
    }

    fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Replaces a device's program.
    pub fn load(&self, request: admin::LoadRequest) -> Result<admin::LoadResponse, ClientError> {
        let answer = self.runtime.block_on(self.admin().load(request));
        answer.map(tonic::Response::into_inner).map_err(|status| self.refusal(&status))
    }

    /// Removes a device.
    pub fn unload(&self, request: admin::UnloadRequest) -> Result<(), ClientError> {
        let answer = self.runtime.block_on(self.admin().unload(request));
        answer.map(drop).map_err(|status| self.refusal(&status))
    }

    /// Assigns ports to a device.
    pub fn bind(&self, request: admin::BindRequest) -> Result<(), ClientError> {
        let answer = self.runtime.block_on(self.admin().bind(request));
        answer.map(drop).map_err(|status| self.refusal(&status))
    }

    /// Creates or removes links between devices.
    pub fn chain(&self, request: admin::ChainRequest) -> Result<(), ClientError> {
        let answer = self.runtime.block_on(self.admin().chain(request));
        answer.map(drop).map_err(|status| self.refusal(&status))
    }

    /// Changes the log filter, unless `filter` is empty. Returns the filter then in force.
    pub fn log(&self, filter: String) -> Result<String, ClientError> {
        let answer = self.runtime.block_on(self.admin().log(admin::LogRequest { filter }));
        answer.map(|answer| answer.into_inner().filter).map_err(|status| self.refusal(&status))
    }

    /// Starts a new process that takes over from the switch. Returns its process id, once it waits only for the ports.
    /// `None` if the connection broke: the switch may have ended before its answer was sent.
    pub fn restart(&self) -> Result<Option<u32>, ClientError> {
        match self.runtime.block_on(self.admin().restart(admin::RestartRequest {})) {
            Ok(answer) => Ok(Some(answer.into_inner().pid)),
            Err(status) if status.source().is_some() => Ok(None),
            Err(status) => Err(self.refusal(&status)),
        }
    }

    /// Adds, removes or changes a port.
    pub fn port(&self, request: admin::PortRequest) -> Result<admin::PortResponse, ClientError> {
        let answer = self.runtime.block_on(self.admin().port(request));
        answer.map(tonic::Response::into_inner).map_err(|status| self.refusal(&status))
    }

    /// Configures the queues of a port.
    pub fn qos(&self, request: admin::QosRequest) -> Result<admin::QosResponse, ClientError> {
        let answer = self.runtime.block_on(self.admin().qos(request));
        answer.map(tonic::Response::into_inner).map_err(|status| self.refusal(&status))
    }

    /// Loads, shows or unloads programs of a bridge, or reads or writes their maps.
    pub fn program(&self, request: admin::ProgramRequest) -> Result<admin::ProgramResponse, ClientError> {
        let answer = self.runtime.block_on(self.admin().program(request));
        answer.map(tonic::Response::into_inner).map_err(|status| self.refusal(&status))
    }

    /// Shows or empties the flow caches of a bridge.
    pub fn cache(&self, request: admin::CacheRequest) -> Result<admin::CacheResponse, ClientError> {
        let answer = self.runtime.block_on(self.admin().cache(request));
        answer.map(tonic::Response::into_inner).map_err(|status| self.refusal(&status))
    }

    /// Traces packets. Passes each trace to `each` as it arrives, until that returns false.
    pub fn trace(
        &self,
        request: admin::TraceRequest,
        each: impl FnMut(admin::TraceResponse) -> bool,
    ) -> Result<(), ClientError> {
        self.stream(async { Ok(self.admin().trace(request).await?.into_inner()) }, each)
    }

    /// Captures packets that ports receive and send, until `each` returns false.
    pub fn capture(
        &self,
        request: admin::CaptureRequest,
        each: impl FnMut(admin::CaptureResponse) -> bool,
    ) -> Result<(), ClientError> {
        self.stream(async { Ok(self.admin().capture(request).await?.into_inner()) }, each)
    }

    fn stream<T>(
        &self,
        open: impl Future<Output = Result<Streaming<T>, Status>>,
        mut each: impl FnMut(T) -> bool,
    ) -> Result<(), ClientError> {
        let done: Result<(), Status> = self.runtime.block_on(async {
            let mut messages = open.await?;
            while let Some(message) = messages.message().await? {
                if !each(message) {
                    break;
                }
            }
            Ok(())
        });
        done.map_err(|status| self.refusal(&status))
    }

    /// The P4Info of the running program.
    ///
    /// # Errors
    ///
    /// [`ClientError::NoProgram`] if the device has none.
    pub fn p4info(&self, device_id: u64) -> Result<P4Info, ClientError> {
        use pb::get_forwarding_pipeline_config_request::ResponseType;
        let request =
            pb::GetForwardingPipelineConfigRequest { device_id, response_type: ResponseType::P4infoAndCookie.into() };
        let answer = self.runtime.block_on(self.p4runtime().get_forwarding_pipeline_config(request));
        let config = answer.map_err(|status| self.refusal(&status))?.into_inner().config;
        config.and_then(|config| config.p4info).ok_or(ClientError::NoProgram(device_id))
    }

    /// Reads what `entities` select, and passes each entity found to `each` as it arrives.
    ///
    /// # Errors
    ///
    /// [`ClientError::Elements`] if some of the entities cannot be read.
    pub fn read(
        &self,
        device_id: u64,
        entities: Vec<pb::Entity>,
        mut each: impl FnMut(pb::Entity),
    ) -> Result<(), ClientError> {
        let request = pb::ReadRequest { device_id, entities, role: String::new() };
        let done: Result<(), Status> = self.runtime.block_on(async {
            let mut answers = self.p4runtime().read(request).await?.into_inner();
            while let Some(answer) = answers.message().await? {
                answer.entities.into_iter().for_each(&mut each);
            }
            Ok(())
        });
        done.map_err(|status| self.refusal(&status))
    }

    /// Becomes primary of the default role with an election id, until the result is finished or dropped.
    ///
    /// # Errors
    ///
    /// [`ClientError::NotPrimary`] if another client is primary or has used a higher id.
    pub fn become_primary(&self, device_id: u64, election_id: u128) -> Result<Primary<'_>, ClientError> {
        self.claim(device_id, Some(election_id))
    }

    /// Becomes primary only if nobody is primary now. Uses the highest election id so far, so that its owner can claim
    /// it again.
    pub fn become_primary_if_free(&self, device_id: u64) -> Result<Primary<'_>, ClientError> {
        self.claim(device_id, None)
    }

    /// Claims with the given id; without one, with 1, or with the highest id used so far.
    fn claim(&self, device_id: u64, given: Option<u128>) -> Result<Primary<'_>, ClientError> {
        let message = |id: u128| {
            let id = Some(pb::Uint128 { high: (id >> 64) as u64, low: id as u64 });
            let claim = pb::MasterArbitrationUpdate { device_id, election_id: id, ..Default::default() };
            pb::StreamMessageRequest { update: Some(pb::stream_message_request::Update::Arbitration(claim)) }
        };
        let claimed = self.within(async {
            let (requests, outgoing) = mpsc::channel(1);
            // The channel is empty, so sending does not wait.
            let mut ours = given.unwrap_or(1);
            let _ = requests.send(message(ours)).await;
            let answers = self.p4runtime().stream_channel(ReceiverStream::new(outgoing)).await;
            let mut answers = answers.map_err(|status| self.refusal(&status))?.into_inner();
            loop {
                match answers.message().await {
                    Ok(Some(pb::StreamMessageResponse { update: Some(StreamUpdate::Arbitration(update)) })) => {
                        let highest = highest(&update);
                        if given.is_none() && code(&update) == Code::NotFound && highest > ours {
                            ours = highest;
                            let _ = requests.send(message(ours)).await;
                            continue;
                        }
                        judge(&update, given)?;
                        return Ok((requests, answers, ours));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return Err(ClientError::NotPrimary("the switch closed the stream".to_string())),
                    // Two live clients cannot have the same id.
                    Err(status) if status.code() == Code::InvalidArgument => {
                        return Err(ClientError::NotPrimary(status.message().to_string()));
                    }
                    Err(status) => return Err(self.refusal(&status)),
                }
            }
        });
        let (requests, answers, ours) = claimed?;
        let id = pb::Uint128 { high: (ours >> 64) as u64, low: ours as u64 };
        Ok(Primary { client: self, device_id, id, stream: Some((requests, answers)) })
    }

    fn within<T>(&self, call: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        let late = |_| ClientError::Refused(format!("the switch did not answer within {ANSWER_MAX:?}"));
        self.runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, call).await }).map_err(late)?
    }
}

type Stream = (mpsc::Sender<pb::StreamMessageRequest>, Streaming<pb::StreamMessageResponse>);

/// The right to write, as primary of the default role.
pub struct Primary<'a> {
    client: &'a Client,
    device_id: u64,
    id: pb::Uint128,
    stream: Option<Stream>,
}

impl Primary<'_> {
    /// Applies all updates; if one is refused, none.
    ///
    /// # Errors
    ///
    /// [`ClientError::Elements`] with the updates that were refused.
    pub fn write(&mut self, updates: Vec<pb::Update>) -> Result<(), ClientError> {
        // Not every server supports rollback, and a single update needs none.
        let atomicity = match updates.len() {
            0 | 1 => pb::write_request::Atomicity::ContinueOnError,
            _ => pb::write_request::Atomicity::RollbackOnError,
        };
        let request = pb::WriteRequest {
            device_id: self.device_id,
            election_id: Some(self.id),
            updates,
            atomicity: atomicity.into(),
            ..Default::default()
        };
        let answer = self.client.runtime.block_on(self.client.p4runtime().write(request));
        answer.map(drop).map_err(|status| self.client.refusal(&status))
    }

    /// Passes messages that the switch sends to its primary to `each`, until that returns false. Digest lists are
    /// acknowledged after `each` has seen them.
    pub fn listen(&mut self, mut each: impl FnMut(&StreamUpdate) -> bool) -> Result<(), ClientError> {
        let Some((requests, answers)) = self.stream.as_mut() else { return Ok(()) };
        let ended: Result<(), Status> = self.client.runtime.block_on(async {
            while let Some(message) = answers.message().await? {
                let Some(update) = message.update else { continue };
                let go_on = each(&update);
                if let StreamUpdate::Digest(list) = &update {
                    let ack = pb::DigestListAck { digest_id: list.digest_id, list_id: list.list_id };
                    let update = Some(pb::stream_message_request::Update::DigestAck(ack));
                    // If the stream is closed, the loop above ends.
                    let _ = requests.send(pb::StreamMessageRequest { update }).await;
                }
                if !go_on {
                    return Ok(());
                }
            }
            Err(Status::unavailable("the switch closed the stream"))
        });
        ended.map_err(|status| self.client.refusal(&status))
    }

    fn close(&mut self) {
        let Some((requests, mut answers)) = self.stream.take() else { return };
        drop(requests);
        // Once the server has ended its side, the id is free again for the next command of a script.
        let ended = async { while let Ok(Some(_)) = answers.message().await {} };
        let _ = self.client.runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, ended).await });
    }
}

impl Drop for Primary<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

fn highest(update: &pb::MasterArbitrationUpdate) -> u128 {
    update.election_id.map_or(0, |id| u128::from(id.high) << 64 | u128::from(id.low))
}

fn code(update: &pb::MasterArbitrationUpdate) -> Code {
    update.status.as_ref().map_or(Code::Ok, |status| Code::from_i32(status.code))
}

/// Checks that an arbitration update makes this client primary.
fn judge(update: &pb::MasterArbitrationUpdate, given: Option<u128>) -> Result<(), ClientError> {
    let highest = highest(update);
    let problem = match code(update) {
        Code::Ok => return Ok(()),
        Code::AlreadyExists => format!("another client is primary, with election id {highest}"),
        Code::NotFound => format!("nobody is primary now, but a client with election id {highest} was"),
        other => format!("the switch answers {other:?} to the claim"),
    };
    let given = given.map_or("no id was given".to_string(), |id| format!("the id given is {id}"));
    Err(ClientError::NotPrimary(format!("{problem}; {given}")))
}

/// The error for a status, with the reasons of individual elements if it has them.
fn refusal(status: &Status) -> ClientError {
    let details = rpc::Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    let mut elements = Vec::new();
    for (i, detail) in details.iter().enumerate() {
        let Ok(error) = pb::Error::decode(detail.value.as_slice()) else { continue };
        if error.space == status::LEFT_OUT {
            // The message is about the first failed element.
            let why = status.message().split_once("the first: ").map_or(status.message(), |(_, why)| why);
            elements.extend(usize::try_from(error.code).ok().filter(|at| *at > 0).map(|at| (at, why.to_string())));
            continue;
        }
        let code = Code::from_i32(error.canonical_code);
        // ABORTED marks an update undone because of another one, whose reason is what matters.
        if code != Code::Ok && code != Code::Aborted {
            elements.push((i, if error.message.is_empty() { format!("{code:?}") } else { error.message }));
        }
    }
    match (elements.is_empty(), status.message()) {
        (false, _) => ClientError::Elements(elements),
        (true, "") => ClientError::Refused(format!("the switch answers {:?}", status.code())),
        (true, message) => ClientError::Refused(message.to_string()),
    }
}

/// What the TLS handshake reported, if it failed there.
fn tls_problem(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An I/O error contains its cause, but does not return it as its source.
        let inner = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        let tls = error.downcast_ref::<rustls::Error>().or_else(|| inner?.downcast_ref());
        match tls {
            Some(rustls::Error::InvalidMessage(_)) => return Some("it does not speak TLS".to_string()),
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
                return Some("none of the certificates in --tls-ca has signed its certificate".to_string());
            }
            Some(error) => return Some(error.to_string()),
            None => next = error.source(),
        }
    }
    None
}

/// The innermost cause, such as `Connection refused`, without the layers around it.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_batch_are_found_in_the_details() {
        let errors = [
            pb::Error { canonical_code: Code::Aborted as i32, message: "rolled back".into(), ..Default::default() },
            pb::Error { canonical_code: Code::NotFound as i32, message: "no entry".into(), ..Default::default() },
            pb::Error { canonical_code: Code::OutOfRange as i32, ..Default::default() },
            pb::Error { canonical_code: 0, ..Default::default() },
        ];
        let any = |e: &pb::Error| prost_types::Any { type_url: String::new(), value: e.encode_to_vec() };
        let details = rpc::Status { details: errors.iter().map(any).collect(), ..Default::default() };
        let status = Status::with_details(Code::Unknown, "2 of 4", details.encode_to_vec().into());
        let elements = vec![(1, "no entry".to_string()), (2, "OutOfRange".to_string())];
        assert_eq!(refusal(&status), ClientError::Elements(elements));
    }

    #[test]
    fn an_element_whose_detail_is_left_out_is_found_all_the_same() {
        let undone = || Err(control::Error::aborted("undone"));
        let mut results: Vec<Result<(), control::Error>> = (0..30_000).map(|_| undone()).collect();
        results[20_000] = Err(control::Error::not_found("no such thing"));
        let status = status::of_batch(&results, "updates").unwrap();
        assert_eq!(refusal(&status), ClientError::Elements(vec![(20_000, "no such thing".to_string())]));
    }

    #[test]
    fn odd_details_are_left_aside() {
        let status = Status::with_details(Code::Internal, "it broke", vec![0xff; 40].into());
        assert_eq!(refusal(&status), ClientError::Refused("it broke".into()));
        assert_eq!(
            refusal(&Status::new(Code::Internal, "")),
            ClientError::Refused("the switch answers Internal".into())
        );
    }

    #[test]
    fn addresses_need_a_host_and_a_port() {
        for bad in ["", "nonsense", "127.0.0.1", "a b:1", "127.0.0.1:9559/x"] {
            let error = Client::connect(bad).err().expect("refused");
            assert_eq!(error, ClientError::BadAddress(bad.to_string()));
        }
    }

    #[test]
    fn a_claim_without_an_id_is_not_told_that_one_was_given() {
        let update = |code: Code| pb::MasterArbitrationUpdate {
            election_id: Some(pb::Uint128 { high: 0, low: 7 }),
            status: Some(rpc::Status { code: code as i32, ..Default::default() }),
            ..Default::default()
        };
        let refused = |given| judge(&update(Code::AlreadyExists), given).unwrap_err().to_string();
        assert_eq!(refused(None), "another client is primary, with election id 7; no id was given");
        assert_eq!(refused(Some(5)), "another client is primary, with election id 7; the id given is 5");
        assert_eq!(judge(&update(Code::Ok), None), Ok(()));
    }

    #[test]
    fn a_broken_connection_to_a_switch_that_runs_does_not_say_that_it_has_stopped() {
        // Accepts connections, and closes each after the client has sent something.
        fn closing<L, S: std::io::Read>(listener: L, accept: impl Fn(&L) -> std::io::Result<S> + Send + 'static)
        where
            L: Send + 'static,
        {
            std::thread::spawn(move || {
                while let Ok(mut stream) = accept(&listener) {
                    let _ = stream.read(&mut [0; 64]);
                }
            });
        }
        let said = |client: Client| match client.port(admin::PortRequest::default()) {
            Err(ClientError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        let path = std::env::temp_dir().join(format!("sluice-client-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        closing(std::os::unix::net::UnixListener::bind(&path).unwrap(), |l| l.accept().map(|(stream, _)| stream));
        let why = said(Client::connect_local(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(why.starts_with("the connection broke before the switch answered"), "{why}");

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        closing(listener, |l| l.accept().map(|(stream, _)| stream));
        let why = said(Client::connect(&address).unwrap());
        assert!(why.starts_with("the connection broke before the switch answered"), "{why}");

        // Accepts a single connection and ends.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let accepted = listener.accept();
            drop(listener);
            let _ = accepted.map(|(mut stream, _)| std::io::Read::read(&mut stream, &mut [0; 64]));
        });
        let why = said(Client::connect(&address).unwrap());
        assert!(why.starts_with("the switch has stopped"), "{why}");
    }

    #[test]
    fn nobody_listens() {
        // A port that was free a moment ago.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Client::connect(&address.to_string()).err().expect("refused").to_string();
        assert!(error.starts_with(&format!("no switch answers on {address}: Connection refused")), "{error}");
    }
}
