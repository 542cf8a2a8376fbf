//! The open directory: all files are opened relative to its descriptor, and its loss is noticed.
//!
//! **Invariants.** One process has it (`flock` on the directory itself). A file that is replaced is replaced as a whole: written beside, synced,
//! renamed, and the directory synced. [`Folder::check`] says whether the directory is still where it was opened, and whether a
//! file is still in it: writing goes on without an error in files that were deleted, so who acknowledges asks first.

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An open directory.
pub struct Folder {
    path: PathBuf,
    file: File,
    /// Device and inode.
    id: (u64, u64),
}

impl Folder {
    /// Opens a directory that exists.
    pub fn open(path: &Path) -> std::io::Result<Folder> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "this is no directory"));
        }
        Ok(Folder { path: path.to_path_buf(), id: (metadata.dev(), metadata.ino()), file })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it for this process, alone or with others that only read; false if another process has it.
    pub fn lock(&self, alone: bool) -> std::io::Result<bool> {
        let how = if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        match rustix::fs::flock(&self.file, how) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens a file to be read.
    pub fn file(&self, name: &str) -> std::io::Result<File> {
        self.regular(name, OFlags::RDONLY)
    }

    /// Opens a file to be written in place.
    pub fn file_to_write(&self, name: &str) -> std::io::Result<File> {
        self.regular(name, OFlags::RDWR)
    }

    /// Makes an empty file, in place of what a crash has left under that name.
    pub fn create(&self, name: &str) -> std::io::Result<File> {
        self.regular(name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
    }

    /// Opens a regular file. Opening or reading anything else could wait for ever, for instance for the other end of a pipe.
    fn regular(&self, name: &str, flags: OFlags) -> std::io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat(&self.file, name, flags, Mode::from_raw_mode(0o640))?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(Error::new(ErrorKind::InvalidData, "this is no regular file")),
        }
    }

    /// A whole file.
    pub fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Replaces a file; on disk when it returns.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let beside = format!("{name}.new");
        let mut file = self.create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        rustix::fs::renameat(&self.file, &*beside, &self.file, name)?;
        self.sync()
    }

    /// Removes a file; one that is gone already is as good.
    pub fn remove(&self, name: &str) -> std::io::Result<()> {
        match rustix::fs::unlinkat(&self.file, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Names that were made, renamed or removed are on disk when it returns.
    pub fn sync(&self) -> std::io::Result<()> {
        self.file.sync_all()
    }

    /// What is in it. What journalled file systems put into every new one is nobody's.
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

    /// Whether the directory is where it was, and these files are in it.
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
