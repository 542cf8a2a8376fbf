"""What the suites of `cargo xtask tutorials` share: a copy of a checkout, namespaces, Mininet's command line, and checks.

`run.py` starts this as root in network, mount and process namespaces of their own: whatever is started ends with the namespaces, so
nothing need be cleaned up. Programs of the checkouts run as they are; only the PATH says that bmv2's tools are Sluice.
"""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pexpect

# How long anything may take: far longer than it does on a machine that has much else to do.
PATIENCE_S = 120
PROMPT = "mininet> "
# What terminals are told about colours and line editing.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Unmet(Exception):
    """A step without which the rest of an exercise means nothing did not happen."""


class Bench:
    """One exercise: its folder, and what came of its checks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checks: list[tuple[str, bool, str]] = []
        self.open: list[str] = []
        self.background: list[subprocess.Popen] = []

    def check(self, name: str, holds: object, detail: object = "") -> bool:
        """Notes whether something holds; `detail` is what was found instead."""
        self.checks.append((name, bool(holds), "" if holds else str(detail)[-2000:]))
        return bool(holds)

    def must(self, name: str, holds: object, detail: object = "") -> None:
        """As `check`, but the rest of the exercise needs it."""
        if not self.check(name, holds, detail):
            raise Unmet(name)

    def not_asserted(self, why: str) -> None:
        """What a README promises and is not looked at here."""
        self.open.append(why)

    def run(self, *command: str, timeout: float = PATIENCE_S, cwd: Path | None = None) -> tuple[int, str]:
        """Exit code and output of a command in the exercise's folder."""
        done = subprocess.run(
            command, cwd=cwd or self.folder, timeout=timeout, text=True, errors="replace", stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )
        return done.returncode, done.stdout

    def start(self, *command: str, log: str) -> "Started":
        """Starts a command whose output goes into a file of the folder."""
        path = self.folder / log
        with path.open("w") as file:
            process = subprocess.Popen(command, cwd=self.folder, stdout=file, stderr=subprocess.STDOUT)
        self.background.append(process)
        return Started(process, path)

    def result(self) -> str:
        """One line of JSON for whoever prints the table."""
        return json.dumps({"checks": self.checks, "open": self.open})


class Started:
    """A command in the background."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        self.process, self.log = process, log

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()


class Mininet:
    """Mininet's command line, driven as a user does it."""

    def __init__(self, bench: Bench, *command: str, env: dict[str, str] | None = None) -> None:
        self.bench = bench
        log = (bench.folder / "mininet.log").open("wb")
        self.shell = pexpect.spawn(
            command[0], list(command[1:]), cwd=str(bench.folder), timeout=PATIENCE_S, env={**os.environ, **(env or {})},
            dimensions=(50, 400), echo=False,
        )
        self.shell.logfile_read = log
        started = self.shell.expect_exact([PROMPT, pexpect.EOF, pexpect.TIMEOUT])
        self.begin = ESCAPES.sub("", self.shell.before.decode(errors="replace")) if started == 0 else self.tail()
        bench.must("the network starts", started == 0, self.begin)

    def tail(self) -> str:
        """What was printed last."""
        before = self.shell.before
        return ESCAPES.sub("", before.decode(errors="replace"))[-2000:] if isinstance(before, bytes) else ""

    def do(self, line: str, timeout: float = PATIENCE_S) -> str:
        """What a command prints."""
        self.shell.sendline(line)
        self.shell.expect_exact(PROMPT, timeout=timeout)
        return self.tail_all()

    def tail_all(self) -> str:
        return ESCAPES.sub("", self.shell.before.decode(errors="replace"))

    def talk(self, line: str, answers: list[tuple[str, str]], end: str, timeout: float = PATIENCE_S) -> str:
        """A command that asks: when it prints the first of a pair, it is given the second. `end` ends it."""
        text = ""
        self.shell.sendline(line)
        for asked, answer in [*answers, (answers[-1][0], end)]:
            self.shell.expect_exact(asked, timeout=timeout)
            text += self.tail_all()
            # Mininet reads a key when one comes, and looks no further: what is typed at once stays where it has buffered it.
            for key in answer + "\n":
                time.sleep(0.05)
                self.shell.send(key)
        self.shell.expect_exact(PROMPT, timeout=timeout)
        return text + self.tail_all()

    def listen(self, host: str, script: str = "./receive.py", said: str = "sniffing on") -> "Listener":
        """Starts a script on a host that prints what it receives, and waits until it listens."""
        log = self.bench.folder / f"{host}-{Path(script.split()[0]).stem}.log"
        self.do(f"{host} python3 -u {script} > {log.name} 2>&1 &")
        listener = Listener(log)
        self.bench.must(f"{host} listens", listener.wait(lambda text: said in text), listener.text())
        # It has said so just before it opens its socket.
        time.sleep(1)
        return listener

    def pings(self, a: str, b: str, count: int = 3, deadline_s: int = 10) -> bool:
        """Whether all pings are answered."""
        text = self.do(f"{a} ping -c {count} -w {deadline_s} {b}")
        return f"{count} received, 0% packet loss" in text

    def serve(self, *hosts: str) -> None:
        """Starts iperf's servers. Mininet's own `iperf` waits for what the servers of Debian 12 do not print: it does not end."""
        for host in hosts:
            self.do(f"{host} iperf -s > /dev/null 2>&1 &")
        time.sleep(1)

    def rate(self, host: str, address: str, seconds: int = 2) -> float:
        """Mb/s of a TCP connection; 0 if there is none."""
        text = self.do(f"{host} timeout -s KILL {seconds + 20} iperf -c {address} -t {seconds} -f m")
        found = re.search(r"([\d.]+) Mbits/sec", text)
        return float(found.group(1)) if found else 0

    def stop(self) -> None:
        """Leaves it as a user does."""
        self.shell.sendline("exit")
        self.shell.expect(pexpect.EOF)
        self.shell.close()


class Listener:
    """What a script on a host prints."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait(self, holds, patience_s: float = PATIENCE_S) -> bool:
        """Waits until something holds of what was printed."""
        deadline = time.monotonic() + patience_s
        while not holds(self.text()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def packets(self) -> list[str]:
        """The packets that scapy printed."""
        return self.text().split("###[ Ethernet ]###")[1:]

    def settled(self, seconds: float = 2) -> list[str]:
        """The packets when no more have come for a while."""
        count, since = len(self.packets()), time.monotonic()
        while time.monotonic() - since < seconds:
            time.sleep(0.2)
            if len(self.packets()) != count:
                count, since = len(self.packets()), time.monotonic()
        return self.packets()


def field(packet: str, name: str) -> str:
    """The first value of a field in what scapy prints of a packet."""
    found = re.search(rf"\b{name}\s*= (\S+)", packet)
    return found.group(1) if found else ""


def wait_for(holds, patience_s: float = PATIENCE_S) -> bool:
    """Waits until something holds."""
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def copy(checkout: Path, work: Path, *parts: str) -> None:
    """Copies parts of a checkout, which itself stays as it is."""
    for part in parts:
        source, target = checkout / part, work / part
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
