"""For test_openflow.py: an OpenFlow bridge and hosts in network namespaces of their own, ovs-ofctl, and frames sent and received
on the hosts' interfaces."""

import contextlib
import ctypes
import errno
import itertools
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from conftest import PATIENCE_S, Daemon
from scapy.layers.l2 import Ether

#: setns(2), of this thread.
CLONE_NEWNET = 0x40000000
#: <linux/if_packet.h>
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
ETH_P_ALL = 3
#: How long a frame that must not come may take to come.
QUIET_S = 0.1


def run(*words, code=0, timeout=PATIENCE_S, **kwargs):
    """Standard output of a command, and its standard error behind that."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, **kwargs)
    assert code is None or done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def until(condition, what, patience=PATIENCE_S):
    """Waits for a condition to hold, and returns what it said."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not in {patience} seconds: {what}"
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def inside(namespace):
    """What is opened meanwhile belongs to a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{namespace}") as there:
        assert libc.setns(there.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.setns(before.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


class Tap:
    """All frames that a host's interface receives, with their VLAN tags; and a way to send some."""

    def __init__(self, namespace):
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self.socket.bind(("e0", ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.socket.setblocking(False)

    def frame(self):
        """The next frame, or nothing."""
        try:
            data, control, _, _ = self.socket.recvmsg(65536, 256)
        except BlockingIOError:
            return None
        except OSError as error:
            # Told once after the interface went down.
            assert error.errno == errno.ENETDOWN, error
            return None
        for level, kind, body in control:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                # The kernel takes the outermost tag out of the frame.
                status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", body[:20])
                if status & TP_STATUS_VLAN_VALID:
                    tpid = tpid if status & TP_STATUS_VLAN_TPID_VALID else 0x8100
                    data = data[:12] + struct.pack("!HH", tpid, tci) + data[12:]
        return data


class Monitor:
    """A running `ovs-ofctl monitor`."""

    def __init__(self, net, *words, version=13):
        command = ["ovs-ofctl", "-O", f"OpenFlow{version}", "monitor", net.target, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=net.env)
        self.text = ""
        # It takes commands by a socket of its own when the switch has answered its requests.
        control = net.directory / f"ovs-ofctl.{self.process.pid}.ctl"
        until(lambda: control.exists() or self.process.poll() is not None, "ovs-ofctl monitor")
        assert "" == run("ovs-appctl", "-t", str(control), "ofctl/barrier", env=net.env), "it answers"

    def wait(self, pattern, patience=PATIENCE_S):
        """Waits for text and returns the match."""
        deadline = time.monotonic() + patience
        while not (found := re.search(pattern, self.text)):
            self.read(0.05)
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text}"
        return found

    def read(self, seconds):
        """Takes what has been said, or is in that time."""
        if select.select([self.process.stdout], [], [], seconds)[0]:
            self.text += os.read(self.process.stdout.fileno(), 65536).decode()

    def stop(self):
        """Ends it."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=PATIENCE_S)
        self.process.stdout.close()


class Net:
    """A bridge whose ports 1 to `hosts` lead to the hosts 10.0.0.1, 10.0.0.2, ..., fd00::1, ..."""

    numbers = itertools.count(1)

    def __init__(self, *args, hosts=3, start=True):
        self.name = f"of{os.getpid()}-{next(Net.numbers)}"
        self.directory = Path(tempfile.mkdtemp(prefix="of-"))
        self.target = f"unix:{self.directory}/m"
        self.env = os.environ | {"OVS_RUNDIR": str(self.directory)}
        self.hosts = range(1, hosts + 1)
        self.taps, self.daemon, self.monitors, self.marks = {}, None, [], 0
        self.processes = []
        try:
            for name in ["s", *self.hosts]:
                run("ip", "netns", "add", self.namespace(name))
                run("ip", "-n", self.namespace(name), "link", "set", "lo", "up")
            for host in self.hosts:
                self.plug(host)
            self.args = ["--openflow", "--mgmt", f"{self.directory}/m", *args]
            for host in self.hosts:
                self.args += ["-i", f"{host}@s{host}"]
            if start:
                self.start()
        except BaseException:
            self.close()
            raise

    def namespace(self, name):
        """A host's namespace; that of the switch is `s`."""
        return f"{self.name}-{name}"

    def plug(self, host):
        """A host's interface."""
        there, switch = self.namespace(host), self.namespace("s")
        run("ip", "-n", switch, "link", "add", f"s{host}", "type", "veth", "peer", "name", "e0", "netns", there)
        run("ip", "-n", there, "link", "set", "e0", "address", f"02:00:00:00:00:0{host}")
        run("ip", "netns", "exec", switch, "sysctl", "-qw", f"net.ipv6.conf.s{host}.disable_ipv6=1")
        run("ip", "-n", switch, "link", "set", f"s{host}", "up")
        run("ip", "-n", there, "link", "set", "e0", "up")
        run("ip", "-n", there, "addr", "add", f"10.0.0.{host}/24", "dev", "e0")
        run("ip", "-n", there, "addr", "add", f"fd00::{host}/64", "dev", "e0", "nodad")
        # Checksums in the frames, as the tests look at them.
        run("ip", "netns", "exec", switch, "ethtool", "-K", f"s{host}", "tx", "off")
        run("ip", "netns", "exec", there, "ethtool", "-K", "e0", "tx", "off")
        self.taps[host] = Tap(there)

    def start(self):
        """Starts the switch, after `stop` once more."""
        self.daemon = Daemon(*self.args, prefix=("ip", "netns", "exec", self.namespace("s")))

    def stop(self):
        """Stops the switch, which must end well."""
        daemon, self.daemon = self.daemon, None
        if daemon is not None:
            code = daemon.stop()
            assert code == 0 and "panicked" not in daemon.output, daemon.output

    def close(self):
        """Removes all of it."""
        try:
            for process in self.processes:
                if process.poll() is None:
                    process.kill()
                process.wait(timeout=PATIENCE_S)
                if process.stdout:
                    process.stdout.close()
            self.unwatch()
            self.stop()
        finally:
            for tap in self.taps.values():
                tap.socket.close()
            for name in ["s", *self.hosts]:
                run("ip", "netns", "del", self.namespace(name), code=None)
            shutil.rmtree(self.directory, ignore_errors=True)

    def begin(self, name, *words):
        """Starts a command in a namespace; it is ended at the end."""
        command = ["ip", "netns", "exec", self.namespace(name), *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.processes.append(process)
        return process

    def ofctl(self, command, *words, version=13, code=0, options=(), **kwargs):
        """What ovs-ofctl says."""
        version = f"OpenFlow{version}"
        return run("ovs-ofctl", *options, "-O", version, command, self.target, *words, code=code, **kwargs)

    def refused(self, error, command, *words, **kwargs):
        """ovs-ofctl must fail, because of that error of the switch."""
        text = self.ofctl(command, *words, code=1, **kwargs)
        assert re.search(rf"OFPT_ERROR [^\n]*: {error}\n", text), text
        return text

    def flows(self, *words, version=13, command="dump-flows"):
        """The flows without their times and counts."""
        text = self.ofctl(command, *words, version=version, options=("--no-stats",))
        return [line.strip() for line in text.splitlines() if "actions=" in line]

    def reset(self, *flows):
        """These flows, and no groups, meters and monitors; ports as they were at first."""
        self.unwatch()
        for command in ["del-flows", "del-groups", "del-meters"]:
            self.ofctl(command)
        if flows:
            self.ofctl("add-flows", "-", input="\n".join(flows))

    def watch(self, *words, version=13):
        """Starts a monitor."""
        monitor = Monitor(self, *words, version=version)
        self.monitors.append(monitor)
        return monitor

    def unwatch(self):
        """Ends all monitors."""
        while self.monitors:
            self.monitors.pop().stop()

    def mark(self):
        """Bytes that no other frame has."""
        self.marks += 1
        return b"sluice-openflow-%06d" % self.marks

    def send(self, host, packet, count=1):
        """Sends a frame, as host's."""
        data = bytes(packet)
        for _ in range(count):
            self.taps[host].socket.send(data)

    def pass_through(self, host, packet, mark, expected):
        """Sends a frame with a mark. It must come out at the hosts `expected` (once for each time that one is there) and nowhere
        else; returns frames as scapy reads them, by host in that order."""
        self.send(host, packet)
        return self.receive(mark, expected)

    def receive(self, mark, expected):
        """Waits for frames with a mark."""
        found = {host: [] for host in self.hosts}

        def look():
            for host, tap in self.taps.items():
                while (data := tap.frame()) is not None:
                    if mark in data:
                        found[host].append(data)

        deadline = time.monotonic() + PATIENCE_S
        while any(len(found[host]) < expected.count(host) for host in self.hosts):
            look()
            assert time.monotonic() < deadline, (expected, found, self.ofctl("dump-flows", code=None))
            time.sleep(0.002)
        time.sleep(QUIET_S)
        look()
        counts = {host: len(frames) for host, frames in found.items()}
        assert counts == {host: expected.count(host) for host in self.hosts}, (expected, found)
        frames = {host: [Ether(data) for data in list_] for host, list_ in found.items()}
        return [frames[host].pop(0) for host in expected]

    def ping(self, host, to, *words, count=3):
        """How many answers there are."""
        address = to if isinstance(to, str) else f"10.0.0.{to}"
        text = run("ip", "netns", "exec", self.namespace(host), "ping", "-n", "-c", str(count), "-i", "0.05", "-W", "1",
                   *words, address, code=None)
        return int(re.search(r"(\d+) received", text).group(1))
