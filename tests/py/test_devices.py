"""Several programs in one switch (docs/operations.md): loaded, bound, chained and removed while it runs, each with a P4Runtime
device id of its own; and what of that comes back after `kill -9`.

Run: cargo build -p sluice && pytest tests/py/test_devices.py
"""

import json
import queue
import re
import time

import grpc
import pytest
from conftest import PATIENCE_S, Daemon
from test_cli import Cli
from test_p4runtime import ELECTION_ID, INSERT, Controller, find, messages  # noqa: F401 (a fixture)

CHAIN = "tests/py/chain.p4"
PORTS = ["-i", "1@memory", "-i", "2@memory", "-i", "3@memory"]
TWO = [CHAIN, "--device", f"2={CHAIN}", "--bind", "3=2", "--chain", "1:10,2:1", "--chain", "2:1,1:10", *PORTS]
DST = bytes.fromhex("02000000000b")
FRAME = DST + bytes.fromhex("02000000000a" "88b5") + bytes(46)


class Two(Controller):
    """A primary of one of the devices."""

    def packet_out(self, port):
        message = self.new("StreamMessageRequest")
        message.packet.payload = FRAME
        message.packet.metadata.add(metadata_id=1, value=port.to_bytes(2, "big").lstrip(b"\0"))
        message.packet.metadata.add(metadata_id=2, value=b"\0")
        self.say.put(message)

    def packet_in(self):
        """The port that the next packet came from."""
        message = self.hear()
        assert message.packet.payload == FRAME, message
        return int.from_bytes(message.packet.metadata[0].value, "big")

    def hears_nothing(self):
        with pytest.raises(queue.Empty):
            self.heard.get(timeout=0.3)

    def send_to(self, port):
        """The packet's destination is behind a port."""
        p4info = self.config().p4info
        request = self.new("WriteRequest")
        entry = request.updates.add(type=INSERT).entity.table_entry
        entry.table_id = find(p4info.tables, "ig.dst").preamble.id
        entry.match.add(field_id=1).exact.value = DST.lstrip(b"\0")
        entry.action.action.action_id = find(p4info.actions, "ig.send").preamble.id
        entry.action.action.params.add(param_id=1, value=bytes([port]))
        self.write(request)

    def entries(self):
        return len(self.read(table_id=find(self.config().p4info.tables, "ig.dst").preamble.id))


def devices(switch):
    """What `sluice stats` says: ports by device, and links with their packets."""
    stats = json.loads(switch.sluice("stats", "--json"))
    ports = {device["id"]: [] for device in stats["devices"]}
    for port in stats["ports"]:
        ports[port["device_id"]].append(port["number"])
    end = lambda at: (at["device_id"], at["port"])  # noqa: E731
    return ports, {(end(link["from"]), end(link["to"])): link["packets"] for link in stats["links"]}


