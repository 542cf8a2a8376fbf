//! `cargo xtask tutorials DIR`: runs an unmodified checkout that was made for bmv2 with Sluice under the names of bmv2's tools, and checks
//! what its READMEs promise. The checkout stays outside of this repository, and as it is: exercises run in copies.
//!
//! | checkout | what runs |
//! | --- | --- |
//! | p4lang/tutorials | each exercise's solution by its own `make`, topology, scripts and controller, in Mininet |
//! | nsg-ethz/p4-learning | exercises and examples in Mininet by p4-utils, whose checkout `--p4-utils` names |
//! | jafingerhut/p4-guide | the PTF tests, by their own `runptf.sh` |
//!
//! Exercises are driven by Python in `xtask/tutorials/`, one file for each checkout, as a user drives them at Mininet's prompt. Each runs in
//! network, mount and process namespaces of its own, with a limit on time: what is left over ends with them. A table goes to stdout; what
//! an exercise printed stays in `TARGET/tutorials/EXERCISE.txt` beside its copy. The exit code is 1 when a check does not hold.
//!
//! Needs root, and what `scripts/setup tutorials` installs. Links of Mininet that ask for delays say an error where the kernel has no `netem`
//! and work without them.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The names of bmv2's tools.
const TOOLS: [&str; 5] = ["p4c", "p4c-bm2-ss", "simple_switch", "simple_switch_grpc", "sluice"];
/// How long one exercise may take, in seconds; most take less than one minute.
const EXERCISE_SECONDS_MAX: &str = "1200";
/// Instead of `sudo`, which minimal systems do not have: we are root, and `NAME=VALUE` in front of a command is all that scripts use.
const SUDO: &str = "#!/bin/sh\nexec env \"$@\"\n";

/// What the command line asks for.
struct Options {
    dir: PathBuf,
    /// Those to run; all if there are none.
    exercises: Vec<String>,
    /// Another build than the release build of this tree.
    sluice: Option<PathBuf>,
    p4_utils: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[&str]) -> Result<Options> {
        let mut options = Options { dir: PathBuf::new(), exercises: Vec::new(), sluice: None, p4_utils: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if !arg.starts_with('-') {
                options.dir = PathBuf::from(arg);
                continue;
            }
            let value = *args.next().with_context(|| format!("{arg} needs a value"))?;
            match *arg {
                "--exercise" => options.exercises.extend(value.split(',').map(String::from)),
                "--sluice" => options.sluice = Some(absolute(value)?),
                "--p4-utils" => options.p4_utils = Some(absolute(value)?),
                flag => bail!("tutorials has no option {flag}"),
            }
        }
        ensure!(!options.dir.as_os_str().is_empty(), "tutorials needs the folder of a checkout");
        options.dir = absolute(&options.dir)?;
        Ok(options)
    }
}

fn absolute(path: impl AsRef<Path>) -> Result<PathBuf> {
    let path = path.as_ref();
    path.canonicalize().with_context(|| format!("there is no {}", path.display()))
}

/// Which checkout a folder is, by what only it has: the file of `xtask/tutorials` that knows it.
fn suite(dir: &Path) -> Result<&'static str> {
    let known = [
        ("utils/run_exercise.py", "tutorials"),
        ("exercises/01-Reflector/p4app.json", "learning"),
        ("ptf-tests/matchkinds", "guide"),
    ];
    let found = known.iter().find(|(part, _)| dir.join(part).exists()).map(|(_, suite)| *suite);
    found.with_context(|| {
        format!("{} is no checkout of p4lang/tutorials, nsg-ethz/p4-learning or jafingerhut/p4-guide", dir.display())
    })
}

/// Where everything is.
struct Place {
    python: PathBuf,
    run: PathBuf,
    work: PathBuf,
    /// With the folder of the tools in front.
    path: String,
    /// For Python's modules that are no packages.
    modules: String,
}

/// Runs the exercises and prints the table.
pub fn run(args: &[&str]) -> Result<ExitCode> {
    let options = Options::parse(args)?;
    let suite = suite(&options.dir)?;
    let sluice = match &options.sluice {
        Some(sluice) => sluice.clone(),
        None => {
            let status =
                Command::new(env!("CARGO")).args(["build", "--release", "--quiet", "--bin", "sluice"]).status()?;
            ensure!(status.success(), "sluice does not build");
            absolute(target_dir().join("release/sluice"))?
        }
    };
    let place = prepare(&sluice, options.p4_utils.as_deref())?;
    let listed = Command::new(&place.python).arg(&place.run).arg(suite).arg(&options.dir).output()?;
    ensure!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let all: Vec<String> = String::from_utf8(listed.stdout)?.lines().map(String::from).collect();
    if let Some(unknown) = options.exercises.iter().find(|name| !all.contains(name)) {
        bail!("there is no exercise {unknown}; there are {}", all.join(", "));
    }
    let chosen: Vec<&String> =
        all.iter().filter(|name| options.exercises.is_empty() || options.exercises.contains(name)).collect();
    let mut rows = Vec::new();
    for name in chosen {
        eprintln!("{name} ...");
        rows.push(exercise(&place, suite, &options.dir, name)?);
    }
    print(&rows);
    Ok(ExitCode::from(u8::from(rows.iter().any(|row| row.failed() > 0))))
}

