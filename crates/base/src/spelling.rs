//! «Did you mean …?»: the nearest of a set of names, for messages about misspelt ones.

/// Longer names are compared for their letters' case only: the effort grows with the square of the length.
const NAME_MAX: usize = 64;
/// More slips than this make another word.
const EDITS_MAX: usize = 3;

/// The candidate with the smallest edit distance to a name, if that is small enough to be a slip; a swap of neighbours counts as one
/// edit (optimal string alignment).
pub fn similar<'n>(name: &str, candidates: impl Iterator<Item = &'n str> + Clone) -> Option<&'n str> {
    // Of a name of one or two letters every other would be one slip away.
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
