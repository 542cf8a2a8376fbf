//! «Did you mean …?»: the nearest of a set of words.

/// The candidate that differs from `word` by at most one edit (two for words of six letters or more), if there is one.
/// An edit inserts, deletes, replaces, or swaps two neighbours. Words under three letters match nothing.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() < 3 || word.len() > 64 {
        return None;
    }
    let limit = if word.len() >= 6 { 2 } else { 1 };
    candidates
        .map(|c| (distance(word.as_bytes(), c.as_bytes()), c))
        .filter(|(d, _)| (1..=limit).contains(d))
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Optimal string alignment distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut two_ago: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(two_ago[j - 2] + 1);
            }
            row.push(best);
        }
        two_ago = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found() {
        let words = ["control", "const", "table"];
        assert_eq!(nearest("contrl", words.into_iter()), Some("control"));
        assert_eq!(nearest("tabel", words.into_iter()), Some("table"));
        assert_eq!(nearest("control", words.into_iter()), None);
        assert_eq!(nearest("ab", ["abc"].into_iter()), None);
    }
}
