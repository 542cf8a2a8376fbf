"""What systemd is told, and that the unit file is one."""

import shutil
import socket
import subprocess

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE


def test_says_when_it_is_ready_alive_and_stopping(tmp_path, monkeypatch, daemon):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")

        def told():
            return systemd.recv(4096).decode().splitlines()

        switch = daemon("examples/router/router.p4", "-i", "1@memory", "-i", "2@memory")
        assert told() == ["READY=1", "STATUS=2 ports, 1 workers"]
        assert told() == ["WATCHDOG=1"]
        assert told() == ["WATCHDOG=1"]
        switch.process.terminate()
        last = told()
        while last == ["WATCHDOG=1"]:
            last = told()
        assert last == ["STOPPING=1"]


def test_the_service_has_few_rights():
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze")
    # What it says in tenths; a unit that says nothing has 96.
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", "dist/sluice.service"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "unrecognized option" in checked.stderr:
        pytest.skip("this systemd-analyze does not read files")
    assert checked.returncode == 0, checked.stdout[-200:] + checked.stderr


def test_the_unit_file_is_one(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze")
    # It checks that the program is there.
    unit = (ROOT / "dist/sluice.service").read_text().replace("/usr/local/bin/sluice", str(SLUICE))
    (tmp_path / "sluice.service").write_text(unit)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "sluice.service")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    ours = [line for line in checked.stderr.splitlines() if "sluice" in line]
    assert checked.returncode == 0 and ours == [], checked.stderr
