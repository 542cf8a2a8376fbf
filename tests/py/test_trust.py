"""Every row of `make trust` works: with tiny counts, and what is wrong makes it fail."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE

RUN = ROOT / "bench/trust/run.py"
#: Rows that measure packets against a clock need processors of their own; what they run has tests of its own.
MEASURING = {"updates", "soak"}
#: Is a test of its own, which cargo builds and runs.
ELSEWHERE = {"ports"}
#: Bounds are for a quiet machine and a release build; here a row only has to come to a result.
TIMED = {"restart", "kills", "tuples", "flows", "neighbour", "overload", "guests"}


def load():
    spec = importlib.util.spec_from_file_location("trust_run", RUN)
    module = importlib.util.module_from_spec(spec)
    sys.modules["trust_run"] = module
    spec.loader.exec_module(module)
    return module


trust = load()


@pytest.mark.parametrize("row", [name for name, (_, _, body) in trust.ROWS.items() if callable(body) and name not in MEASURING | ELSEWHERE])
def test_a_row_comes_to_a_result(row):
    command = [sys.executable, str(RUN), "--tiny", "--sluice", str(SLUICE), row]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith(row)), "")
    found = re.match(rf"{row} +(pass|FAIL|cannot run) .*; measured: (.+) \(\d+ s\)", line)
    assert found, done.stdout + done.stderr
    verdict, measured = found.groups()
    if verdict == "cannot run":
        pytest.skip(measured)
    assert verdict == "pass" or (row in TIMED and re.search(r"\d", measured) and "ended with" not in measured), line
    assert done.returncode == (0 if verdict == "pass" else 1)


TURNS = """
│ table       phase                     entries   k/s   batch p50 ms    p99   worst   packets   lost   of them beside others   not sent   ring, most   core was others', s   turns with loss │
│ -           no writes                       -     -              -      -       -       999      9                       0          0          674                 0.002                   │
│ switching   insert                      50000    10           2.02   2.12    3.20      1000     {}                      {}          0         1597                 0.057            2 of 4 │
│ switching   beside insert, no writes        -     -              -      -       -      1000     {}                       0          0         1597                 0.057            {} of 4 │
turns with writes lost more in {} pairs, turns without in {}
"""


def loaded(monkeypatch, *figures):
    monkeypatch.setattr(trust, "command", lambda *words, **more: TURNS.format(*figures))
    return trust.Loaded().run("sluice", 1, 0.9, "insert", 1, 1)


def test_what_writes_add_to_the_losses_of_the_machine_fails(monkeypatch):
    found = loaded(monkeypatch, 30, 10, 0, 0, 3, 0)
    assert found.adds_loss() and found.slowest == 10
    assert "with writes 20 lost of 0.0 million packets, in 2 of 4 turns; without 0 lost" in found.words() and "10 more in the millisecond" in found.words()
    # As often without writes; and all of it beside others.
    assert not loaded(monkeypatch, 30, 10, 25, 2, 3, 2).adds_loss()
    assert not loaded(monkeypatch, 30, 30, 0, 0, 3, 0).adds_loss()
    # A machine that loses all the time shows nothing.
    with pytest.raises(trust.CannotRun):
        loaded(monkeypatch, 30, 10, 25, 3, 1, 1).words()


@pytest.mark.parametrize(("more", "fewer", "verdict"), [(0, 0, False), (2, 0, False), (3, 0, True), (10, 9, False), (9, 10, False), (20, 10, True)])
def test_pairs_of_turns_are_compared_by_the_sign_test(more, fewer, verdict):
    assert trust.is_no_chance(more, fewer) == verdict


def test_rows_that_are_not_built_are_shown_as_open_and_failures_as_such():
    results = {
        "restart": {"measured": "200 ms", "passed": False, "quick": True, "machine": "one"},
        "kills": {"measured": "fine", "passed": True, "quick": False, "machine": "one"},
    }
    lines = {line.split("`")[1]: line for line in trust.table(results).splitlines() if line.startswith("| `")}
    assert set(lines) == set(trust.ROWS)
    assert "200 ms (`--quick`) | **fail** |" in lines["restart"] and "fine | pass |" in lines["kills"]
    assert all("**open**" in line for name, line in lines.items() if name not in results)


def test_the_page_has_the_published_results():
    page = trust.PAGE.read_text()
    results = json.loads(trust.RESULTS.read_text()) if trust.RESULTS.exists() else {}
    assert f"{trust.BEGIN}\n{trust.table(results)}\n{trust.END}" in page, "python3 bench/trust/run.py --publish writes it"
