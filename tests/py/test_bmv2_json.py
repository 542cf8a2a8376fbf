"""bmv2's JSON as device config: a controller that has the P4Info of the source sets it, writes by its own ids, and sends and gets
packets with headers that the JSON does not know.

Run: cargo build -p sluice && pytest tests/py/test_bmv2_json.py
"""

import grpc
import pytest
from conftest import ROOT
from google.protobuf import text_format
from test_p4runtime import INSERT, VERIFY_AND_COMMIT, Controller, find, messages  # noqa: F401 (a fixture)

PROGRAM = ROOT / "crates/difftest/src/fuzz/small.json"

# What the source's author wrote: `@id`s that are no hashes, and a header of packets out.
P4INFO = """
tables { preamble { id: 33554439 name: "t" alias: "t" }
         match_fields { id: 3 name: "k" bitwidth: 8 match_type: TERNARY }
         action_refs { id: 16777225 } action_refs { id: 16777226 } size: 16 }
actions { preamble { id: 16777225 name: "set" alias: "set" } params { id: 5 name: "v" bitwidth: 8 } }
actions { preamble { id: 16777226 name: "nop" alias: "nop" } }
controller_packet_metadata { preamble { id: 67108865 name: "packet_out" alias: "packet_out" }
                             metadata { id: 1 name: "port" bitwidth: 16 } }
"""


def test_ids_and_packet_headers_of_the_controllers_p4info_hold(messages, daemon):  # noqa: F811
    controller = Controller(messages, daemon("-i", "1@memory").address)
    info = text_format.Parse(P4INFO, messages["p4.config.v1.P4Info"]())
    controller.set_config(VERIFY_AND_COMMIT, PROGRAM.read_bytes(), info)
    assert controller.config().p4_device_config == PROGRAM.read_bytes()

    request = controller.new("WriteRequest")
    entry = request.updates.add(type=INSERT).entity.table_entry
    entry.table_id, entry.priority = 33554439, 1
    match = entry.match.add(field_id=3)
    match.ternary.value, match.ternary.mask = b"\x05", b"\x0f"
    entry.action.action.action_id = 16777225
    entry.action.action.params.add(param_id=5, value=b"\x07")
    controller.write(request)
    (read,) = controller.read(table_id=33554439)
    assert read.action.action.action_id == 16777225 and read.match[0].field_id == 3

    # A packet out needs the header's field, by the id that the controller knows.
    packet = controller.new("StreamMessageRequest")
    packet.packet.payload = b"\x05\x00\x00\x00"
    controller.say.put(packet)
    answer = controller.hear()
    assert answer.WhichOneof("update") == "error" and "field" in answer.error.message, answer
    packet.packet.metadata.add(metadata_id=1, value=b"\x01")
    controller.say.put(packet)


def test_a_p4info_of_another_program_is_refused(messages, daemon):  # noqa: F811
    controller = Controller(messages, daemon("-i", "1@memory").address)
    info = text_format.Parse(P4INFO.replace('"t"', '"other"'), messages["p4.config.v1.P4Info"]())
    with pytest.raises(grpc.RpcError) as failure:
        controller.set_config(VERIFY_AND_COMMIT, PROGRAM.read_bytes(), info)
    assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "`other`" in failure.value.details()

    # Without one, ids are those of the names.
    controller.set_config(VERIFY_AND_COMMIT, PROGRAM.read_bytes())
    assert find(controller.config().p4info.tables, "t").match_fields[0].id == 1


def test_wrong_json_is_refused_with_its_path(messages, daemon):  # noqa: F811
    controller = Controller(messages, daemon("-i", "1@memory").address)
    controller.set_config(VERIFY_AND_COMMIT, PROGRAM.read_bytes())
    for found, put, said in [
        (b'"ternary"', b'"regex"', "pipelines[0].tables[0].key[0].match_type"),
        (b'"csum16"', b'"sha1"', "calculations[0].algo"),
        (b'"checksums"', b'"checksums": [', "is not JSON"),
    ]:
        with pytest.raises(grpc.RpcError) as failure:
            controller.set_config(VERIFY_AND_COMMIT, PROGRAM.read_bytes().replace(found, put, 1))
        assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert said in failure.value.details(), failure.value.details()
    # What ran before goes on.
    assert controller.config().p4_device_config == PROGRAM.read_bytes()
