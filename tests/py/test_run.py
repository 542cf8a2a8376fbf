"""`sluice run` on capture files: every packet, in order, from the first one on."""

import os
import signal
import struct
import subprocess

from conftest import PATIENCE_S, ROOT, SLUICE

ROUTER = "examples/router/router.p4"
ENTRIES = """\
add ipv4_lpm hdr.ipv4.dstAddr:10.0.0.0/8 set_nexthop(nexthop:1)
add nexthop meta.nexthop:1 send(port:2, srcAddr:02:00:00:00:00:ff, dstAddr:02:00:00:00:00:0b)
"""


def checksum(header: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(number: int) -> bytes:
    """An IPv4 packet for 10.0.0.1 that carries its number."""
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 24, 1, 0, 64, 253, 0, bytes([10, 9, 9, 9]), bytes([10, 0, 0, 1]))
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    ethernet = bytes.fromhex("0200000000ff02000000000a0800")
    return ethernet + header + struct.pack("!I", number)


def write_pcap(path, frames) -> None:
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for i, data in enumerate(frames):
            file.write(struct.pack("<IIII", i // 1000, i % 1000, len(data), len(data)) + data)


def read_pcap(path) -> list[bytes]:
    data = path.read_bytes()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    frames, at = [], 24
    while at < len(data):
        length = struct.unpack_from(f"{order}I", data, at + 8)[0]
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames


def test_a_capture_file_goes_through_whole_and_in_order(tmp_path):
    count = 20_000
    write_pcap(tmp_path / "in.pcap", (frame(i) for i in range(count)))
    write_pcap(tmp_path / "empty.pcap", [])
    (tmp_path / "entries").write_text(ENTRIES)
    command = [SLUICE, "run", ROUTER, "--grpc", "none", "--entries", tmp_path / "entries"]
    command += ["-i", f"1@pcap:{tmp_path}/in.pcap", "-i", f"2@pcap:{tmp_path}/empty.pcap,{tmp_path}/out.pcap"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert f"{count} packets received, {count} sent" in done.stderr
    out = read_pcap(tmp_path / "out.pcap")
    assert [struct.unpack("!I", data[-4:])[0] for data in out] == list(range(count))
    assert all(data[22] == 63 for data in out), "TTL is decremented"
    assert all(checksum(data[14:34]) == 0 for data in out[:100])


def test_bad_ports_are_refused_with_what_is_wrong(tmp_path):
    def refused(*args: str) -> str:
        done = subprocess.run([SLUICE, "run", *args], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 2, done
        return done.stderr

    assert "does not fit" in refused(ROUTER, "-i", "600@memory", "--grpc", "none")
    assert "drop" in refused(ROUTER, "-i", "511@memory", "--grpc", "none")
    assert "given twice" in refused("-i", "1@memory", "-i", "1@memory")
    assert "ports 1 and 2" in refused("-i", "1@tap:x", "-i", "2@tap:x")
    assert "controller" in refused("-i", "510@memory")
    assert "no-such-interface" in refused("-i", "1@no-such-interface", "--grpc", "none")


def test_bad_entries_are_reported_line_by_line(tmp_path):
    (tmp_path / "entries").write_text("add nothing a:1 b()\nadd nexthop meta.nexthop:1 send(port:2)\n")
    command = [SLUICE, "run", ROUTER, "--grpc", "none", "--entries", tmp_path / "entries"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "line 1: there is no table `nothing`" in done.stderr
    assert "line 2: action `MyIngress.send` needs a value for `srcAddr`" in done.stderr


def test_ends_on_interrupt(daemon):
    switch = daemon(ROUTER, "-i", "1@memory")
    os.kill(switch.process.pid, signal.SIGINT)
    assert switch.process.wait(timeout=PATIENCE_S) == 0
