"""PTF, unmodified: packets through kernel interfaces, entries through p4runtime-shell (ptf/controller_tests.py).

As root, in a network namespace of its own; without root it says that it is skipped.
"""

import os
import re
import subprocess
import sys

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE

NAMESPACE = f"sluice-ptf-{os.getpid()}"
PORTS = [1, 2, 3]


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def namespace():
    """A namespace with a pair of interfaces per port: `swN` for the switch, `ptfN` for the tests."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    inside = ["ip", "netns", "exec", NAMESPACE]
    run("ip", "netns", "add", NAMESPACE)
    try:
        run(*inside, "ip", "link", "set", "lo", "up")
        for port in PORTS:
            run(*inside, "ip", "link", "add", f"sw{port}", "type", "veth", "peer", "name", f"ptf{port}")
            for end in [f"sw{port}", f"ptf{port}"]:
                run(*inside, "sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1")
                run(*inside, "ethtool", "-K", end, "tx", "off")
                run(*inside, "ip", "link", "set", end, "up", "promisc", "on")
        yield inside
    finally:
        run("ip", "netns", "del", NAMESPACE)


def test_packets_go_where_entries_say(namespace, tmp_path):
    program = ROOT / "tests/stf/controller/controller.p4"
    p4info = tmp_path / "p4info.txt"
    p4info.write_bytes(subprocess.run([SLUICE, "p4info", program], check=True, capture_output=True).stdout)
    ports = [arg for port in PORTS for arg in ("-i", f"{port}@sw{port}")]
    log = (tmp_path / "switch.log").open("w+")
    switch = subprocess.Popen(
        [*namespace, SLUICE, "run", *ports, "--grpc", "127.0.0.1:9559"], stdout=subprocess.PIPE, stderr=log, text=True
    )
    try:
        for line in switch.stdout:
            if "P4Runtime on" in line:
                break
        params = f"grpcaddr='127.0.0.1:9559';p4info='{p4info}';config='{program}'"
        interfaces = [arg for port in PORTS for arg in ("-i", f"{port}@ptf{port}")]
        ptf = [sys.executable, str(ROOT / ".venv/bin/ptf"), "--test-dir", str(ROOT / "tests/py/ptf"), *interfaces]
        ptf += ["--default-timeout", str(PATIENCE_S)]
        done = subprocess.run(
            [*namespace, *ptf, "--test-params", params, "--log-dir", tmp_path / "logs"], capture_output=True, text=True,
            timeout=10 * PATIENCE_S, cwd=tmp_path,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        assert re.search(r"Ran 4 tests", output), output
    finally:
        switch.terminate()
        assert switch.wait(timeout=PATIENCE_S) == 0
        log.close()
