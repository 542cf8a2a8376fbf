use super::*;

/// The next frame's bytes.
fn take(frames: &mut Frames) -> Vec<u8> {
    let (chunks, length) = frames.take();
    chunks.as_flattened()[..length].to_vec()
}

#[test]
fn frames_of_one_length_come_in_order_and_again() {
    let mut frames = Frames::new(&[1, 1, 2, 2, 3, 3], Some(2)).unwrap();
    let taken: Vec<Vec<u8>> = (0..4).map(|_| take(&mut frames)).collect();
    assert_eq!(taken, [[1, 1], [2, 2], [3, 3], [1, 1]]);
    assert_eq!(frames.count(), 3);
}

#[test]
fn frames_of_mixed_lengths() {
    let mut frames = Frames::new(&[1, 0, 9, 3, 0, 7, 8, 9], None).unwrap();
    assert_eq!(take(&mut frames), [9]);
    assert_eq!(take(&mut frames), [7, 8, 9]);
    assert_eq!(take(&mut frames), [9]);
}

#[test]
fn packets_become_frames_of_every_length() {
    let pool = pktio::HeapPool::shared(1);
    for length in [1, 60, 64, 65, 1514, FRAME_BYTES_MAX] {
        let frame: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let mut packet = pool.alloc_from(&[0xee; 99]).unwrap();
        Frames::new(&frame, Some(length)).unwrap().fill(&mut packet);
        assert_eq!(packet.data(), frame);
    }
}

#[test]
fn broken_files_are_refused() {
    for (bytes, size) in
        [(vec![], Some(2)), (vec![1; 3], Some(2)), (vec![5, 0, 1], None), (vec![0, 0], None), (vec![1], None)]
    {
        assert!(Frames::new(&bytes, size).is_err(), "{bytes:?}");
    }
    assert!(Frames::new(&[1; 4096], Some(4096)).is_err());
}

#[test]
fn random_bytes_stay_in_their_spans_and_do_not_repeat() {
    let spans: Vec<RandomSpan> = ["2:4", "9:2"].map(|s| s.parse().unwrap()).to_vec();
    let mut random = Random::new(7);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..10_000 {
        let mut frame = [0; 12];
        random.fill(&mut frame, &spans);
        assert_eq!((frame[..2].to_vec(), frame[6..9].to_vec(), frame[11]), (vec![0; 2], vec![0; 3], 0));
        assert!(seen.insert(frame));
    }
    random.fill(&mut [0; 3], &spans);
}

#[test]
fn spans_that_are_none() {
    for text in ["", "3", "3:", "3:9", "3:0", "99999:1", "-1:2"] {
        assert!(text.parse::<RandomSpan>().is_err(), "{text}");
    }
}

#[test]
fn a_header_with_its_checksum_sums_to_ones() {
    let mut frame = vec![0xff; 14];
    frame.extend([0x45, 0, 0, 46, 0x12, 0x34, 0, 0, 64, 17, 0xaa, 0xbb, 10, 0, 0, 1, 192, 168, 255, 254]);
    set_ipv4_checksum(&mut frame);
    let sum: u32 = frame[14..].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
}
