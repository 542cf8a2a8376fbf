//! Analysis of packet loss at a paced port: the causes of time lost between two polls of its worker.
//!
//! Between two polls the worker takes a burst through the program and sends it. At the port's rate that burst
//! corresponds to an interval of the schedule; the excess of the gap over that interval is a *shortage*, which the ring
//! must absorb. Shortages are summed by cause from the moment when the ring was last nearly empty until it is nearly
//! empty again; packets lost in that time are attributed to the causes in proportion to their shortages. This
//! distinguishes one long pause from a thousand slightly slow bursts, and measures each part where both occur:
//!
//! - gaps of at most [`PAUSE_S`] are attributed to the code, generic or specialised for the tables' contents
//!   (`datapath::Pipeline::runs_specialised`);
//! - longer gaps are pauses. Either the worker waited for a page in it (its count of page faults has risen), or an
//!   interrupt or the hypervisor had the processor;
//! - time that the kernel gave to other programs, or the host to other machines, does not count in the schedule
//!   ([`super::paced`]), but leaves cold caches: losses until the ring is empty again after such a gap, but within
//!   [`COLD_S`], are attributed separately.
//!
//! What ran during a pause cannot be determined afterwards, so the interrupts of the worker's processor, by kind, and
//! the time stolen by the host are counted over the whole phase ([`Machine`]).
//!
//! Threads: [`Watcher`] belongs to the worker, [`Gaps`] is a value, [`Machine`] may be used by any thread. Tests: at
//! the end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Gaps between polls that are longer, in seconds, are pauses: longer than a worker takes for a burst of each of several
/// ports. Reading the kernel's counts can take longer than a burst, and its time counts towards the port's share of the
/// worker; so it is not done for each burst.
pub const PAUSE_S: f64 = 100e-6;

/// How long cold caches are assumed to last, in seconds: twice the time to fill a cache of a megabyte from memory.
const COLD_S: f64 = 1e-3;
/// Packets of a full burst.
pub const BURST: u64 = abi::BATCH_MAX as u64;

/// The cause of a shortage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Bursts through generic code.
    Generic,
    /// Bursts through code that is specialised for the tables' contents.
    Specialised,
    /// Pauses with page faults.
    Faults,
    /// Other pauses.
    Interrupted,
    /// Gaps in which other programs had the processor.
    Others,
}

const CAUSES: usize = 5;

/// The gaps of one cause.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum {
    /// Number of gaps.
    pub count: u64,
    /// Their total length in seconds.
    pub time_s: f64,
    /// The longest gap in seconds.
    pub longest_s: f64,
    /// Packets of full bursts.
    pub packets: u64,
    /// Seconds that full bursts took.
    pub full_s: f64,
    /// Lost packets that are attributed to this cause.
    pub lost: f64,
}

/// The gaps of a phase, by cause.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gaps([Sum; CAUSES]);

impl Gaps {
    /// The gaps of a cause.
    pub fn of(&self, cause: Cause) -> &Sum {
        &self.0[cause as usize]
    }

    /// The sum of both.
    pub fn and(mut self, other: &Gaps) -> Gaps {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum = Sum {
                count: sum.count + more.count,
                time_s: sum.time_s + more.time_s,
                longest_s: sum.longest_s.max(more.longest_s),
                packets: sum.packets + more.packets,
                full_s: sum.full_s + more.full_s,
                lost: sum.lost + more.lost,
            };
        }
        self
    }
}

/// Collects gaps on the worker's thread.
#[derive(Default)]
pub struct Watcher {
    gaps: Gaps,
    /// Since the ring was last nearly empty: the shortages in seconds, by cause, and the lost packets.
    short_s: [f64; CAUSES],
    lost: u64,
    /// How long caches are still assumed to be cold, in seconds.
    cold_s: f64,
    stat: Option<File>,
    faults: u64,
}

/// A gap between two polls.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// Its length in seconds, without the time of other programs.
    pub time_s: f64,
    /// Whether it was longer than [`PAUSE_S`], including the time of other programs.
    pub is_pause: bool,
    /// Whether other programs ran in it.
    pub others: bool,
    /// Packets of the burst in it.
    pub packets: u64,
    /// The interval that these packets take in the schedule, in seconds.
    pub due_s: f64,
    /// Whether that burst ran specialised code.
    pub specialised: bool,
}

impl Watcher {
    /// Starts another phase; returns the gaps of the last one.
    pub fn restart(&mut self) -> Gaps {
        self.settle();
        self.faults = self.faults();
        std::mem::take(&mut self.gaps)
    }

