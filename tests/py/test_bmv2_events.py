"""The event stream of `--nanolog`: a subscriber of nanomsg gets a message for each step of each packet, with the ids of the program's JSON, as
bmv2's own client unpacks them.

Needs root. Run: cargo build -p sluice && pytest tests/py/test_bmv2_events.py
"""

import json
import os
import struct
import subprocess
import sys
import time

from conftest import PATIENCE_S
from test_bmv2 import EXCHANGE, VENV, Bmv2, compiled, ipv4, needs_root, network, run, tools, wait_for  # noqa: F401 (fixtures)
from test_thrift import Subscriber

HEADER = struct.Struct("<iQIQQQ")
NAMES = {
    0: "packet_in", 1: "packet_out", 2: "parser_start", 3: "parser_done", 4: "parser_extract", 5: "deparser_start",
    6: "deparser_done", 7: "deparser_emit", 8: "checksum_update", 9: "pipeline_start", 10: "pipeline_done",
    11: "condition_eval", 12: "table_hit", 13: "table_miss", 14: "action_execute", 999: "config_change",
}  # fmt: skip
# How many numbers stand behind the header.
COUNTS = {"condition_eval": 2, "table_hit": 2, "config_change": 0}


def event(subscriber):
    data = subscriber.any()[1]
    kind, device, context, signature, packet, copy = HEADER.unpack_from(data)
    assert (device, context) == (4, 0)
    numbers = struct.unpack(f"<{(len(data) - HEADER.size) // 4}i", data[HEADER.size :])
    name = NAMES[kind]
    assert len(numbers) == COUNTS.get(name, 1)
    return name, numbers, (signature, packet, copy)


def cli(inside, *commands):
    line = [*inside, str(VENV / "simple_switch_CLI"), "--thrift-port", "9096"]
    told = subprocess.run(line, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return told.stdout + told.stderr


@needs_root
def test_each_step_of_a_packet_is_a_message(tools, tmp_path, network):  # noqa: F811
    out, _ = compiled(tools, tmp_path)
    admin = os.environ["SLUICE_RUNTIME_DIR"] + "/admin-9096.sock"
    address = f"ipc://{tmp_path}/events.ipc"
    line = f"-i 1@s1-eth1 -i 2@s1-eth2 {out} --device-id 4 --nanolog {address} --thrift-port 9096"
    switch = Bmv2([*network, str(tools / "simple_switch"), *line.split()], admin)
    try:
        assert address in cli(network, "switch_info")
        told = cli(
            network,
            "table_add ipv4_match route 10.0.9.0/24 => 10.0.2.1 2",
            "table_add ipv4_match route 10.0.2.0/24 => 10.0.2.1 2",
            "table_add rewrite_dst set_dst 10.0.2.1 => 02:00:00:00:00:09",
            "table_add rewrite_src set_src 2 => 02:00:00:00:00:08",
            f"write_config_to_file {tmp_path / 'config.json'}",
        )
        assert told.count("Entry has been added") == 4, told
        config = json.loads((tmp_path / "config.json").read_text())
        subscriber = Subscriber(tmp_path / "events.ipc")
        # Nothing is copied for the stream before somebody listens.
        time.sleep(0.3)
        run(*network, sys.executable, "-c", EXCHANGE, ipv4(64).hex(), "0200000000090200000000080800")
        events = []
        while not events or events[-1][0] != "packet_out":
            events.append(event(subscriber))
        (subject,) = {about for _, _, about in events}
        assert subject[0] != 0 and subject[1:] == (0, 0)
        headers = {header["id"]: header["name"] for header in config["headers"]}
        tables = {table["id"]: table["name"] for pipeline in config["pipelines"] for table in pipeline["tables"]}
        actions = {action["id"]: action["name"] for action in config["actions"]}
        of = {
            "parser_extract": headers, "deparser_emit": headers, "table_hit": tables, "action_execute": actions,
        }  # fmt: skip
        steps = [(name, of[name][numbers[0]] if name in of else numbers[0]) for name, numbers, _ in events]
        steps = [step for step in steps if step[0] not in ["condition_eval", "action_execute"] or "NoAction" not in str(step[1])]
        rest = iter(step for step in steps if step[0] != "condition_eval")
        for wanted in [
            ("packet_in", 1), ("parser_start", 0), ("parser_extract", "ethernet"), ("parser_extract", "ipv4"), ("parser_done", 0),
            ("pipeline_start", 0), ("table_hit", "MyIngress.ipv4_match"), ("action_execute", "MyIngress.route"),
            ("table_hit", "MyIngress.rewrite_dst"), ("action_execute", "MyIngress.set_dst"), ("pipeline_done", 0), ("pipeline_start", 1),
            ("pipeline_done", 1), ("deparser_start", 0), ("checksum_update", 0), ("deparser_emit", "ethernet"),
            ("deparser_emit", "ipv4"), ("deparser_done", 0), ("packet_out", 2),
        ]:  # fmt: skip
            assert wanted in rest, (wanted, steps)
        # The entry that was hit, by its handle.
        assert [numbers[1] for name, numbers, _ in events if name == "table_hit"][0] == 1
        # Another program is told.
        assert "error" not in cli(network, f"load_new_config_file {out}", "swap_configs").lower()
        assert event(subscriber)[0] == "config_change"
    finally:
        switch.stop()


@needs_root
def test_where_it_cannot_listen_is_said(tools, tmp_path):  # noqa: F811
    out, _ = compiled(tools, tmp_path)
    for address, why in [
        ("/tmp/x", "--nanolog: `/tmp/x` is neither ipc://PATH nor tcp://ADDR:PORT"),
        (f"ipc://{tmp_path}/none/x.ipc", f"cannot listen at ipc://{tmp_path}/none/x.ipc"),
    ]:
        line = [str(tools / "simple_switch"), str(out), "--nanolog", address, "--thrift-port", "9097"]
        told = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert told.returncode == 1 and why in told.stdout + told.stderr, told
