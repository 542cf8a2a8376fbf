"""What stands between the generator's two ports: dpdk-testpmd, OVS-DPDK, VPP, Sluice.

Each is started once, on sockets of its own, and stopped in the sense of SIGSTOP while another one is measured; so tables are
loaded once and a round is short. Its forwarding thread has CPU 0 for itself and real-time priority; all its other threads
are on CPU 1, beside the generator, one priority higher: they sleep nearly always, as on a machine with more cores.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
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
#: Of the most packets between two readings of VPP's counters, how many must have come for a reading to count.
FULL = 0.8
#: How many of its polls there must be for a packet for a poll to cost what an empty one does.
SPARSE = 10
HERE = Path(__file__).resolve().parent


class Failed(Exception):
    """A middle did not start, with what it said."""


class Middle:
    """A process that forwards between ports: two, unless the workload has more."""

    name = ""
    #: The forwarding thread's name begins like this.
    worker = ""
    #: Whether its threads have real-time priority; otherwise they are nicer to one another than to anybody else.
    realtime = True

    def __init__(self, folder: Path, link: type[Link], ports: int = 2):
        self.folder = folder / re.sub(r"\W+", "-", self.name)
        self.folder.mkdir()
        self.ports = ports
        self.link = link(self.folder, ports)
        self.process: subprocess.Popen | None = None
        self.log = self.folder / "log.txt"

    def sockets(self) -> list[str]:
        """What the generator's ports connect to, as `portgen --port` takes them."""
        return [self.link.generator(i) for i in range(self.ports)]

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
        grpc: str = "none", realtime: bool = True, ports: int = 2,
    ):  # fmt: skip
        self.name, self.grpc, self.realtime = name, grpc, realtime
        super().__init__(folder, link, ports)
        self.binary, self.program, self.extra = binary, program, extra
        self.entries = self.folder / "entries.stf"
        self.entries.write_text(entries)

    def launch(self) -> None:
        command = [self.binary, "run", str(self.program), "--idle", "busy", "--grpc", self.grpc, *self.extra]
        for i in range(self.ports):
            command += ["-i", f"{i}@{self.link.sluice(i)}"]
        self.spawn(command + ["--entries", str(self.entries)])
        self.wait_for("its worker", lambda: any(n.startswith(self.worker) for n in self.threads().values()))
        # Before the worker has a CPU of its own: it spins where the entries are loaded.
        for thread, name in self.threads().items():
            if name.startswith(self.worker):
                os.sched_setaffinity(thread, {WORKER_CPU})
        # Sockets are there before program and entries are: the ports come last.
        self.wait_for("its ports", lambda: f"port {self.ports - 1} is" in self.log.read_text())
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

    def __init__(
        self, folder: Path, link: type[Link], flows: str, settings: list[str], megaflows_max: int, ports: int = 2, commands: list[list[str]] = [],
    ):  # fmt: skip
        super().__init__(folder, link, ports)
        self.commands = commands
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
        for i in range(self.ports):
            name = self.link.ovs_name(i)
            self.vsctl("add-port", "br0", name, "--", "set", "Interface", name, *self.link.ovs(i), f"ofport_request={i + 1}")
            problem = self.vsctl("get", "Interface", name, "error").strip()
            if problem != "[]":
                raise Failed(f"port {name} of {self.name}: {problem}")
        for command in self.commands:
            self.vsctl(*command)
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