def dropped(switch, device, reason):
    """Waits until one packet (of a device, or of any) was dropped for a reason."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        drops = json.loads(switch.sluice("stats", "--json"))["drops"]
        if [d["packets"] for d in drops if d["reason"] == reason and device in (None, d["device_id"]) and d["packets"]] == [1]:
            return
        assert time.monotonic() < deadline, drops


def test_two_controllers_two_programs_and_packets_over_a_chain(messages, daemon):
    running = daemon(CHAIN, *PORTS)
    switch = Cli(running.address)
    first = Two(messages, running.address, 1)
    assert "device 2 is new" in switch.sluice("load", CHAIN, "--device-id", "2")
    second = Two(messages, running.address, 2)
    # Nobody is behind port 10 yet, and a packet is let go some time after it was given.
    first.packet_out(10)
    dropped(switch, 1, "no such port")
    switch.sluice("chain", "1:10", "2:1", "--force")
    first.packet_out(10)
    assert second.packet_in() == 1
    switch.sluice("chain", "2:1", "1:10", "--force")
    # Entries of one device are not the other's.
    second.send_to(1)
    assert (first.entries(), second.entries()) == (0, 1)
    first.packet_out(10)
    assert first.packet_in() == 10
    second.hears_nothing()
    assert devices(switch) == ({1: [1, 2, 3], 2: []}, {((1, 10), (2, 1)): 2, ((2, 1), (1, 10)): 1})
    dropped(switch, 1, "no such port")
    # A circle: device 1 sends it back, too.
    first.send_to(10)
    first.packet_out(10)
    dropped(switch, None, "too many links")
    for controller in (first, second):
        controller.hears_nothing()
    # What one packet goes through, by device.
    trace = switch.sluice("trace", "--device-id", "2", "--port", "1", "--packet", FRAME.hex())
    assert "ig.send(port=0x1)" in trace, trace
    trace = switch.sluice("trace", "--device-id", "1", "--port", "1", "--packet", FRAME.hex())
    assert "ig.send(port=0xa)" in trace, trace


def test_each_device_has_its_own_primary(messages, daemon):
    running = daemon(*TWO)
    first = Two(messages, running.address, 1)
    # The same election id: two clients of one device could not have it.
    second = Two(messages, running.address, 2)
    assert (first.entries(), second.entries()) == (0, 0)
    request = second.new("WriteRequest")
    request.device_id = 3
    request.election_id.low = ELECTION_ID
    write = second._method("Write", "WriteResponse", second.channel.unary_unary)
    with pytest.raises(grpc.RpcError) as refused:
        write(request)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert "there is no device 3" in refused.value.details()


def test_a_device_goes_when_nothing_is_bound_to_it(messages, daemon):
    running = daemon(*TWO)
    switch = Cli(running.address)
    assert devices(switch)[0] == {1: [1, 2], 2: [3]}
    second = Two(messages, running.address, 2)
    refused = switch.sluice("unload", "2", code=1)
    assert "port 3, the link from port 10 of device 1 to port 1 of device 2" in refused
    switch.sluice("unchain", "1:10", "--both-ways", "--force")
    switch.sluice("bind", "3", "--to", "1", "--force")
    assert "a controller is primary for device 2" in switch.sluice("unload", "2", code=1)
    switch.sluice("unload", "2", "--force")
    deadline = time.monotonic() + PATIENCE_S
    while second.ended is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert second.ended.code() == grpc.StatusCode.NOT_FOUND and "was unloaded" in second.ended.details()
    assert devices(switch) == ({1: [1, 2, 3]}, {})
    assert "there is no device 2" in switch.sluice("show", "2", code=1)
    assert devices(switch)[0] == {1: [1, 2, 3]}


def test_the_first_device_goes_like_the_others_and_stays_away(messages, tmp_path):
    command = [CHAIN, *PORTS, "--state", str(tmp_path / "state")]
    running = Daemon(*command)
    try:
        switch = Cli(running.address)
        switch.sluice("load", CHAIN, "--device-id", "2")
        switch.sluice("bind", "1", "2", "3", "--to", "2")
        first = Two(messages, running.address, 1)
        assert "primary with election id" in switch.sluice("show", "1")
        assert re.search(r"^1 +primary with election id \d+$", switch.sluice("show"), re.M)
        assert "a controller is primary for device 1" in switch.sluice("unload", "1", code=1)
        switch.sluice("unload", "1", "--force")
        assert devices(switch) == ({2: [1, 2, 3]}, {})
        running.process.kill()
        running.process.wait()
        running = Daemon(*command)
        assert "device 1 was unloaded" in running.output
        switch = Cli(running.address)
        assert devices(switch) == ({2: [1, 2, 3]}, {})
        # It can be made again, and begins anew.
        switch.sluice("load", CHAIN, "--device-id", "1")
        switch.sluice("bind", "1", "--to", "1")
        assert devices(switch) == ({1: [1], 2: [2, 3]}, {})
        assert Two(messages, running.address, 1).entries() == 0
        running.process.kill()
        running.process.wait()
        running = Daemon(*command)
        assert devices(Cli(running.address)) == ({1: [1], 2: [2, 3]}, {})
    finally:
        running.stop()


def test_what_cannot_be_bound_is_refused_and_changes_nothing(daemon):
    switch = Cli(daemon(*TWO).address)
    before = devices(switch)
    for words, why in [
        (("bind", "9", "--to", "2"), "there is no port 9"),
        (("bind", "2", "9", "--to", "2"), "there is no port 9"),
        (("bind", "1", "--to", "7"), "there is no device 7; there are devices 1, 2"),
        (("bind", "3", "--to", "2"), "port 3 is bound to device 2 already"),
        (("bind", "1", "--to", "2"), "port 1 of device 2 is taken: the link"),
        (("chain", "1:2", "2:9"), "port 2 of device 1 is taken: port 2 is bound to the device"),
        (("chain", "1:511", "2:9"), "port 511 means «drop»"),
        (("chain", "1:600", "2:9"), "port 600 does not fit"),
        (("chain", "1:510", "2:9"), "it stands for the controller"),
        (("unchain", "1:9"), "no link begins at port 9 of device 1"),
        (("unload", "1"), "device 1 still has port 1, port 2"),
    ]:
        assert why in switch.sluice(*words, code=1), words
    assert devices(switch) == before


def test_devices_ports_and_links_come_back_after_a_kill(messages, tmp_path):
    state = ["--state", str(tmp_path / "state")]
    running = Daemon(CHAIN, *PORTS, *state)
    try:
        switch = Cli(running.address)
        switch.sluice("load", CHAIN, "--device-id", "2")
        switch.sluice("load", CHAIN, "--device-id", "4")
        switch.sluice("load", CHAIN, "--device-id", "5")
        switch.sluice("bind", "2", "3", "--to", "2")
        switch.sluice("bind", "2", "--to", "4")
        switch.sluice("chain", "1:10", "2:1", "--both-ways")
        switch.sluice("chain", "1:11", "4:1")
        switch.sluice("unchain", "1:11")
        for device, port in [(2, 1), (4, 2), (5, 1)]:
            Two(messages, running.address, device).send_to(port)
        switch.sluice("unload", "5", "--force")
        before = devices(switch)
        running.process.kill()
        running.process.wait()
        running = Daemon(CHAIN, *PORTS, *state)
        switch = Cli(running.address)
        assert devices(switch) == before
        assert before == ({1: [1], 2: [3], 4: [2]}, {((1, 10), (2, 1)): 0, ((2, 1), (1, 10)): 0})
        # The programs are called what they were.
        assert switch.sluice("show").count(CHAIN) == 3
        controllers = {device: Two(messages, running.address, device) for device in (1, 2, 4)}
        assert [controllers[device].entries() for device in (1, 2, 4)] == [0, 1, 1]
        controllers[1].packet_out(10)
        assert controllers[1].packet_in() == 10
        # What is written now is kept, too; an id that is used again begins anew.
        controllers[1].send_to(2)
        switch.sluice("load", CHAIN, "--device-id", "5")
        running.process.kill()
        running.process.wait()
        # Another command line than at the last start says what is bound and chained; devices stay.
        running = Daemon(CHAIN, *PORTS, *state, "--device", "2", "--bind", "2,3=2")
        switch = Cli(running.address)
        assert devices(switch) == ({1: [1], 2: [2, 3], 4: [], 5: []}, {})
        controllers = {device: Two(messages, running.address, device) for device in (1, 2, 4, 5)}
        assert [controllers[device].entries() for device in (1, 2, 4, 5)] == [1, 1, 1, 0]
    finally:
        running.stop()


def test_a_wrong_command_line_says_why(tmp_path):
    for words, why in [
        (["--bind", "1=2"], "there is no device 2: --device 2=X.p4 makes one"),
        (["--device", "2", "--bind", "9=2"], "there is no port 9"),
        (["--device", "1"], "there is a device 1 already"),
        (["--device", "2", "--chain", "1:2,2:2"], "port 2 of device 1 is taken"),
    ]:
        with pytest.raises(AssertionError, match=why):
            Daemon(CHAIN, *PORTS, *words)
