"""Registers, counters and meters from the command line, and values with header stacks and unions in registers and digests
(docs/operations.md; P4Runtime specification, "Representation of Arbitrary P4 Types").

Run: cargo build -p sluice && pytest tests/py/test_cells.py
"""

import time

import pytest
from conftest import PATIENCE_S
from test_cli import Cli
from test_p4runtime import INSERT, Controller, messages  # noqa: F401 (a fixture)

CELLS = "tests/py/cells.p4"


@pytest.fixture
def running(daemon):
    return daemon(CELLS, "-i", "1@memory")


def cells(switch, word, name, *more):
    """Lines of cells, without comments, by index."""
    lines = (line.split("#")[0].split(maxsplit=2) for line in switch.sluice(word, "show", name, *more).splitlines())
    return {int(index): rest.strip() for _, index, rest in (line for line in lines if line)}


def wait_for(what):
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def packet_out(controller, kind):
    message = controller.new("StreamMessageRequest")
    message.packet.payload = bytes(range(1, 60))
    message.packet.metadata.add(metadata_id=1, value=bytes([kind]))
    controller.say.put(message)


def test_what_packets_leave_in_arrays_is_shown_and_can_be_set(messages, running):
    switch = Cli(running.address)
    controller = Controller(messages, running.address)
    for kind in (0, 1, 2, 2):
        packet_out(controller, kind)
    wait_for(lambda: cells(switch, "counter", "seen").get(2, "").startswith("2 "))
    assert set(cells(switch, "counter", "seen")) == {0, 1, 2}
    wanted = {
        0: "0x1 true red valid 0x1 0x2 invalid invalid",
        1: "0x1 true red valid 0x1 0x2 invalid g valid 0x304",
        2: "0x2 true red valid 0x1 0x2 valid 0x3 0x4 h valid 0x5 0x6",
    }
    found = cells(switch, "register", "I.cells")
    # A cell that nobody wrote has a first colour, which is no zero to the command.
    assert {i: cell for i, cell in found.items() if i in wanted} == wanted, found
    # What is shown can be set: the cell as it was, and another one.
    own = ["--election-id", "99"]
    switch.sluice("register", "set", "cells", "3", *wanted[2].split(), *own)
    assert cells(switch, "register", "cells", "3") == {3: wanted[2]}
    switch.sluice("register", "set", "cells", "2", *"7 false blue invalid valid 9 10 g valid 0x0102".split(), *own)
    assert cells(switch, "register", "cells", "2") == {2: "0x7 false blue invalid valid 0x9 0xa g valid 0x102"}
    switch.sluice("counter", "set", "seen", "2", "5", "500", *own)
    assert cells(switch, "counter", "seen", "2") == {2: "5 500"}
    switch.sluice("counter", "set", "seen", "all", "0", *own)
    assert cells(switch, "counter", "seen") == {}
    assert cells(switch, "counter", "seen", "--all") == {i: "0 0" for i in range(8)}
    switch.sluice("meter", "set", "police", "7", "1000", "100", "2000", "200", *own)
    assert cells(switch, "meter", "police") == {7: "1000 100 2000 200"}
    switch.sluice("meter", "reset", "police", "7", *own)
    assert cells(switch, "meter", "police") == {}


def test_what_cannot_be_set_is_refused_and_says_why(running):
    switch = Cli(running.address)
    assert "I.cells" in switch.sluice("register", "list") and "cell_t" in switch.sluice("register", "list")
    assert "packets" in switch.sluice("meter", "list") and "both" in switch.sluice("counter", "list")
    for words, why in [
        (("register", "show", "cell"), "there is no register `cell`; there is I.cells"),
        (("register", "show", "cells", "4"), "has 4 cells, so there is no cell 4"),
        (("register", "set", "cells", "x", "1"), "`x` is not an index"),
        (("register", "set", "cells", "1", "1"), "values are missing"),
        (("register", "set", "cells", "1", *"0x100 true red invalid invalid invalid".split()), "needs more than 8 bits"),
        (("register", "set", "cells", "1", *"1 true pink invalid invalid invalid".split()), "red, green, blue"),
        (("meter", "set", "police", "0", "10", "1", "5", "1"), "the peak rate 5 is below"),
    ]:
        assert why in switch.sluice(*words, code=1), words


def test_stacks_and_unions_come_in_digests_and_go_into_registers(messages, running):
    controller = Controller(messages, running.address)
    p4info = controller.config().p4info
    request = controller.new("WriteRequest")
    entry = request.updates.add(type=INSERT).entity.digest_entry
    entry.digest_id = p4info.digests[0].preamble.id
    entry.config.max_list_size = 1
    controller.write(request)
    found = []
    for kind in (0, 1, 2):
        packet_out(controller, kind)
        data = controller.hear().digest.data[0].struct.members
        assert data[0].bitstring == bytes([kind])
        stack = [(h.is_valid, list(h.bitstrings)) for h in data[1].header_stack.entries]
        union = data[2].header_union
        found.append((stack, union.valid_header_name, list(union.valid_header.bitstrings)))
    none = (False, [])
    first = (True, [b"\x01", b"\x02"])
    assert found == [
        ([first, none], "", []),
        ([first, none], "g", [b"\x03\x04"]),
        ([first, (True, [b"\x03", b"\x04"])], "h", [b"\x05", b"\x06"]),
    ]
