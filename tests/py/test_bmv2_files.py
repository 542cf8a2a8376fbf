"""bmv2's command lines with files: packets from FIFOs as p4c's test driver starts the switch, programs on standard input, and the
program's entries for controllers.

Run: cargo build -p sluice && pytest tests/py/test_bmv2_files.py
"""

import json
import os
import signal
import struct
import subprocess
import time

import pytest
from conftest import PATIENCE_S, ROOT
from google.protobuf import json_format, text_format
from test_bmv2 import VENV, run, tools  # noqa: F401 (a fixture)
from test_p4runtime import messages  # noqa: F401 (a fixture)

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> kind; bit<8> value; }
struct headers_t { h_t h; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    action set(bit<8> value) { h.h.value = value; s.egress_spec = 1; }
    table t {
        key = { h.h.kind: exact; }
        actions = { set; NoAction; }
        const entries = { 1: set(0x11); 2: set(0x22); }
    }
    table u {
        key = { h.h.kind: ternary; }
        actions = { set; NoAction; }
    }
    apply { if (!t.apply().hit) { u.apply(); } }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


def record(frame: bytes) -> bytes:
    return struct.pack("<IIII", 1, 2, len(frame), len(frame)) + frame


def frames_of(file) -> list[bytes]:
    """The frames of a pcap file, as far as it is written."""
    data, at, frames = file.read_bytes(), 24, []
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames


def wait_until(holds, what):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def started(tools, folder, *line):  # noqa: F811
    (folder / "x.p4").write_text(PROGRAM)
    run(tools / "p4c-bm2-ss", "-o", str(folder / "x.json"), str(folder / "x.p4"))
    command = [tools / "simple_switch", *line, "x.json"]
    return subprocess.Popen(command, cwd=folder, stderr=(folder / "err").open("w"))


def test_packets_come_through_fifos_while_a_client_writes_tables(tools, tmp_path):  # noqa: F811
    for port in [0, 1]:
        os.mkfifo(tmp_path / f"pcap{port}_in.pcap")
    ports = ["-i 0@pcap0", "-i 1@pcap1"]
    switch = started(tools, tmp_path, "--use-files", "0", "--thrift-port", "9096", "--log-file", "log", *ports)
    try:
        # The switch opens them one after the other, and each waits for both sides.
        fifos = []
        for port in [0, 1]:
            fifos.append((tmp_path / f"pcap{port}_in.pcap").open("wb", buffering=0))
            fifos[-1].write(PCAP_HEADER)
        fifos[0].write(record(b"\x01\x00first"))
        out = tmp_path / "pcap1_out.pcap"
        told = lambda: (tmp_path / "err").read_text()  # noqa: E731
        wait_until(lambda: out.exists() and frames_of(out) == [b"\x01\x11first"], told)
        command = "table_add I.u I.set 3&&&255 => 0x33 1\n"
        cli = [VENV / "simple_switch_CLI", "--thrift-port", "9096"]
        added = subprocess.run(cli, input=command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        assert "Entry has been added" in added.stdout, added.stdout + added.stderr
        fifos[0].write(record(b"\x03\x00second"))
        wait_until(lambda: frames_of(out)[1:] == [b"\x03\x33second"], told)
        assert frames_of(tmp_path / "pcap0_out.pcap") == []
        for fifo in fifos:
            fifo.close()
        # bmv2 goes on at the end of its files.
        time.sleep(0.5)
        assert switch.poll() is None, told()
    finally:
        switch.send_signal(signal.SIGTERM)
        assert switch.wait(timeout=PATIENCE_S) in (0, -signal.SIGTERM)
    assert "Applying table 'I.u'" in (tmp_path / "log.txt").read_text()


def test_packets_of_files_wait_as_long_as_is_said(tools, tmp_path):  # noqa: F811
    (tmp_path / "a_in.pcap").write_bytes(PCAP_HEADER + record(b"\x02\x00x"))
    (tmp_path / "b_in.pcap").write_bytes(PCAP_HEADER)
    start = time.monotonic()
    switch = started(tools, tmp_path, "--use-files=2", "-i", "0@a", "-i", "1@b", "--thrift-port", "9097")
    try:
        out = tmp_path / "b_out.pcap"
        wait_until(lambda: out.exists() and frames_of(out) == [b"\x02\x22x"], lambda: (tmp_path / "err").read_text())
        assert time.monotonic() - start >= 2
    finally:
        switch.terminate()
        switch.wait(timeout=PATIENCE_S)


def test_a_program_comes_on_standard_input(tools, tmp_path):  # noqa: F811
    command = [tools / "p4c-bm2-ss", "-o", "stdin.json", "-DX=1", "-"]
    done = subprocess.run(command, input=PROGRAM, text=True, capture_output=True, cwd=tmp_path, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    # The file carries what came; it is preprocessed where there are definitions.
    run(tools / "p4c-bm2-ss", "-o", "again.json", "stdin.json", cwd=tmp_path)
    files = [json.loads((tmp_path / name).read_text()) for name in ["stdin.json", "again.json"]]
    assert "I.t" in json.dumps(files[1]["pipelines"])
    assert [file["pipelines"] == files[0]["pipelines"] for file in files] == [True, True]
    assert "- is not a file" in run(tools / "p4c", "-", code=1).stderr


@pytest.mark.parametrize("form", ["txtpb", "txt", "json", "bin"])
def test_the_programs_entries_are_a_write_request(tools, tmp_path, messages, form):  # noqa: F811
    (tmp_path / "x.p4").write_text(PROGRAM)
    file, info = tmp_path / f"entries.{form}", tmp_path / "info.json"
    run(tools / "p4c-bm2-ss", "--p4runtime-entries-files", str(file), "--p4runtime-files", str(info), str(tmp_path / "x.p4"))
    request = messages["p4.v1.WriteRequest"]()
    if form == "bin":
        request.ParseFromString(file.read_bytes())
    elif form == "json":
        json_format.Parse(file.read_text(), request)
    else:
        text_format.Parse(file.read_text(), request)
    (table,) = [t["preamble"]["id"] for t in json.loads(info.read_text())["tables"] if t["preamble"]["name"] == "I.t"]
    entries = [update.entity.table_entry for update in request.updates]
    assert [(e.table_id, e.match[0].exact.value, e.action.action.params[0].value, e.is_const) for e in entries] == [
        (table, b"\x01", b"\x11", True),
        (table, b"\x02", b"\x22", True),
    ]
    assert all(update.type == messages["p4.v1.Update"].INSERT for update in request.updates)
