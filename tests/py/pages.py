"""Runs the commands of a documentation page and compares what they print with what the page shows.

    pages.py PAGE [SECTION]        prints what each command prints, for writing pages (of the `sluice` that $SLUICE names)

A page's fenced blocks:

    ```console              `$ COMMAND` lines, `> ` lines that continue them, and below each what it prints
    ```console retry        the same; a command is run again until it prints that: for what takes a moment
    ```console fails        the same; the last command ends with another exit code than 0
    ```p4 NAME              a file of that name (any language)

Others are not run. A line `...` stands for any lines, `...` within a line for any text; spaces are compared as one. A page runs
in one shell, in a temporary folder, in namespaces of its own (network, mount, process), which end with it. A page that is
marked `<!-- each section alone -->` runs each `##` section by itself, after what stands above the first.
"""

import os
import re
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DONE = "=== done "


@dataclass
class Command:
    text: str
    shown: list[str]
    line: int
    retry: bool = False
    fails: bool = False


@dataclass
class File:
    name: str
    text: str


@dataclass
class Section:
    title: str
    steps: list[Command | File] = field(default_factory=list)


def sections(page: Path) -> list[Section]:
    """What stands above the first `##`, and each section; without the mark, all as one."""
    text = page.read_text()
    alone = "<!-- each section alone -->" in text
    found, block, info, start = [Section("")], None, [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if block is None and line.startswith("```"):
            block, info, start = [], line[3:].split(), number
        elif line.startswith("```"):
            found[-1].steps += steps(info, block, start)
            block = None
        elif block is not None:
            block.append(line)
        elif alone and line.startswith("## "):
            found.append(Section(line[3:]))
    assert block is None, f"{page}:{start}: this block does not end"
    return found


def steps(info: list[str], block: list[str], start: int) -> list[Command | File]:
    if info[:1] == ["console"]:
        done = []
        for number, line in enumerate(block, start + 1):
            if line.startswith("$ "):
                done.append(Command(line[2:], [], number, retry="retry" in info))
            elif line.startswith("> ") and done and not done[-1].shown:
                done[-1].text += "\n" + line[2:]
            else:
                assert done, f"line {number}: output before a command"
                done[-1].shown.append(line)
        done[-1].fails = "fails" in info
        return done
    if len(info) == 2:
        return [File(info[1], "\n".join(block) + "\n")]
    return []


def same(shown: list[str], printed: list[str]) -> bool:
    """Whether what a page shows is what was printed."""

    def pattern(line: str) -> str:
        words = " ".join(line.split())
        # ` ...` at the end may stand for nothing at all.
        words, rest = (words[:-4], ".*") if words.endswith(" ...") else (words, "")
        return ".*".join(re.escape(part) for part in words.split("...")) + rest

    lines = ["(?:.*\n)*" if line.strip() == "..." else pattern(line) + "\n" for line in shown]
    text = "".join(" ".join(line.split()) + "\n" for line in printed)
    return re.fullmatch("".join(lines), text) is not None


class Shell:
    """A shell in namespaces of its own, in `folder`; everything that it starts ends with it."""

    def __init__(self, folder: Path, binary: Path, patience_s: float) -> None:
        self.patience_s = patience_s
        for shared in ["crates", "examples"]:
            (folder / shared).symlink_to(ROOT / shared)
        places = [str(binary.parent), str(ROOT / ".venv-finsy/bin"), os.environ["PATH"]]
        (folder / ".run").mkdir()
        environment = {
            "PATH": ":".join(places), "HOME": str(folder), "LC_ALL": "C.UTF-8", "SLUICE_RUNTIME_DIR": str(folder / ".run"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        setup = "mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && exec bash --noprofile --norc"
        apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", setup]
        self.process = subprocess.Popen(
            apart, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, env=environment
        )
        self.waiting = selectors.DefaultSelector()
        self.waiting.register(self.process.stdout, selectors.EVENT_READ)

    def run(self, command: str) -> tuple[int, list[str]]:
        """Exit code and lines printed."""
        self.process.stdin.write(f"{{ {command}\n}} </dev/null 2>&1; code=$?; echo; echo \"{DONE}$code\"\n".encode())
        self.process.stdin.flush()
        said, deadline = b"", time.monotonic() + self.patience_s
        while not (end := re.search(rf"\n{DONE}(\d+)\n$".encode(), said)):
            assert time.monotonic() < deadline, f"{command!r} takes too long; it printed:\n{said.decode()}"
            if self.waiting.select(0.1):
                chunk = os.read(self.process.stdout.fileno(), 65536)
                assert chunk, f"the shell ended: {said.decode()}"
                said += chunk
        printed = said[: end.start()].decode(errors="replace").splitlines()
        return int(end.group(1)), printed

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.waiting.close()


def run(all_steps: list[Command | File], folder: Path, binary: Path, patience_s: float, told=None) -> int:
    """Runs steps; fails at the first that prints something else than shown. How many commands ran. `told` is given what each prints."""
    shell, count = Shell(folder, binary, patience_s), 0
    try:
        for step in all_steps:
            if isinstance(step, File):
                (folder / step.name).write_text(step.text)
                continue
            count += 1
            deadline = time.monotonic() + (5 if told else patience_s)
            while True:
                code, printed = shell.run(step.text)
                right = same(step.shown, printed) and (code != 0) == step.fails
                if right or not step.retry or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            if told:
                told(step, code, printed, right)
                continue
            shown, got = "\n".join(step.shown), "\n".join(printed)
            assert right, f"line {step.line}: `{step.text}` ended with {code} and printed\n{got}\nbut the page shows\n{shown}"
    finally:
        shell.close()
    return count


def main() -> None:
    import tempfile

    found = sections(Path(sys.argv[1]))
    chosen = [s for s in found[1:] if any(word in s.title for word in sys.argv[2:])] if len(found) > 1 else []

    def told(step, code, printed, right):
        print("" if right else f"\033[31mline {step.line}, exit code {code}:\033[0m")
        print("$ " + step.text.replace("\n", "\n> "))
        print("\n".join(printed))

    binary = Path(os.environ.get("SLUICE", ROOT / "target/debug/sluice")).absolute()
    for section in chosen or [Section("")]:
        print(f"\n## {section.title}")
        with tempfile.TemporaryDirectory(prefix="pages-") as folder:
            run(found[0].steps + section.steps, Path(folder), binary, 60, told)


if __name__ == "__main__":
    main()
