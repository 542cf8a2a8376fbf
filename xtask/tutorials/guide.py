"""jafingerhut/p4-guide: its PTF tests, each by its own `runptf.sh`, which compiles, starts `simple_switch_grpc` and runs `ptf`."""

import re
from pathlib import Path

from bench import Bench, copy

# By folder: why a test is not one of bmv2.
OTHERS = {"ipdk": "made for DPDK"}


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
    ran = re.search(r"^Ran (\d+) tests? in", text, re.M)
    count = int(ran.group(1)) if ran else 0
    passed = count > 0 and re.search(r"^OK$", text, re.M) and "FAILED" not in text
    bench.check(f"{count} packet tests pass", passed, text)


def exercises(checkout: Path) -> list[tuple[str, object]]:
    """The folders with a script, by name."""
    folders = sorted(str(path.parent.relative_to(checkout)) for path in checkout.rglob("runptf.sh"))
    return [(folder, ptf) for folder in folders if folder.split("/")[0] not in OTHERS]
