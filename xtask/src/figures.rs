//! `cargo xtask figures`: makes the tables and plots of `docs/performance.md` from `bench/results/*.csv`.
//!
//! A table stands in the page between `<!-- figures: NAME -->` and `<!-- end -->`, where NAME is one of
//! `tables::ALL`; plots are `docs/figures/NAME.svg`, one for each of `plots::ALL`. With `--check` nothing is written: what differs
//! from the CSV files is named, and the exit code is 1. `cargo xtask tidy` checks the same.

mod plots;
mod sheet;
mod tables;

use anyhow::{Context, Result, bail};
use sheet::Sheet;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const PAGE: &str = "docs/performance.md";
const RESULTS: &str = "bench/results";
const PLOTS: &str = "docs/figures";
const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- end -->";
/// So that people read it.
const WORDS_MAX: usize = 1500;

/// All results, by the name of their file.
struct Results(BTreeMap<String, Sheet>);

impl Results {
    /// Reads every CSV file of a folder, also those that no table shows: each must tell its origin.
    fn read(folder: &Path) -> Result<Results> {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|s| s.to_str());
            if let (Some(name), Some("csv")) = (stem, path.extension().and_then(|e| e.to_str())) {
                all.insert(name.to_string(), Sheet::read(folder, name)?);
            }
        }
        Ok(Results(all))
    }

    fn sheet(&self, name: &str) -> Result<&Sheet> {
        self.0.get(name).with_context(|| format!("there is no {RESULTS}/{name}.csv"))
    }
}

/// What follows from the results: files and what they should hold.
fn made(results: &Results, page: &str) -> Result<Vec<(PathBuf, String)>> {
    let mut files = vec![(PathBuf::from(PAGE), filled(page, |name| tables::make(name, results))?)];
    for (name, draw) in plots::ALL {
        let svg = draw(results).with_context(|| format!("cannot draw {name}"))?;
        files.push((Path::new(PLOTS).join(format!("{name}.svg")), svg));
    }
    Ok(files)
}

/// A page with each table between its markers as it should be.
fn filled(page: &str, table: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        if !lines.by_ref().any(|line| line == END) {
            bail!("{PAGE}: the table `{name}` has no `{END}`");
        }
        out.push_str(&format!("{}{END}\n", table(name)?));
    }
    Ok(out)
}

/// What differs between the files and the results.
pub fn check(findings: &mut Vec<String>) -> Result<()> {
    let page = std::fs::read_to_string(PAGE).with_context(|| format!("{PAGE} is missing"))?;
    for (path, text) in made(&Results::read(Path::new(RESULTS))?, &page)? {
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            findings.push(format!("{}: differs from {RESULTS}; `cargo xtask figures` makes it", path.display()));
        }
    }
    let words = page.split_whitespace().count();
    if words > WORDS_MAX {
        findings.push(format!("{PAGE}: {words} words, more than {WORDS_MAX}"));
    }
    Ok(())
}

/// Writes what follows from the results, or with `--check` only compares.
pub fn run(only_check: bool) -> Result<ExitCode> {
    if only_check {
        let mut findings = Vec::new();
        check(&mut findings)?;
        findings.iter().for_each(|finding| println!("{finding}"));
        return Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    let page = std::fs::read_to_string(PAGE).with_context(|| format!("{PAGE} is missing"))?;
    std::fs::create_dir_all(PLOTS).with_context(|| format!("cannot make {PLOTS}"))?;
    for (path, text) in made(&Results::read(Path::new(RESULTS))?, &page)? {
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_replaced_between_their_markers() {
        let page = "a\n<!-- figures: one -->\nold\n<!-- end -->\nb\n";
        let text = filled(page, |name| Ok(format!("new {name}\n"))).expect("it is well formed");
        assert_eq!(text, "a\n<!-- figures: one -->\nnew one\n<!-- end -->\nb\n");
        assert!(filled("<!-- figures: one -->\n", |_| Ok(String::new())).is_err());
    }

    #[test]
    fn the_page_and_the_results_agree() {
        std::env::set_current_dir(crate::root()).expect("it is there");
        let mut findings = Vec::new();
        check(&mut findings).expect("page and results can be read");
        assert_eq!(findings, Vec::<String>::new());
    }

    /// `cycles.csv` with another figure in its first line.
    fn changed(text: &str) -> String {
        let line = text.lines().filter(|line| !line.starts_with('#')).nth(1).expect("there is a line");
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
        let record = reader.records().next().expect("it is a line").expect("it is CSV");
        let median = record.get(4).expect("it has a median");
        text.replacen(line, &line.replace(&format!(",{median},"), ",12345,"), 1)
    }

    #[test]
    fn another_figure_makes_another_page() {
        let source = crate::root().join(RESULTS);
        let folder = std::env::temp_dir().join(format!("xtask-figures-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("below the temporary folder");
        let read = |folder: &Path| Results::read(folder).expect("they can be read");
        for name in read(&source).0.keys() {
            let file = format!("{name}.csv");
            let text = std::fs::read_to_string(source.join(&file)).expect("it was just read");
            let text = if name == "cycles" { changed(&text) } else { text };
            std::fs::write(folder.join(file), text).expect("the folder is there");
        }
        let page = std::fs::read_to_string(crate::root().join(PAGE)).expect("it is there");
        let of = |folder: &Path| made(&read(folder), &page).expect("they are whole");
        let both = of(&source).into_iter().zip(of(&folder));
        let differ: Vec<PathBuf> = both.filter(|(a, b)| a.1 != b.1).map(|(a, _)| a.0).collect();
        std::fs::remove_dir_all(folder).expect("it was made above");
        assert_eq!(differ, [Path::new(PAGE).to_path_buf(), Path::new(PLOTS).join("memory.svg")]);
    }
}
