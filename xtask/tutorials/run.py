"""Runs one exercise of a checkout: `run.py SUITE CHECKOUT WORK EXERCISE`; `run.py SUITE CHECKOUT` lists the exercises.

`cargo xtask tutorials` starts it as root in namespaces of its own. The last line that it prints is the result in JSON.
"""

import importlib
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import pexpect

import bench
from own_tmp import hide_tmp


def main() -> int:
    suite, checkout, *rest = sys.argv[1:]
    module = importlib.import_module(suite)
    checkout = Path(checkout).resolve()
    names = [name for name, _ in module.exercises(checkout)]
    if not rest:
        print("\n".join(names))
        return 0
    work, exercise = Path(rest[0]), rest[1]
    hide_tmp(work, [checkout, *needed()])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # /sys shows the interfaces of the namespace that it was mounted in.
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    run = dict(module.exercises(checkout))[exercise]
    at = module.prepare(checkout, work, exercise)
    try:
        run(at)
    except bench.Unmet:
        pass
    except (pexpect.ExceptionPexpect, subprocess.SubprocessError, OSError, IndexError, KeyError, ValueError) as error:
        at.check(f"runs to its end ({type(error).__name__})", False, traceback.format_exc())
    print(at.result())
    return 0


def needed() -> list[Path]:
    """What exercises use besides the checkout: these programs, Python's packages and modules, and what is run as bmv2."""
    modules = [Path(path) for path in os.environ.get("PYTHONPATH", "").split(":") if path]
    tools = [Path(tool) for tool in [shutil.which("simple_switch"), shutil.which("sudo")] if tool]
    return [Path(__file__).parent, Path(sys.prefix), *modules, *tools]


if __name__ == "__main__":
    sys.exit(main())
