"""Varbits in registers and digests (P4Runtime specification, "Bytestrings": their bytes tell how long they are).

Run: cargo build -p sluice && pytest tests/py/test_varbits.py
"""

import grpc
import pytest
from test_cells import cells
from test_cli import Cli
from test_p4runtime import INSERT, Controller, messages  # noqa: F401 (a fixture)

MODIFY, NO_OPTIONS = 2, 0xFF
REST = bytes(range(60))


@pytest.fixture
def running(daemon):
    return daemon("tests/py/varbits.p4", "-i", "1@memory")


def send(controller, cell, options, payload):
    message = controller.new("StreamMessageRequest")
    message.packet.payload = payload
    message.packet.metadata.add(metadata_id=1, value=bytes([cell]))
    message.packet.metadata.add(metadata_id=2, value=bytes([options]))
    controller.say.put(message)


def hear(controller, kind):
    while (message := controller.hear()).WhichOneof("update") != kind:
        pass
    return getattr(message, kind)


def test_digests_and_registers_hold_varbits(messages, running):
    controller, switch = Controller(messages, running.address), Cli(running.address)
    digest = controller.config().p4info.digests[0].preamble.id
    request = controller.new("WriteRequest")
    entry = request.updates.add(type=INSERT).entity.digest_entry
    entry.digest_id = digest
    entry.config.max_list_size = 1
    controller.write(request)
    for cell, options in enumerate([b"", b"\x00\x00\x01", bytes(range(1, 9))]):
        send(controller, cell, len(options), b"\x07" + options + REST)
        header = hear(controller, "digest").data[0].struct.members[1].header
        assert (header.is_valid, list(header.bitstrings)) == (True, [b"\x07", options])
        # What the packet left in the register comes back in another packet.
        send(controller, cell, NO_OPTIONS, REST)
        while (packet := hear(controller, "packet")).payload != b"\x07" + options + REST:
            pass
        assert packet.metadata[0].value == bytes([cell]) if cell else True
    assert cells(switch, "register", "cells") == {
        0: "0x1 valid 0x7 0x",
        1: "0x1 valid 0x7 0x000001",
        2: "0x1 valid 0x7 0x102030405060708",
    }


def test_controllers_write_varbits_that_packets_carry(messages, running):
    controller, switch = Controller(messages, running.address), Cli(running.address)
    register = controller.config().p4info.registers[0].preamble.id

    def write(index, options):
        request = controller.new("WriteRequest")
        entry = request.updates.add(type=MODIFY).entity.register_entry
        entry.register_id, entry.index.index = register, index
        members = entry.data.struct.members
        members.add().bitstring = b"\x05"
        header = members.add().header
        header.is_valid = True
        header.bitstrings.extend([b"\x09", options])
        controller.write(request)

    for options in [b"", b"\x00", b"\x00\x02\x03\x04\x05\x06\x07\x08"]:
        write(3, options)
        send(controller, 3, NO_OPTIONS, REST)
        assert hear(controller, "packet").payload == b"\x09" + options + REST
    with pytest.raises(grpc.RpcError) as failure:
        write(3, bytes(9))
    status = messages["google.rpc.Status"].FromString(dict(failure.value.trailing_metadata())["grpc-status-details-bin"])
    error = messages["p4.v1.Error"].FromString(status.details[0].value)
    assert error.canonical_code == grpc.StatusCode.OUT_OF_RANGE.value[0]
    assert "72 bits for a varbit<64>" in error.message
    switch.sluice("register", "set", "cells", "1", *"5 valid 6 0x00aa".split(), "--election-id", "99")
    assert cells(switch, "register", "cells", "1") == {1: "0x5 valid 0x6 0x00aa"}
