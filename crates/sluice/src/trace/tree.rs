//! All outcomes of one packet as text: a tree with common lines printed once and a branch where outcomes differ.
//!
//! An outcome is a list of lines with the choices that led to it. Where lines differ, a branch is named after the
//! choices that its outcomes share and others do not. Outcomes with equal lines (two members that do the same) share a
//! branch.
//!
//! Tests: at the end of the file.

use std::fmt::Write;

/// One outcome: the choices that lead to it, and its lines.
pub struct Outcome {
    pub choices: Vec<String>,
    pub lines: Vec<String>,
}

/// Returns the tree as text.
pub fn render(outcomes: &[Outcome]) -> String {
    let all: Vec<_> = outcomes.iter().map(|outcome| (outcome, &outcome.lines[..])).collect();
    let mut text = String::new();
    grow(&all, &[], "", &mut text);
    text
}

/// An outcome and its lines that are not printed yet.
type Rest<'a> = (&'a Outcome, &'a [String]);

/// Prints the lines that outcomes have in common, then their branches; `known` are the choices that are named above.
fn grow(outcomes: &[Rest], known: &[&String], indent: &str, text: &mut String) {
    let Some(((_, first), others)) = outcomes.split_first() else { return };
    let alike = |at: &usize| others.iter().all(|(_, lines)| lines.get(*at) == first.get(*at));
    let common = (0..first.len()).take_while(alike).count();
    for line in &first[..common] {
        let _ = writeln!(text, "{}", format!("{indent}{line}").trim_end());
    }
    let mut branches: Vec<Vec<Rest>> = Vec::new();
    for (outcome, lines) in outcomes {
        let rest = (*outcome, &lines[common..]);
        match branches.iter_mut().find(|branch| branch[0].1.first() == rest.1.first()) {
            Some(branch) => branch.push(rest),
            None => branches.push(vec![rest]),
        }
    }
    if branches.len() < 2 {
        // A single outcome, or several with equal lines.
        return;
    }
    for (i, branch) in branches.iter().enumerate() {
        let (corner, below) = if i + 1 < branches.len() { ("├─ ", "│  ") } else { ("└─ ", "   ") };
        let shared: Vec<&String> =
            branch[0].0.choices.iter().filter(|c| branch.iter().all(|(o, _)| o.choices.contains(c))).collect();
        let mut named: Vec<&String> = shared.iter().copied().filter(|choice| !known.contains(choice)).collect();
        let mut separator = "; ";
        if named.is_empty() {
            // They differ further below, or nowhere.
            named = branch
                .iter()
                .flat_map(|(outcome, _)| &outcome.choices)
                .filter(|choice| !known.contains(choice))
                .collect();
            let mut before: Vec<&String> = Vec::new();
            named.retain(|choice| {
                !before.contains(choice) && {
                    before.push(choice);
                    true
                }
            });
            separator = " or ";
        }
        let name: Vec<&str> = named.iter().map(|choice| choice.as_str()).collect();
        let _ = writeln!(text, "{indent}{corner}{}", name.join(separator));
        let known: Vec<&String> = known.iter().copied().chain(shared).collect();
        grow(branch, &known, &format!("{indent}{below}"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(outcomes: &[(&[&str], &str)], expected: Expect) {
        let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        let lines = |lines: &str| lines.split(' ').map(str::to_string).collect();
        let outcomes: Vec<_> =
            outcomes.iter().map(|(choices, text)| Outcome { choices: texts(choices), lines: lines(text) }).collect();
        expected.assert_eq(&render(&outcomes));
    }

    #[test]
    fn one_outcome_is_a_list() {
        check(
            &[(&[], "a b")],
            expect![[r#"
            a
            b
        "#]],
        );
    }

    #[test]
    fn outcomes_part_where_their_lines_do() {
        check(
            &[(&["draw 1"], "a b x"), (&["draw 2", "member 1"], "a c y"), (&["draw 2", "member 2"], "a c z")],
            expect![[r#"
            a
            ├─ draw 1
            │  b
            │  x
            └─ draw 2
               c
               ├─ member 1
               │  y
               └─ member 2
                  z
        "#]],
        );
    }

    #[test]
    fn one_that_ends_sooner_and_two_that_are_alike() {
        check(
            &[(&["member 1"], "a b"), (&["member 2"], "a"), (&["member 3"], "a b")],
            expect![[r#"
            a
            ├─ member 1 or member 3
            │  b
            └─ member 2
        "#]],
        );
    }
}
