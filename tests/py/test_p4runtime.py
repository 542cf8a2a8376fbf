"""The protocol's messages against the daemon, where a client library hides them: error details, reconciliation, digests.

The messages come from the daemon's own descriptors
(test_descriptors.py compares those with the published ones), because the published Python package needs an old protobuf.

Set SLUICE_DESCRIPTOR_SET to a file that `dump_descriptors` wrote before to skip that build.
"""

import functools
import os
import pathlib
import queue
import re
import subprocess
import tempfile
import threading

import grpc
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE
from google.protobuf import descriptor_pb2, message_factory, text_format

INSERT, VERIFY_AND_COMMIT, RECONCILE_AND_COMMIT = 1, 3, 5
ELECTION_ID = 5


@functools.cache
def descriptor_set() -> bytes:
    """P4Runtime's messages as the switch was built with them. Once for all modules: each that imports `messages` has its own fixture."""
    path = os.environ.get("SLUICE_DESCRIPTOR_SET")
    if path:
        return pathlib.Path(path).read_bytes()
    with tempfile.NamedTemporaryFile(suffix=".fds") as file:
        command = ["cargo", "run", "-q", "-p", "messages", "--example", "dump_descriptors", file.name]
        subprocess.run(command, cwd=ROOT, check=True)
        return pathlib.Path(file.name).read_bytes()


@pytest.fixture(scope="session")
def messages():
    descriptors = descriptor_pb2.FileDescriptorSet()
    descriptors.ParseFromString(descriptor_set())
    return message_factory.GetMessages(descriptors.file)


class Controller:
    """A primary client."""

    def __init__(self, messages, address, device=1):
        self.messages, self.device = messages, device
        self.channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self.channel).result(timeout=PATIENCE_S)
        self.say, self.heard, self.ended = queue.Queue(), queue.Queue(), None
        stream = self._method("StreamChannel", "StreamMessageResponse", self.channel.stream_stream)
        responses = stream(iter(self.say.get, None))
        threading.Thread(target=self._listen, args=(responses,), daemon=True).start()
        claim = self.new("StreamMessageRequest")
        claim.arbitration.device_id = device
        claim.arbitration.election_id.low = ELECTION_ID
        self.say.put(claim)
        assert self.hear().arbitration.status.code == 0

    def _listen(self, responses):
        try:
            for response in responses:
                self.heard.put(response)
        except grpc.RpcError as error:
            self.ended = error  # the daemon was stopped, or the device is gone

    def _method(self, name, response, kind):
        return kind(
            f"/p4.v1.P4Runtime/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self.messages[f"p4.v1.{response}"].FromString,
        )

    def new(self, name, **fields):
        return self.messages[f"p4.v1.{name}"](**fields)

    def hear(self):
        return self.heard.get(timeout=PATIENCE_S)

    def set_config(self, action, program, p4info=None):
        request = self.new("SetForwardingPipelineConfigRequest", device_id=self.device, action=action)
        request.election_id.low = ELECTION_ID
        request.config.p4_device_config = program
        request.config.p4info.SetInParent()
        request.config.cookie.cookie = 9
        if p4info is not None:
            request.config.p4info.CopyFrom(p4info)
        response = "SetForwardingPipelineConfigResponse"
        self._method("SetForwardingPipelineConfig", response, self.channel.unary_unary)(request)

    def config(self):
        request = self.new("GetForwardingPipelineConfigRequest", device_id=self.device)
        response = "GetForwardingPipelineConfigResponse"
        return self._method("GetForwardingPipelineConfig", response, self.channel.unary_unary)(request).config

    def write(self, request):
        request.device_id = self.device
        request.election_id.low = ELECTION_ID
        self._method("Write", "WriteResponse", self.channel.unary_unary)(request)

    def read(self, **table_entry):
        request = self.new("ReadRequest", device_id=self.device)
        request.entities.add().table_entry.CopyFrom(self.new("TableEntry", **table_entry))
        read = self._method("Read", "ReadResponse", self.channel.unary_stream)
        return [entity.table_entry for response in read(request) for entity in response.entities]


