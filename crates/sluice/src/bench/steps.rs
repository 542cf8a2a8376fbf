//! `sluice bench X.p4 --control --packets FILE --steps 0.9:1,1.5:1,0.9:2`: behaviour under a changing load.
//!
//! The no-loss rate is determined as in [`super::loaded`]; then packets arrive at the given shares of it, one after the
//! other, without a pause in between. A line is printed when a step begins and when it ends: packets arrived and lost,
//! from when on none was lost for a tenth of a second, when the ring was nearly empty again, and the longest time that
//! a packet waited in it. Times begin with the step; those in which the kernel or the host gave the worker's processor
//! to others are excluded ([`super::paced`]), and packets lost because of them are counted separately. The others are
//! attributed to causes ([`super::gaps`]).
//!
//! With `--beside` the same worker serves other ports meanwhile, whose peers may do anything: the purpose is to measure
//! their effect on the packets here. The program that starts those peers reads the lines; with `--beside`, each step
//! begins with a line of standard input.

use super::gaps::Cause;
use super::loaded::Load;
use anyhow::Result;
use std::io::BufRead;
use std::str::FromStr;
use std::time::Duration;

/// A share of the no-loss rate, for a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    share: f64,
    time: Duration,
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let numbers = text.split_once(':').and_then(|(a, b)| a.parse::<f64>().ok().zip(b.parse::<f64>().ok()));
        let valid =
            numbers.filter(|(share, seconds)| (0.001..=100.0).contains(share) && (0.001..=86_400.0).contains(seconds));
        let (share, seconds) =
            valid.ok_or("it is a share from 0.001 to 100 and seconds from 0.001 to 86400, as 1.5:2")?;
        Ok(Step { share, time: Duration::from_secs_f64(seconds) })
    }
}

/// The causes of losses that are the worker's own.
const CAUSES: [(&str, Cause); 4] = [
    ("generic code", Cause::Generic),
    ("specialised code", Cause::Specialised),
    ("page faults", Cause::Faults),
    ("other pauses", Cause::Interrupted),
];

/// Runs the steps; if `waits`, each begins with a line of standard input, and the end of input ends the run.
///
/// # Errors
/// If no rate without loss is found.
pub(super) fn run(load: &Load, steps: &[Step], waits: bool) -> Result<()> {
    let rate = load.no_loss_rate()?;
    println!("no-loss rate: {rate} packets/s");
    let mut lines = std::io::stdin().lock().lines();
    for (i, step) in steps.iter().enumerate() {
        let number = i + 1;
        println!("step {number} begins: {} of the no-loss rate for {} s", step.share, step.time.as_secs_f64());
        if waits && lines.next().is_none() {
            break;
        }
        let before = load.passed();
        let step_rate = (rate as f64 * step.share) as u64;
        load.set_rate(step_rate);
        std::thread::sleep(step.time);
        let now = load.passed();
        let (arrived, lost) = (now.arrived - before.arrived, now.lost - before.lost);
        // Gaps are available when the rate is set again; it stays the same until the next step sets another.
        load.set_rate(if i + 1 < steps.len() && !waits { step_rate } else { 0 });
        let gaps = load.gaps();
        let others = gaps.of(Cause::Others);
        let causes = CAUSES.map(|(name, cause)| {
            let sum = gaps.of(cause);
            format!("{name} {:.0} (longest gap {:.3} ms)", sum.lost, sum.longest_s * 1e3)
        });
        let drained = if now.drained_s.is_finite() { format!("{:.3} ms", now.drained_s * 1e3) } else { "never".into() };
        println!(
            "step {number}: {arrived} packets, {lost} lost, {:.0} of them beside others; calm from {:.3} ms on; ring empty after {drained}; \
             longest wait {:.3} ms; core was others' for {:.3} s; lost by cause: {}",
            others.lost,
            now.calm_s * 1e3,
            now.fullest as f64 / step_rate as f64 * 1e3,
            now.stolen_s - before.stolen_s,
            causes.join(", "),
        );
    }
    load.set_rate(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shares_and_seconds() {
        let step = Step { share: 1.5, time: Duration::from_millis(250) };
        assert_eq!("1.5:0.25".parse(), Ok(step));
        for wrong in ["", "1.5", "0:1", "1:0", "1:x", "1:-1", "nan:1", "1:inf", "1000:1"] {
            assert!(wrong.parse::<Step>().is_err(), "{wrong}");
        }
    }
}
