//! The origin of a run's results: machine, sources, time.

use std::time::{SystemTime, UNIX_EPOCH};

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|l| l.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Ticks per second of the clock that all measurements use.
pub fn ticks_per_second() -> f64 {
    let (start, from) = (std::time::Instant::now(), datapath::timing::ticks());
    std::thread::sleep(std::time::Duration::from_millis(50));
    (datapath::timing::ticks() - from) as f64 / start.elapsed().as_secs_f64()
}

/// The commit that this program was built from, followed by `-dirty` if there were changes; `unknown` outside git.
pub const SOURCES: &str = env!("SLUICE_SOURCES");

/// The current UTC time, as `2026-01-31T12:00Z`.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    time(seconds)
}

/// Seconds since 1970 as a date and a time, in the Gregorian calendar.
fn time(seconds: u64) -> String {
    let (minutes, mut days) = (seconds / 60 % 1440, seconds / 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}T{:02}:{:02}Z", month + 1, days + 1, minutes / 60, minutes % 60)
}

/// Processor, operating system, compilers and commit, one line each.
pub fn lines() -> Vec<String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = field(&cpuinfo, "model name").unwrap_or_else(|| "unknown processor".to_string());
    let mhz = field(&cpuinfo, "cpu MHz").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cache = |i: u32, what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{i}/{what}");
        std::fs::read_to_string(path).map(|t| t.trim().to_string()).unwrap_or_default()
    };
    let caches: Vec<String> = [0, 2, 3].map(|i| format!("L{} {}", cache(i, "level"), cache(i, "size"))).into();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    vec![
        format!("machine: {model}, {mhz} MHz, {cpus} CPUs, {}; kernel {}", caches.join(", "), kernel.trim()),
        format!(
            "C: {}, -O3 -march=native; Sluice {}, sources at {SOURCES} when this was built",
            env!("C_COMPILER"),
            env!("CARGO_PKG_VERSION")
        ),
        format!("load average at the start: {}", load.split(' ').take(3).collect::<Vec<_>>().join(" ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn dates_account_for_leap_years() {
        assert_eq!(time(0), "1970-01-01T00:00Z");
        assert_eq!(time(951_825_599), "2000-02-29T11:59Z");
        assert_eq!(time(1_735_689_600), "2025-01-01T00:00Z");
        assert_eq!(time(1_798_761_599), "2026-12-31T23:59Z");
    }
}
