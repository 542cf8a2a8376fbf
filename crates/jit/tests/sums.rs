//! Checksums that are verified and computed again, compiled and interpreted: generated tests and changes, on headers of
//! bytes that are corner cases of one's complement, half of them with the right checksum.

mod common;

use common::random::Random;
use common::{Both, options, parse};
use jit::Optimisation;

/// Operations that may change a header.
const CHANGES: [&str; 14] = [
    "ip.ttl = sub ip.ttl, 8w1",
    "ip.ttl = sub ip.ttl, 8w3",
    "ip.ttl = mov 8w0",
    "ip.ecn = mov 2w3",
    "ip.id = mov port",
    "ip.len = add ip.len, 16w65535",
    "ip.id = mov 16w0",
    "ip.other = mov ip.src",
    "ip.src = sub ip.src, 8w1",
    "set_invalid ip",
    "set_invalid ip\n  set_valid ip",
    "set_valid ip",
    "ip.sum = mov 16w0",
    "ip.sum = mov ip.id",
];

/// Tests before the header is changed: operations, and the flag that is set for packets that are dropped.
const QUESTIONS: [(&str, &str); 9] = [
    ("  %2 = ule ip.ttl, 8w1\n  %3 = or wrong, %2\n", "%3"),
    ("  %2 = ult ip.ttl, 8w3\n  %3 = or %2, wrong\n", "%3"),
    ("  %2 = ne ip.ihl, 4w5\n  %3 = or wrong, %2\n", "%3"),
    ("  %2 = not wrong\n  %3 = ult 8w1, ip.ttl\n  %4 = and %2, %3\n  %0 = not %4\n", "%0"),
    ("  %2 = mov wrong\n", "%2"),
    ("  %2 = ule ip.ttl, 8w1\n", "%2"),
    ("  %2 = ule ip.ttl, 8w1\n  %3 = or wrong, %2\n  wrong = mov 1w1\n", "%3"),
    ("  %2 = ule ip.ttl, 8w1\n  %3 = or wrong, %2\n  ip.ttl = mov 8w0\n", "%3"),
    ("  %2 = ule ip.ttl, 8w1\n  %3 = not wrong\n  %4 = or %2, %3\n", "%4"),
];

const FIELDS: [(&str, u32); 10] = [
    ("ihl", 4),
    ("flag", 4),
    ("ds", 6),
    ("ecn", 2),
    ("len", 16),
    ("id", 16),
    ("ttl", 8),
    ("other", 8),
    ("src", 8),
    ("dst", 56),
];

/// Operations before the header is summed for the first time.
const BEFORE: [&str; 6] = ["", "", "", "", "  ip.sum = xor ip.sum, 16w1\n", "  ip.id = mov 16w1\n"];

/// Where the checksum is verified and computed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// In controls, one after the other.
    Straight,
    /// In controls, with the test on one of two paths.
    Asked,
    /// Verified and tested before the header is extracted again.
    Again,
    /// Verified and tested for each header of a parser loop; the last header is used after it.
    Parsed,
    /// Changed in a loop, and computed after it.
    Changed,
    /// Changed and computed in a loop.
    Summed,
}

