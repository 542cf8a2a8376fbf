"""Starts the daemon for tests, on loopback with ports of its own, and ends it by its process id."""

import os
import re
import select
import socket
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# Another build, for what is measured.
SLUICE = TARGET / os.environ.get("SLUICE_PROFILE", "debug") / "sluice"


def free_port() -> int:
    """A TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """A running `sluice run`."""

    def __init__(self, *args: str, prefix=()) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        command = [*prefix, str(SLUICE), "run", *args, "--grpc", self.address]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        self.output = ""
        deadline = time.monotonic() + 60
        while "P4Runtime on" not in self.output:
            ready, _, _ = select.select([self.process.stdout], [], [], 0.1)
            if ready:
                # Not readline: it would take more lines out of the pipe than it returns, and `select` sees the pipe.
                chunk = os.read(self.process.stdout.fileno(), 65536).decode()
                self.output += chunk
                if not chunk and self.process.poll() is not None:
                    raise AssertionError(f"{command} ended: {self.output}")
            assert time.monotonic() < deadline, f"{command} is not ready: {self.output}"

    def stop(self) -> int:
        """Ends it as an operator would; returns the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.output += self.process.stdout.read()
        self.process.stdout.close()
        return code


@pytest.fixture
def daemon():
    """`daemon(*args)` starts a switch; all are stopped at the end of the test, and must have ended well."""
    started = []

    def start(*args: str) -> Daemon:
        started.append(Daemon(*args))
        return started[-1]

    yield start
    codes = [(d.stop(), d.output) for d in started]
    for code, output in codes:
        assert code == 0, output
        assert not re.search("panicked", output), output


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    """The daemon must have been built (scripts/test does)."""
    assert SLUICE.exists(), f"{SLUICE} is missing: cargo build"
