"""The unmodified client p4runtime-shell drives the daemon."""

import subprocess

import p4runtime_sh.shell as sh
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE
from p4runtime_sh.p4runtime import P4RuntimeWriteException

CONTROLLER = "tests/stf/controller/controller.p4"


@pytest.fixture
def shell():
    """`shell(daemon, config=None)` connects; the connection is closed at the end."""

    def connect(daemon, config=None) -> None:
        sh.setup(device_id=1, grpc_addr=daemon.address, election_id=(0, 1), config=config, verbose=False)

    yield connect
    sh.teardown()


def write_p4info(program: str, path) -> None:
    """What `sluice p4info` prints, as the file that the client wants."""
    text = subprocess.run([SLUICE, "p4info", program], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    path.write_text(text)


def test_sets_the_program_and_reads_it_back(daemon, shell, tmp_path):
    switch = daemon("-i", "1@memory")
    p4info = tmp_path / "p4info.txt"
    write_p4info(CONTROLLER, p4info)
    shell(switch, sh.FwdPipeConfig(str(p4info), str(ROOT / CONTROLLER)))
    assert "MyIngress.station" in [table.name for table in sh.P4Objects(sh.P4Type.table)]
    # A second program replaces it.
    write_p4info("examples/l2/l2.p4", p4info)
    sh.teardown()
    shell(switch, sh.FwdPipeConfig(str(p4info), str(ROOT / "examples/l2/l2.p4")))
    assert "MyIngress.switching" in [table.name for table in sh.P4Objects(sh.P4Type.table)]


def test_table_entries_are_written_read_changed_and_deleted(daemon, shell):
    shell(daemon(CONTROLLER, "-i", "1@memory"))
    entry = sh.TableEntry("MyIngress.station")(action="MyIngress.forward")
    entry.match["dst"] = "02:00:00:00:00:0b"
    entry.action["port"] = "2"
    entry.insert()
    with pytest.raises(P4RuntimeWriteException, match="ALREADY_EXISTS"):
        entry.insert()

    ports = []
    sh.TableEntry("MyIngress.station").read(lambda te: ports.append(te.action["port"].value))
    assert ports == [b"\x02"]

    entry.action["port"] = "3"
    entry.modify()
    ports.clear()
    sh.TableEntry("MyIngress.station").read(lambda te: ports.append(te.action["port"].value))
    assert ports == [b"\x03"]

    entry.delete()
    with pytest.raises(P4RuntimeWriteException, match="NOT_FOUND"):
        entry.delete()


def test_ternary_and_optional_keys_need_a_priority(daemon, shell):
    shell(daemon(CONTROLLER, "-i", "1@memory"))
    entry = sh.TableEntry("MyIngress.acl")(action="MyIngress.drop")
    entry.match["ether_type"] = "0x1234 &&& 0xffff"
    entry.match["port"] = "3"
    with pytest.raises(P4RuntimeWriteException, match="INVALID_ARGUMENT"):
        entry.insert()
    entry.priority = 10
    entry.insert()
    found = []
    sh.TableEntry("MyIngress.acl").read(lambda te: found.append(te.priority))
    assert found == [10]


def test_packets_out_and_in_and_counters(daemon, shell):
    shell(daemon(CONTROLLER, "-i", "1@memory"))
    frame = bytes.fromhex("02000000000b02000000000a1234") + b"hello, controller"
    # Out by the controller's own port: the frame comes back as it is, without a packet-in header that the program
    # would have added, so its first 16 bits are taken for one: 0x0200 is port 4, reason 0.
    packet_out = sh.PacketOut(frame, egress_port="510")
    packet_out.send()
    received = []
    packet_in = sh.PacketIn()
    received.append(packet_in.packet_in_queue.get(timeout=PATIENCE_S))
    packet_in.sniff(lambda message: received.append(message), timeout=0.5)
    assert [m.packet.payload for m in received] == [frame[2:]]

    read = []
    counter = sh.CounterEntry("MyIngress.received")
    counter.index = 510
    counter.read(lambda ce: read.append((ce.packet_count, ce.byte_count)))
    # 31 bytes of frame and 2 of packet-out header.
    assert read == [(1, len(frame) + 2)]


def test_a_program_that_is_wrong_is_refused_and_the_old_one_goes_on(daemon, shell, tmp_path, caplog):
    switch = daemon(CONTROLLER, "-i", "1@memory")
    shell(switch)
    entry = sh.TableEntry("MyIngress.station")(action="MyIngress.drop")
    entry.match["dst"] = "1"
    entry.insert()
    sh.teardown()

    bad = tmp_path / "bad.p4"
    bad.write_text((ROOT / CONTROLLER).read_text().replace("received.count(", "recieved.count("))
    p4info = tmp_path / "p4info.txt"
    write_p4info(CONTROLLER, p4info)
    # The client logs the refusal, closes its connection and exits.
    with pytest.raises(SystemExit):
        sh.setup(1, switch.address, (0, 1), None, sh.FwdPipeConfig(str(p4info), str(bad)), verbose=False)
    assert "did you mean `received`?" in caplog.text
    shell(switch)
    found = []
    sh.TableEntry("MyIngress.station").read(found.append)
    assert len(found) == 1
