//! `cargo xtask scale`: no phase of the compiler is worse than n log n in the size of the program.
//!
//! Programs of several shapes ([`shapes`]), each at one, four and sixteen times a size, are compiled to machine code by
//! `sluice check --time`, and each phase's growth is printed as the exponent of the last step: 1 is linear, 2 quadratic.
//! A phase counts as too slow only far above n log n, and only if it takes a time that can be measured; the best of several
//! runs is taken. It wants a machine with an idle core all the same.
//!
//! `cargo xtask scale SHAPE` runs the shapes whose name contains SHAPE; `cargo xtask scale SHAPE 4` at four times the sizes,
//! which other costs dominate than at the usual ones; `cargo xtask scale "" large` runs each shape at the largest size that
//! is of any use ([`shapes::Shape::large`]), in some minutes. `SLUICE=PATH` measures another build. The programs stay in
//! `target/scale`.

mod shapes;

use anyhow::{Context, Result, bail, ensure};
use shapes::{SHAPES, Shape};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Sizes relative to a shape's own.
const STEPS: [usize; 3] = [1, 4, 16];
/// n log n between the last two steps is at most 1.2; caches that no longer hold everything add some.
const EXPONENT_MAX: f64 = 1.6;
/// Phases that take less at the largest size are not judged.
const JUDGED_FROM_MS: f64 = 15.0;
const SHOWN_FROM_MS: f64 = 1.5;
const RUNS: usize = 5;
/// Runs of programs that take longer than [`LONG_MS`].
const RUNS_OF_LONG: usize = 2;
const LONG_MS: f64 = 2_000.0;
const RETRIES: usize = 5;

/// Milliseconds of each phase.
type Times = Vec<(String, f64)>;

/// How large programs are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// So many times the shapes' sizes.
    Times(usize),
    /// As each shape says.
    Large,
}

impl std::str::FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Size> {
        match text.parse() {
            Ok(times) => Ok(Size::Times(times)),
            Err(_) if text == "large" => Ok(Size::Large),
            Err(_) => bail!("`{text}` is neither a number nor `large`"),
        }
    }
}

/// Phases in their order, in milliseconds: the best of [`RUNS`] runs.
fn times(sluice: &Path, program: &Path, strategy: &str) -> Result<Times> {
    let mut best: Times = Vec::new();
    for run in 0..RUNS {
        if run >= RUNS_OF_LONG && best.last().is_some_and(|(_, total)| *total > LONG_MS) {
            break;
        }
        let mut command = Command::new(sluice);
        let out = command.args(["check", "--time", "--strategy", strategy]).arg(program).output()?;
        ensure!(
            out.status.success(),
            "{} does not compile:\n{}",
            program.display(),
            String::from_utf8_lossy(&out.stderr)
        );
        let rows = String::from_utf8(out.stdout)?;
        // The other lines count the program's.
        for (i, line) in rows.lines().filter_map(|line| line.strip_suffix(" ms")).enumerate() {
            let (phase, time) = line.rsplit_once(' ').context("a row of `--time`")?;
            let (phase, time) = (phase.trim().to_string(), time.trim().parse::<f64>()?);
            match best.get_mut(i) {
                Some((_, best)) => *best = time.min(*best),
                None => best.push((phase, time)),
            }
        }
    }
    Ok(best)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Small,
    Good,
    TooSlow,
}

/// How a phase grows over the last step.
fn exponent(columns: &[Times], phase: usize) -> f64 {
    (columns[2][phase].1 / columns[1][phase].1).ln() / 4f64.ln()
}

fn judge(columns: &[Times], phase: usize) -> Verdict {
    let (name, last) = &columns[2][phase];
    match () {
        () if *last < JUDGED_FROM_MS => Verdict::Small,
        // The total is as bad as its worst phase.
        () if exponent(columns, phase) <= EXPONENT_MAX || name == "total" => Verdict::Good,
        () => Verdict::TooSlow,
    }
}

/// Builds `sluice` and says where it is; or the one that is to be measured instead.
fn release_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SLUICE") {
        return Ok(PathBuf::from(path));
    }
    let status = Command::new(env!("CARGO")).args(["build", "--release", "--quiet", "--bin", "sluice"]).status()?;
    ensure!(status.success(), "sluice does not build");
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    Ok(Path::new(&target).join("release/sluice").canonicalize()?)
}

/// Runs the shapes whose name contains `only`.
pub fn run(only: &str, size: Size) -> Result<ExitCode> {
    let sluice = release_binary()?;
    let dir = Path::new("target/scale");
    std::fs::create_dir_all(dir)?;
    let mut too_slow = Vec::new();
    for Shape { name, smallest, large, strategy, parts } in SHAPES.iter().filter(|s| s.name.contains(only)) {
        let times_larger = match size {
            Size::Times(times) => times,
            Size::Large => *large,
        };
        let sizes = STEPS.map(|step| step * times_larger * smallest);
        let mut files = Vec::new();
        let mut columns = Vec::new();
        for size in sizes {
            let file = dir.join(format!("{}-{size}.p4", name.replace(' ', "-")));
            std::fs::write(&file, parts(size).program())?;
            columns.push(times(&sluice, &file, strategy)?);
            files.push(file);
        }
        // What looks bad may have been interrupted: the largest program has some more chances.
        for _ in 0..RETRIES {
            if (0..columns[2].len()).all(|phase| judge(&columns, phase) != Verdict::TooSlow) {
                break;
            }
            for (best, again) in columns[2].iter_mut().zip(times(&sluice, &files[2], strategy)?) {
                best.1 = best.1.min(again.1);
            }
        }
        println!("{name}: {}", sizes.map(|size| size.to_string()).join(", "));
        for (i, (phase, last)) in columns[2].iter().enumerate().filter(|(_, (_, last))| *last >= SHOWN_FROM_MS) {
            let verdict = judge(&columns, i);
            let mark = match verdict {
                Verdict::Small => String::new(),
                Verdict::Good => format!("n^{:.2}", exponent(&columns, i)),
                Verdict::TooSlow => format!("n^{:.2}  too slow", exponent(&columns, i)),
            };
            println!("    {phase:20} {:9.2} {:9.2} {last:9.2} ms  {mark}", columns[0][i].1, columns[1][i].1);
            if verdict == Verdict::TooSlow {
                too_slow.push(format!("{name}: {phase}"));
            }
        }
    }
    ensure!(too_slow.is_empty(), "worse than n log n: {}", too_slow.join(", "));
    Ok(ExitCode::SUCCESS)
}
