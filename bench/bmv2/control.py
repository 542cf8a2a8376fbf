"""Sets up a switch as the tutorials' `run_exercise.py` does: the program, then the entries of a `sN-runtime.json`, through P4Runtime.

    ip netns exec SWITCH .venv/bin/python bench/bmv2/control.py ADDRESS PROGRAM.json P4INFO.txtpb s1-runtime.json

The same requests for every switch. Exact and lpm keys. Needs the PyPI package p4runtime (`make test` has it in .venv).
"""

from __future__ import annotations

import ipaddress
import json
import queue
import sys
from pathlib import Path

import grpc
from google.protobuf import text_format
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2 as p4
from p4.v1 import p4runtime_pb2_grpc

DEVICE, PATIENCE_SECONDS = 0, 20


def number(value: str | int) -> int:
    """What a runtime file writes as an address or a number."""
    if isinstance(value, int):
        return value
    return int(value.replace(":", ""), 16) if ":" in value else int(ipaddress.IPv4Address(value))


def encode(value: str | int, bits: int) -> bytes:
    """In as many bytes as the width takes."""
    return number(value).to_bytes((bits + 7) // 8, "big")


def update(info: p4info_pb2.P4Info, line: dict) -> p4.Update:
    """An entry of a runtime file."""
    table = next(t for t in info.tables if t.preamble.name == line["table"])
    action = next(a for a in info.actions if a.preamble.name == line["action_name"])
    made = p4.Update(type=p4.Update.MODIFY if line.get("default_action") else p4.Update.INSERT)
    entry = made.entity.table_entry
    entry.table_id, entry.is_default_action = table.preamble.id, bool(line.get("default_action"))
    for name, value in line.get("match", {}).items():
        field = next(f for f in table.match_fields if f.name == name)
        match = entry.match.add(field_id=field.id)
        if field.match_type == p4info_pb2.MatchField.LPM:
            match.lpm.value, match.lpm.prefix_len = encode(value[0], field.bitwidth), value[1]
        else:
            match.exact.value = encode(value, field.bitwidth)
    entry.action.action.action_id = action.preamble.id
    for name, value in line["action_params"].items():
        param = next(p for p in action.params if p.name == name)
        entry.action.action.params.add(param_id=param.id, value=encode(value, param.bitwidth))
    return made


def main() -> None:
    """Loads and writes."""
    address, program, p4info, runtime = sys.argv[1:]
    info = text_format.Parse(Path(p4info).read_text(), p4info_pb2.P4Info())
    channel = grpc.insecure_channel(address)
    grpc.channel_ready_future(channel).result(timeout=PATIENCE_SECONDS)
    stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
    said: queue.Queue = queue.Queue()
    claim = p4.StreamMessageRequest()
    claim.arbitration.device_id, claim.arbitration.election_id.low = DEVICE, 1
    said.put(claim)
    stream = stub.StreamChannel(iter(said.get, None))
    if next(stream).arbitration.status.code != 0:
        sys.exit("the switch has another primary")
    config = p4.SetForwardingPipelineConfigRequest(device_id=DEVICE, action="VERIFY_AND_COMMIT")
    config.election_id.low = 1
    config.config.p4info.CopyFrom(info)
    config.config.p4_device_config = Path(program).read_bytes()
    stub.SetForwardingPipelineConfig(config, timeout=PATIENCE_SECONDS)
    for line in json.loads(Path(runtime).read_text())["table_entries"]:
        write = p4.WriteRequest(device_id=DEVICE, updates=[update(info, line)])
        write.election_id.low = 1
        stub.Write(write, timeout=PATIENCE_SECONDS)
    said.put(None)
    channel.close()


if __name__ == "__main__":
    main()
