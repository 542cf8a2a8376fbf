//! `sluice qos tenant`: limits that several queues share.

use super::given::read_tenant;
use crate::changes::refuse;
use crate::output::JsonArgs;
use crate::queues;
use crate::stats::ServerArgs;
use anyhow::{Result, bail};
use grpc::client::ClientError;
use messages::sluice::v1 as pb;
use std::path::PathBuf;
use std::process::ExitCode;
use traffic::{Size, TenantConfig, TenantLimit};

const EXAMPLES: &str = "Examples:
  sluice qos tenant set red --packets 2000 --bytes 1MB --reserved 100
  sluice qos tenant set red --alpha 0.5             no limit: half as many packets as there is room for
  sluice qos tenant set red red.json                docs/qos.md
  sluice qos set 3 --queues 2 --tenant red          queues that belong to it";

/// Arguments of `qos tenant`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: TenantCommand,
}

#[derive(clap::Subcommand)]
enum TenantCommand {
    /// Add a tenant, or change one: what waits goes on waiting. With --state it comes back after a restart.
    #[command(after_help = EXAMPLES)]
    Set(SetArgs),
    /// Remove a tenant that no queue belongs to any more.
    Clear(ClearArgs),
}

#[derive(clap::Args)]
struct SetArgs {
    /// Its name.
    #[arg(value_name = "NAME")]
    name: String,
    /// Its limits as JSON; - is standard input.
    #[arg(value_name = "FILE.json", conflicts_with_all = SHORT)]
    file: Option<PathBuf>,
    #[command(flatten)]
    short: ShortArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

/// The options that replace a file.
const SHORT: [&str; 4] = ["packets", "bytes", "reserved", "alpha"];

#[derive(clap::Args)]
struct ShortArgs {
    /// Packets that its queues hold together at most.
    #[arg(long, value_name = "N")]
    packets: Option<u32>,
    /// Bytes that they hold at most: 1MB.
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Size>,
    /// Packets for which there is always room.
    #[arg(long, value_name = "N", default_value_t = 0)]
    reserved: u32,
    /// Beyond these it may have this many times as many packets as there is room for.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    alpha: f64,
}

#[derive(clap::Args)]
struct ClearArgs {
    /// Its name.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: JsonArgs,
}

impl ShortArgs {
    fn config(&self) -> Result<TenantConfig, String> {
        let limit = TenantLimit { packets: self.packets, bytes: self.bytes };
        let config = TenantConfig { limit, reserved: self.reserved, alpha: self.alpha };
        config.check().map(|()| config).map_err(|problems| {
            let by_option = |problem: &traffic::Problem| {
                let option = problem.path.rsplit('.').next().unwrap_or_default();
                format!("--{option}: {}", problem.message)
            };
            problems.iter().map(by_option).collect::<Vec<_>>().join("\n")
        })
    }
}

/// Runs `sluice qos tenant`.
///
/// # Errors
/// If no switch answers, or the file cannot be read.
pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.command {
        TenantCommand::Set(SetArgs { name, file, short, server, output }) => {
            let config = match file {
                Some(file) => read_tenant(file)?,
                None => short.config(),
            };
            match config {
                Ok(config) => change(server, *output, name, Some(queues::tenant_to_text(&config))),
                Err(why) => Ok(refuse(why.lines().map(str::to_string))),
            }
        }
        TenantCommand::Clear(ClearArgs { name, server, output }) => change(server, *output, name, None),
    }
}

fn change(server: &ServerArgs, output: JsonArgs, name: &str, config: Option<String>) -> Result<ExitCode> {
    let request = pb::QosRequest { config, tenant: Some(name.to_string()), ..Default::default() };
    match server.connect()?.qos(request) {
        Ok(_) => {
            output.print(|| serde_json::json!({ "changed": [{ "tenant": name }] }), String::new);
            Ok(ExitCode::SUCCESS)
        }
        Err(ClientError::Refused(reason)) => Ok(refuse(reason.lines().map(str::to_string))),
        Err(error) => bail!("tenant {name}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        short: ShortArgs,
    }

    #[test]
    fn short_forms_are_the_configs_that_they_stand_for() {
        let short = |line: &str| {
            let words = ["sluice"].into_iter().chain(line.split_whitespace());
            Line::try_parse_from(words).map_err(|error| error.to_string())?.short.config()
        };
        for (line, json) in [
            ("", "{}"),
            ("--packets 2000 --bytes 1MB", r#"{"limit":{"packets":2000,"bytes":"1MB"}}"#),
            ("--reserved 100 --alpha 0.5", r#"{"reserved":100,"alpha":0.5}"#),
        ] {
            assert_eq!(short(line), queues::parse_tenant(json), "{line}");
        }
        for (line, message) in [
            ("--packets 10 --reserved 11", "--packets: 10 is less than the 11 that are reserved"),
            ("--bytes 10B", "--bytes: 10B hold no frame"),
            ("--alpha 0", "--alpha: 0 is not between"),
            ("--bytes 10Mbit", "unit"),
        ] {
            let wrong = short(line).unwrap_err();
            assert!(wrong.contains(message), "{line}: {wrong}");
        }
    }
}
