//! Queues and tenants on the command line of `sluice run`, and their installation at the start.

use super::given::{parse_place, read, read_tenant};
use crate::devices::{Qos, Wanted};
use anyhow::{Context, Result};
use datapath::{QueuesOf, Switch};
use std::path::PathBuf;
use traffic::TenantConfig;

/// Arguments of `run`.
#[derive(clap::Args)]
pub struct StartArgs {
    /// Queues of a port, or of the link that begins at a device's port (1:10=FILE.json), as JSON; `sluice qos` changes them while
    /// the switch runs.
    #[arg(long = "qos", value_name = "PORT=FILE.json", value_parser = parse_at_start)]
    qos: Vec<(QueuesOf, PathBuf)>,
    /// A tenant, whose queues have limits together, as JSON; `sluice qos tenant` changes it while the switch runs.
    #[arg(long = "tenant", value_name = "NAME=FILE.json", value_parser = parse_tenant_at_start)]
    tenants: Vec<(String, PathBuf)>,
}

/// Parses `PORT=FILE.json`.
fn parse_at_start(text: &str) -> Result<(QueuesOf, PathBuf), String> {
    let wrong = || format!("`{text}` is not PORT=FILE.json, as 3=voice.json or 1:10=voice.json");
    let (place, file) = text.split_once('=').ok_or_else(wrong)?;
    Ok((parse_place(place).map_err(|_| wrong())?, PathBuf::from(file)))
}

/// Parses `NAME=FILE.json`.
fn parse_tenant_at_start(text: &str) -> Result<(String, PathBuf), String> {
    let wrong = || format!("`{text}` is not NAME=FILE.json, as red=red.json");
    let (name, file) = text.split_once('=').ok_or_else(wrong)?;
    traffic::check_name(name)?;
    Ok((name.to_string(), PathBuf::from(file)))
}

impl StartArgs {
    /// Reads the files of the options.
    ///
    /// # Errors
    /// If a file cannot be read or its contents are wrong.
    pub fn read(&self) -> Result<Qos> {
        let mut start = Qos::default();
        for (of, file) in &self.qos {
            start.queues.push((*of, read(file)?.map_err(|why| anyhow::anyhow!("--qos: {why}"))?));
        }
        for (name, file) in &self.tenants {
            let config = read_tenant(file)?.map_err(|why| anyhow::anyhow!("--tenant: {why}"))?;
            start.tenants.push((name.clone(), config));
        }
        Ok(start)
    }

    /// Installs tenants, and queues of the open ports and of links. Settings of the command line must succeed; stored
    /// ones may no longer fit and are then only logged: a port's link may be slower than before, or the buffer smaller.
    ///
    /// # Errors
    /// If a setting of the command line is refused, or a stored tenant even without its reserve.
    pub fn begin(&self, switch: &Switch, wanted: &Wanted, open: &[u32]) -> Result<()> {
        for (name, config) in &wanted.tenants {
            match switch.set_tenant(name, Some(config.clone())) {
                Ok(()) => {}
                Err(error) if self.tenants.iter().any(|(given, _)| given == name) => {
                    return Err(error).context("--tenant");
                }
                Err(error) => {
                    tracing::error!("{error}; it has no reserve, and `sluice qos tenant` changes it");
                    switch.set_tenant(name, Some(TenantConfig { reserved: 0, ..config.clone() }))?;
                }
            }
        }
        let ports = wanted.ports.iter().filter(|(number, _)| open.contains(number));
        let ports = ports.filter_map(|(number, port)| Some((QueuesOf::Port(*number), port.queues.as_ref()?)));
        let links = wanted.link_queues.iter().map(|(from, config)| (QueuesOf::Link(*from), config));
        for (of, config) in ports.chain(links) {
            let count = config.queues.len();
            match switch.set_queues_of(of, Some(config.clone())) {
                Ok(()) => announce!("{of} has {count} {}", if count == 1 { "queue" } else { "queues" }),
                Err(error) if self.qos.iter().any(|(given, _)| *given == of) => return Err(error).context("--qos"),
                Err(error) => tracing::error!("{error}; there are none, and `sluice qos` sets or clears them"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::PortOf;

    #[test]
    fn at_the_start_a_port_a_link_or_a_tenant_is_named_with_a_file() {
        assert_eq!(parse_at_start("3=a=b.json"), Ok((QueuesOf::Port(3), PathBuf::from("a=b.json"))));
        let link = QueuesOf::Link(PortOf { device: 1, port: 10 });
        assert_eq!(parse_at_start("1:10=a.json"), Ok((link, PathBuf::from("a.json"))));
        assert!(parse_at_start("a.json").unwrap_err().contains("3=voice.json"));
        assert!(parse_at_start("x=a.json").unwrap_err().contains("PORT=FILE.json"));
        assert_eq!(parse_tenant_at_start("red=a.json"), Ok(("red".to_string(), PathBuf::from("a.json"))));
        assert!(parse_tenant_at_start("red").unwrap_err().contains("NAME=FILE.json"));
        assert!(parse_tenant_at_start("a b=a.json").unwrap_err().contains("`a b` is no name of a tenant"));
    }
}
