"""Several queues of one port, and a worker for each: a guest with two pairs of rings, whose driver is that of `test_vhost_guest`."""

import json
import subprocess
import time

from conftest import PATIENCE_S, ROOT, SLUICE, Daemon
from test_vhost_guest import FRAME, RX, TX, Guest


class TwoPairs(Guest):
    """A guest with two queues."""

    PAIRS = 2


def workers(daemon: Daemon) -> list[dict]:
    """What each worker says of itself."""
    command = [SLUICE, "stats", "--json", "--grpc", daemon.address]
    stats = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S).stdout)
    return stats["workers"]


def back(guest: Guest, wanted: list[bytes]) -> dict[int, list[bytes]]:
    """The frames that come back, by pair; all of them are waited for."""
    found: dict[int, list[bytes]] = {0: [], 1: []}
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < len(wanted):
        assert time.monotonic() < deadline, found
        for pair, frames in found.items():
            frames += [guest.taken(*buffer, RX + 2 * pair) for buffer in guest.returned(RX + 2 * pair)]
        time.sleep(0.001)
    assert sorted(sum(found.values(), [])) == sorted(wanted)
    return found


def test_each_queue_of_a_guest_has_a_worker_that_sends_by_it(tmp_path):
    path = tmp_path / "guest.sock"
    entries = tmp_path / "entries.stf"
    entries.write_text("add dmac std.ingress_port:0 hdr.ethernet.dstAddr:02:00:00:00:00:01 forward(port:0)\n")
    program = ROOT / "bench/l2fwd/l2fwd.p4"
    port = f"0@vhost-server:{path},queues=2"
    daemon = Daemon(str(program), "-i", port, "--workers", "2", "--entries", str(entries))
    try:
        guest = TwoPairs(str(path))
        seen = [0, 0]
        for turn, (left, right) in enumerate([(20, 0), (0, 20), (7, 13)]):
            by_pair = [[FRAME + bytes([pair, i, turn]) for i in range(count)] for pair, count in enumerate((left, right))]
            for pair, frames in enumerate(by_pair):
                for frame in frames:
                    guest.send(frame, pair=pair)
            # What came by a queue is its worker's, and leaves by the queue of the same number, in order.
            found = back(guest, by_pair[0] + by_pair[1])
            assert [found[0], found[1]] == by_pair
            for pair, frames in enumerate(by_pair):
                guest.wait(TX + 2 * pair, len(frames))
            seen = [so_far + len(frames) for so_far, frames in zip(seen, by_pair)]
            deadline = time.monotonic() + PATIENCE_S
            while sorted(w["packets"] for w in workers(daemon)) != sorted(seen):
                assert time.monotonic() < deadline, (seen, workers(daemon))
                time.sleep(0.01)
        guest.close()
    finally:
        assert daemon.stop() == 0, daemon.output
