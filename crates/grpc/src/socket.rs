//! The switch's Unix socket. Only the switch's user and group can connect, one switch can listen on a path, and the
//! file is removed when the switch ends.
//!
//! The socket is bound under a temporary name in the same directory, gets its mode (0660), and is then renamed: nobody
//! can connect earlier, and the socket that a crashed switch left behind is replaced. A path on which a live switch
//! answers is refused.
//!
//! unix(7): a path has at most 107 bytes. Tests: below.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Mode of the file: its user and group may connect.
const MODE: u32 = 0o660;
/// Limit on the bytes of a socket's path.
const PATH_BYTES_MAX: usize = 107;

/// A listening socket; its file is removed on drop.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that no other file is removed.
    file: (u64, u64),
}

impl Socket {
    /// Creates the socket. Its directory must exist.
    ///
    /// # Errors
    ///
    /// The path is too long, a live switch or another kind of file is there, or it cannot be created.
    pub fn bind(path: &Path) -> io::Result<Socket> {
        let shown = path.display();
        let new = path.with_extension(format!("{}.new", std::process::id()));
        if new.as_os_str().len() > PATH_BYTES_MAX {
            let why =
                format!("{shown} is too long for a socket: {PATH_BYTES_MAX} bytes with the name that it is made under");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                let why = format!("{shown} is there already, and is no socket");
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                let why = format!("another switch answers on {shown}");
                return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
            }
            _ => {}
        }
        let place = |error: io::Error| io::Error::new(error.kind(), format!("{shown}: {error}"));
        let _ = std::fs::remove_file(&new);
        let listener = UnixListener::bind(&new).map_err(place)?;
        listener.set_nonblocking(true)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(MODE)).map_err(place)?;
        let found = std::fs::symlink_metadata(&new).map_err(place)?;
        std::fs::rename(&new, path).map_err(place)?;
        Ok(Socket { listener, path: path.to_path_buf(), file: (found.dev(), found.ino()) })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = |found: std::fs::Metadata| (found.dev(), found.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_switch_to_a_path_and_what_a_crash_left_is_replaced() {
        let folder = std::env::temp_dir().join(format!("sluice-socket-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("admin.sock");
        let first = Socket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let error = Socket::bind(&path).unwrap_err();
        assert!(error.kind() == io::ErrorKind::AddrInUse && error.to_string().contains("another switch"), "{error}");
        drop(first);
        assert!(!path.exists());
        // Left behind: bound, but no longer listening.
        drop(UnixListener::bind(&path).unwrap());
        let second = Socket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let third = Socket::bind(&path).unwrap();
        drop(second);
        assert!(path.exists(), "the file is another's");
        drop(third);
        std::fs::write(&path, "text").unwrap();
        assert!(Socket::bind(&path).unwrap_err().to_string().contains("no socket"));
        assert!(Socket::bind(&folder.join("x".repeat(120))).unwrap_err().to_string().contains("too long"));
        let missing = Socket::bind(&folder.join("none").join("admin.sock")).unwrap_err().to_string();
        assert!(missing.contains("none/admin.sock: No such file"), "{missing}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