    /// Records a gap, at the end of which `lost` packets found the ring full.
    pub fn note(&mut self, gap: Gap, lost: u64, ring_is_empty: bool) {
        let cause = match (gap.is_pause, gap.specialised) {
            _ if gap.others => Cause::Others,
            (true, _) => self.cause_of_pause(),
            (false, true) => Cause::Specialised,
            (false, false) => Cause::Generic,
        };
        let sum = &mut self.gaps.0[cause as usize];
        sum.count += 1;
        sum.time_s += gap.time_s;
        sum.longest_s = sum.longest_s.max(gap.time_s);
        if gap.packets == BURST {
            sum.packets += BURST;
            sum.full_s += gap.time_s;
        }
        self.short_s[cause as usize] += gap.time_s - gap.due_s;
        if gap.others {
            self.cold_s = COLD_S;
        }
        match self.cold_s > 0.0 {
            true => self.gaps.0[Cause::Others as usize].lost += lost as f64,
            false => self.lost += lost,
        }
        self.cold_s -= gap.time_s;
        if ring_is_empty {
            self.cold_s = 0.0;
            self.settle();
        }
    }

    /// Attributes the packets lost since the ring was empty to the causes.
    fn settle(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        let short = std::mem::take(&mut self.short_s).map(|s| s.max(0.0));
        let all: f64 = short.iter().sum();
        if lost > 0 && all > 0.0 {
            self.gaps.0.iter_mut().zip(short).for_each(|(sum, short)| sum.lost += lost as f64 * short / all);
        }
    }

    fn cause_of_pause(&mut self) -> Cause {
        let faults = self.faults();
        match std::mem::replace(&mut self.faults, faults) < faults {
            true => Cause::Faults,
            false => Cause::Interrupted,
        }
    }

    /// The thread's page faults since its start: fields 10 and 12 (minflt and majflt) of its `stat`, where field 2 is
    /// the process's name.
    fn faults(&mut self) -> u64 {
        if self.stat.is_none() {
            self.stat = File::open("/proc/thread-self/stat").ok();
        }
        let mut text = [0; 512];
        let read = self.stat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..read]);
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |number: usize| fields.split_whitespace().nth(number - 3).and_then(|f| f.parse::<u64>().ok());
        field(10).zip(field(12)).map_or(self.faults, |(minor, major)| minor + major)
    }
}

/// The kernel's counts for one processor.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Interrupts by kind.
    interrupts: BTreeMap<&'static str, u64>,
    /// Time stolen by the host, in hundredths of a second.
    stolen: u64,
}

/// Kinds of interrupts by their names in `/proc/interrupts`, and their names here; numbered lines are devices.
const KINDS: [(&str, &str); 5] =
    [("LOC", "timer"), ("RES", "reschedule"), ("CAL", "call"), ("TLB", "shootdown"), ("NMI", "NMI")];
const DEVICES: &str = "device";

