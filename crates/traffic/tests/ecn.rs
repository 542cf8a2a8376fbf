//! Marking of frames, against a checksum from scratch.

use random::Random;
use traffic::ecn;

/// The checksum of an IPv4 header, its own field excluded (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).enumerate().filter(|(i, _)| *i != 5);
    let mut sum: u32 = words.map(|(_, w)| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A random frame and where its IP header begins.
fn frame(random: &mut Random, v6: bool, field: u8) -> (Vec<u8>, usize) {
    let mut frame: Vec<u8> = (0..12).map(|_| random.next_u64() as u8).collect();
    for _ in 0..random.below(ecn::TAGS_MAX as u64 + 1) {
        frame.extend(random.pick(&[0x8100u16, 0x88a8, 0x9100, 0x9200]).to_be_bytes());
        frame.extend((random.next_u64() as u16).to_be_bytes());
    }
    frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    let at = frame.len();
    let words = if v6 { 10 } else { random.range(5, 15) as usize };
    let mut header: Vec<u8> = (0..words * 4).map(|_| random.next_u64() as u8).collect();
    if v6 {
        header[0] = 0x60 | header[0] & 0xf;
        header[1] = header[1] & 0xcf | field << 4;
    } else {
        header[0] = 0x40 | words as u8;
        header[1] = header[1] & 0xfc | field;
        let sum = checksum(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
    }
    frame.extend(header);
    frame.extend((0..random.below(50)).map(|_| random.next_u64() as u8));
    (frame, at)
}

#[test]
fn exactly_capable_frames_are_marked() {
    let mut random = Random::new(1);
    for i in 0..40_000u32 {
        let (v6, field) = (i % 2 == 0, (i / 2 % 4) as u8);
        let (before, at) = frame(&mut random, v6, field);
        let mut after = before.clone();
        assert_eq!(ecn::field(&before), Some(field));
        assert_eq!(ecn::is_capable(&before), field != 0);
        assert_eq!(ecn::mark(&mut after), field != 0);
        if field == 0 {
            assert_eq!(after, before);
            continue;
        }
        assert_eq!(ecn::field(&after), Some(3));
        // Nothing else changed: the field, and the checksum, which is right.
        let mut expected = before;
        if v6 {
            expected[at + 1] |= 0x30;
        } else {
            expected[at + 1] |= 3;
            let end = at + usize::from(expected[at] & 0xf) * 4;
            let sum = checksum(&expected[at..end]);
            // Equal, or the other zero: 0xffff and 0 are one number (RFC 1624, section 3).
            let found = u16::from_be_bytes([after[at + 10], after[at + 11]]);
            assert!(found == sum || found ^ sum == 0xffff && (found == 0 || sum == 0), "{found:x} {sum:x}");
            expected[at + 10..at + 12].copy_from_slice(&found.to_be_bytes());
        }
        assert_eq!(after, expected);
    }
}

#[test]
fn every_checksum_stays_right() {
    // The identification takes all values, and with it the checksum.
    for tos in [0, 1, 2, 3, 0xb9, 0xfd, 0xfe] {
        for identification in 0..=0xffffu16 {
            let mut frame = vec![0; 12];
            frame.extend([8, 0, 0x45, tos, 0, 60]);
            frame.extend(identification.to_be_bytes());
            frame.extend([0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 192, 168, 7, 9]);
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(ecn::mark(&mut frame), tos & 3 != 0);
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            assert_eq!(sum, checksum(&frame[14..34]), "{tos} {identification}");
        }
    }
}

#[test]
fn frames_that_end_early_are_left_alone() {
    let mut random = Random::new(3);
    for i in 0..200 {
        let v6 = i % 2 == 0;
        let (whole, at) = frame(&mut random, v6, 1);
        let needed = at + if v6 { 40 } else { 20 };
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            assert_eq!(ecn::mark(&mut cut), len >= needed, "{len} of {needed}");
            if len < needed {
                assert_eq!(cut, whole[..len]);
            }
        }
    }
}

#[test]
fn other_protocols_versions_and_too_many_tags_are_left_alone() {
    let mut header = vec![0; 12];
    header.extend([8, 0, 0x45, 1]);
    header.resize(80, 0);
    assert!(ecn::is_capable(&header));
    for (place, value) in [(13, 6), (12, 0x88), (14, 0x65), (14, 0x44), (14, 0x35)] {
        let mut other = header.clone();
        other[place] = value;
        let before = other.clone();
        assert!(!ecn::mark(&mut other), "{place}");
        assert_eq!(other, before);
    }
    let mut tagged = header[..12].to_vec();
    (0..=ecn::TAGS_MAX).for_each(|_| tagged.extend([0x81, 0, 0, 1]));
    tagged.extend(&header[12..]);
    assert!(!ecn::is_capable(&tagged));
}

#[test]
fn any_bytes_are_safe() {
    let mut random = Random::new(4);
    for _ in 0..200_000 {
        let mut bytes: Vec<u8> = (0..random.below(70)).map(|_| random.next_u64() as u8).collect();
        for at in [12, 16, 20] {
            if random.one_in(2) && bytes.len() > at + 1 {
                let kind: u16 = *random.pick(&[0x8100, 0x88a8, 0x0800, 0x86dd]);
                bytes[at..at + 2].copy_from_slice(&kind.to_be_bytes());
            }
        }
        let capable = ecn::is_capable(&bytes);
        assert_eq!(ecn::mark(&mut bytes), capable);
    }
}
