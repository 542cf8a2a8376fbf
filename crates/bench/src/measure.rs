//! The timed loop and its statistics.
//!
//! [`Track`] plays frames to a subject, batch by batch. Each frame is copied into its buffer outside the timed section;
//! only the call that runs a batch is timed. Subjects alternate round by round on the same buffers, so that
//! disturbances by the rest of the machine affect all of them. Each turn begins with untimed packets, until the caches
//! hold what this subject needs. Ratios are of medians over rounds.

use crate::frames::Frames;
use crate::subject::Subject;
use abi::packet::{BATCH_MAX, Batch, FateCode, PacketDesc};
use datapath::timing::ticks;
use ir::EntryKind;
use pktio::{HeapPool, Packet, Pool};

/// Packet buffers, and the batch made of them.
pub struct Track {
    buffers: Vec<Packet>,
    home: Vec<usize>,
    records: Vec<u64>,
    words: usize,
    /// The batch, with descriptors as the last subject left them.
    pub work: Box<Batch>,
    size: usize,
    now_us: u64,
}

impl Track {
    /// Buffers for batches of `size` packets.
    pub fn new(size: usize) -> Track {
        let size = size.clamp(1, BATCH_MAX);
        let pool = HeapPool::new(size);
        let buffers: Vec<Packet> = (0..size).filter_map(|_| pool.alloc()).collect();
        let home = buffers.iter().map(Packet::headroom).collect();
        Track { buffers, home, records: Vec::new(), words: 1, work: Box::new(Batch::new()), size, now_us: 0 }
    }

    /// Copies frames from number `first` on, wrapping around at the end, into the buffers; returns the number of
    /// packets.
    pub fn fill(&mut self, frames: &Frames, first: usize, record_words: usize) -> usize {
        self.words = record_words.max(1);
        self.records.resize((self.words * self.size).max(self.records.len()), 0);
        self.now_us += 1;
        self.work.count = self.size as u32;
        self.work.now_us = self.now_us;
        let mut next = first % frames.len();
        for (k, buffer) in self.buffers.iter_mut().enumerate() {
            let (port, frame) = frames.get(next);
            next = if next + 1 == frames.len() { 0 } else { next + 1 };
            buffer.adjust(self.home[k], frame.len()).expect("frames of the generators fit a buffer");
            buffer.data_mut().copy_from_slice(frame);
            self.work.packets[k] = PacketDesc {
                data: buffer.data_mut_ptr(),
                len: frame.len() as u32,
                headroom: buffer.headroom() as u32,
                tailroom: buffer.tailroom() as u32,
                ingress_port: port,
                record: self.records[k * self.words..].as_mut_ptr(),
                timestamp_us: self.now_us,
                ..PacketDesc::EMPTY
            };
        }
        self.size
    }

    /// Runs the batch; returns its time in ticks.
    pub fn run(&mut self, subject: &mut Subject) -> u64 {
        let start = ticks();
        subject.executor.run(EntryKind::Ingress, &mut self.work);
        let spent = ticks() - start;
        subject.executor.quiescent();
        spent
    }

    /// The current bytes of packet `k`; `None` if the descriptor points outside its buffer.
    pub fn bytes(&mut self, k: usize) -> Option<&[u8]> {
        let (headroom, len) = (self.work.packets[k].headroom as usize, self.work.packets[k].len as usize);
        self.buffers[k].adjust(headroom, len).ok()?;
        let same = self.buffers[k].data().as_ptr() == self.work.packets[k].data.cast_const();
        same.then(|| self.buffers[k].data())
    }

    /// Plays `warm` packets untimed, then `count` timed ones, from frame `at` on; returns cycles per packet.
    pub fn turn(&mut self, subject: &mut Subject, frames: &Frames, at: &mut usize, warm: usize, count: usize) -> f64 {
        let (mut spent, mut played) = (0, 0);
        while played < warm + count {
            let n = self.fill(frames, *at, subject.record_words);
            *at = (*at + n) % frames.len();
            let cycles = self.run(subject);
            if played >= warm {
                spent += cycles;
            }
            played += n;
        }
        let batches = count.div_ceil(self.size).max(1);
        spent as f64 / (batches * self.size) as f64
    }

    /// How many packets of the last batch were sent, dropped and replicated.
    pub fn fates(&self) -> [u64; 3] {
        let mut fates = [0; 3];
        for desc in &self.work.packets[..self.size] {
            match desc.fate {
                f if f == FateCode::Send as u32 => fates[0] += 1,
                f if FateCode::is_request(f) => fates[2] += 1,
                _ => fates[1] += 1,
            }
        }
        fates
    }
}