/// A program that compares a header's sum with its checksum, drops packets by the test, changes the header and sums it
/// again.
fn program(shape: Shape, before: usize, question: usize, changes: &[usize], is_same: bool) -> ir::Program {
    let mut text = String::from(
        "program \"test\"\ndrops end\nslot port: 16 metadata\nslot wrong: 1 metadata\nslot round: 2 metadata\n",
    );
    FIELDS.iter().for_each(|(name, width)| text += &format!("slot ip.{name}: {width} field ip\n"));
    text +=
        "slot ip.sum: 16 field ip\nslot ip.$valid: 1 valid ip\nslot %0: 1 temp\nslot %1: 16 temp\nslot %2: 1 temp\n";
    text += "slot %3: 1 temp\nslot %4: 1 temp\nheader ip valid ip.$valid {\n";
    FIELDS.iter().for_each(|(name, _)| text += &format!("  {name} = ip.{name}\n"));
    text += "  sum = ip.sum\n}\nintrinsic ingress_port = port\n";
    let list: Vec<String> = FIELDS.iter().map(|(name, _)| format!("ip.{name}")).collect();
    let sum = format!("hash csum16 base 16w0 data ({})", list.join(", "));
    let compared = match is_same {
        true => "  %0 = eq ip.sum, %1\n  wrong = not %0\n",
        false => "  wrong = ne %1, ip.sum\n",
    };
    let (question, dropped) = QUESTIONS[question];
    let changes: Vec<String> = changes.iter().map(|c| format!("  {}\n", CHANGES[*c])).collect();
    let changes = changes.concat();
    let computed = format!("  ip.sum = {sum}\n");
    let verified = format!("{}  %1 = {sum}\n{compared}", BEFORE[before]);
    text += &match shape {
        Shape::Parsed => format!(
            "entry ingress (P, I, C, D)\nstage parser P {{\nb0:\n  jump b1\nb1:\n  charge 9\n  %0 = has_bits 16w144\n  branch %0, b2, b5\n\
             b2:\n  extract ip\n{verified}{question}  branch {dropped}, b3, b4\nb3:\n  drop end\n\
             b4:\n  %0 = eq ip.flag, 4w15\n  branch %0, b1, b5\nb5:\n  next\n}}\nstage control I {{\nb0:\n{changes}  next\n}}\n"
        ),
        Shape::Again => format!(
            "entry ingress (P, I, C, D)\nstage parser P {{\nb0:\n  %0 = has_bits 16w288\n  branch %0, b1, b2\nb1:\n  extract ip\n\
             {verified}{question}  branch {dropped}, b2, b3\nb2:\n  drop end\nb3:\n  extract ip\n  next\n}}\n\
             stage control I {{\nb0:\n{changes}  next\n}}\n"
        ),
        _ => format!(
            "entry ingress (P, V, I, C, D)\nstage parser P {{\nb0:\n  %0 = has_bits 16w144\n  branch %0, b1, b2\nb1:\n  extract ip\n\
             \x20 next\nb2:\n  drop end\n}}\nstage control V {{\nb0:\n{verified}  next\n}}\n"
        ),
    };
    let asked = format!("b0:\n{question}  branch {dropped}, b1, b2\nb1:\n  drop end\nb2:\n");
    let in_loop = if shape == Shape::Summed { computed.as_str() } else { "" };
    text += &match shape {
        Shape::Parsed | Shape::Again => String::new(),
        Shape::Asked => format!(
            "stage control I {{\nb0:\n  %2 = eq ip.flag, 4w0\n  branch %2, b1, b2\nb1:\n  jump b4\nb2:\n{question}\
             \x20 branch {dropped}, b3, b4\nb3:\n  drop end\nb4:\n{changes}  next\n}}\n"
        ),
        Shape::Straight => format!("stage control I {{\n{asked}{changes}  next\n}}\n"),
        Shape::Changed | Shape::Summed => format!(
            "stage control I {{\n{asked}  jump b3\nb3:\n  charge 9\n{changes}{in_loop}  round = add round, 2w1\n  %2 = ult round, 2w3\n\
             \x20 branch %2, b3, b4\nb4:\n  next\n}}\n"
        ),
    };
    text += &format!(
        "stage control C {{\nb0:\n{computed}  next\n}}\nstage deparser D {{\nb0:\n  emit ip\n  send port\n}}\n"
    );
    parse(&text)
}

/// Tests of an earlier header say nothing of the one extracted in its place.
#[test]
fn a_header_extracted_again_may_have_any_ttl() {
    let fields = [("ttl", 8), ("other", 8), ("src", 16)];
    let slots: String = fields.iter().map(|(name, width)| format!("slot ip.{name}: {width} field ip\n")).collect();
    let header: String = fields.iter().map(|(name, _)| format!("  {name} = ip.{name}\n")).collect();
    let sum = "hash csum16 base 16w0 data (ip.ttl, ip.other, ip.src)";
    let text = format!(
        "program \"test\"\ndrops end\nslot port: 16 metadata\nslot wrong: 1 metadata\nslot low: 1 metadata\n{slots}\
         slot ip.sum: 16 field ip\nslot ip.$valid: 1 valid ip\nslot %0: 1 temp\nslot %1: 16 temp\n\
         header ip valid ip.$valid {{\n{header}  sum = ip.sum\n}}\nintrinsic ingress_port = port\nentry ingress (P, V, C, D)\n\
         stage parser P {{\nb0:\n  %0 = has_bits 16w96\n  branch %0, b1, b2\nb1:\n  extract ip\n  low = ule ip.ttl, 8w1\n\
         \x20 extract ip\n  branch low, b2, b3\nb2:\n  drop end\nb3:\n  next\n}}\n\
         stage control V {{\nb0:\n  %1 = {sum}\n  wrong = ne %1, ip.sum\n  branch wrong, b1, b2\nb1:\n  drop end\n\
         b2:\n  ip.ttl = sub ip.ttl, 8w1\n  next\n}}\n\
         stage control C {{\nb0:\n  ip.sum = {sum}\n  next\n}}\nstage deparser D {{\nb0:\n  emit ip\n  send port\n}}\n"
    );
    let packet = |ttl: u8| {
        let sum = (u32::from(ttl) << 8 | 17) + 0x0506;
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        [&[64, 1, 2, 3, 0, 0, ttl, 17, 5, 6], &sum.to_be_bytes()[..]].concat()
    };
    Both::with_options(parse(&text), &options()).check(&[0, 1, 2, 9].map(packet));
}