@pytest.fixture
def controller(messages, daemon):
    return Controller(messages, daemon("-i", "1@memory").address)


def find(objects, name):
    return next(o for o in objects if o.preamble.name == name)


def routes(controller, p4info, count):
    table = find(p4info.tables, "MyIngress.ipv4_lpm")
    action = find(p4info.actions, "MyIngress.set_nexthop")
    request = controller.new("WriteRequest")
    for i in range(count):
        entry = request.updates.add(type=INSERT).entity.table_entry
        entry.table_id = table.preamble.id
        match = entry.match.add(field_id=1)
        match.lpm.value = bytes([10, 0, i >> 8, i & 255])
        match.lpm.prefix_len = 32
        entry.action.action.action_id = action.preamble.id
        entry.action.action.params.add(param_id=1, value=b"\x07")
    return table.preamble.id, request


def test_a_program_is_loaded_filled_read_and_replaced(controller):
    program = (ROOT / "examples/router/router.p4").read_bytes()
    controller.set_config(VERIFY_AND_COMMIT, program)
    config = controller.config()
    assert (config.p4_device_config, config.cookie.cookie) == (program, 9)
    # What the daemon says about the program is what it accepts with it.
    controller.set_config(VERIFY_AND_COMMIT, program, config.p4info)
    table_id, request = routes(controller, config.p4info, 500)
    controller.write(request)
    written = {update.entity.table_entry.SerializeToString(deterministic=True) for update in request.updates}
    read = {entry.SerializeToString(deterministic=True) for entry in controller.read(table_id=table_id)}
    assert read == written
    controller.set_config(RECONCILE_AND_COMMIT, program)
    assert len(controller.read(table_id=table_id)) == 500
    controller.set_config(VERIFY_AND_COMMIT, program)
    assert controller.read(table_id=table_id) == []


def test_a_failed_batch_carries_the_error_of_each_update(controller, messages):
    program = (ROOT / "examples/router/router.p4").read_bytes()
    controller.set_config(VERIFY_AND_COMMIT, program)
    _, request = routes(controller, controller.config().p4info, 2)
    request.updates.add(type=INSERT).entity.table_entry.table_id = 5
    with pytest.raises(grpc.RpcError) as failure:
        controller.write(request)
    assert failure.value.code() == grpc.StatusCode.UNKNOWN
    trailers = dict(failure.value.trailing_metadata())
    status = messages["google.rpc.Status"].FromString(trailers["grpc-status-details-bin"])
    errors = [messages["p4.v1.Error"].FromString(detail.value) for detail in status.details]
    assert [error.canonical_code for error in errors] == [0, 0, grpc.StatusCode.NOT_FOUND.value[0]]
    assert "MyIngress.ipv4_lpm" in errors[2].message


def test_device_0_is_there_for_controllers_of_before_1_5(messages, daemon):
    controller = Controller(messages, daemon("--device-id", "0", "-i", "1@memory").address, device=0)
    controller.set_config(VERIFY_AND_COMMIT, (ROOT / "examples/router/router.p4").read_bytes())
    table_id, request = routes(controller, controller.config().p4info, 3)
    controller.write(request)
    assert len(controller.read(table_id=table_id)) == 3


def test_a_wrong_program_is_refused_with_its_diagnostics(controller):
    with pytest.raises(grpc.RpcError) as failure:
        controller.set_config(VERIFY_AND_COMMIT, b"header h { bit<8> f }")
    assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "error[E" in failure.value.details()


