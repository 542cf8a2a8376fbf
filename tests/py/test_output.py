"""What the command does when nobody takes its output, and what it says of wrong input by its exit code.

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


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["check", "X", "--ir-after", "joined_tables"], 2, b"belongs to code generation"),
        (["check", "X", "--ir-after", "const_prop", "--without", "const_prop"], 2, b"switches `const_prop` off"),
        (["bench", "X", "--packets", "PACKETS"], 1, b"`x` is not a hexadecimal digit"),
        (["bench", "X", "--packets", "PACKETS", "--rounds", "0"], 2, b"0 is not in 1..="),
        (["run", "X", "-i", "0@s0,foo=1"], 2, b"`foo=1` is no option of a port of kind af_packet; there are mtu=N"),
    ],
)
def test_wrong_input_and_wrong_use_have_exit_codes_of_their_own(tmp_path, words, code, said):
    (tmp_path / "packets").write_text("packet 1 0x\n")
    places = {"X": "examples/l2/l2.p4", "PACKETS": str(tmp_path / "packets")}
    done = sluice(*(places.get(word, word) for word in words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr.decode()