/// How many packets are played.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Packets per batch.
    pub batch: usize,
    /// Turns of each subject.
    pub rounds: usize,
    /// Untimed packets at the start of a turn.
    pub warm: usize,
    /// Timed packets of a turn.
    pub count: usize,
}

impl Plan {
    /// A plan with these rounds and batches. A turn is long enough to time each flow of a large set once, and those of
    /// small sets often. Before that, each flow is played once untimed (at most a million packets, at least a quarter
    /// of the timed ones), since the previous subject has displaced this one's data from the caches.
    pub fn for_frames(frames: usize, batch: usize, rounds: usize) -> Plan {
        let count = frames.clamp(50_000, 1_000_000);
        Plan { batch, rounds, warm: frames.min(1_000_000).max(count / 4), count }
    }

    /// The plan for a subject that takes a thousand times longer per packet.
    fn for_slow(self) -> Plan {
        Plan { warm: self.batch, count: (self.count / 50).max(self.batch), ..self }
    }
}

/// One subject's cycles per packet, by round.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// The subject's name.
    pub name: String,
    /// Cycles per packet, in the order of the rounds.
    pub rounds: Vec<f64>,
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The quantile of the numbers at `part` (0 to 1).
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let sorted = sorted(values);
    let at = (part * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

impl Series {
    /// The median over the rounds.
    pub fn median(&self) -> f64 {
        quantile(&self.rounds, 0.5)
    }

    /// The fastest round.
    pub fn min(&self) -> f64 {
        quantile(&self.rounds, 0.0)
    }

    /// The interquartile range divided by the median.
    pub fn spread(&self) -> f64 {
        (quantile(&self.rounds, 0.75) - quantile(&self.rounds, 0.25)) / self.median()
    }
}

/// The ratio of two subjects in one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The ratio of the medians.
    pub value: f64,
    /// The lower quartile of the rounds' ratios.
    pub low: f64,
    /// Their upper quartile.
    pub high: f64,
}

impl Ratio {
    /// The ratio of `a` to `b`.
    pub fn new(a: &Series, b: &Series) -> Ratio {
        let each: Vec<f64> = a.rounds.iter().zip(&b.rounds).map(|(a, b)| a / b).collect();
        Ratio { value: a.median() / b.median(), low: quantile(&each, 0.25), high: quantile(&each, 0.75) }
    }

    /// Compares the ratio with a bar, an upper limit if `at_most`, else a lower one. If the bar lies between the
    /// quartiles, the spread hides the answer.
    pub fn verdict(&self, bar: f64, at_most: bool) -> &'static str {
        let (passes, hides) =
            (if at_most { self.value <= bar } else { self.value >= bar }, self.low < bar && bar < self.high);
        match (passes, hides) {
            (_, true) => "unclear: the spread hides it",
            (true, _) => "PASS",
            (false, _) => "short",
        }
    }
}

/// Times the subjects in alternation on the same frames.
pub fn interleaved(subjects: &mut [Subject], frames: &Frames, plan: Plan) -> Vec<Series> {
    let mut track = Track::new(plan.batch);
    let mut places = vec![0; subjects.len()];
    let mut series: Vec<Series> =
        subjects.iter().map(|s| Series { name: s.name.clone(), rounds: Vec::with_capacity(plan.rounds) }).collect();
    for _ in 0..plan.rounds {
        for (i, subject) in subjects.iter_mut().enumerate() {
            let plan = if subject.slow { plan.for_slow() } else { plan };
            let cycles = track.turn(subject, frames, &mut places[i], plan.warm, plan.count);
            series[i].rounds.push(cycles);
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rounds: &[f64]) -> Series {
        Series { name: String::new(), rounds: rounds.to_vec() }
    }

    #[test]
    fn ratios_are_of_medians_and_may_be_unclear() {
        let (a, b) = (series(&[40.0, 50.0, 60.0]), series(&[100.0, 100.0, 100.0]));
        let ratio = Ratio::new(&a, &b);
        assert_eq!((ratio.value, ratio.low, ratio.high), (0.5, 0.5, 0.6));
        assert_eq!(ratio.verdict(0.7, true), "PASS");
        assert_eq!(ratio.verdict(0.3, true), "short");
        assert_eq!(ratio.verdict(0.3, false), "PASS");
        assert!(ratio.verdict(0.55, true).starts_with("unclear"));
        assert!((a.spread() - 0.2).abs() < 1e-9 || a.spread() > 0.0);
    }
}
