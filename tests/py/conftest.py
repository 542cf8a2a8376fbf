"""Starts the daemon for tests, on loopback with ports of its own, and ends it by its process id."""

import os
import re
import select
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# Another build, for what is measured.
SLUICE = TARGET / os.environ.get("SLUICE_PROFILE", "debug") / "sluice"


# How long anything may take: far longer than it does on a machine that has much else to do.
PATIENCE_S = 120


# Where switches make their Unix sockets and commands look for them: this run's own place. Short, as a socket's path must be.
_runtime = tempfile.TemporaryDirectory(prefix="sluice-py-")
os.environ["SLUICE_RUNTIME_DIR"] = _runtime.name
os.environ.pop("SLUICE_GRPC", None)
os.environ.pop("SLUICE_ADMIN", None)


@pytest.fixture
def nobody():
    """An address where nobody listens, and nobody can meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield "127.0.0.1:%d" % taken.getsockname()[1]


class Daemon:
    """A running `sluice run`, where its P4Runtime, and its metrics and thrift (if `args` want them), are. The kernel chooses the ports."""

    def __init__(self, *args: str, prefix=()) -> None:
        where = [] if "--grpc" in args else ["--grpc", "127.0.0.1:0"]
        command = [*prefix, str(SLUICE), "run", *args, *where]
        wanted = r"P4Runtime on ([^ ,]+).*\n"
        if "--metrics" in args:
            wanted += r"(?s:.*)metrics on https?://(?P<metrics>.*)/metrics\n"
        if "--thrift" in args:
            wanted += r"(?s:.*)thrift on (?P<thrift>[^ ,]+).*\n"
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        self.output, chunks = "", b""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(wanted, self.output)):
            ready, _, _ = select.select([self.process.stdout], [], [], 0.1)
            if ready:
                # Not readline: it would take more lines out of the pipe than it returns, and `select` sees the pipe.
                chunk = os.read(self.process.stdout.fileno(), 65536)
                chunks += chunk
                self.output = chunks.decode(errors="replace")
                if not chunk and self.process.poll() is not None:
                    raise AssertionError(f"{command} ended: {self.output}")
            assert time.monotonic() < deadline, f"{command} is not ready: {self.output}"
        told = found.groupdict()
        self.address, self.metrics, self.thrift = found.group(1), told.get("metrics"), told.get("thrift")

    def stop(self) -> int:
        """Ends it as an operator would; returns the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if not self.process.stdout.closed:
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
