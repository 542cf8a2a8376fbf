"""What the command does when nobody takes its output.

Run: cargo build -p sluice && pytest tests/py/test_output.py
"""

import subprocess

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE

@pytest.fixture
def wrong(tmp_path):
    """A program that is refused."""
    path = tmp_path / "wrong.p4"
    path.write_text("control c() { apply { x = 1; } }\n")
    return str(path)


def sluice(*words, **streams):
    return subprocess.run([SLUICE, *words], timeout=PATIENCE_S, cwd=ROOT, **streams)


def test_a_reader_that_has_gone_is_no_error():
    command = subprocess.Popen([SLUICE, "explain"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    command.stdout.close()
    assert command.stderr.read() == b""
    assert command.wait(PATIENCE_S) == 0


def test_a_full_disk_is_one():
    with open("/dev/full", "wb") as full:
        done = sluice("explain", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert b"sluice: failed printing to stdout" in done.stderr


def test_diagnostics_that_nobody_gets_are_one(wrong):
    with open("/dev/full", "wb") as full:
        assert sluice("check", wrong, stderr=full).returncode == 2
    assert sluice("check", wrong, stderr=subprocess.DEVNULL).returncode == 1