/// The bytes of a header, mostly with the right checksum for it, or with the one that is right after one of [`BEFORE`].
fn header(random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..18).map(|_| *random.pick(&[0, 0, 0, 0xff, 0xff, 1, 2, 3, 4, 0x45, 0x80, 0xfe])).collect();
    bytes[0] = *random.pick(&[0x50, 0x50, 0x5f, 0, 0xff]);
    let kind = random.below(8);
    let mut summed = bytes[..16].to_vec();
    match kind {
        0 => return bytes,
        1 => summed[4..6].copy_from_slice(&[0, 1]),
        _ => {}
    }
    let words = summed.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1]));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let flipped = if kind == 2 { 1 } else { 0 };
    bytes[16..].copy_from_slice(&(!sum as u16 ^ flipped).to_be_bytes());
    bytes
}

#[test]
fn updated_checksums_equal_recomputed_ones() {
    let mut random = Random::new(7);
    let shapes = [Shape::Straight, Shape::Asked, Shape::Again, Shape::Parsed, Shape::Changed, Shape::Summed];
    for (shape, question) in shapes.into_iter().flat_map(|shape| (0..QUESTIONS.len()).map(move |q| (shape, q))) {
        for _ in 0..if shape == Shape::Straight { 30 } else { 12 } {
            let count = random.below(4) as usize;
            let changes: Vec<usize> = (0..count).map(|_| random.below(CHANGES.len() as u64) as usize).collect();
            let before = random.below(BEFORE.len() as u64) as usize;
            let program = program(shape, before, question, &changes, random.chance(50));
            let mut options = options();
            if random.chance(30) {
                // Without it, paths join.
                options.without.insert(Optimisation::SplitPaths);
            }
            let both = Both::with_options(program, &options);
            let packet = |i: usize| {
                let headers = match shape {
                    Shape::Parsed => 1 + i % 3,
                    Shape::Again => 2,
                    _ => 1,
                };
                (0..headers).flat_map(|_| header(&mut random)).collect()
            };
            let packets: Vec<Vec<u8>> = (0..200).map(packet).collect();
            both.check(&packets);
        }
    }
}

/// Every time to live, with every checksum near the end-around carry.
#[test]
fn a_decrement_is_right_at_all_corners() {
    for changes in [&[0][..], &[1], &[8]] {
        let both = Both::new(program(Shape::Straight, 0, 1, changes, false));
        let mut random = Random::new(3);
        let packets: Vec<Vec<u8>> = (0..=255u8)
            .flat_map(|ttl| [0, 1, 2, 0xfe, 0xff].map(|low| (ttl, low)))
            .map(|(ttl, low)| {
                let mut bytes = vec![0; 18];
                (bytes[6], bytes[7], bytes[8]) = (ttl, low, *random.pick(&[0, 1, 0xff]));
                let sum = (u64::from(ttl) << 8 | u64::from(low)) + (u64::from(bytes[8]) << 8);
                let sum = (sum & 0xffff) + (sum >> 16);
                bytes[16..].copy_from_slice(&(!sum as u16).to_be_bytes());
                bytes
            })
            .collect();
        both.check(&packets);
    }
}

/// The properties above would also hold for code that always sums again.
#[test]
fn checksums_are_not_recomputed_without_need() {
    let bytes = |shape: Shape, question: usize, changes: &[usize], without: bool| {
        let mut options = options();
        if without {
            options.without.insert(Optimisation::IncrementalChecksum);
        }
        Both::with_options(program(shape, 0, question, changes, false), &options).pipeline.code_size()
    };
    let is_shorter = |shape, question, changes: &[usize]| {
        bytes(shape, question, changes, false) < bytes(shape, question, changes, true)
    };
    let needed = [Optimisation::IncrementalChecksum, Optimisation::LazyFields, Optimisation::InlineHashes];
    if needed.into_iter().any(|optimisation| options().without.contains(optimisation)) {
        return;
    }
    let straight = Shape::Straight;
    assert!(is_shorter(straight, 0, &[0]));
    assert!(is_shorter(straight, 3, &[0]));
    assert!(is_shorter(straight, 4, &[]));
    let is_other = |changes: &[usize]| bytes(straight, 2, changes, false) != bytes(straight, 2, changes, true);
    assert!(is_other(&[4, 7]), "two fields of which nothing is known");
    assert!(is_shorter(straight, 0, &[12, 0]), "the packet's own checksum was right, whatever is assigned");
    assert!(is_shorter(Shape::Parsed, 0, &[0]), "all paths to the end of the loop have asked");
    assert!(!is_shorter(straight, 4, &[0]), "all fields may be zero");
    assert!(!is_shorter(straight, 5, &[0]), "the checksum may be wrong");
    assert!(!is_other(&[0, 4, 7]), "three fields have changed");
    assert!(!is_shorter(straight, 0, &[10, 0]), "the header is another one");
}
