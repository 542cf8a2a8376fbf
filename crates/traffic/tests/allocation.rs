//! No allocation in the steady state. Alone in its file: other tests of the process would be counted too.

use peak_alloc::PeakAlloc;
use random::Random;
use traffic::{
    Buffer, BufferConfig, Config, Ecn, Level, Limit, Node, Policy, PortQueues, Queue, Rate, Red, Share, Size,
};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

#[test]
fn offering_and_taking_do_not_allocate() {
    let red = Red { ecn: Ecn::Mark, weight: 0.1, ..Red::new(Level::Packets(10), Level::Packets(50)) };
    let queues = vec![Queue { limit: Limit::packets(60), policy: Policy::Red(red), ..Queue::default() }; 8];
    let leaf = |n: u8| match n % 3 {
        0 => Node::queue(n).with_shaper(Rate(300_000_000), Some(Size(3000))),
        1 => Node::queue(n).with_min_rate(Rate(50_000_000)),
        _ => Node::queue(n).with_packet_shaper(100_000, 2),
    };
    let round_robin = Node::weighted((0..6).map(|n| leaf(n).with_weight(u32::from(n) + 1)).collect());
    let root = Node::strict(vec![leaf(7), leaf(6), round_robin]).with_shaper(Rate(2_000_000_000), None);
    let buffer = BufferConfig { capacity: Size(200_000), cell: Size(1), alpha: 2.0, tenants: vec![Share::default()] };
    let tenant = Buffer::new(&buffer).unwrap().tenant(0).unwrap();
    let mut port = PortQueues::with_tenant(&Config::new(queues, root), tenant).unwrap();

    let mut random = Random::new(1);
    let (mut now, mut sent, mut refused) = (0, 0u64, 0u64);
    let mut run = || {
        for item in 0..200_000u64 {
            now += random.below(3000);
            if random.one_in(2) {
                let bytes = random.range(60, 1518);
                refused += u64::from(port.offer(item, bytes, random.below(8) as u8, true, now).is_err());
            } else {
                sent += u64::from(port.take(now).is_some());
                port.next_at(now);
            }
        }
    };
    // Meanwhile the test's harness, whose thread is counted as well, has allocated what it needs for a test that runs.
    run();
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    run();
    assert_eq!((ALLOCATOR.peak_usage(), ALLOCATOR.current_usage()), (before, before));
    assert!(sent > 50_000 && refused > 1000, "{sent} sent, {refused} refused");
}
