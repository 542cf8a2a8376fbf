"""A /tmp of an exercise's own, in its mount namespace. Tests: `tests/py/test_checkouts.py`."""

import subprocess
from pathlib import Path

TMP = Path("/tmp")


def hide_tmp(work: Path, needed: list[Path]) -> None:
    """Scripts write below /tmp: they get an empty one, unless the work is done there. What is needed of the old one keeps its place."""
    if work.resolve().is_relative_to(TMP):
        return
    # Parents come before what is in them.
    kept = sorted({path.resolve() for path in needed if path.exists() and path.resolve().is_relative_to(TMP)})
    held = [work.resolve() / ".needed" / str(number) for number in range(len(kept))]
    for path, holder in zip(kept, held):
        bind(path, holder, path.is_dir())
    mount("-t", "tmpfs", "tmpfs", str(TMP))
    for path, holder in zip(kept, held):
        bind(holder, path, holder.is_dir())


def bind(path: Path, at: Path, is_folder: bool) -> None:
    """Shows a folder or file at another place, too."""
    if is_folder:
        at.mkdir(parents=True, exist_ok=True)
    elif not at.exists():
        at.parent.mkdir(parents=True, exist_ok=True)
        at.touch()
    mount("--bind", str(path), str(at))


def mount(*args: str) -> None:
    subprocess.run(["mount", *args], check=True)
