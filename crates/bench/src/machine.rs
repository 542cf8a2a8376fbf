//! What a run says about where it was made.

use std::process::Command;

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|l| l.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Ticks of the clock that everything is measured with, per second.
pub fn ticks_per_second() -> f64 {
    let (start, from) = (std::time::Instant::now(), datapath::bench::ticks());
    std::thread::sleep(std::time::Duration::from_millis(50));
    (datapath::bench::ticks() - from) as f64 / start.elapsed().as_secs_f64()
}

/// Processor, system, compilers and commit, one line each.
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
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default();
    vec![
        format!("machine: {model}, {mhz} MHz, {cpus} CPUs, {}; kernel {}", caches.join(", "), kernel.trim()),
        format!(
            "C: {}, -O3 -march=native; Sluice {}, sources at {commit}",
            env!("C_COMPILER"),
            env!("CARGO_PKG_VERSION")
        ),
        format!("load average at the start: {}", load.split(' ').take(3).collect::<Vec<_>>().join(" ")),
    ]
}
