//! Test case reduction without a grammar: removes lines with the text between their braces, and parts of lines between
//! parentheses, while the case still fails in the same way.

use super::case::Case;
use super::finding::{Counts, Depth, Finding};
use std::time::{Duration, Instant};

/// Reduces `case` as long as `fails` returns true for smaller ones, until `limit` has passed.
pub fn reduce(case: &Case, limit: Duration, fails: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    let end = Instant::now() + limit;
    loop {
        let before = (best.source.len(), best.script.len());
        script(&mut best, end, fails);
        blocks(&mut best, end, fails);
        insides(&mut best, end, fails);
        if (best.source.len(), best.script.len()) == before || Instant::now() > end {
            return best;
        }
    }
}

/// Whether a case fails like `finding`. Differences may be between other engines.
pub fn fails_like(finding: &Finding, depth: Depth) -> impl FnMut(&Case) -> bool {
    let finding = finding.clone();
    move |case| match case.check(depth, &mut Counts::default()) {
        Ok(()) => false,
        Err(found) if found.kind != finding.kind => false,
        Err(found) => finding.kind == super::finding::Kind::Difference || found.place == finding.place,
    }
}

/// Removes lines of the script: halves first, then smaller pieces.
fn script(best: &mut Case, end: Instant, fails: &mut dyn FnMut(&Case) -> bool) {
    let mut piece = best.script.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < best.script.len() {
            if Instant::now() > end {
                return;
            }
            let mut smaller = best.clone();
            smaller.script.drain(at..(at + piece).min(best.script.len()));
            if fails(&smaller) {
                *best = smaller;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
}

/// The end of the block that a line opens: the line of its last brace; the line itself if it opens none.
fn block_end(lines: &[&str], at: usize) -> usize {
    let mut depth = 0i32;
    for (i, line) in lines.iter().enumerate().skip(at) {
        depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
        if depth <= 0 {
            return i;
        }
    }
    lines.len() - 1
}

/// Removes source lines with the text between their braces, or only the braces; then runs of lines.
fn blocks(best: &mut Case, end: Instant, fails: &mut dyn FnMut(&Case) -> bool) {
    let mut run = 32;
    while run > 0 {
        let mut at = 0;
        loop {
            let lines: Vec<&str> = best.source.lines().collect();
            if at >= lines.len() || Instant::now() > end {
                break;
            }
            let mut last = at;
            for _ in 0..run {
                last = block_end(&lines, last.min(lines.len() - 1)) + 1;
                if last >= lines.len() {
                    break;
                }
            }
            let last = last.min(lines.len());
            let without = |range: std::ops::Range<usize>| -> Case {
                let kept = lines.iter().enumerate().filter(|(i, _)| !range.contains(i)).map(|(_, l)| format!("{l}\n"));
                Case { source: kept.collect(), script: best.script.clone() }
            };
            let smaller = without(at..last);
            if fails(&smaller) {
                *best = smaller;
                continue;
            }
            // Only the braces: the content stays.
            if run == 1 && last > at + 1 {
                let inner =
                    lines.iter().enumerate().filter(|(i, _)| *i != at && *i != last - 1).map(|(_, l)| format!("{l}\n"));
                let smaller = Case { source: inner.collect(), script: best.script.clone() };
                if fails(&smaller) {
                    *best = smaller;
                    continue;
                }
                // Only this line: its closing brace may be gone already.
                let smaller = without(at..at + 1);
                if fails(&smaller) {
                    *best = smaller;
                    continue;
                }
            }
            at += 1;
        }
        run /= 2;
    }
}

/// The byte ranges of parenthesised parts of a text, parentheses included, outermost first.
fn parentheses(text: &str) -> Vec<(usize, usize)> {
    let mut open = Vec::new();
    let mut found = Vec::new();
    for (i, c) in text.char_indices() {
        match c {
            '(' => open.push(i),
            ')' => {
                if let Some(start) = open.pop() {
                    found.push((start, i + 1));
                }
            }
            _ => {}
        }
    }
    found.sort_by_key(|(start, end)| (*start, std::cmp::Reverse(*end)));
    found
}

/// The operands of `(a op b)` or `(c ? a : b)`: the top-level pieces of the inside.
fn operands(inside: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut pieces = Vec::new();
    let mut start = 0;
    for (i, c) in inside.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ' ' if depth == 0 => {
                pieces.push(&inside[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    pieces.push(&inside[start..]);
    pieces
}

/// Replaces `(a op b)` by `a` or `b`, and expressions by numbers.
fn insides(best: &mut Case, end: Instant, fails: &mut dyn FnMut(&Case) -> bool) {
    let mut line_at = 0;
    loop {
        let lines: Vec<&str> = best.source.lines().collect();
        let Some(line) = lines.get(line_at) else { return };
        let mut better = None;
        'places: for (from, to) in parentheses(line) {
            let inside = &line[from + 1..to - 1];
            let mut tries: Vec<String> = ["0", "1", "true", "false"].iter().map(|s| s.to_string()).collect();
            let pieces = operands(inside);
            if pieces.len() > 1 {
                tries.extend(pieces.iter().filter(|p| p.len() > 2).map(|p| p.to_string()));
            } else if let Some(close) = inside.find(')').filter(|_| inside.starts_with('(')) {
                // A cast.
                tries.push(inside[close + 1..].to_string());
            } else if let Some(rest) = inside.strip_prefix(['-', '~', '!']) {
                tries.push(rest.to_string());
            }
            for text in tries {
                if text.len() >= to - from || Instant::now() > end {
                    continue;
                }
                let changed = format!("{}{text}{}", &line[..from], &line[to..]);
                let source: String = lines
                    .iter()
                    .enumerate()
                    .map(|(i, l)| if i == line_at { format!("{changed}\n") } else { format!("{l}\n") })
                    .collect();
                let smaller = Case { source, script: best.script.clone() };
                if fails(&smaller) {
                    better = Some(smaller);
                    break 'places;
                }
            }
        }
        match better {
            Some(smaller) => *best = smaller,
            None => line_at += 1,
        }
        if Instant::now() > end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_goes() {
        let source = "header H {\n    bit<8> f;\n}\ncontrol C() {\n    apply {\n        if (a) {\n            x = ((1 + 2) * found);\n            z = 3;\n        }\n    }\n}\n";
        let script: Vec<String> = (0..9).map(|i| format!("line {i}")).collect();
        let case = Case { source: source.into(), script };
        let small = reduce(&case, Duration::from_secs(5), &mut |c| {
            c.source.contains("found") && c.script.iter().any(|l| l == "line 5")
        });
        assert_eq!(small.source, "            x = found;\n");
        assert_eq!(small.script, ["line 5"]);
    }

    #[test]
    fn blocks_end_with_their_brace() {
        let lines = ["a {", "b { c }", "}", "d"];
        assert_eq!(block_end(&lines, 0), 2);
        assert_eq!(block_end(&lines, 1), 1);
        assert_eq!(block_end(&lines, 3), 3);
    }
}
