//! The thread that writes state shows that it makes progress, so that the service's watchdog hears when it does not.

use control::forwarding::ForwardingConfig;
use control::journal::{Contents, Journal};
use heartbeat::Monitor;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use store::Store;

/// Longer than any round of the thread may take.
const LONG: Duration = Duration::from_secs(3600);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        // It looks at its directory once a second.
        std::thread::sleep(Duration::from_millis(1500));
    }
}

/// Here the disk is a config whose next entity does not come.
#[test]
fn the_watchdog_hears_of_a_disk_that_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut monitor = Monitor::default();
    let now = Instant::now();
    // Each look is an hour after the one before.
    let mut looks = 0;
    let mut is_stuck = || {
        looks += 1;
        monitor.stuck_at(now + looks * LONG).iter().any(|stuck| stuck.thread == "state")
    };
    until("it is stuck without work", || !is_stuck());

    let (release, released) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let store = &store;
        let writer = scope.spawn(move || {
            let mut entities = std::iter::from_fn(|| {
                begun.send(()).unwrap();
                released.recv().unwrap();
                None
            });
            let config = ForwardingConfig::default();
            store.replace(1, Contents::New(&config, &mut entities), Contents::Empty)
        });
        has_begun.recv().unwrap();
        until("nobody hears of it", &mut is_stuck);
        release.send(()).unwrap();
        writer.join().unwrap().unwrap();
    });
    until("it does not go on", || !is_stuck());
}
