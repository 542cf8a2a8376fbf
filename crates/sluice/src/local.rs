//! The path of a switch's Unix socket: `sluice run` creates it there, and other commands find it by the port of
//! `--grpc`.
//!
//! | | |
//! | --- | --- |
//! | folder | `$SLUICE_RUNTIME_DIR`, if set; else the first usable one of those below |
//! | | `/run/sluice`, `$XDG_RUNTIME_DIR/sluice`, `/tmp/sluice-UID` |
//! | name | `admin.sock` if P4Runtime is on port 9559 or off; else `admin-PORT.sock` |
//!
//! Everybody can write to `/tmp`, so a folder there is used only if this user owns it and nobody else can enter it.
//!
//! Tests: below, `tests/py/test_access.py`.

use anyhow::{Context, Result};
use grpc::Socket;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The default port of P4Runtime.
pub const PORT: u16 = 9559;
/// The default address of P4Runtime.
pub const ADDRESS: &str = "127.0.0.1:9559";

fn folders() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("SLUICE_RUNTIME_DIR") {
        return vec![folder];
    }
    let of_user = variable("XDG_RUNTIME_DIR").map(|folder| folder.join("sluice"));
    [PathBuf::from("/run/sluice")].into_iter().chain(of_user).chain([temporary()]).collect()
}

fn uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |found| found.uid())
}

fn temporary() -> PathBuf {
    std::env::temp_dir().join(format!("sluice-{}", uid()))
}

fn name(port: Option<u16>) -> String {
    match port {
        None | Some(PORT) => "admin.sock".to_string(),
        Some(port) => format!("admin-{port}.sock"),
    }
}

/// Whether a folder can be trusted: one below `/tmp` only if this user owns it and nobody else has access.
fn is_ours(folder: &Path) -> bool {
    if folder != temporary() {
        return true;
    }
    std::fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == uid() && found.mode() & 0o077 == 0)
}

/// Creates a switch's socket at a path, or where commands look for it by P4Runtime's address.
///
/// # Errors
/// If the socket is in use by another switch, or cannot be created in any folder.
pub fn bind(path: Option<&Path>, grpc: Option<SocketAddr>) -> Result<Socket> {
    if let Some(path) = path {
        return Socket::bind(path).context("--admin: the socket cannot be made (--admin none does without)");
    }
    let mut problems = Vec::new();
    for folder in folders() {
        let mode = if folder == temporary() { 0o700 } else { 0o755 };
        let made = std::fs::DirBuilder::new().mode(mode).create(&folder);
        if let Err(error) = made
            && error.kind() != ErrorKind::AlreadyExists
        {
            problems.push(format!("{}: {error}", folder.display()));
            continue;
        }
        if !is_ours(&folder) {
            problems.push(format!("{} is not this user's alone", folder.display()));
            continue;
        }
        match Socket::bind(&folder.join(name(grpc.map(|address| address.port())))) {
            Ok(socket) => return Ok(socket),
            // Another switch's socket, or another file. A later folder would not help: commands look in this one first.
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AlreadyExists) => {
                anyhow::bail!(
                    "the admin socket cannot be made: {error}; --admin PATH chooses another, --admin none does without"
                );
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    anyhow::bail!(
        "the admin socket cannot be made: {}; --admin PATH chooses another place, --admin none does without",
        problems.join("; ")
    )
}

/// Returns the path where commands look for the socket of a switch with this port, for a switch without P4Runtime;
/// `None` if no folder can be used.
pub fn path_for(port: u16) -> Option<PathBuf> {
    let usable = |folder: &PathBuf| {
        let mode = if *folder == temporary() { 0o700 } else { 0o755 };
        let made = std::fs::DirBuilder::new().mode(mode).create(folder);
        made.is_ok() || (folder.is_dir() && is_ours(folder))
    };
    folders().into_iter().find(usable).map(|folder| folder.join(name(Some(port))))
}

/// Returns the existing sockets that a switch with this P4Runtime address may have; none if the address is not of this
/// machine.
pub fn candidates(address: &str) -> Vec<PathBuf> {
    let Some((host, port)) = address.rsplit_once(':') else { return Vec::new() };
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let local = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified());
    let Some(port) = port.parse().ok().filter(|_| local) else { return Vec::new() };
    let trusted = folders().into_iter().filter(|folder| is_ours(folder));
    trusted.map(|folder| folder.join(name(Some(port)))).filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_found_by_its_port_on_this_machine_only() {
        assert_eq!(name(None), "admin.sock");
        assert_eq!(name(Some(PORT)), "admin.sock");
        assert_eq!(name(Some(7)), "admin-7.sock");
        for elsewhere in ["192.0.2.1:9559", "switch.example:9559", "nonsense", "127.0.0.1:x"] {
            assert_eq!(candidates(elsewhere), Vec::<PathBuf>::new(), "{elsewhere}");
        }
    }
}
