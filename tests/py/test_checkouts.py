"""What `cargo xtask tutorials` makes for exercises: a /tmp of their own, in a mount namespace that ends with them. Needs root, as it does."""

import subprocess
import sys
import tempfile
from pathlib import Path

from conftest import ROOT

# Goes where an exercise goes, and says what is there.
EXERCISE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from own_tmp import hide_tmp
work, needed, beside = Path(sys.argv[2]), [Path(path) for path in sys.argv[3].split(":")], Path(sys.argv[4])
hide_tmp(work, needed)
print(*((path / "here").read_text() if path.is_dir() else path.read_text() for path in needed), beside.exists())
Path("/tmp/left-by-an-exercise").touch()
"""


def test_a_checkout_below_tmp_stays_where_it_is_and_the_rest_is_hidden():
    with tempfile.TemporaryDirectory(dir="/tmp") as below, tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        checkout, modules, tool, beside = (Path(below, name) for name in ["checkout", "checkout/modules", "tool", "beside"])
        for folder in (checkout, modules, beside):
            folder.mkdir()
            (folder / "here").write_text(folder.name)
        tool.write_text("tool")
        needed = ":".join(map(str, [modules, tool, checkout]))
        done = subprocess.run(
            ["unshare", "--mount", sys.executable, "-c", EXERCISE, str(ROOT / "xtask/tutorials"), work, needed, str(beside)],
            capture_output=True, text=True, check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["modules", "tool", "checkout", "False"]
        # Nothing is left of it outside.
        assert not Path("/tmp/left-by-an-exercise").exists()
        assert (beside / "here").exists()
