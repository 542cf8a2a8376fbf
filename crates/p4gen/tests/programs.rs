//! What programs are, without a compiler: the same from the same seed, bounded, and made of every construct.

use p4gen::program;

#[test]
fn a_seed_is_a_program() {
    // The text itself: other machines and later versions of Rust must make the same.
    let text = program(1, 2);
    assert_eq!(text, program(1, 2));
    assert_ne!(text.source, program(2, 2).source);
    assert!(text.source.starts_with("#") && text.source.ends_with("main;\n"), "{}", text.source);
}

#[test]
fn programs_stay_small_enough_to_read() {
    for seed in 0..200 {
        let source = program(seed, 4).source;
        assert!(source.lines().count() < 3000, "seed {seed} has {} lines", source.lines().count());
        assert_eq!(source.matches('{').count(), source.matches('}').count(), "seed {seed}");
    }
}

#[test]
fn every_construct_occurs() {
    let all: String = (0..300).map(|seed| program(seed, 4).source).collect();
    let constructs = [
        // Types.
        "typedef ",
        "type bit<",
        "enum bit<",
        "enum int<",
        "header_union ",
        "varbit<",
        "tuple<",
        "error {",
        "struct ",
        // Expressions.
        " |+| ",
        " |-| ",
        " ++ ",
        "+:",
        " >> ",
        " / ",
        " % ",
        "(~",
        "(-",
        "{#}",
        ".isValid()",
        " ? ",
        "(bool)",
        "int<",
        // Statements.
        "for (",
        " in ",
        "break;",
        "continue;",
        "exit;",
        "return;",
        "switch (",
        "else if",
        "|+|=",
        "<<=",
        "default: {",
        "setValid()",
        "setInvalid()",
        "push_front(",
        "pop_front(",
        "const ",
        // Parsers.
        ".next",
        "lookahead<",
        "advance(",
        "verify(",
        "value_set<",
        "select(",
        " &&& ",
        " .. ",
        "reject;",
        "lastIndex",
        // Tables.
        ": exact",
        ": lpm",
        ": ternary",
        ": range",
        ": optional",
        ": selector",
        "const entries",
        "priority = ",
        "action_run",
        ".apply().hit",
        ".apply().miss",
        "default_action",
        "direct_counter(",
        "direct_meter<",
        "action_profile(",
        // Externs.
        "register<",
        "meter",
        "hash(",
        "clone(",
        "clone_preserving_field_list(",
        "resubmit_preserving_field_list(",
        "recirculate_preserving_field_list(",
        "truncate(",
        "digest<",
        "mark_to_drop(",
        "mcast_grp = ",
        "log_msg(",
        "verify_checksum",
        "update_checksum",
        "_with_payload",
        "@field_list(",
    ];
    for construct in constructs {
        assert!(all.contains(construct), "no program has `{construct}`");
    }
}

#[test]
fn a_rewritten_program_differs_only_where_it_is_asked_to() {
    let (same, sites) = p4gen::rewritten(3, 4, 0..0);
    assert_eq!(same, program(3, 4));
    assert!(sites > 20, "{sites} constructs");
    let (other, again) = p4gen::rewritten(3, 4, 0..sites);
    assert_eq!(sites, again);
    assert_ne!(same.source, other.source);
    assert_eq!(same.setup, other.setup);
}

/// Conditions about what a condition around them is about: most programs have some, and masks and slices are among them.
#[test]
fn branches_have_to_do_with_one_another() {
    /// The variables of a line `if (...) {`.
    fn asked(line: &str) -> Vec<&str> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let words = line.split(|c| !is_name(c));
        words.filter(|w| w.starts_with("hdr.") || w.starts_with("meta.") || is_local(w)).collect()
    }
    fn is_local(word: &str) -> bool {
        word.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    }
    let (mut programs, mut masked) = (0, 0);
    for seed in 0..100 {
        let source = program(seed, 3).source;
        let mut around: Vec<(usize, Vec<&str>)> = Vec::new();
        let mut related = 0;
        for line in source.lines() {
            let indent = line.len() - line.trim_start().len();
            around.retain(|(at, _)| *at < indent);
            if line.trim_start().starts_with("if (") {
                let names = asked(line);
                let again = names.iter().any(|n| around.iter().any(|(_, outer)| outer.contains(n)));
                related += usize::from(again);
                masked += usize::from(again && (line.contains(" & ") || line.contains(" ++ ")));
                around.push((indent, names));
            }
        }
        programs += usize::from(related > 0);
    }
    assert!(programs > 50 && masked > 50, "{programs} of 100 programs, {masked} masked or joined");
}
