//! Links between pages: the file exists, and so does the heading that `#...` names. Part of `cargo xtask tidy`.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Names links of tracked Markdown files that lead nowhere.
pub fn check(files: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    // Not those of tools that lie beside the sources (`.venv`).
    let hidden = |file: &PathBuf| file.to_string_lossy().starts_with('.');
    for page in files.iter().filter(|file| file.extension().is_some_and(|e| e == "md") && !hidden(file)) {
        let text = std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
        for target in links(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap_or(Path::new("")).join(file) };
            let known = heading.is_empty()
                || std::fs::read_to_string(&path).is_ok_and(|text| headings(&text).any(|known| known == heading));
            if !path.exists() || !known {
                findings.push(format!("{}: the link `{target}` leads nowhere", page.display()));
            }
        }
    }
    Ok(())
}

/// Lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// What stands in the parentheses of `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    // Pieces between backticks alternate: prose, code, prose.
    let plain = |line| str::split(line, '`').step_by(2);
    prose(text).flat_map(|line| line.split("](").skip(1).map(move |rest| (line, rest))).filter_map(
        move |(line, rest)| {
            let target = &rest[..rest.find(')')?];
            plain(line).any(|piece| piece.contains(&format!("]({target}"))).then_some(target)
        },
    )
}

/// Headings as links name them: lower case, without punctuation, with `-` for spaces.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|line| line.starts_with('#')).map(|line| {
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        line.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_prose_are_found() {
        let text = "See [a](b.md#c-d), ![p](q.svg) and `[no](link)`.\n```\n[code](x)\n```\n";
        assert_eq!(links(text).collect::<Vec<_>>(), ["b.md#c-d", "q.svg"]);
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let text = "# Why is a packet dropped?\n```\n# no heading\n```\n## `sluice run`, again\n";
        assert_eq!(headings(text).collect::<Vec<_>>(), ["why-is-a-packet-dropped", "sluice-run-again"]);
    }
}