def test_packets_and_digests_come_back(controller):
    controller.set_config(VERIFY_AND_COMMIT, (ROOT / "tests/py/punt.p4").read_bytes())
    digest = controller.config().p4info.digests[0].preamble.id
    request = controller.new("WriteRequest")
    entry = request.updates.add(type=INSERT).entity.digest_entry
    entry.digest_id = digest
    entry.config.max_list_size = 1
    controller.write(request)
    packet = controller.new("StreamMessageRequest")
    packet.packet.payload = bytes(range(60))
    packet.packet.metadata.add(metadata_id=1, value=b"\x01")
    packet.packet.metadata.add(metadata_id=2, value=b"\x00")
    controller.say.put(packet)
    messages = [controller.hear(), controller.hear()]
    packet_in = next(m.packet for m in messages if m.WhichOneof("update") == "packet")
    assert packet_in.payload == bytes(range(60))
    assert {m.metadata_id: m.value for m in packet_in.metadata} == {1: b"\x03", 2: b"\x00"}
    learned = next(m.digest for m in messages if m.WhichOneof("update") == "digest")
    mac, port = learned.data[0].struct.members
    assert (learned.digest_id, mac.bitstring, port.bitstring) == (digest, bytes(range(6, 12)), b"\x01\xfe")


def test_many_small_messages_at_once_do_not_end_a_connection(daemon, messages):
    """The server's HTTP/2 library takes a flood of small frames for an attack, beyond a budget that follows from its windows."""
    controller = Controller(messages, daemon("-i", "1@memory").address)
    controller.set_config(VERIFY_AND_COMMIT, (ROOT / "tests/py/punt.p4").read_bytes())
    # Frames wait at the server while it does something else: compiling programs, for some.
    program = (ROOT / "tests/py/everything.p4").read_bytes()
    busy = threading.Thread(target=lambda: [controller.set_config(1, program) for _ in range(5)])
    busy.start()
    for number in range(30_000):
        packet = controller.new("StreamMessageRequest")
        packet.packet.payload = b"\x02\x00\x00\x00\x00\x01" + number.to_bytes(6, "big") + b"\x12\x34"
        value = packet.packet.metadata.add()
        value.metadata_id, value.value = 1, b"\x01"
        controller.say.put(packet)
    busy.join()
    # All are answered, each as a packet or, where it came too fast for the port, by nothing; the claim comes last.
    claim = controller.new("StreamMessageRequest")
    claim.arbitration.device_id, claim.arbitration.election_id.low = 1, ELECTION_ID
    controller.say.put(claim)
    while not controller.hear().HasField("arbitration"):
        assert controller.ended is None, controller.ended
    assert controller.ended is None


def test_the_p4info_that_comes_back_is_the_one_that_is_printed(messages, daemon):
    program = "tests/py/everything.p4"
    printed = subprocess.run([SLUICE, "p4info", program], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    wanted = text_format.Parse(printed, messages["p4.config.v1.P4Info"]())
    assert len(wanted.tables) == 5
    started = Controller(messages, daemon(program, "-i", "1@memory").address)
    assert started.config().p4info == wanted
    # Also where a controller has set the program, with that P4Info.
    set_later = Controller(messages, daemon("-i", "1@memory").address)
    set_later.set_config(VERIFY_AND_COMMIT, (ROOT / program).read_bytes(), wanted)
    assert set_later.config().p4info == wanted


def test_a_controllers_program_is_named_by_its_p4info_or_text(messages, daemon):
    text = (ROOT / "tests/py/everything.p4").read_bytes()
    for name, program, shown in [("look", text, "look"), ("", b'# 1 "src/acl.p4"\n' + text, "src/acl.p4"), ("", text, "unnamed")]:
        switch = daemon("-i", "1@memory")
        controller = Controller(messages, switch.address)
        p4info = controller.messages["p4.config.v1.P4Info"]()
        if name:
            p4info.pkg_info.name = name
        controller.set_config(VERIFY_AND_COMMIT, program, p4info)
        done = subprocess.run([SLUICE, "show", "--grpc", switch.address], capture_output=True, text=True, cwd=ROOT, check=True)
        assert re.search(rf"^1 +{shown} ", done.stdout, re.M), done.stdout
