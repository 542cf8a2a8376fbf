//! Plays the same frames to two subjects: every packet must have the same fate, port and bytes.
//!
//! The first subject is compared with each of the others: Sluice with C, or with the interpreter where there is no C
//! version. Of packets that go to the replication engine (flooding), only that fact is compared: copying is not the
//! pipeline's work.

use crate::frames::Frames;
use crate::measure::Track;
use crate::subject::Subject;
use abi::packet::FateCode;
use anyhow::{Result, bail};

/// The outcome of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Dropped,
    Sent(u32, Vec<u8>),
    Replicated,
    Strange(u32),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Dropped => write!(f, "dropped"),
            Outcome::Sent(port, bytes) => write!(f, "port {port}: {}", hex(bytes)),
            Outcome::Replicated => write!(f, "to the replication engine"),
            Outcome::Strange(fate) => write!(f, "fate {fate}"),
        }
    }
}

fn outcomes(track: &mut Track, subject: &mut Subject, frames: &Frames, at: usize, out: &mut Vec<Outcome>) {
    let n = track.fill(frames, at, subject.record_words);
    track.run(subject);
    out.clear();
    for k in 0..n {
        let (fate, port) = (track.work.packets[k].fate, track.work.packets[k].egress_port);
        out.push(match fate {
            f if f == FateCode::Drop as u32 => Outcome::Dropped,
            f if FateCode::is_request(f) => Outcome::Replicated,
            f if f == FateCode::Send as u32 => match track.bytes(k) {
                Some(bytes) => Outcome::Sent(port, bytes.to_vec()),
                None => Outcome::Strange(f),
            },
            f => Outcome::Strange(f),
        });
    }
}

/// Compares all subjects with the first over all frames; returns how many packets were sent, dropped and replicated.
///
/// # Errors
/// If an outcome differs.
pub fn all(subjects: &mut [Subject], frames: &Frames, batch: usize) -> Result<[u64; 3]> {
    some(subjects, frames, batch, usize::MAX)
}

/// As [`all`], over the first `count` frames.
///
/// # Errors
/// As [`all`].
pub fn some(subjects: &mut [Subject], frames: &Frames, batch: usize, count: usize) -> Result<[u64; 3]> {
    let mut track = Track::new(batch);
    let (mut first, mut other) = (Vec::new(), Vec::new());
    let mut fates = [0; 3];
    for at in (0..frames.len().min(count)).step_by(batch) {
        let Some((base, rest)) = subjects.split_first_mut() else { return Ok(fates) };
        outcomes(&mut track, base, frames, at, &mut first);
        for (sum, n) in fates.iter_mut().zip(track.fates()) {
            *sum += n;
        }
        for subject in rest {
            outcomes(&mut track, subject, frames, at, &mut other);
            let different = first.iter().zip(&other).position(|(a, b)| a != b);
            if let Some(k) = different {
                let (port, frame) = frames.get((at + k) % frames.len());
                bail!(
                    "packet {}, from port {port}: {}\n{}: {}\n{}: {}",
                    at + k,
                    hex(frame),
                    base.name,
                    first[k],
                    subject.name,
                    other[k]
                );
            }
        }
    }
    Ok(fates)
}
