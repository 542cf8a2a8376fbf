//! The files of sockets that ports' processes listen on.
//!
//! A process that is killed leaves its socket's file behind, and one that hangs in the kernel still listens on it. So the
//! switch removes the file, if it is still the one that the process has made.
//!
//! Several memif servers may share a socket within one process. A port with a process of its own has its socket alone
//! ([`Claim`]): with one process for all of them, a peer of one could hold up the others.
//!
//! Threads: any. Tests: below, `src/tests.rs`, `tests/isolated.rs`.

use pktio::{DeviceSpec, Error};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A socket's file: its path, and which file that is.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    number: u64,
}

impl SocketFile {
    /// The socket that is at a path now.
    pub(crate) fn at(path: &Path) -> Option<SocketFile> {
        let about = std::fs::symlink_metadata(path).ok().filter(|about| about.file_type().is_socket())?;
        Some(SocketFile { path: path.to_owned(), device: about.dev(), number: about.ino() })
    }

    /// Removes the file, unless another one is in its place.
    pub(crate) fn remove(self) {
        let is_it = |now: &SocketFile| (now.device, now.number) == (self.device, self.number);
        if SocketFile::at(&self.path).as_ref().is_some_and(is_it) {
            // If it fails, the next port there says why.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket that nobody listens on: a process that has ended may have left it, or made it in place of its own.
/// Anything else stays, and opening the port says so. Never blocks.
pub(crate) fn make_room(path: &Path) {
    let Some(file) = SocketFile::at(path) else { return };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (Ok(socket), Ok(address)) =
        (socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None), SocketAddrUnix::new(path))
    else {
        return;
    };
    // A listener of another type, or with a full backlog, gives other errors.
    if connect(&socket, &address) == Err(Errno::CONNREFUSED) {
        file.remove();
    }
}

/// The ports that have a memif socket to themselves, by path.
static CLAIMS: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());

fn claims() -> MutexGuard<'static, BTreeMap<PathBuf, String>> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The isolated port that serves a memif socket, if there is one. No other port of this process can serve it.
pub fn serves(path: &Path) -> Option<String> {
    claims().get(path).cloned()
}

/// A port's claim to a memif socket, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim(PathBuf);

impl Claim {
    /// Claims the socket at an absolute path.
    ///
    /// # Errors
    /// Another port of this process serves it.
    pub(crate) fn new(spec: &DeviceSpec, path: &Path) -> Result<Claim, Error> {
        let mut claims = claims();
        let other = claims.get(path).map(|port| format!("port `{port}`, which is isolated,"));
        let other = other.or_else(|| pktio_memif::serves(path).then(|| "another port of this process".to_owned()));
        if let Some(other) = other {
            let reason = format!(
                "{other} serves it, and an isolated port has its socket to itself: give `{spec}` another path, or leave \
                 `isolated` out at all ports of this socket"
            );
            return Err(Error::Socket { path: path.to_owned(), reason });
        }
        claims.insert(path.to_owned(), spec.to_string());
        Ok(Claim(path.to_owned()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        claims().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};
    use std::os::unix::net::UnixListener;

    #[test]
    fn room_is_made_where_nobody_listens_and_nowhere_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        make_room(&path);
        drop(UnixListener::bind(&path).expect("nothing is there"));
        assert!(path.exists());
        make_room(&path);
        assert!(!path.exists(), "nobody listens");
        let listener = UnixListener::bind(&path).expect("nothing is there");
        make_room(&path);
        assert!(path.exists(), "somebody listens");
        drop(listener);
        make_room(&path);
        // Of another type, as memif's, and with a backlog that is full.
        let seqpacket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&seqpacket, &SocketAddrUnix::new(&path).expect("it is short")).expect("nothing is there");
        listen(&seqpacket, 0).expect("it is bound");
        make_room(&path);
        assert!(path.exists(), "somebody listens");
        drop(seqpacket);
        make_room(&path);
        let stream =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&stream, &SocketAddrUnix::new(&path).expect("it is short")).expect("nothing is there");
        listen(&stream, 0).expect("it is bound");
        let _first = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        make_room(&path);
        assert!(path.exists(), "somebody listens, and is busy");
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, "").expect("the folder is ours");
        make_room(&path);
        assert!(path.exists(), "it is no socket");
    }
}
