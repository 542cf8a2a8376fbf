"""jafingerhut/p4-guide: its PTF tests, each by its own `runptf.sh`, which compiles, starts `simple_switch_grpc` and runs `ptf`."""

import re
from pathlib import Path

from bench import Bench, copy

# By folder: why a test is not one of bmv2.
OTHERS = {"ipdk": "made for DPDK"}
# By folder: tests that do not pass, and why.
WRONG = {
    "lpmtester/lpmwidth20bits": ("BasicTest2", "indexes a list of its own behind its end"),
    "ptf-tests/duplicatekeys": ("IPv4FwdTest", "expects 192&&&255 to match the first byte of an address"),
    "ptf-tests/idletimeout": (
        "ServerDetectsBadTableEntryOptionsTest", "compares the message of a refusal with bmv2's; the code is the same"
    ),
}


def prepare(checkout: Path, work: Path, exercise: str) -> Bench:
    """A copy of the test's folder, and of what its script looks for beside it."""
    top = exercise.split("/")[0]
    copy(checkout, work, "bin", "testlib", top)
    return Bench(work / exercise)


def ptf(bench: Bench) -> None:
    root = next(path for path in bench.folder.parents if (path / "testlib").is_dir())
    code, text = bench.run("bash", str(root / "bin/veth_setup.sh"))
    bench.must("interfaces are made", code == 0, text)
    _, text = bench.run("bash", "./runptf.sh", timeout=900)
    (bench.folder / "runptf.txt").write_text(text)
    ran = re.search(r"^Ran (\d+) tests? in", text, re.M)
    count = int(ran.group(1)) if ran else 0
    # What went wrong stands before what ends the switch.
    said = text.split("PTF test finished")[0]
    names = re.findall(r"The following tests (?:failed|errored):\n(.*)", said)
    failed = {name.strip() for line in names for name in line.split(",")}
    name, why = WRONG.get(str(bench.folder.relative_to(root)), ("", ""))
    bench.check(f"{count} packet tests run", count > 0, said)
    bench.check("those pass that should", failed <= {name}, said)
    if name:
        bench.not_asserted(f"{name} {why}")


def exercises(checkout: Path) -> list[tuple[str, object]]:
    """The folders with a script, by name."""
    folders = sorted(str(path.parent.relative_to(checkout)) for path in checkout.rglob("runptf.sh"))
    return [(folder, ptf) for folder in folders if folder.split("/")[0] not in OTHERS]
