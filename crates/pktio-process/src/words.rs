//! The stderr of a port's process: a pipe of its own, so that it cannot stop the switch's log (by `O_NONBLOCK` on a shared
//! pipe or terminal, by filling it, or by text without end). An honest process writes there only when it panics.
//!
//! Reading never blocks and has a rate. A process that writes more waits for the pipe; of each line the beginning is kept.
//!
//! Threads: a port's supervisor. Tests: below, `src/tests.rs`.

use rustix::io::Errno;
use shared_memory::Limit;
use std::io;
use std::os::fd::OwnedFd;

/// Bytes of a read, and maximum reads per second.
const READ_BYTES: usize = 4096;
const READS_PER_SECOND: u32 = 16;
/// Bytes of a line that are kept.
const LINE_BYTES_MAX: usize = 4096;

/// The end that the switch reads.
pub(crate) struct Words {
    /// `None` once it has ended.
    pipe: Option<OwnedFd>,
    /// The beginning of a line whose end has not been read.
    line: Vec<u8>,
    reads: Limit,
}

impl Words {
    /// Makes a pipe. The other end is for the process, whose writes may block.
    ///
    /// # Errors
    /// No file is left.
    pub(crate) fn new() -> io::Result<(Words, OwnedFd)> {
        let (pipe, other) = io::pipe()?;
        let (pipe, other) = (OwnedFd::from(pipe), OwnedFd::from(other));
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        // The ends of a pipe have flags of their own.
        rustix::fs::fcntl_setfl(&pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok((Words { pipe: Some(pipe), line: Vec::new(), reads: Limit::new(READS_PER_SECOND) }, other))
    }

    /// The file to wait for, unless nothing is to be read now.
    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref().filter(|_| self.reads.pause().is_zero())
    }

    /// Tells the lines that are there.
    pub(crate) fn read(&mut self, mut tell: impl FnMut(&str)) {
        while let Some(pipe) = self.file() {
            let mut bytes = [0; READ_BYTES];
            match rustix::io::read(pipe, &mut bytes) {
                Ok(count) if count != 0 => {
                    self.reads.take();
                    self.add(&bytes[..count], &mut tell);
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }

    fn add(&mut self, bytes: &[u8], tell: &mut impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = LINE_BYTES_MAX - self.line.len();
            self.line.extend(&text[..text.len().min(room)]);
            if is_whole {
                self.end_line(tell);
            }
        }
    }

    fn end_line(&mut self, tell: &mut impl FnMut(&str)) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            tell(&text);
        }
    }

    /// Tells what is left when the process has ended: as much as is read in a second.
    pub(crate) fn finish(mut self, mut tell: impl FnMut(&str)) {
        self.reads = Limit::new(READS_PER_SECOND);
        self.read(&mut tell);
        self.end_line(&mut tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::write;

    fn read(words: &mut Words) -> Vec<String> {
        let mut lines = Vec::new();
        words.read(|line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn lines_are_told_when_they_are_whole_and_the_last_one_at_the_end() {
        let (mut words, other) = Words::new().expect("a pipe");
        assert_eq!(read(&mut words), [""; 0]);
        write(&other, b"one\n\ntwo\nthr").expect("there is room");
        assert_eq!(read(&mut words), ["one", "two"]);
        write(&other, b"ee\n\xff").expect("there is room");
        assert_eq!(read(&mut words), ["three"]);
        drop(other);
        assert_eq!(read(&mut words), [""; 0]);
        assert!(words.file().is_none(), "it has ended");
        let mut last = Vec::new();
        words.finish(|line| last.push(line.to_owned()));
        assert_eq!(last, ["\u{fffd}"]);
    }

    #[test]
    fn text_without_end_costs_a_bounded_time_and_memory() {
        let (mut words, other) = Words::new().expect("a pipe");
        // Its writer may not change how the reader reads.
        rustix::fs::fcntl_setfl(&other, rustix::fs::OFlags::NONBLOCK).expect("it is ours");
        let mut offered = 0;
        let mut told = 0;
        for _ in 0..100 {
            while let Ok(count) = write(&other, &[b'x'; 4096]) {
                offered += count;
            }
            words.read(|_| told += 1);
            assert!(words.line.len() <= LINE_BYTES_MAX);
        }
        let most = READ_BYTES * READS_PER_SECOND as usize;
        // One window of the limit, or two if the test was interrupted, and what the pipe holds.
        assert!(words.file().is_none() && told == 0 && offered <= 2 * most + (64 << 10), "{offered}");
        let mut lines = Vec::new();
        words.finish(|line| lines.push(line.len()));
        assert_eq!(lines, [LINE_BYTES_MAX]);
    }
}
