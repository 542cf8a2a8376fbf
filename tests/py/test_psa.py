"""A controller of a program for PSA: what it is told of the program, and every way by which packets come to it."""

import pytest
from conftest import ROOT
from test_p4runtime import INSERT, VERIFY_AND_COMMIT, Controller, messages  # noqa: F401

CPU, RECIRCULATE = 0xFFFFFFFD, 0xFFFFFFFA
FRAME = bytes.fromhex("02000000000102000000000208000102")


def number(value):
    """The shortest bytes of a number, as P4Runtime has them."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


@pytest.fixture
def controller(daemon, messages):  # noqa: F811
    controller = Controller(messages, daemon("-i", "1@memory").address)
    controller.set_config(VERIFY_AND_COMMIT, (ROOT / "tests/py/psa.p4").read_bytes())
    return controller


def named(things):
    return {thing.preamble.name: thing for thing in things}


def add_entry(controller, what, action, *arguments, port=CPU):
    info = controller.config().p4info
    request = controller.new("WriteRequest")
    entry = request.updates.add(type=INSERT).entity.table_entry
    entry.table_id = named(info.tables)["I.what"].preamble.id
    for field, value in [(1, what), (2, port)]:
        match = entry.match.add(field_id=field)
        match.exact.value = number(value)
    entry.action.action.action_id = named(info.actions)[action].preamble.id
    for place, value in enumerate(arguments, 1):
        entry.action.action.params.add(param_id=place, value=number(value))
    controller.write(request)


def send(controller, what, frame=FRAME):
    packet = controller.new("StreamMessageRequest")
    packet.packet.payload = frame
    packet.packet.metadata.add(metadata_id=1, value=number(what))
    controller.say.put(packet)


def packet_in(controller):
    """Payload and metadata: ingress port as the program says, instance, class of service, packet path."""
    heard = controller.hear()
    assert heard.WhichOneof("update") == "packet", heard
    values = {m.metadata_id: int.from_bytes(m.value, "big") for m in heard.packet.metadata}
    return heard.packet.payload, tuple(values[i] for i in (1, 2, 3, 4))


def test_the_program_is_described_as_psas(controller):
    info = controller.config().p4info
    assert info.pkg_info.arch == "psa"
    assert set(named(info.tables)) == {"I.what"}
    table = info.tables[0]
    assert table.direct_resource_ids == [named(info.direct_counters)["I.seen"].preamble.id]
    assert table.idle_timeout_behavior == 1
    assert named(info.counters)["I.unused"].size == 16
    assert named(info.registers)["I.last"].size == 4
    assert set(named(info.digests)) == {"ID.learn"}
    # Types with a translation are seen with the controller's width, and by name.
    port = named(info.actions)["I.forward"].params[0]
    assert (port.bitwidth, port.type_name.name) == (32, "PortId_t")
    assert set(info.type_info.new_types) >= {"PortId_t", "CloneSessionId_t", "MulticastGroup_t"}


def test_packets_go_out_by_the_controllers_port_and_come_in_by_it(controller):
    add_entry(controller, 1, "I.to_controller")
    send(controller, 1)
    assert packet_in(controller) == (FRAME, (8, 0, 0, 1))


def test_clones_come_by_sessions_and_by_the_one_that_is_always_there(controller):
    add_entry(controller, 2, "I.copy", 0)
    add_entry(controller, 3, "I.copy", 9)
    send(controller, 2)
    # The clone is of the packet as it came, with the controller's header.
    assert packet_in(controller) == (bytes([2]) + FRAME, (7, 0, 0, 3))
    request = controller.new("WriteRequest")
    session = request.updates.add(type=INSERT).entity.packet_replication_engine_entry.clone_session_entry
    session.session_id, session.class_of_service, session.packet_length_bytes = 9, 5, 8
    for instance in (3, 4):
        session.replicas.add(port=number(CPU), instance=instance)
    controller.write(request)
    send(controller, 3)
    heard = sorted(packet_in(controller) for _ in range(2))
    assert heard == [(bytes([3]) + FRAME[:7], (7, instance, 5, 3)) for instance in (3, 4)]


def test_groups_have_the_controllers_port_among_theirs(controller):
    add_entry(controller, 4, "I.to_group", 0x12345)
    add_entry(controller, 5, "I.to_group", 6)
    request = controller.new("WriteRequest")
    group = request.updates.add(type=INSERT).entity.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = 6
    for port, instance in [(1, 1), (CPU, 2), (CPU, 3)]:
        group.replicas.add(port=number(port), instance=instance)
    controller.write(request)
    # A replica for the port that recirculates comes back to ingress.
    again = request.updates[0]
    again.entity.packet_replication_engine_entry.multicast_group_entry.multicast_group_id = 7
    del again.entity.packet_replication_engine_entry.multicast_group_entry.replicas[:]
    again.entity.packet_replication_engine_entry.multicast_group_entry.replicas.add(port=number(RECIRCULATE), instance=9)
    controller.write(request)
    add_entry(controller, 6, "I.to_group", 7)
    add_entry(controller, 0, "I.to_controller", port=RECIRCULATE)
    send(controller, 6)
    assert packet_in(controller) == (FRAME, (8, 0, 0, 1))
    # There is no group of that number: the packet is dropped.
    send(controller, 4)
    send(controller, 5)
    heard = sorted(packet_in(controller) for _ in range(2))
    assert heard == [(FRAME, (8, instance, 0, 2)) for instance in (2, 3)]


def test_digests_counters_and_registers(controller):
    info = controller.config().p4info
    digest = named(info.digests)["ID.learn"].preamble.id
    request = controller.new("WriteRequest")
    entry = request.updates.add(type=INSERT).entity.digest_entry
    entry.digest_id, entry.config.max_list_size = digest, 1
    controller.write(request)
    add_entry(controller, 1, "I.forward", 1)
    add_entry(controller, 2, "I.to_controller")
    frame = FRAME[:12] + b"\x12\x34"
    send(controller, 1, frame)
    heard = controller.hear()
    assert heard.digest.digest_id == digest
    port, source = heard.digest.data[0].struct.members
    assert (port.bitstring, source.bitstring) == (b"\x01", FRAME[6:12].lstrip(b"\0"))
    send(controller, 2)
    packet_in(controller)

    # `forward` does not count, `to_controller` does.
    table = named(info.tables)["I.what"].preamble.id
    wanted = controller.new("TableEntry", table_id=table)
    wanted.counter_data.SetInParent()
    read = controller.read(table_id=table, counter_data=wanted.counter_data)
    counted = {int.from_bytes(e.match[0].exact.value, "big"): e.counter_data for e in read}
    assert counted[1].packet_count == 0
    assert (counted[2].packet_count, counted[2].byte_count) == (1, 1 + len(FRAME))

    request = controller.new("ReadRequest", device_id=1)
    register = request.entities.add().register_entry
    register.register_id = named(info.registers)["I.last"].preamble.id
    responses = controller._method("Read", "ReadResponse", controller.channel.unary_stream)(request)
    cells = {e.register_entry.index.index: e.register_entry.data.bitstring for r in responses for e in r.entities}
    assert cells == {0: b"\xbe\xef", 1: FRAME[12:14].lstrip(b"\0"), 2: b"\xbe\xef", 3: b"\xbe\xef"}
