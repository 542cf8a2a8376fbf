//! Reads files and standard input within limits, so that an endless input (`/dev/zero`) is refused early and not when
//! memory is exhausted.
//!
//! Programs have limits of their own (`frontend`). Tests: below.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;

/// The limit for files of entries or packets and for scripts: 4 GiB, forty million lines of 100 bytes.
const TEXT_BYTES_MAX: u64 = 4 << 30;
/// The limit for everything else, 64 MiB: BPF objects and P4 sources have a few megabytes at most.
const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// How much is read at a time, in bytes, before it is checked.
const PIECE: u64 = 1 << 20;

/// Returns a file's text; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is not UTF-8, contains a zero byte, or is longer than 4 GiB.
pub fn text(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        return text_of(std::io::stdin().lock()).context("cannot read standard input");
    }
    File::open(file).and_then(text_of).with_context(|| format!("cannot read {}", file.display()))
}

/// Returns a file's bytes.
///
/// # Errors
/// If it cannot be read, or is longer than 64 MiB.
pub fn bytes(file: &Path) -> Result<Vec<u8>> {
    File::open(file)
        .and_then(|from| bytes_of(from, OBJECT_BYTES_MAX))
        .with_context(|| format!("cannot read {}", file.display()))
}

fn text_of(mut from: impl Read) -> std::io::Result<String> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        (&mut from).take(PIECE).read_to_end(&mut all)?;
        if let Some(at) = all[before..].iter().position(|byte| *byte == 0) {
            return Err(Error::new(ErrorKind::InvalidData, format!("it is not text: byte {} is 0", before + at)));
        }
        if all.len() as u64 > TEXT_BYTES_MAX {
            return Err(too_long(TEXT_BYTES_MAX));
        }
        if all.len() == before {
            break;
        }
    }
    String::from_utf8(all).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("it is not text: byte {at} is not UTF-8"))
    })
}

fn bytes_of(from: impl Read, most: u64) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.take(most + 1).read_to_end(&mut all)?;
    if all.len() as u64 > most { Err(too_long(most)) } else { Ok(all) }
}

fn too_long(most: u64) -> Error {
    Error::new(ErrorKind::FileTooLarge, format!("it is longer than {most} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused() {
        let why = |file: &str| format!("{:#}", text(Path::new(file)).unwrap_err());
        assert_eq!(why("/dev/zero"), "cannot read /dev/zero: it is not text: byte 0 is 0");
        assert!(why("/dev/urandom").contains("it is not text"));
        assert_eq!(
            format!("{:#}", bytes(Path::new("/dev/zero")).unwrap_err()),
            "cannot read /dev/zero: it is longer than 67108864 bytes"
        );
    }

    #[test]
    fn texts_come_whole() {
        let long = "ä1\n".repeat(700_000);
        assert_eq!(text_of(long.as_bytes()).unwrap(), long);
        assert_eq!(text_of(&b""[..]).unwrap(), "");
        assert_eq!(text_of(&b"ab\xff"[..]).unwrap_err().to_string(), "it is not text: byte 2 is not UTF-8");
        assert_eq!(bytes_of(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(bytes_of(&b"abcd"[..], 3).is_err());
    }
}
