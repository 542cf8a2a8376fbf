"""Connections that end, or fall silent, in the middle of a message: a request counts as a whole or not at all, the switch goes
on, and whoever does not answer is no primary any more. A relay between client and switch does the cutting."""

import random
import socket
import threading
import time

import grpc
from conftest import PATIENCE_S
from p4.v1 import p4runtime_pb2 as p4
from test_races import PROGRAM, Client, switch  # noqa: F401  (a fixture)

NOT_FOUND, ALREADY_EXISTS = 5, 6


class Relay:
    """Passes one connection on, until so many bytes went one way; frozen, it passes nothing and closes nothing."""

    def __init__(self, to: str, up: float = float("inf"), down: float = float("inf")) -> None:
        self.to, self.left, self.frozen = to, {"up": up, "down": down}, False
        self.passed = {"up": 0, "down": 0}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        try:
            near, _ = self.listener.accept()
        except OSError:
            return
        self.listener.close()
        host, port = self.to.rsplit(":", 1)
        far = socket.create_connection((host, int(port)))
        self.ends = [near, far]
        for way, source, sink in [("up", near, far), ("down", far, near)]:
            threading.Thread(target=self.pass_on, args=(way, source, sink), daemon=True).start()

    def pass_on(self, way: str, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                if self.frozen:
                    continue
                room = self.left[way] - self.passed[way]
                data = data[: int(min(room, len(data)))]
                sink.sendall(data)
                self.passed[way] += len(data)
                if self.passed[way] >= self.left[way]:
                    break
        except OSError:
            pass
        for end in self.ends:
            # The other thread waits in `recv`, which a close alone does not end.
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


def through(relay: Relay, work) -> bool:
    """Whether `work` with a client behind the relay was answered."""
    client = Client(relay.address)
    try:
        work(client)
        return True
    except (grpc.RpcError, AssertionError):
        return False
    finally:
        client.vanish()


def sizes(switch, work) -> dict:  # noqa: F811
    """Bytes each way when nothing is cut."""
    relay = Relay(switch.address)
    assert through(relay, work)
    return relay.passed


def settled(read) -> object:
    """What is read twice in a row: a request may be under way when its connection ends."""
    before, now = None, read()
    while before != now:
        time.sleep(0.05)
        before, now = now, read()
    return now


def test_a_write_that_is_cut_off_is_done_or_not(switch):  # noqa: F811
    dice, watcher = random.Random(2), Client(switch.address)
    election = iter(range(1, 10_000))

    def work(keys):
        def write(client):
            # Without a stream: the id is what makes a primary.
            client.election_id = watcher.election_id
            client.stub.Write(client.request(keys), timeout=PATIENCE_S)

        return write

    watcher.claim(next(election))
    whole = sizes(switch, work(range(1, 31)))
    assert watcher.keys() == set(range(1, 31))
    seen = {"all": 0, "nothing": 0}
    for number in range(24):
        keys = set(range(1000 * (number + 1), 1000 * (number + 1) + 30))
        way = dice.choice(["up", "up", "down"])
        relay = Relay(switch.address, **{way: dice.randrange(1, whole[way])})
        answered = through(relay, work(keys))
        there = settled(watcher.keys) & keys
        assert there in (set(), keys), f"{len(there)} of {len(keys)}"
        assert there == keys or not answered, "it was acknowledged"
        seen["all" if there else "nothing"] += 1
        if there:
            watcher.stub.Write(watcher.request(keys, kind=p4.Update.DELETE), timeout=PATIENCE_S)
    assert seen["all"] and seen["nothing"], seen
    assert watcher.insert([7_000_000])
    watcher.vanish()


def test_a_program_that_is_cut_off_is_loaded_or_not(switch):  # noqa: F811
    dice, watcher = random.Random(3), Client(switch.address)
    watcher.claim(1)
    source = PROGRAM.read_bytes()

    def work(cookie):
        def load(client):
            request = p4.SetForwardingPipelineConfigRequest(device_id=1, action="VERIFY_AND_COMMIT")
            request.election_id.low = 1
            request.config.p4_device_config = source
            request.config.p4info.SetInParent()
            request.config.cookie.cookie = cookie
            client.stub.SetForwardingPipelineConfig(request, timeout=PATIENCE_S)

        return load

    def cookie() -> int:
        request = p4.GetForwardingPipelineConfigRequest(device_id=1, response_type="COOKIE_ONLY")
        return watcher.stub.GetForwardingPipelineConfig(request, timeout=PATIENCE_S).config.cookie.cookie

    whole = sizes(switch, work(1))
    assert cookie() == 1
    # What has no answer may be done later: loading takes a while, and others may be loaded before.
    last, late = 1, set()
    for number in range(2, 12):
        way = dice.choice(["up", "down"])
        if through(Relay(switch.address, **{way: dice.randrange(1, whole[way])}), work(number)):
            last = number
        else:
            late.add(number)
        now = settled(cookie)
        assert now == last or now in late, (now, last, late)
        for _ in range(1 + len(late)):
            assert watcher.insert([number]), "the program that runs takes entries"
            if number in watcher.keys():
                break
        else:
            raise AssertionError("it takes none")
    watcher.vanish()


def test_streams_and_reads_that_are_cut_off_leave_nothing_behind(switch):  # noqa: F811
    dice, watcher = random.Random(4), Client(switch.address)
    watcher.claim(1)
    assert watcher.insert(range(1, 41))

    def stream(client):
        client.claim(dice.randrange(2, 1000))

    def read(client):
        assert client.keys() == set(range(1, 41))

    for work in [stream, read]:
        whole = sizes(switch, work)
        for _ in range(6):
            way = dice.choice(["up", "down"])
            through(Relay(switch.address, **{way: dice.randrange(1, whole[way])}), work)
    # All who claimed are gone; nobody is primary until an id as high comes.
    watcher.claim(5_000)
    assert watcher.status == 0 and watcher.insert([9_000_000])
    watcher.vanish()


def test_a_primary_that_falls_silent_is_gone(daemon):
    """HTTP/2 keepalive: the connection is open, but nobody answers at its other end."""
    switch = daemon(str(PROGRAM), "-i", "1@memory", "--grpc-keepalive", "1")  # noqa: F811
    backup = Client(switch.address)
    relay = Relay(switch.address)
    primary = Client(relay.address)
    primary.claim(5)
    assert primary.status == 0
    backup.claim(3)
    assert backup.status == ALREADY_EXISTS
    # One that is silent but answers stays.
    time.sleep(3)
    assert backup.status == ALREADY_EXISTS
    relay.frozen = True
    deadline = time.monotonic() + 2 * PATIENCE_S
    while backup.status != NOT_FOUND:
        assert time.monotonic() < deadline, "the silent client is primary still"
        time.sleep(0.2)
    backup.claim(5)
    assert backup.status == 0
    backup.vanish()
    primary.vanish()

