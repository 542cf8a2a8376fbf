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
HERE = Path(__file__).resolve().parent


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
        if self.pid() is None:
            raise Failed(f"{self.name} has ended; it last said:\n{self.log.read_text()[-1000:]}")
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

    def restart(self) -> None:
        """Starts it anew after it has ended by itself."""
        self.stop()
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.start()

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

    def answers(self) -> dict[str, float]:
        """How it says that it has answered packets since the last call, if it does; it must not be paused."""
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
    """Open vSwitch with the netdev datapath and one PMD thread.

    Its revalidator is paused. It lets the number of megaflows grow from 10,000 by a thousand for each half second in which it
    has looked at all of them, and takes back from that when it was slow, as it is across a pause; so 100,000 megaflows would not be made
    in minutes, and be thrown out between two rounds. Now they are made as fast as packets ask for them, and stay.
    """

    name = "ovs-dpdk"
    worker = "pmd-"
    #: Lines of `pmd-stats-show`, and what they are called here.
    ANSWERS = {
        "simple match hits": "port-to-port match", "emc hits": "exact-match cache", "smc hits": "signature cache",
        "megaflow hits": "megaflow cache", "miss with success upcall": "upcalls", "miss with failed upcall": "upcalls",
    }  # fmt: skip

    def __init__(self, folder: Path, link: type[Link], flows: str, settings: list[str], megaflows_max: int):
        super().__init__(folder, link)
        self.flows, self.settings, self.megaflows_max = flows, settings, megaflows_max
        self.environment = os.environ | {f"OVS_{kind}DIR": str(self.folder) for kind in ("RUN", "LOG", "DB")}

    def run(self, *command: str, stdin: str | None = None) -> str:
        """Runs one of OVS's tools."""
        done = subprocess.run(command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)[:200]}: {done.stderr[-2000:]}")
        return done.stdout

    def vsctl(self, *arguments: str) -> str:
        """Changes the configuration, and waits until it has effect unless told not to."""
        return self.run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", "--timeout=60", *arguments)

    def appctl(self, *arguments: str) -> str:
        """Asks the switch."""
        return self.run("ovs-appctl", "-t", f"{self.folder}/vswitchd.ctl", *arguments)

    def preload(self) -> dict[str, str]:
        """The environment's part for what the link wants loaded."""
        if not self.link.ovs_preload:
            return {}
        made = self.folder / "preload.so"
        flags = self.run("pkg-config", "--cflags", "libdpdk").split()
        self.run("cc", "-O2", "-shared", "-fPIC", *flags, "-o", str(made), str(HERE / self.link.ovs_preload))
        return {"LD_PRELOAD": str(made)}

    def pid(self) -> int | None:
        try:
            pid = int((self.folder / "vswitchd.pid").read_text())
            # Its parent may leave it a zombie.
            return pid if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX" else None
        except (FileNotFoundError, ValueError, ProcessLookupError):
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
        settings += self.settings
        settings += [f"dpdk-extra=--no-pci --in-memory --file-prefix=ovs{os.getpid()}"]
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *[f"other_config:{setting}" for setting in settings])
        self.run(
            "env", *(f"{name}={value}" for name, value in self.preload().items()), "taskset", "-c", str(OTHER_CPU),
            "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", f"unix:{folder}/db.sock",
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
            name = self.link.ovs_name(i)
            self.vsctl("add-port", "br0", name, "--", "set", "Interface", name, *self.link.ovs(i), f"ofport_request={i + 1}")
            problem = self.vsctl("get", "Interface", name, "error").strip()
            if problem != "[]":
                raise Failed(f"port {name} of {self.name}: {problem}")
        self.wait_for("its sockets", self.link.ready)
        self.appctl("revalidator/pause")
        self.appctl("upcall/set-flow-limit", str(self.megaflows_max))
        self.settle()
        self.pause()

    def answers(self) -> dict[str, float]:
        """`megaflows` that it has, and the parts of the forwarding thread's packets that each cache has answered."""
        found = {"megaflows": float(re.search(r"current (\d+)", self.appctl("upcall/show"))[1])}
        counts = dict(re.findall(r"^  ([^:]*): (\d+)", self.appctl("dpif-netdev/pmd-stats-show").split("main thread")[0], re.MULTILINE))
        self.appctl("dpif-netdev/pmd-stats-clear")
        for line, name in self.ANSWERS.items():
            found[name] = found.get(name, 0) + int(counts[line]) / max(1, int(counts["packets received"]))
        return found

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
