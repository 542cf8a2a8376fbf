use random::Random;

use super::*;
use crate::testing::{bytes, fields, hex, random_action};
use crate::text;

fn read(version: Version, bytes: &[u8], fields: &Fields) -> Result<Instructions> {
    read_instructions(version, bytes.len(), &mut Reader::new(bytes, ErrorKind::BrcBadLen), fields)
}

fn written(version: Version, instructions: &Instructions, fields: &Fields) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    write_instructions(version, instructions, fields, &mut out).map(|()| out)
}

fn list(version: Version, random: &mut Random, fields: &Fields, may: impl Fn(&Action) -> bool) -> Vec<Action> {
    (0..random.below(4)).map(|_| random_action(version, random, fields, 0)).filter(may).collect()
}

fn random_instructions(version: Version, random: &mut Random, fields: &Fields) -> Instructions {
    let may = |action: &Action| {
        !matches!(
            action,
            Action::Conjunction { .. } | Action::WriteMetadata { .. } | Action::Meter(_) | Action::Clone(_)
        )
    };
    let apply = list(version, random, fields, may);
    if version == Version::V10 {
        let metadata = (random.below(2) == 0).then_some((5, 0xff));
        return Instructions { apply, metadata, ..Instructions::default() };
    }
    Instructions {
        meter: (random.below(2) == 0).then(|| random.next_u64() as u32),
        apply,
        clear: random.below(2) == 0,
        write: list(version, random, fields, may_be_in_set),
        metadata: (random.below(2) == 0).then_some((5, 0xff)),
        goto: (random.below(2) == 0).then(|| random.next_u64() as u8),
    }
}

#[test]
fn random_instructions_are_read_as_written() {
    let fields = fields();
    for version in Version::ALL {
        let mut random = Random::stream(7, version as u64);
        for _ in 0..2000 {
            let instructions = random_instructions(version, &mut random, &fields);
            let out = written(version, &instructions, &fields).unwrap();
            assert_eq!(read(version, &out, &fields).as_ref(), Ok(&instructions), "{version:?} {}", hex(&out));
            for cut in (1..out.len()).filter(|cut| cut % 8 != 0) {
                assert!(read(version, &out[..cut], &fields).is_err());
            }
        }
    }
}

#[test]
fn corrupt_instructions_do_no_harm() {
    let fields = fields();
    for version in Version::ALL {
        let mut random = Random::stream(8, version as u64);
        for _ in 0..3000 {
            let mut out = written(version, &random_instructions(version, &mut random, &fields), &fields).unwrap();
            if out.is_empty() {
                continue;
            }
            for _ in 0..1 + random.below(3) {
                let at = random.below(out.len() as u64) as usize;
                out[at] ^= 1 << random.below(8);
            }
            if let Ok(instructions) = read(version, &out, &fields) {
                // What is decoded has a text and can be checked.
                text::instructions(&instructions, &fields);
                let _ = crate::check::check(&instructions, &crate::Match::any(), &fields);
            }
        }
    }
}

#[test]
fn bytes_are_what_the_specification_says() {
    let fields = fields();
    for (version, hex, expected) in [
        (Version::V13, "0001 0008 05 000000", "goto_table:5"),
        (Version::V13, "0006 0008 00000007 0005 0008 00000000", "meter:7,clear_actions"),
        (Version::V13, "0002 0018 00000000 0000000000000005 00000000000000ff", "write_metadata:0x5/0xff"),
        (Version::V13, "0004 0018 00000000 0000 0010 00000001 ffff 000000000000", "output:1"),
        (Version::V13, "0003 0010 00000000 0016 0008 00000009", "write_actions(group:9)"),
        (Version::V15, "0004 0018 00000000 001d 0008 00000007 0018 0008 00000000", "meter:7,dec_ttl"),
    ] {
        let instructions = read(version, &bytes(hex), &fields).unwrap();
        assert_eq!(text::instructions(&instructions, &fields), expected);
        assert_eq!(written(version, &instructions, &fields), Ok(bytes(hex)));
    }
    // The order on the wire does not matter.
    let mixed = bytes("0001 0008 05 000000 0004 0010 00000000 0018 0008 00000000");
    assert_eq!(text::instructions(&read(Version::V13, &mixed, &fields).unwrap(), &fields), "dec_ttl,goto_table:5");
}

#[test]
fn errors_name_the_cause() {
    let fields = fields();
    for (version, hex, kind) in [
        (Version::V13, "0001 0008 05 000000 0001 0008 06 000000", ErrorKind::BicDupInst),
        (Version::V13, "0007 0008 00000000", ErrorKind::BicUnknownInst),
        (Version::V15, "0006 0008 00000007", ErrorKind::BicUnknownInst),
        (Version::V13, "ffff 0008 00002320", ErrorKind::BicBadExperimenter),
        (Version::V13, "0001 0010 05 000000 0000000000000000", ErrorKind::BicBadLen),
        (Version::V13, "0001 0004", ErrorKind::BicBadLen),
        (Version::V13, "0001 0010 05 000000", ErrorKind::BicBadLen),
        (Version::V13, "0004 0018 00000000 0000 0010 00000001", ErrorKind::BicBadLen),
        (Version::V13, "0004 0010 00000000 0000 0010 00000001", ErrorKind::BacBadLen),
        // Not allowed in the action set: `exit`.
        (Version::V13, "0003 0018 00000000 ffff 0010 00002320 0011 000000000000", ErrorKind::BacBadType),
        // A conjunction beside an output; a load after Nicira's write_metadata.
        (
            Version::V13,
            "0004 0028 00000000 ffff 0010 00002320 0022 01 03 000000ff 0000 0010 00000001 ffff 000000000000",
            ErrorKind::NxbacBadConjunction,
        ),
        (
            Version::V10,
            "ffff 0020 00002320 0016 000000000000 0000000000000005 00000000000000ff 0000 0008 0001 ffff",
            ErrorKind::BacUnsupportedOrder,
        ),
        (
            Version::V15,
            "0004 0020 00000000 ffff 0018 00002320 002a 000000000000 001d 0008 00000007",
            ErrorKind::BacBadArgument,
        ),
    ] {
        let error = read(version, &bytes(hex), &fields).expect_err(hex);
        assert_eq!(error.kind, kind, "{hex}: {error}");
    }
}

#[test]
fn open_flow_1_0_goes_to_a_table_by_resubmit() {
    let fields = fields();
    let instructions = Instructions { metadata: Some((5, 0xff)), goto: Some(3), ..Instructions::default() };
    let out = written(Version::V10, &instructions, &fields).unwrap();
    let actions = read(Version::V10, &out, &fields).unwrap().apply;
    assert_eq!(text::actions(&actions, &fields), "set_field:0x5/0xff->metadata,resubmit(,3)");
    let set = Instructions { write: vec![Action::Group(1)], ..Instructions::default() };
    assert_eq!(written(Version::V10, &set, &fields).unwrap_err().kind, ErrorKind::NxbrcUnencodableError);
}
