"""Controllers of programs for PNA and of filters: what they are told of the program, entries, copies, digests and counters."""

import pytest
from conftest import ROOT
from test_p4runtime import INSERT, VERIFY_AND_COMMIT, Controller, messages  # noqa: F401
from test_psa import CPU, named, number

STATION = bytes.fromhex("02000000000a")
FRAME = bytes.fromhex("02000000000b") + STATION + bytes.fromhex("1234") + bytes(range(46))


def controller_of(program, messages, daemon):  # noqa: F811
    controller = Controller(messages, daemon("-i", "1@memory").address)
    controller.set_config(VERIFY_AND_COMMIT, (ROOT / program).read_bytes())
    return controller, controller.config().p4info


def add_entry(controller, info, table, key, action, *arguments):
    request = controller.new("WriteRequest")
    entry = request.updates.add(type=INSERT).entity.table_entry
    entry.table_id = named(info.tables)[table].preamble.id
    for field, value in enumerate(key, 1):
        entry.match.add(field_id=field).exact.value = number(value)
    entry.action.action.action_id = named(info.actions)[action].preamble.id
    for place, value in enumerate(arguments, 1):
        entry.action.action.params.add(param_id=place, value=number(value))
    controller.write(request)


def send(controller, frame):
    packet = controller.new("StreamMessageRequest")
    packet.packet.payload = frame
    controller.say.put(packet)


def count(controller, counter, index):
    """Packets of a cell."""
    request = controller.new("ReadRequest", device_id=controller.device)
    cell = request.entities.add().counter_entry
    cell.counter_id, cell.index.index = counter, index
    read = controller._method("Read", "ReadResponse", controller.channel.unary_stream)
    (entity,) = (entity for response in read(request) for entity in response.entities)
    return entity.counter_entry.data.packet_count


@pytest.fixture
def switch(daemon, messages):  # noqa: F811
    return controller_of("examples/l2/l2_pna.p4", messages, daemon)


def test_a_nic_floods_by_mirror_sessions_and_learns_by_digests(switch):
    controller, info = switch
    assert info.pkg_info.arch == "pna"
    port = named(info.actions)["MyMain.forward"].params[0]
    assert (port.bitwidth, port.type_name.name) == (32, "PortId_t")
    request = controller.new("WriteRequest")
    digest = named(info.digests)["learn_t"].preamble.id
    entry = request.updates.add(type=INSERT).entity.digest_entry
    entry.digest_id, entry.config.max_list_size = digest, 1
    session = request.updates.add(type=INSERT).entity.packet_replication_engine_entry.clone_session_entry
    session.session_id = 5
    for instance in (1, 2):
        session.replicas.add(port=number(CPU), instance=instance)
    controller.write(request)
    add_entry(controller, info, "MyMain.flooding", (CPU, 1), "MyMain.sessions", 0, 5)

    send(controller, FRAME)
    heard = [controller.hear() for _ in range(3)]
    packets = [h.packet.payload for h in heard if h.WhichOneof("update") == "packet"]
    learned = [h.digest for h in heard if h.WhichOneof("update") == "digest"]
    assert packets == [FRAME, FRAME]
    vid, source, port = (m.bitstring for m in learned[0].data[0].struct.members)
    assert (learned[0].digest_id, vid, source, port) == (digest, b"\x01", STATION, number(CPU))

    # What is known is reported no more, and what is known to be where the frame came from goes nowhere.
    add_entry(controller, info, "MyMain.mac_learning", (1, int.from_bytes(STATION, "big")), "MyMain.seen", CPU)
    add_entry(controller, info, "MyMain.switching", (1, 0x0200_0000_000C), "MyMain.forward", CPU)
    send(controller, bytes.fromhex("02000000000c") + FRAME[6:])
    send(controller, FRAME)
    heard = [controller.hear() for _ in range(2)]
    assert [h.packet.payload for h in heard] == [FRAME, FRAME]


def test_a_filter_has_entries_and_counts(daemon, messages):  # noqa: F811
    controller, info = controller_of("tests/stf/ebpf/filter.p4", messages, daemon)
    assert info.pkg_info.arch == "ebpf_model"
    frames = {key: bytes([1, key]) + bytes.fromhex("00640001") + bytes(54) for key in (3, 4)}
    add_entry(controller, info, "filt.by_key", (3,), "filt.let_in", 7)
    for key in (4, 3, 3):
        send(controller, frames[key])
    # What passes goes as it came, whatever the filter made of its headers. There is no entry for 4.
    assert [controller.hear().packet.payload for _ in range(2)] == [frames[3], frames[3]]
    packets = named(info.counters)["filt.packets"].preamble.id
    assert [count(controller, packets, key) for key in (3, 4, 5)] == [2, 1, 0]
