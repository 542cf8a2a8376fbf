//! `sluice bench X.p4 --control --packets FILE --steps 0.9:1,1.5:1,0.9:2`: what happens when the load changes.
//!
//! The no-loss rate is searched as [`super::loaded`] does it, and then packets come at shares of it, one after the other, without a pause
//! between. Each step has a line when it begins and one when it is over: packets that came and were lost, from when on none was lost for
//! a tenth of a second, when the ring was as good as empty again, and how long a packet waited in it at most. Times begin with the step; those in which
//! the kernel or the host gave the worker's processor to others are left out ([`super::paced`]), and packets lost because of them are
//! counted apart.
//!
//! With `--beside` the same worker serves other ports meanwhile, whose peers do what they like: what they cost the packets here is the question.
//! Who starts them reads the lines, and standard input, if `--beside` is given, says when the next step begins: a line for each.

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

/// Takes the steps; `waits` for a line of standard input before each.
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
        // Whose they are is known when the rate is set again; it is the same until the next step says otherwise.
        load.set_rate(if i + 1 < steps.len() && !waits { step_rate } else { 0 });
        let others = *load.gaps().of(Cause::Others);
        let drained = if now.drained_s.is_finite() { format!("{:.3} ms", now.drained_s * 1e3) } else { "never".into() };
        println!(
            "step {number}: {arrived} packets, {lost} lost, {:.0} of them beside others; calm from {:.3} ms on; ring empty after {drained}; \
             longest wait {:.3} ms; core was others' for {:.3} s",
            others.lost,
            now.calm_s * 1e3,
            now.fullest as f64 / step_rate as f64 * 1e3,
            now.stolen_s - before.stolen_s,
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
