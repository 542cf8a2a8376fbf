//! Unix sockets that the switch listens on: those of bridges (`openflow`) and of nanomsg publishers (`nanomsg`).
//!
//! A killed process leaves its socket behind, and the next one replaces it. A process locks the socket's folder
//! (flock(2)) while it decides whether to replace or remove a socket. Of several processes that start at the same time,
//! one thus gets the path, and the others find it served. The lock ends with the process and leaves no file.

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for another process's lock.
const LOCKED_MAX: Duration = Duration::from_secs(5);

/// The file of a socket. Dropping it removes the file, unless another process has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Its device and inode numbers.
    file: (u64, u64),
    /// Keeps the inode in use, so that no later file gets its number.
    _held: OwnedFd,
}

/// Listens on a Unix socket with these permissions. A stale socket is replaced.
///
/// # Errors
/// If the path is another kind of file, another process serves it, or the folder cannot be locked or written.
pub fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile)> {
    let _lock = lock(path)?;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))?;
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("cannot open {}", path.display()))?;
    let file = file_of(path).with_context(|| format!("{} has gone", path.display()))?;
    Ok((listener, SocketFile { path: path.to_path_buf(), file, _held: held }))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Without the lock the file is left behind; the next process replaces it.
        let Ok(_lock) = lock(&self.path) else { return };
        if file_of(&self.path) == Some(self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Locks a path's folder until the result is dropped.
fn lock(path: &Path) -> Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = File::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    let begin = Instant::now();
    while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK && error != rustix::io::Errno::INTR {
            return Err(error).with_context(|| format!("cannot lock {}", folder.display()));
        }
        if begin.elapsed() > LOCKED_MAX {
            bail!("another process holds the lock of {}", folder.display());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn of_many_that_start_at_once_one_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        for _ in 0..50 {
            // A stale socket.
            drop(UnixListener::bind(&path).unwrap());
            let barrier = Barrier::new(8);
            let served: Vec<_> = std::thread::scope(|scope| {
                let start = || {
                    barrier.wait();
                    listen(&path, 0o660).ok()
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(served.len(), 1);
            let (listener, _) = &served[0];
            listener.set_nonblocking(true).unwrap();
            UnixStream::connect(&path).unwrap();
            listener.accept().unwrap();
            drop(served);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_later_process_keeps_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let (_, before) = listen(&path, 0o660).unwrap();
        // The listener is closed, so its socket is stale and is replaced.
        let (_after, now) = listen(&path, 0o660).unwrap();
        drop(before);
        assert!(path.exists());
        drop(now);
        assert!(!path.exists());
        std::fs::write(&path, "no socket").unwrap();
        assert!(listen(&path, 0o660).is_err() && path.exists());
    }
}