impl Machine {
    /// The current counts of a processor.
    pub fn now(processor: usize) -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Machine::parse(&read("/proc/interrupts"), &read("/proc/stat"), processor)
    }

    fn parse(interrupts: &str, stat: &str, processor: usize) -> Machine {
        let mut lines = interrupts.lines();
        // Processors that are offline have no column.
        let name = format!("CPU{processor}");
        let column = lines.next().and_then(|heads| heads.split_whitespace().position(|head| head == name));
        let mut found = BTreeMap::new();
        for line in lines {
            let Some((kind, counts)) = line.split_once(':') else { continue };
            let kind = kind.trim();
            let known = KINDS.iter().find(|(short, _)| *short == kind).map(|(_, name)| *name);
            let Some(name) = known.or_else(|| kind.parse::<u32>().is_ok().then_some(DEVICES)) else { continue };
            let count = column.and_then(|column| counts.split_whitespace().nth(column)?.parse::<u64>().ok());
            *found.entry(name).or_default() += count.unwrap_or(0);
        }
        let of_processor = format!("cpu{processor} ");
        let times = stat.lines().find_map(|line| line.strip_prefix(&of_processor)).unwrap_or_default();
        let stolen = times.split_whitespace().nth(7).and_then(|ticks| ticks.parse().ok()).unwrap_or(0);
        Machine { interrupts: found, stolen }
    }

    /// The increase since an earlier moment.
    pub fn since(mut self, before: &Machine) -> Machine {
        for (kind, count) in &mut self.interrupts {
            *count = count.saturating_sub(before.interrupts.get(kind).copied().unwrap_or(0));
        }
        self.stolen = self.stolen.saturating_sub(before.stolen);
        self
    }

    /// The sum of two results of [`Machine::since`].
    pub fn and(mut self, more: &Machine) -> Machine {
        more.interrupts.iter().for_each(|(kind, count)| *self.interrupts.entry(kind).or_default() += count);
        self.stolen += more.stolen;
        self
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.interrupts.iter().filter(|(_, count)| **count > 0);
        let mut parts: Vec<String> = kinds.map(|(kind, count)| format!("{kind} {count}")).collect();
        if self.stolen > 0 {
            parts.push(format!("host {} ms", self.stolen * 10));
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(time_us: f64, packets: u64, specialised: bool) -> Gap {
        let time_s = time_us / 1e6;
        Gap { time_s, is_pause: time_s > PAUSE_S, others: false, packets, due_s: packets as f64 * 0.1e-6, specialised }
    }

    #[test]
    fn losses_go_to_what_made_the_ring_full() {
        let mut watcher = Watcher::default();
        // Bursts of 64 packets at ten million per second: each corresponds to 6.4 us of the schedule.
        for _ in 0..100 {
            watcher.note(gap(8.4, 64, false), 0, false);
        }
        watcher.note(gap(606.4, 64, true), 400, false);
        watcher.note(gap(5.0, 64, true), 0, true);
        let gaps = watcher.restart();
        let lost = |cause| gaps.of(cause).lost.round() as u64;
        assert_eq!((lost(Cause::Generic), lost(Cause::Specialised)), (100, 0));
        assert_eq!(lost(Cause::Faults) + lost(Cause::Interrupted), 300);
        assert_eq!(gaps.of(Cause::Generic).packets, 6400);
        // Shortages before the ring was empty have no effect on later losses.
        watcher.note(gap(9.0, 64, true), 10, true);
        let gaps = watcher.restart();
        assert_eq!((gaps.of(Cause::Specialised).lost, gaps.of(Cause::Generic).lost), (10.0, 0.0));
        // Another program that ran in between has displaced the caches.
        watcher.note(Gap { others: true, ..gap(30.0, 64, true) }, 0, false);
        watcher.note(gap(9.0, 64, false), 10, true);
        watcher.note(gap(9.0, 64, false), 5, true);
        // But that does not last forever.
        watcher.note(Gap { others: true, ..gap(30.0, 64, true) }, 3, false);
        (0..200).for_each(|_| watcher.note(gap(9.0, 64, false), 0, false));
        watcher.note(gap(9.0, 64, false), 20, false);
        let gaps = watcher.restart();
        assert_eq!((gaps.of(Cause::Others).lost.round(), gaps.of(Cause::Generic).lost.round()), (14.0, 24.0));
    }

    #[test]
    fn pages_that_were_missing_are_seen() {
        let mut watcher = Watcher::default();
        // Other threads of the process may make this one fault now and then, but not each time.
        let without = (0..100).any(|_| {
            watcher.restart();
            watcher.note(gap(150.0, 64, true), 0, true);
            watcher.restart().of(Cause::Interrupted).count == 1
        });
        let fresh = vec![1u8; 8 << 20];
        assert_eq!(std::hint::black_box(&fresh).iter().map(|b| u64::from(*b)).sum::<u64>(), 8 << 20);
        watcher.note(gap(150.0, 64, true), 0, true);
        assert_eq!((without, watcher.restart().of(Cause::Faults).count), (true, 1));
    }

    #[test]
    fn interrupts_are_those_of_the_processor() {
        let interrupts =
            "           CPU0       CPU3\n 24:  1  5  IO-APIC  x\n 25:  0  2  x\nLOC:  7  9  Local\nERR:  0\n";
        let stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\ncpu3 1 1 1 1 1 1 1 4 1 1\n";
        let (none, all) = (Machine::parse("CPU3\n", "", 3), Machine::parse(interrupts, stat, 3));
        assert_eq!(all.clone().since(&none).to_string(), "device 7, timer 9, host 40 ms");
        assert_eq!(all.clone().since(&all).to_string(), "");
        let other = Machine::parse(interrupts, stat, 0);
        assert_eq!(other.clone().since(&none).to_string(), "device 1, timer 7, host 10 ms");
        assert_eq!(other.and(&all).to_string(), "device 8, timer 16, host 50 ms");
    }
}
