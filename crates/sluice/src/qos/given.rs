//! Parses queues and tenants of command lines and files.

use crate::devices::parse_end;
use crate::queues;
use anyhow::Result;
use datapath::QueuesOf;
use std::path::Path;
use traffic::{Config, TenantConfig};

/// Parses a port, `3`, or a link by its source, `1:10` for port 10 of device 1.
///
/// # Errors
/// If the text has another form.
pub fn parse_place(text: &str) -> Result<QueuesOf, String> {
    let wrong = || format!("`{text}` is neither a port, as 3, nor where a link begins, as 1:10");
    match text.contains(':') {
        true => parse_end(text).map(QueuesOf::Link).map_err(|_| wrong()),
        false => text.parse().map(QueuesOf::Port).map_err(|_| wrong()),
    }
}

/// Reads queues from a file, `-` for standard input. The inner error says what is wrong with the contents.
///
/// # Errors
/// If the file cannot be read.
pub fn read(file: &Path) -> Result<Result<Config, String>> {
    read_as(file, |text| {
        let config = queues::parse(text)?;
        config.check(None).map(|()| config.clone()).map_err(|problems| queues::problems(&problems))
    })
}

/// The same for a tenant.
///
/// # Errors
/// As [`read`].
pub fn read_tenant(file: &Path) -> Result<Result<TenantConfig, String>> {
    read_as(file, |text| {
        let config = queues::parse_tenant(text)?;
        config.check().map(|()| config.clone()).map_err(|problems| queues::problems(&problems))
    })
}

fn read_as<T>(file: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<Result<T, String>> {
    let config = parse(&crate::files::text(file)?);
    let name = if file == Path::new("-") { "standard input".to_string() } else { file.display().to_string() };
    Ok(config.map_err(|why| why.lines().map(|line| format!("{name}: {line}")).collect::<Vec<_>>().join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::PortOf;

    #[test]
    fn places_are_ports_or_where_links_begin() {
        let link = QueuesOf::Link(PortOf { device: 1, port: 10 });
        assert!(parse_place("1:10") == Ok(link) && parse_place("3") == Ok(QueuesOf::Port(3)));
        assert!(parse_place("1:x").unwrap_err().contains("nor where a link begins, as 1:10"));
    }
}
