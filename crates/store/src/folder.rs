//! The open state directory: all files are opened relative to its descriptor, and its loss is detected.
//!
//! **Invariants.** Only one process has it (`flock` on the directory itself). A file is replaced atomically: written
//! under another name, synced, renamed, and the directory synced. [`Folder::check`] tells whether the directory is
//! still where it was opened, and whether files are still in it. Writes to deleted files succeed without an error, so
//! this must be checked before a write is acknowledged.

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An open directory. Functions that return `Result` fail with the system's error.
pub struct Folder {
    path: PathBuf,
    file: File,
    /// Device and inode number.
    id: (u64, u64),
}

impl Folder {
    /// Opens an existing directory.
    pub fn open(path: &Path) -> std::io::Result<Folder> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "this is not a directory"));
        }
        Ok(Folder { path: path.to_path_buf(), id: (metadata.dev(), metadata.ino()), file })
    }

    /// The path with which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks it, exclusively or shared with other readers. Returns false if another process has it.
    pub fn lock(&self, alone: bool) -> std::io::Result<bool> {
        let how = if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        match rustix::fs::flock(&self.file, how) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens a file for reading.
    pub fn file(&self, name: &str) -> std::io::Result<File> {
        self.regular(name, OFlags::RDONLY)
    }

    /// Opens a file for writing in place.
    pub fn file_to_write(&self, name: &str) -> std::io::Result<File> {
        self.regular(name, OFlags::RDWR)
    }

    /// Creates an empty file, replacing what a crash has left under that name.
    pub fn create(&self, name: &str) -> std::io::Result<File> {
        self.regular(name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
    }

    /// Opens a regular file. Opening or reading any other kind could block for ever, for instance on a pipe.
    fn regular(&self, name: &str, flags: OFlags) -> std::io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat(&self.file, name, flags, Mode::from_raw_mode(0o640))?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(Error::new(ErrorKind::InvalidData, "this is not a regular file")),
        }
    }

    /// Reads a whole file.
    pub fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Replaces a file atomically. The new contents are on disk when it returns.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let beside = format!("{name}.new");
        let mut file = self.create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        rustix::fs::renameat(&self.file, &*beside, &self.file, name)?;
        self.sync()
    }

    /// Removes a file, which need not exist.
    pub fn remove(&self, name: &str) -> std::io::Result<()> {
        match rustix::fs::unlinkat(&self.file, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Syncs the directory: names that were created, renamed or removed are on disk when it returns.
    pub fn sync(&self) -> std::io::Result<()> {
        self.file.sync_all()
    }

    /// The names in the directory, sorted, except `lost+found`, which some file systems create.
    pub fn names(&self) -> std::io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.file)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !matches!(&*name, "." | ".." | "lost+found") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Checks that the directory is still at its path, and contains these files.
    ///
    /// # Errors
    /// What is gone or was replaced.
    pub fn check<'a>(&self, files: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        let path = self.path.display();
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.id => {}
            Ok(_) => return Err(format!("{path} was replaced by another directory while the switch used it")),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(format!("{path} was deleted or moved while the switch used it"));
            }
            Err(e) => return Err(format!("{path} is out of reach: {e}")),
        }
        for name in files {
            match rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => {}
                Err(rustix::io::Errno::NOENT) => {
                    return Err(format!("{path}/{name} was deleted while the switch used it"));
                }
                Err(e) => return Err(format!("{path}/{name}: {}", Error::from(e))),
            }
        }
        Ok(())
    }
}
