"""What stands between the generator's two ports: dpdk-testpmd, OVS-DPDK, Sluice.

Each is started once, on sockets of its own, and stopped in the sense of SIGSTOP while another one is measured; so tables are
loaded once and a round is short. Its forwarding thread has CPU 0 for itself and real-time priority; all its other threads
are on CPU 1, beside the generator, one priority higher: they sleep nearly always, as on a machine with more cores.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from links import Link

WORKER_CPU = 0
OTHER_CPU = 1
WORKER_PRIORITY = 20
OTHER_PRIORITY = 21
WORKER_NICE = -20
OTHER_NICE = -15
GENERATOR_NICE = -10
START_SECONDS_MAX = 120


class Failed(Exception):
    """A middle did not start, with what it said."""


class Middle:
    """A process that forwards between two ports."""

    name = ""
    #: The forwarding thread's name begins like this.
    worker = ""
    #: Whether its threads have real-time priority; otherwise they are nicer to one another than to anybody else.
    realtime = True

    def __init__(self, folder: Path, link: type[Link]):
        self.folder = folder / re.sub(r"\W+", "-", self.name)
        self.folder.mkdir()
        self.link = link(self.folder)
        self.process: subprocess.Popen | None = None
        self.log = self.folder / "log.txt"

    def sockets(self) -> list[str]:
        """What the generator's ports connect to, as `portgen --port` takes them."""
        return [self.link.generator(i) for i in range(2)]

    def spawn(self, command: list[str]) -> None:
        """Starts the process that forwards."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(OTHER_CPU), *command], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )

    def start(self) -> None:
        """Starts it and returns when its ports are there; it is paused then."""
        self.link.make()
        self.launch()

    def launch(self) -> None:
        """`start` for one kind of middle."""
        raise NotImplementedError

    def wait_for(self, what: str, ready) -> None:
        """Waits until `ready()`."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready():
            if self.pid() is None or time.monotonic() > deadline:
                raise Failed(f"{self.name}: {what} did not come:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.02)

    def pid(self) -> int | None:
        """The process that forwards, while it runs."""
        return self.process.pid if self.process and self.process.poll() is None else None

    def threads(self) -> dict[int, str]:
        """Thread names."""
        found = {}
        for task in Path(f"/proc/{self.pid()}/task").iterdir():
            try:
                found[int(task.name)] = (task / "comm").read_text().strip()
            except FileNotFoundError:
                continue
        return found

    def settle(self) -> None:
        """Gives each thread its CPU and priority."""
        self.wait_for(f"thread {self.worker}", lambda: any(n.startswith(self.worker) for n in self.threads().values()))
        for thread, name in self.threads().items():
            mine = name.startswith(self.worker)
            try:
                os.sched_setaffinity(thread, {WORKER_CPU if mine else OTHER_CPU})
                if not self.realtime:
                    os.setpriority(os.PRIO_PROCESS, thread, WORKER_NICE if mine else OTHER_NICE)
                    continue
                priority = WORKER_PRIORITY if mine else OTHER_PRIORITY
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))
            except ProcessLookupError:
                continue

    def pause(self) -> None:
        """Nothing of it runs until `resume`."""
        if self.pid():
            os.kill(self.pid(), signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on."""
        self.settle()
        os.kill(self.pid(), signal.SIGCONT)

    def stop(self) -> None:
        """Ends it."""
        self.end()
        self.link.remove()

    def end(self) -> None:
        """`stop` for one kind of middle."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def cycles(self) -> dict:
        """What the middle itself says about its work since the last call, if it does."""
        return {}


class TestPmd(Middle):
    """`io` hands packets over unseen, the floor; `macswap` swaps the addresses, the least a switch can do."""

    worker = "rte-worker"

    def __init__(self, folder: Path, link: type[Link], mode: str):
        self.name = f"testpmd {mode}"
        self.mode = mode
        super().__init__(folder, link)

    def launch(self) -> None:
        command = ["dpdk-testpmd", "--lcores", f"0@{OTHER_CPU},1@{WORKER_CPU}", "--no-pci", "--in-memory", "--no-telemetry"]
        command += ["--socket-mem", "128", "--file-prefix", f"testpmd{os.getpid()}{self.mode}"]
        for i in range(2):
            command += ["--vdev", self.link.testpmd(i)]
        command += ["--", f"--forward-mode={self.mode}", "--auto-start", "--total-num-mbufs=32768", "--no-mlockall"]
        command += ["--txd=1024", "--rxd=1024", "--stats-period=100", "--disable-link-check"]
        self.spawn(command)
        self.wait_for("its sockets", self.link.ready)
        self.settle()
        # Kernel interfaces are there before it has opened them.
        self.wait_for("its forwarding", lambda: "Port statistics" in self.log.read_text())
        self.pause()


class Sluice(Middle):
    """What is measured."""

    name = "sluice"
    worker = "worker-"

    def __init__(
        self, folder: Path, link: type[Link], binary: str, program: Path, entries: str, name: str = "sluice", extra: list[str] = [],
        grpc: str = "none", realtime: bool = True,
    ):  # fmt: skip
        self.name, self.grpc, self.realtime = name, grpc, realtime
        super().__init__(folder, link)
        self.binary, self.program, self.extra = binary, program, extra
        self.entries = self.folder / "entries.stf"
        self.entries.write_text(entries)

    def launch(self) -> None:
        command = [self.binary, "run", str(self.program), "--idle", "busy", "--grpc", self.grpc, *self.extra]
        for i in range(2):
            command += ["-i", f"{i}@{self.link.sluice(i)}"]
        self.spawn(command + ["--entries", str(self.entries)])
        self.wait_for("its worker", lambda: any(n.startswith(self.worker) for n in self.threads().values()))
        # Before the worker has a CPU of its own: it spins where the entries are loaded.
        for thread, name in self.threads().items():
            if name.startswith(self.worker):
                os.sched_setaffinity(thread, {WORKER_CPU})
        # Sockets are there before program and entries are: the ports come last.
        self.wait_for("its ports", lambda: "port 1 is" in self.log.read_text())
        self.settle()
        self.pause()


class Ovs(Middle):
    """Open vSwitch with the netdev datapath and one PMD thread."""

    worker = "pmd-"

    def __init__(self, folder: Path, link: type[Link], flows: str, name: str = "ovs-dpdk"):
        self.name = name
        super().__init__(folder, link)
        self.flows = flows
        self.environment = os.environ | {f"OVS_{kind}DIR": str(self.folder) for kind in ("RUN", "LOG", "DB")}

    def run(self, *command: str, stdin: str | None = None) -> str:
        """Runs one of OVS's tools."""
        done = subprocess.run(command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)[:200]}: {done.stderr[-2000:]}")
        return done.stdout

    def vsctl(self, *arguments: str) -> None:
        """Changes the configuration, and waits until it has effect unless told not to."""
        self.run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", "--timeout=60", *arguments)

    def pid(self) -> int | None:
        try:
            pid = int((self.folder / "vswitchd.pid").read_text())
            return pid if Path(f"/proc/{pid}").exists() else None
        except (FileNotFoundError, ValueError):
            return None

    def launch(self) -> None:
        folder = self.folder
        # The database tool removes the file's lock only on a clean end; a fresh folder each time needs none of that.
        self.run("ovsdb-tool", "create", f"{folder}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        self.run(
            "taskset", "-c", str(OTHER_CPU), "ovsdb-server", f"{folder}/conf.db", f"--remote=punix:{folder}/db.sock",
            f"--pidfile={folder}/ovsdb.pid", f"--log-file={folder}/ovsdb.log", f"--unixctl={folder}/ovsdb.ctl", "--detach",
        )  # fmt: skip
        self.vsctl("--no-wait", "init")
        settings = ["dpdk-init=true", f"pmd-cpu-mask={1 << WORKER_CPU:#x}", "dpdk-socket-mem=256"]
        # Otherwise it takes whatever there is for its buffers.
        settings += ["dpdk-socket-limit=384"]
        # Megaflows stay while other switches are measured, as if traffic had not paused.
        settings += ["max-idle=3600000"]
        settings += ["flow-limit=2000000"]
        settings += [f"dpdk-extra=--no-pci --in-memory --file-prefix=ovs{os.getpid()}"]
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *[f"other_config:{setting}" for setting in settings])
        self.run(
            "taskset", "-c", str(OTHER_CPU), "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", f"unix:{folder}/db.sock",
            f"--pidfile={folder}/vswitchd.pid", f"--log-file={folder}/log.txt", f"--unixctl={folder}/vswitchd.ctl",
            "--detach",
        )  # fmt: skip
        self.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure")
        self.wait_for("its bridge", (folder / "br0.mgmt").exists)
        bridge = f"unix:{folder}/br0.mgmt"
        self.run("ovs-ofctl", "del-flows", bridge)
        (folder / "flows.txt").write_text(self.flows)
        self.run("ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", bridge, f"{folder}/flows.txt")
        for i in range(2):
            self.vsctl(
                "add-port", "br0", str(i), "--", "set", "Interface", str(i), *self.link.ovs(i), f"ofport_request={i + 1}"
            )
        self.wait_for("its sockets", self.link.ready)
        self.settle()
        self.pause()

    def keep_megaflows(self) -> None:
        """Its caches are full. It looks at all megaflows twice a second, and would throw most of them out when that takes long,
        as it does across a pause; so no more of that."""
        self.resume()
        self.vsctl("set", "Open_vSwitch", ".", "other_config:max-revalidator=3600000")
        time.sleep(1)
        self.pause()

    def pause(self) -> None:
        if self.pid():
            os.kill(self.pid(), signal.SIGSTOP)

    def end(self) -> None:
        if self.pid():
            os.kill(self.pid(), signal.SIGCONT)
        for daemon in ("vswitchd", "ovsdb"):
            pidfile = self.folder / f"{daemon}.pid"
            if not pidfile.exists():
                continue
            pid = int(pidfile.read_text())
            try:
                os.kill(pid, signal.SIGTERM)
                deadline = time.monotonic() + 5
                while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def missing() -> list[str]:
    """Debian packages without which nothing can be measured."""
    wanted = {
        "dpdk-dev": shutil.which("dpdk-testpmd"),
        "openvswitch-switch-dpdk": Path("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk").exists(),
    }
    return [package for package, there in wanted.items() if not there]
