//! `cargo xtask figures`: makes the tables and plots of `docs/performance.md` and `docs/scaling.md` from `bench/results/*.csv`.
//!
//! A table stands in a page between `<!-- figures: NAME -->` and `<!-- end -->`, where NAME is one of
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

/// The pages, each with the words that it may have, so that people read it.
const PAGES: [(&str, usize); 2] = [("docs/performance.md", 1500), ("docs/scaling.md", 1400)];
const RESULTS: &str = "bench/results";
const PLOTS: &str = "docs/figures";
const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- end -->";

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
fn made(results: &Results, pages: &[(&str, String)]) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for (path, page) in pages {
        let text = filled(page, |name| tables::make(name, results)).with_context(|| path.to_string())?;
        files.push((PathBuf::from(path), text));
    }
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
            bail!("the table `{name}` has no `{END}`");
        }
        out.push_str(&format!("{}{END}\n", table(name)?));
    }
    Ok(out)
}

/// The pages as they are.
fn pages(root: &Path) -> Result<Vec<(&'static str, String)>> {
    let read = |(path, _)| {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| format!("{path} is missing"))?;
        Ok((path, text))
    };
    PAGES.into_iter().map(read).collect()
}

/// What differs between the files and the results.
pub fn check(findings: &mut Vec<String>) -> Result<()> {
    let pages = pages(Path::new("."))?;
    for (path, text) in made(&Results::read(Path::new(RESULTS))?, &pages)? {
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            findings.push(format!("{}: differs from {RESULTS}; `cargo xtask figures` makes it", path.display()));
        }
    }
    for ((path, page), (_, words_max)) in pages.iter().zip(PAGES) {
        let words = page.split_whitespace().count();
        if words > words_max {
            findings.push(format!("{path}: {words} words, more than {words_max}"));
        }
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
    let pages = pages(Path::new("."))?;
    std::fs::create_dir_all(PLOTS).with_context(|| format!("cannot make {PLOTS}"))?;
    for (path, text) in made(&Results::read(Path::new(RESULTS))?, &pages)? {
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

    /// A file with another figure in the first line that has `part`, in this column.
    fn changed(text: &str, part: &str, column: usize) -> String {
        let is_it = |line: &&str| !line.starts_with('#') && line.contains(part);
        let line = text.lines().find(is_it).expect("there is such a line");
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
        let record = reader.records().next().expect("it is a line").expect("it is CSV");
        let figure = record.get(column).expect("it has so many columns");
        text.replacen(line, &line.replace(&format!(",{figure},"), ",12345,"), 1)
    }

    /// The files that differ if one of the results has another figure.
    fn differing(file: &str, part: &str, column: usize) -> Vec<PathBuf> {
        let source = crate::root().join(RESULTS);
        let folder = std::env::temp_dir().join(format!("xtask-figures-{}-{file}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("below the temporary folder");
        let read = |folder: &Path| Results::read(folder).expect("they can be read");
        for name in read(&source).0.keys() {
            let csv = format!("{name}.csv");
            let text = std::fs::read_to_string(source.join(&csv)).expect("it was just read");
            let text = if name == file { changed(&text, part, column) } else { text };
            std::fs::write(folder.join(csv), text).expect("the folder is there");
        }
        let pages = pages(&crate::root()).expect("they are there");
        let of = |folder: &Path| made(&read(folder), &pages).expect("they are whole");
        let both = of(&source).into_iter().zip(of(&folder));
        let differ: Vec<PathBuf> = both.filter(|(a, b)| a.1 != b.1).map(|(a, _)| a.0).collect();
        std::fs::remove_dir_all(folder).expect("it was made above");
        differ
    }

    #[test]
    fn another_figure_makes_another_page() {
        let plot = |name: &str| Path::new(PLOTS).join(name);
        let [performance, scaling] = PAGES.map(|(path, _)| PathBuf::from(path));
        assert_eq!(differing("cycles", "l2l3acl", 4), [performance, plot("memory.svg")]);
        assert_eq!(differing("scaling", "1 worker", 4), std::slice::from_ref(&scaling));
        assert_eq!(differing("contention-rows", "heavy_hitter", 6), std::slice::from_ref(&scaling));
        assert_eq!(differing("contention", ",100000,1.1,any,32,", 7), [scaling, plot("workers.svg")]);
    }
}