class Vpp(Middle):
    """VPP with one worker; `build` is the folder of a build with the plugins memif and vhost.

    Its worker counts cycles of the time stamp counter for each node of its graph, those of polls that find nothing with the others. Such polls are
    no work, so what they cost is taken off: as many as no other node was called for, each at what a poll costs while hardly anything is sent.
    """

    name = "vpp"
    worker = "vpp_wk_"
    #: Of a line of `show runtime`: node, calls, vectors, cycles a vector, or a call where there was no vector.
    NODE = re.compile(r"^\s*(\S+)\s+(?:active|polling|interrupt wait|any wait)\s+(\d+)\s+(\d+)\s+\d+\s+(\S+)\s+\S+\s*$", re.MULTILINE)

    #: Nodes that receive.
    INPUTS = ("vhost-user-input", "memif-input")

    def __init__(self, folder: Path, link: type[Link], build: str, commands: list[str]):
        super().__init__(folder, link)
        self.build, self.commands = Path(build), commands
        self.reader: subprocess.Popen | None = None
        #: Cycles of polls that found next to nothing.
        self.idle: list[float] = []

    def ctl(self, *words: str) -> str:
        """What the running VPP answers."""
        command = ["taskset", "-c", str(OTHER_CPU), str(self.build / "bin/vppctl"), "-s", f"{self.folder}/cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise Failed(f"vppctl {' '.join(words)}: {done.stderr[-1000:]}")
        return done.stdout

    def launch(self) -> None:
        ports = [self.link.vpp(i) for i in range(2)]
        names = [name for _, name in ports]
        lines = [line for commands, _ in ports for line in commands]
        lines += [f"set interface state {name} up" for name in names] + [f"set interface rx-mode {name} polling" for name in names]
        lines += [line.format(*names) for line in self.commands]
        # Asked for last: the others are done once it is there.
        lines += ["loopback create-interface instance 9"]
        (self.folder / "start").write_text("\n".join(lines) + "\n")
        plugins = next(self.build.glob("**/vpp_plugins"))
        (self.folder / "config").write_text(
            f"unix {{ nodaemon cli-listen {self.folder}/cli runtime-dir {self.folder} startup-config {self.folder}/start }}\n"
            f"cpu {{ main-core {OTHER_CPU} corelist-workers {WORKER_CPU} }}\nplugins {{ path {plugins} }}\n"
            "buffers { buffers-per-numa 32768 }\nmemory { main-heap-size 2G main-heap-page-size 4k }\n"
        )
        self.spawn([str(self.build / "bin/vpp"), "-c", str(self.folder / "config")])
        self.wait_for("its command line", (self.folder / "cli").exists)
        self.wait_for("its sockets", self.link.ready)
        self.wait_for("its configuration", lambda: "loop9" in self.ctl("show", "interface"))
        self.settle()
        self.pause()

    def resume(self) -> None:
        super().resume()
        ctl = f"{self.build}/bin/vppctl -s {self.folder}/cli"
        # The generator leaves no time to threads of lower priority.
        command = ["taskset", "-c", str(OTHER_CPU), "chrt", "-f", str(OTHER_PRIORITY)]
        command += ["sh", "-c", f"while {ctl} show runtime && {ctl} clear runtime; do sleep 0.1; done"]
        with (self.folder / "readings").open("w") as readings:
            self.reader = subprocess.Popen(command, stdout=readings, stderr=subprocess.DEVNULL)

    def pause(self) -> None:
        if self.reader:
            self.reader.kill()
            self.reader.wait()
            self.reader = None
        super().pause()

    def answers(self) -> dict[str, float]:
        """Cycles for a packet, as receiving, what is between, and sending: of the readings in which most packets came."""
        readings = [self.nodes(text) for text in (self.folder / "readings").read_text().split(f"Thread 1 {self.worker}")[1:]]
        received = [nodes["receive"] for nodes in readings]
        sparse = [reading for reading in received if reading[1] > SPARSE * reading[2]]
        self.idle += [each * packets / polls if packets else each for _, polls, packets, each in sparse]
        most = max((packets for _, _, packets, _ in received), default=0)
        if not most:
            raise Failed(f"{self.name} has not told what its nodes did while packets came")
        taken = [self.cycles(nodes, statistics.median(self.idle or [0.0])) for nodes in readings if nodes["receive"][2] >= FULL * most]
        return {name: statistics.median(reading[name] for reading in taken) for name in taken[0]}

    def nodes(self, runtime: str) -> dict[str, tuple[str, int, int, float]]:
        """Node, calls, vectors and cycles of each by name; the node that receives is `receive`."""
        found = {name: (name, int(calls), int(vectors), float(each)) for name, calls, vectors, each in self.NODE.findall(runtime)}
        receive = next((found.pop(name) for name in self.INPUTS if name in found), ("", 0, 0, 0.0))
        return found | {"receive": receive}

    @staticmethod
    def cycles(nodes: dict[str, tuple[str, int, int, float]], idle: float) -> dict[str, float]:
        """For a packet."""
        _, polls, packets, each = nodes["receive"]
        others = [node for name, node in nodes.items() if name != "receive" and node[2]]
        bursts = min(polls, max((calls for name, calls, _, _ in others if not name.endswith(("-tx", "-output"))), default=polls))
        cycles = {"receive": max(0.0, each - (polls - bursts) * idle / packets), "pipeline": 0.0, "send": 0.0}
        for name, _, vectors, each in others:
            cycles["send" if name.endswith(("-tx", "-output")) else "pipeline"] += each * vectors / packets
        return cycles | {"total": sum(cycles.values()), "burst": packets / max(1, bursts)}


def missing() -> list[str]:
    """Debian packages without which nothing can be measured."""
    wanted = {
        "dpdk-dev": shutil.which("dpdk-testpmd"),
        "openvswitch-switch-dpdk": Path("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk").exists(),
    }
    return [package for package, there in wanted.items() if not there]
