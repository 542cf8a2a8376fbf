//! Checksums that are verified and computed again, compiled and interpreted: generated ways to ask and to change, with headers whose
//! bytes are the corners of one's complement, half of them with the right checksum.

mod common;

use common::random::Random;
use common::{Both, options, parse};
use jit::Optimisation;

/// Ways to change a header, or not to.
const CHANGES: [&str; 10] = [
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
];

/// What is asked before the header is changed: operations, and the flag that is set for packets that are dropped.
const QUESTIONS: [(&str, &str); 8] = [
    ("  %2 = ule ip.ttl, 8w1\n  %3 = or wrong, %2\n", "%3"),
    ("  %2 = ult ip.ttl, 8w3\n  %3 = or %2, wrong\n", "%3"),
    ("  %2 = ne ip.ihl, 4w5\n  %3 = or wrong, %2\n", "%3"),
    ("  %2 = not wrong\n  %3 = ult 8w1, ip.ttl\n  %4 = and %2, %3\n  %0 = not %4\n", "%0"),
    ("  %2 = mov wrong\n", "%2"),
    ("  %2 = ule ip.ttl, 8w1\n", "%2"),
    ("  %2 = ule ip.ttl, 8w1\n  %3 = or wrong, %2\n  wrong = mov 1w1\n", "%3"),
    ("  %2 = ule ip.ttl, 8w1\n  %3 = or wrong, %2\n  ip.ttl = mov 8w0\n", "%3"),
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

/// A program that compares a header's sum with its checksum, drops what it does not like, changes the header and sums again.
fn program(question: usize, changes: &[usize], is_same: bool) -> ir::Program {
    let mut text = String::from(
        "program \"test\"\ndrops end\nslot port: 16 metadata\nslot wrong: 1 metadata\nslot routed: 1 metadata\n",
    );
    FIELDS.iter().for_each(|(name, width)| text += &format!("slot ip.{name}: {width} field ip\n"));
    text +=
        "slot ip.sum: 16 field ip\nslot ip.$valid: 1 valid ip\nslot %0: 1 temp\nslot %1: 16 temp\nslot %2: 1 temp\n";
    text += "slot %3: 1 temp\nslot %4: 1 temp\nheader ip valid ip.$valid {\n";
    FIELDS.iter().for_each(|(name, _)| text += &format!("  {name} = ip.{name}\n"));
    text += "  sum = ip.sum\n}\nintrinsic ingress_port = port\nentry ingress (P, V, I, C, D)\n";
    let list: Vec<String> = FIELDS.iter().map(|(name, _)| format!("ip.{name}")).collect();
    let sum = format!("hash csum16 base 16w0 data ({})", list.join(", "));
    let compared = match is_same {
        true => "  %0 = eq ip.sum, %1\n  wrong = not %0\n",
        false => "  wrong = ne %1, ip.sum\n",
    };
    let (question, dropped) = QUESTIONS[question];
    let changes: Vec<String> = changes.iter().map(|c| format!("  {}\n", CHANGES[*c])).collect();
    text += &format!(
        "stage parser P {{\nb0:\n  %0 = has_bits 16w144\n  branch %0, b1, b2\nb1:\n  extract ip\n  next\nb2:\n  drop end\n}}\n\
         stage control V {{\nb0:\n  %1 = {sum}\n{compared}  next\n}}\n\
         stage control I {{\nb0:\n{question}  branch {dropped}, b1, b2\nb1:\n  drop end\nb2:\n{}  next\n}}\n\
         stage control C {{\nb0:\n  ip.sum = {sum}\n  next\n}}\n\
         stage deparser D {{\nb0:\n  emit ip\n  send port\n}}\n",
        changes.concat()
    );
    parse(&text)
}

/// What was asked of a header that was there before says nothing of the one in its place.
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

/// The bytes of a header, with the right checksum for it, if that is wanted.
fn header(random: &mut Random, is_right: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..18).map(|_| *random.pick(&[0, 0, 0, 0xff, 0xff, 1, 2, 3, 4, 0x45, 0x80, 0xfe])).collect();
    bytes[0] = *random.pick(&[0x50, 0x50, 0x5f, 0, 0xff]);
    if is_right {
        let words = bytes[..16].chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1]));
        let mut sum: u64 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        bytes[16..].copy_from_slice(&(!sum as u16).to_be_bytes());
    }
    bytes
}

#[test]
fn sums_are_what_they_would_be_anew() {
    let mut random = Random::new(7);
    for question in 0..QUESTIONS.len() {
        for _ in 0..30 {
            let count = random.below(4) as usize;
            let changes: Vec<usize> = (0..count).map(|_| random.below(CHANGES.len() as u64) as usize).collect();
            let both = Both::new(program(question, &changes, random.chance(50)));
            let packets: Vec<Vec<u8>> = (0..200).map(|i| header(&mut random, i % 4 != 0)).collect();
            both.check(&packets);
        }
    }
}

/// Every time to live, with every checksum near the end around.
#[test]
fn a_decrement_is_right_at_all_corners() {
    for changes in [&[0][..], &[1], &[8]] {
        let both = Both::new(program(1, changes, false));
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

/// The properties above would hold for code that always sums again.
#[test]
fn nothing_is_summed_again_where_that_need_not_be() {
    let bytes = |question: usize, changes: &[usize], without: bool| {
        let mut options = options();
        if without {
            options.without.insert(Optimisation::IncrementalChecksum);
        }
        Both::with_options(program(question, changes, false), &options).pipeline.code_size()
    };
    let is_shorter = |question, changes: &[usize]| bytes(question, changes, false) < bytes(question, changes, true);
    let needed = [Optimisation::IncrementalChecksum, Optimisation::LazyFields, Optimisation::InlineHashes];
    if needed.into_iter().any(|optimisation| options().without.contains(optimisation)) {
        return;
    }
    assert!(is_shorter(0, &[0]));
    assert!(is_shorter(3, &[0]));
    assert!(is_shorter(4, &[]));
    assert!(!is_shorter(4, &[0]), "all fields may be zero");
    assert!(!is_shorter(5, &[0]), "the checksum may be wrong");
}
