"""Tables that packets write, as a controller sees them: entries of packets are read, deleted and end with a notification."""

import time

import pytest
from conftest import PATIENCE_S, ROOT
from test_p4runtime import INSERT, VERIFY_AND_COMMIT, Controller, find, messages  # noqa: F401

DELETE = 3
NS_PER_MS = 1_000_000


def station(number):
    return b"\x02\x00\x00\x00\x00" + bytes([number])


class Learning:
    """A controller of `examples/l2learn` whose stations are silent after `silent_ms`."""

    def __init__(self, messages, daemon, silent_ms):  # noqa: F811
        self.controller = Controller(messages, daemon("-i", "1@memory").address)
        source = (ROOT / "examples/l2learn/l2learn.p4").read_text()
        assert "(300000)" in source
        self.program = source.replace("(300000)", f"({silent_ms})").encode()
        self.controller.set_config(VERIFY_AND_COMMIT, self.program)
        p4info = self.controller.config().p4info
        self.table = find(p4info.tables, "MyIngress.stations").preamble.id
        self.action = find(p4info.actions, "MyIngress.at_port").preamble.id

    def frame(self, source):
        request = self.controller.new("StreamMessageRequest")
        request.packet.payload = station(99) + source + b"\x12\x34" + bytes(50)
        self.controller.say.put(request)

    def entries(self, **query):
        read = self.controller.read(table_id=self.table, **query)
        return {entry.match[0].exact.value.rjust(6, b"\0"): entry for entry in read}

    def until(self, wanted):
        """Waits until these stations, and no others, are in the table."""
        deadline = time.monotonic() + PATIENCE_S
        while set(there := self.entries()) != set(wanted):
            assert time.monotonic() < deadline, there
            time.sleep(0.02)
        return there

    def write(self, kind, address, idle_timeout_ns=0):
        request = self.controller.new("WriteRequest")
        entry = request.updates.add(type=kind).entity.table_entry
        entry.table_id = self.table
        entry.match.add(field_id=1).exact.value = address
        if kind != DELETE:
            entry.action.action.action_id = self.action
            entry.action.action.params.add(param_id=1, value=b"\x07")
            entry.idle_timeout_ns = idle_timeout_ns
        self.controller.write(request)

    def ended(self, count):
        """The stations of the next so many entries that notifications tell of."""
        told = []
        while len(told) < count:
            message = self.controller.hear()
            if message.WhichOneof("update") == "idle_timeout_notification":
                told += [e.match[0].exact.value.rjust(6, b"\0") for e in message.idle_timeout_notification.table_entry]
        return sorted(told)


def test_entries_of_packets_are_read_and_deleted(messages, daemon):  # noqa: F811
    switch = Learning(messages, daemon, 600_000)
    stations = [station(n) for n in range(1, 6)]
    for address in stations:
        switch.frame(address)
    entries = switch.until(stations)
    assert {e.idle_timeout_ns for e in entries.values()} == {600_000 * NS_PER_MS}
    assert {e.action.action.action_id for e in entries.values()} == {switch.action}
    # The frames came from the controller's port.
    assert {e.action.action.params[0].value for e in entries.values()} == {b"\x01\xfe"}
    switch.write(DELETE, stations[2])
    left = stations[:2] + stations[3:]
    assert set(switch.entries()) == set(left)
    # It is learned again, like one that the controller adds.
    switch.frame(stations[2])
    switch.write(INSERT, station(77))
    switch.until([*stations, station(77)])


def test_entries_of_packets_end_with_a_notification(messages, daemon):  # noqa: F811
    switch = Learning(messages, daemon, 1500)
    stations = [station(n) for n in range(1, 4)]
    for address in stations:
        switch.frame(address)
    switch.until(stations)
    # Entries of the controller's own end too, if it wants that.
    switch.write(INSERT, station(10), 700 * NS_PER_MS)
    switch.write(INSERT, station(11))
    assert switch.ended(4) == sorted([*stations, station(10)])
    assert set(switch.entries()) == {station(11)}


def test_another_program_with_the_same_table_keeps_its_entries(messages, daemon):  # noqa: F811
    switch = Learning(messages, daemon, 600_000)
    switch.frame(station(1))
    switch.until([station(1)])
    reconcile = 5
    switch.controller.set_config(reconcile, switch.program + b"// another text\n")
    assert set(switch.entries()) == {station(1)}
    # Another expire time is another table: its entries are copied.
    switch.controller.set_config(reconcile, switch.program.replace(b"(600000)", b"(500000)"))
    assert set(switch.entries()) == {station(1)}
    switch.controller.set_config(VERIFY_AND_COMMIT, switch.program)
    assert switch.entries() == {}


@pytest.mark.parametrize("line, code", [("restart_expire_timer();", "E0621"), ('add_entry("no", {}, 0);', "E0621")])
def test_a_program_that_writes_no_table_is_refused(messages, daemon, line, code):  # noqa: F811
    controller = Controller(messages, daemon("-i", "1@memory").address)
    source = (ROOT / "examples/l2learn/l2learn.p4").read_text()
    source = source.replace("        meta.learns = false;\n", f"        meta.learns = false;\n        {line}\n")
    with pytest.raises(Exception) as failure:
        controller.set_config(VERIFY_AND_COMMIT, source.encode())
    assert code in failure.value.details()
