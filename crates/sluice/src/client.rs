//! A connection to a running switch, for the commands that are its clients.
//!
//! One thread, one connection: calls block until they are answered. What a server answers is not trusted to make sense;
//! nothing here or in the commands panics on it.

use anyhow::{Context, Result, bail};
use grpc::proto::p4::v1 as pb;
use grpc::proto::sluice::v1 as admin;
use pb::p4_runtime_client::P4RuntimeClient;
use std::error::Error;
use std::future::Future;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// Where a switch listens unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9559";
/// How long the switch may take to accept the connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Largest answer: a message of a read holds some thousand entries.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Which switch.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerArgs {
    /// Where the switch listens (`sluice run --grpc`).
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADDRESS, global = true)]
    grpc: String,
}

/// A connection.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
}

impl Client {
    /// Connects; the error says what to do when nobody listens.
    pub fn connect(args: &ServerArgs) -> Result<Client> {
        let address = &args.grpc;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .with_context(|| format!("--grpc {address}: an address and a port are needed, as in {DEFAULT_ADDRESS}"))?
            .connect_timeout(CONNECT);
        match runtime.block_on(endpoint.connect()) {
            Ok(channel) => Ok(Client { runtime, channel }),
            Err(error) => bail!(
                "no switch answers on {address}: {}\nstart one with `sluice run X.p4 --grpc {address}`, or say where it \
                 listens with --grpc",
                innermost(&error)
            ),
        }
    }

    /// Waits for a call.
    pub fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// P4Runtime.
    pub fn p4runtime(&self) -> P4RuntimeClient<Channel> {
        P4RuntimeClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// All counters; `None` when the server is another switch, without our admin service.
    pub fn stats(&self) -> Result<Option<admin::StatsResponse>> {
        let mut client = admin::admin_client::AdminClient::new(self.channel.clone());
        match self.wait(client.stats(admin::StatsRequest {})) {
            Ok(answer) => Ok(Some(answer.into_inner())),
            Err(status) if status.code() == tonic::Code::Unimplemented => Ok(None),
            Err(status) => bail!("the switch refused to tell its counters: {}", status.message()),
        }
    }
}

/// The last cause: `Connection refused`, without the layers around it.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
