//! What a bridge counts of its flows' memory, beside what is allocated. A process of its own, and one test.

mod common;

use common::{bridge, by, flow_mod, output};
use openflow::message::FlowCommand;
use openflow::{Action, Instructions, Match, Version};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

#[test]
fn flows_are_counted_with_what_they_take() {
    let long = Instructions { apply: vec![Action::Output { port: 2, max_len: 0 }; 3900], ..Instructions::default() };
    // Their number, the bits that one alone matches, and what they do.
    let cases = [(100_000, false, output(1)), (2_000, true, output(1)), (200, false, long)];
    for (number, has_own_mask, instructions) in cases {
        let (bridge, _) = bridge();
        let field = bridge.fields().named("eth_src").unwrap();
        let (before, counted_before) = (ALLOCATOR.current_usage(), bridge.state_bytes());
        for i in 1..=number {
            let mut matching = Match::any();
            matching.add(field, i, if has_own_mask { i } else { 0xffff_ffff_ffff });
            let request = flow_mod(FlowCommand::Add, matching, 1, instructions.clone());
            bridge.flow_mod(&request, &by(Version::V13)).unwrap();
        }
        let (taken, counted) = ((ALLOCATOR.current_usage() - before) as u64, bridge.state_bytes() - counted_before);
        let each = (taken / number as u64, counted / number as u64);
        println!("{number} flows: {each:?} bytes of each are allocated, counted");
        assert!(taken <= counted + counted / 10, "{each:?} bytes of each are allocated, counted");
        assert!(counted <= 2 * taken, "{each:?} bytes of each are allocated, counted");
    }
}
