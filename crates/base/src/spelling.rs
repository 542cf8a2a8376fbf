//! «Did you mean …?»: the most similar of a set of names, for messages about misspelt ones.

/// Longer names (in bytes) are compared only up to letter case, because edit distance takes quadratic time.
const NAME_MAX: usize = 64;
/// Maximum edit distance of a misspelling.
const EDITS_MAX: usize = 3;

/// The candidate with the smallest edit distance to a name, if it is small enough for a misspelling; a transposition of
/// adjacent letters counts as one edit (optimal string alignment).
pub fn similar<'n>(name: &str, candidates: impl Iterator<Item = &'n str> + Clone) -> Option<&'n str> {
    // Names of one or two letters are too close to each other.
    let limit = if name.len() < 3 || name.len() > NAME_MAX { 0 } else { (name.len() / 3).clamp(1, EDITS_MAX) };
    if let Some(same) = candidates.clone().find(|c| *c != name && c.eq_ignore_ascii_case(name)) {
        return Some(same);
    }
    candidates
        .filter(|c| c.len().abs_diff(name.len()) <= limit && *c != name)
        .map(|c| (strsim::osa_distance(name, c), c))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_slips_and_nothing_else() {
        let names = ["dstAddr", "srcAddr", "ttl"];
        assert_eq!(similar("dstAdr", names.into_iter()), Some("dstAddr"));
        assert_eq!(similar("dsaAddr", names.into_iter()), Some("dstAddr"));
        assert_eq!(similar("DSTADDR", names.into_iter()), Some("dstAddr"));
        assert_eq!(similar("tlt", names.into_iter()), Some("ttl"));
        assert_eq!(similar("protocol", names.into_iter()), None);
        assert_eq!(similar("b", ["C", "x"].into_iter()), None);
        assert_eq!(similar("b", ["B", "x"].into_iter()), Some("B"));
    }

    #[test]
    fn keywords_and_codes() {
        let words = ["control", "const", "table"];
        assert_eq!(similar("contrl", words.into_iter()), Some("control"));
        assert_eq!(similar("tabel", words.into_iter()), Some("table"));
        assert_eq!(similar("control", words.into_iter()), None);
        assert_eq!(similar("ab", ["abc"].into_iter()), None);
        assert_eq!(similar("E031", ["E0301", "E0401"].into_iter()), Some("E0301"));
    }
}
