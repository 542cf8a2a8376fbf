//! Opens a directory: a new one, one of the current format, or one of an earlier format, which is migrated.

use crate::error::{OpenError, explain};
use crate::folder::Folder;
use crate::image::{Kind, kind};
use crate::layout::{Layout, Records};
use crate::migration;
use std::path::Path;
use std::sync::Arc;

/// Opens a directory, or creates one.
///
/// # Errors
/// Another process uses it, it is not a state directory, damaged, of an unknown format, or cannot be read or written.
pub fn open(dir: &Path) -> Result<Layout, OpenError> {
    let name = dir.display().to_string();
    let io = |why: String| OpenError::Io { dir: name.clone(), why };
    if dir.exists() && !dir.is_dir() {
        return Err(io("this is not a directory".to_string()));
    }
    std::fs::create_dir_all(dir).map_err(|e| io(explain(&e)))?;
    let folder = Arc::new(Folder::open(dir).map_err(|e| io(explain(&e)))?);
    if !folder.lock(true).map_err(|e| io(explain(&e)))? {
        return Err(OpenError::InUse(name));
    }
    match kind(&folder)? {
        Kind::New => {
            let layout = Layout::begin(folder).map_err(&io)?;
            layout.write_format().map_err(io)?;
            Ok(layout)
        }
        Kind::Current => Layout::open_current(folder),
        Kind::Older(format) => migration::migrate(folder, &format),
    }
}

/// Opens a directory again after a failure. If it was lost and replaced by an empty directory, it is initialised:
/// `records` are written into it, and the caller writes the rest. A missing directory is not created.
///
/// # Errors
/// The directory is missing or belongs to another switch; or as [`open`].
pub fn reopen(dir: &Path, id: u64, records: &Records) -> Result<Layout, OpenError> {
    let io = |why: String| OpenError::Io { dir: dir.display().to_string(), why };
    let gone = "it is gone; make an empty directory there, and all that is in force is written into it";
    let folder = Folder::open(dir).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => io(gone.to_string()),
        _ => io(explain(&e)),
    })?;
    let anew = kind(&folder)? == Kind::New;
    drop(folder);
    let mut layout = open(dir)?;
    if anew {
        tracing::warn!(dir = %dir.display(), "the directory is empty: all that is in force is written into it");
    } else if layout.manifest.id != id {
        return Err(io("it is not the directory that the switch used, but another switch's; put that back".into()));
    }
    // Another process may have used it meanwhile, and have written its own records.
    for (name, value) in records {
        if layout.record(name) != Some(value) {
            layout.set_record(name, value).map_err(io)?;
        }
    }
    Ok(layout)
}