/// Makes the folders and finds what is needed.
fn prepare(sluice: &Path, p4_utils: Option<&Path>) -> Result<Place> {
    ensure!(is_root(), "namespaces and Mininet need root");
    let python = std::env::current_dir()?.join(".venv-tutorials/bin/python");
    ensure!(python.exists(), "Python's packages and Mininet are missing: scripts/setup tutorials");
    let work = std::env::current_dir()?.join(target_dir()).join("tutorials");
    if work.exists() {
        std::fs::remove_dir_all(&work)?;
    }
    let tools = work.join("bin");
    std::fs::create_dir_all(&tools)?;
    for tool in TOOLS {
        symlink(sluice, tools.join(tool))?;
    }
    std::fs::write(tools.join("sudo"), SUDO)?;
    std::fs::set_permissions(tools.join("sudo"), Permissions::from_mode(0o755))?;
    let scripts = python.parent().unwrap_or(Path::new("/")).display().to_string();
    let inherited = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{scripts}:{inherited}:/usr/sbin:/sbin", tools.display());
    let modules = p4_utils.map(|dir| dir.display().to_string()).unwrap_or_default();
    let run = std::env::current_dir()?.join("xtask/tutorials/run.py");
    Ok(Place { python, run, work, path, modules })
}

/// Whether this process may make namespaces.
fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|l| l.starts_with("Uid:") && l.split_whitespace().nth(2) == Some("0")))
}

/// What came of an exercise.
struct Row {
    name: String,
    seconds: Duration,
    /// By name: what was found instead, of those that do not hold.
    checks: Vec<(String, Option<String>)>,
    /// What is not looked at.
    open: Vec<String>,
}

impl Row {
    fn failed(&self) -> usize {
        self.checks.iter().filter(|(_, failure)| failure.is_some()).count()
    }
}

fn exercise(place: &Place, suite: &str, dir: &Path, name: &str) -> Result<Row> {
    let file = name.replace('/', "-");
    let copy = place.work.join(&file);
    std::fs::create_dir_all(&copy)?;
    let start = Instant::now();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["timeout", "--signal=KILL", EXERCISE_SECONDS_MAX])
        .args([&place.python, &place.run])
        .arg(suite)
        .arg(dir)
        .arg(&copy)
        .arg(name)
        .env("PATH", &place.path)
        .env("PYTHONPATH", &place.modules)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SLUICE_RUNTIME_DIR", "/tmp/sluice")
        .stdin(Stdio::null())
        .output()
        .context("unshare (util-linux)")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    std::fs::write(place.work.join(format!("{file}.txt")), &text)?;
    let (mut checks, mut open) = (Vec::new(), Vec::new());
    let last = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_string();
    match serde_json::from_str::<Value>(&last) {
        Ok(result) => {
            for check in result["checks"].as_array().into_iter().flatten() {
                let found = check[2].as_str().unwrap_or_default().to_string();
                let name = check[0].as_str().unwrap_or_default().to_string();
                checks.push((name, (check[1] != Value::Bool(true)).then_some(found)));
            }
            let words = result["open"].as_array().into_iter().flatten();
            open.extend(words.filter_map(Value::as_str).map(String::from));
        }
        Err(_) => {
            let end: String = text.chars().rev().take(2000).collect::<Vec<_>>().into_iter().rev().collect();
            checks.push(("ends in time".to_string(), Some(end)));
        }
    }
    if checks.is_empty() {
        checks.push(("checks something".to_string(), Some(text)));
    }
    Ok(Row { name: name.to_string(), seconds: start.elapsed(), checks, open })
}

/// What was found instead goes below the table, so that it can be read.
fn print(rows: &[Row]) {
    println!("| exercise | checks | seconds | |\n| --- | --- | --- | --- |");
    for row in rows {
        let failures = row.checks.iter().filter(|(_, failure)| failure.is_some());
        let failed: Vec<String> = failures.map(|(name, _)| format!("failed: {name}")).collect();
        let open = row.open.iter().map(|why| format!("not asserted: {why}"));
        let notes: Vec<String> = failed.into_iter().chain(open).collect();
        let held = row.checks.len() - row.failed();
        let (name, seconds) = (&row.name, row.seconds.as_secs());
        println!("| {name} | {held} of {} | {seconds} | {} |", row.checks.len(), notes.join("; "));
    }
    let whole = rows.iter().filter(|row| row.failed() == 0).count();
    println!("\n{whole} of {} exercises, {} checks", rows.len(), rows.iter().map(|r| r.checks.len()).sum::<usize>());
    for row in rows {
        for (name, failure) in &row.checks {
            if let Some(found) = failure {
                println!("\n{}: {name}\n{}", row.name, found.trim_end());
            }
        }
    }
}

/// Where cargo builds.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new("target").to_path_buf(), PathBuf::from)
}
