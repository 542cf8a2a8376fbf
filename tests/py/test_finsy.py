"""The unmodified client finsy: every kind of entity written, read back, and seen in packets (finsy_controller.py)."""

import subprocess

from conftest import PATIENCE_S, ROOT, SLUICE

PYTHON = ROOT / ".venv-finsy/bin/python"
PROGRAM = ROOT / "tests/py/everything.p4"


def test_every_kind_of_entity(daemon, tmp_path):
    assert PYTHON.exists(), f"{PYTHON} is missing: scripts/setup"
    p4info = tmp_path / "p4info.txt"
    p4info.write_bytes(subprocess.run([SLUICE, "p4info", PROGRAM], check=True, capture_output=True).stdout)
    switch = daemon("-i", "1@memory")
    script = ROOT / "tests/py/finsy_controller.py"
    command = [PYTHON, script, switch.address, p4info, PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "41 checks passed" in done.stdout
