"""Faucet, unmodified, makes an OpenFlow bridge a router of three VLANs with access lists; Gauge polls its counts.

Four hosts are behind ports of one VLAN each. Two more are behind a trunk: a second bridge adds and removes their tags.

Run as root: cargo build -p sluice && pytest tests/py/test_faucet.py
"""

import os
import re
import shutil
import socket

import pytest
from conftest import ROOT
from openflow_net import Net, inside, run, until
from scapy.layers.inet import IP

FAUCET = ROOT / ".venv-faucet"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is missing: scripts/setup"),
]

#: VLANs by name, and the third byte of their addresses.
VLANS = {"office": 100, "guest": 200, "servers": 300}
#: The hosts' VLANs. The last two are behind the trunk.
PLACES = {1: "office", 2: "office", 3: "guest", 4: "servers", 5: "guest", 6: "servers"}
TRUNK = 5

CONFIG = """
vlans:
  office:
    vid: 100
    faucet_mac: "0e:00:00:00:01:00"
    faucet_vips: ["10.1.100.254/24", "fd00:100::fe/64"]
  guest:
    vid: 200
    faucet_mac: "0e:00:00:00:02:00"
    faucet_vips: ["10.1.200.254/24", "fd00:200::fe/64"]
    acl_in: from-guests
  servers:
    vid: 300
    faucet_mac: "0e:00:00:00:03:00"
    faucet_vips: ["10.1.44.254/24", "fd00:300::fe/64"]
    routes:
    - route: {ip_dst: "192.0.2.0/24", ip_gw: "10.1.44.4"}
routers:
  all: {vlans: [office, guest, servers]}
meters:
  slow:
    meter_id: 1
    entry: {flags: PKTPS, bands: [{type: DROP, rate: 1}]}
acls:
  from-guests:
  # To the office nothing, also not by IPv6.
  - rule: {eth_type: 0x800, ipv4_dst: 10.1.100.0/24, actions: {allow: 0}}
  - rule: {eth_type: 0x86dd, ipv6_dst: "fd00:100::/64", actions: {allow: 0}}
  - rule: {eth_type: 0x800, ip_proto: 6, tcp_dst: 23, actions: {allow: 0}}
  - rule: {actions: {allow: 1}}
  of-port-2:
  # UDP to port 7 goes to the server, to its address; UDP to port 9 is metered.
  - rule:
      eth_type: 0x800
      ip_proto: 17
      udp_dst: 7
      actions: {allow: 0, output: {ports: [4], set_fields: [{eth_dst: "02:00:00:00:00:04"}]}}
  - rule: {eth_type: 0x800, ip_proto: 17, udp_dst: 9, actions: {meter: slow, allow: 1}}
  - rule: {actions: {allow: 1}}
dps:
  switch:
    dp_id: 1
    hardware: "HARDWARE"
    group_table: GROUPS
    use_idle_timeout: GROUPS
    # Else it ignores every tenth packet of a station that it does not know.
    ignore_learn_ins: 0
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office, acl_in: of-port-2}
      3: {native_vlan: guest}
      4: {native_vlan: servers}
      # A guest behind the trunk reaches a server behind it through the port by which its packets come.
      5: {tagged_vlans: [guest, servers], hairpin: true}
"""

GAUGE = """
faucet_configs: [CONFIG]
watchers:
  ports: {type: port_stats, dps: [switch], interval: 1, db: counts}
  flows: {type: flow_table, dps: [switch], interval: 1, db: tables}
  states: {type: port_state, dps: [switch], interval: 1, db: states}
dbs:
  counts: {type: text, file: DIRECTORY/counts}
  states: {type: text, file: DIRECTORY/states}
  tables: {type: text, path: DIRECTORY/tables, compress: false}
"""


def third(vlan):
    """The third byte of a VLAN's IPv4 addresses."""
    return VLANS[vlan] & 0xFF


def address(host):
    """A host's IPv4 address."""
    return f"10.1.{third(PLACES[host])}.{host}"


def address6(host):
    """A host's IPv6 address."""
    return f"fd00:{VLANS[PLACES[host]]}::{host}"


class FaucetNet(Net):
    """A bridge for Faucet, and hosts in their VLANs."""

    def __init__(self, hardware, groups):
        super().__init__("--controller", "tcp:127.0.0.1:6653", "--controller", "tcp:127.0.0.1:6654", "--fail-mode", "secure",
                         "-i", f"{TRUNK}@trunk", hosts=4, start=False)
        self.access = None
        try:
            self.access = Net("--fail-mode", "secure", "-i", "9@trunk", hosts=2, start=False)
            run("ip", "-n", self.namespace("s"), "link", "add", "trunk", "type", "veth", "peer", "name", "trunk",
                "netns", self.access.namespace("s"))
            for net in [self, self.access]:
                run("ip", "-n", net.namespace("s"), "link", "set", "trunk", "up")
            for host, vlan in PLACES.items():
                self.place(host, vlan)
            self.access.start()
            for port, host in enumerate([5, 6], 1):
                vid = VLANS[PLACES[host]]
                self.access.ofctl("add-flow", f"in_port={port},actions=push_vlan:0x8100,set_field:{0x1000 | vid}->vlan_vid,output:9")
                self.access.ofctl("add-flow", f"in_port=9,dl_vlan={vid},actions=pop_vlan,output:{port}")
            self.config = self.directory / "faucet.yaml"
            gauge = GAUGE.replace("CONFIG", str(self.config)).replace("DIRECTORY", str(self.directory))
            (self.directory / "gauge.yaml").write_text(gauge)
            (self.directory / "tables").mkdir()
            self.configure(CONFIG.replace("HARDWARE", hardware).replace("GROUPS", str(groups).lower()))
        except BaseException:
            self.close()
            raise

    def close(self):
        try:
            super().close()
        finally:
            if self.access is not None:
                self.access.close()

    def there(self, host):
        """The namespace of a host, also of those behind the trunk."""
        return self.namespace(host) if host in self.hosts else self.access.namespace(host - 4)

    def place(self, host, vlan):
        """A host's addresses and its routes."""
        there = ("ip", "-n", self.there(host))
        run(*there, "link", "set", "e0", "address", f"02:00:00:00:00:0{host}")
        run(*there, "addr", "flush", "dev", "e0")
        run(*there, "addr", "add", f"{address(host)}/24", "dev", "e0")
        run(*there, "addr", "add", f"{address6(host)}/64", "dev", "e0", "nodad")
        run(*there, "route", "add", "default", "via", f"10.1.{third(vlan)}.254")
        run(*there, "-6", "route", "add", "default", "via", f"fd00:{VLANS[vlan]}::fe")

    def configure(self, text):
        """Faucet's configuration."""
        self.config.write_text(text)
        run(str(FAUCET / "bin/check_faucet_config"), str(self.config))

    def faucet(self, program, port):
        """Starts Faucet or Gauge."""
        variables = {"PATH": f"{FAUCET}/bin:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore",
                     "FAUCET_CONFIG": self.config, "FAUCET_LOG": self.directory / "faucet.log",
                     "FAUCET_EXCEPTION_LOG": self.directory / "exceptions.log", "FAUCET_EVENT_SOCK": "0",
                     "FAUCET_PROMETHEUS_ADDR": "127.0.0.1", "FAUCET_CONFIG_STAT_RELOAD": "1",
                     "GAUGE_CONFIG": self.directory / "gauge.yaml", "GAUGE_LOG": self.directory / "gauge.log",
                     "GAUGE_EXCEPTION_LOG": self.directory / "exceptions.log"}
        words = [f"{name}={value}" for name, value in variables.items()]
        return self.begin("s", "env", *words, str(FAUCET / "bin" / program), "--ryu-ofp-tcp-listen-port", str(port),
                          "--ryu-ofp-listen-host", "127.0.0.1")

    def log(self, name="faucet.log"):
        """What was said there."""
        file = self.directory / name
        return file.read_text() if file.exists() else ""

    def reaches(self, host, to, count=1):
        """Whether all requests are answered."""
        text = run("ip", "netns", "exec", self.there(host), "ping", "-n", "-c", str(count), "-i", "0.05", "-W", "1", to, code=None)
        return f" {count} received" in text

    def connects(self, host, to, port):
        """Whether a TCP connection to a host that listens there comes about."""
        with inside(self.there(to)):
            listener = socket.create_server(("", port))
        with inside(self.there(host)):
            client = socket.socket()
        with listener, client:
            client.settimeout(1)
            try:
                client.connect((address(to), port))
            except TimeoutError:
                return False
            return True

    def datagram(self, host, to, port):
        """Sends a datagram; returns its bytes."""
        mark = self.mark()
        with inside(self.there(host)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(mark, (to, port))
        return mark


@pytest.mark.parametrize("hardware, groups", [("Open vSwitch", False), ("GenericTFM", True)])
def test_faucet_routes_between_vlans(hardware, groups):
    assert (FAUCET / "bin/faucet").exists(), f"{FAUCET} is missing: scripts/setup"
    net = FaucetNet(hardware, groups)
    try:
        net.faucet("faucet", 6653)
        net.faucet("gauge", 6654)
        net.start()
        until(lambda: "Cold start configuring DP" in net.log() and len(net.flows()) > 20, "Faucet has filled the tables")
        vlans_are_routed(net)
        access_lists_are_applied(net)
        ports_are_followed(net)
        until(lambda: re.search(r"switch-1-packets-in\t[1-9]", net.log("counts")), "Gauge counts packets")
        until(lambda: any((net.directory / "tables").glob("**/*")), "Gauge dumps flows")
        assert bool(re.search(r"group_id=\d", net.ofctl("dump-groups"))) == groups
        assert "OFError" not in net.log() + net.log("gauge.log")
        assert "Traceback" not in net.log("exceptions.log")
    finally:
        net.close()


def vlans_are_routed(net):
    """Within VLANs, between them, and to Faucet's own addresses."""
    # Untagged and tagged.
    until(lambda: net.reaches(1, address(2)), "the office is a VLAN")
    until(lambda: net.reaches(3, address(5)), "guests reach each other through the trunk")
    until(lambda: net.reaches(4, address6(6)), "servers reach each other through the trunk")
    until(lambda: net.reaches(1, "10.1.100.254") and net.reaches(1, "fd00:100::fe"), "the gateway answers")
    for host, to in [(1, address(4)), (2, address6(4)), (3, address(6)), (5, address6(6)), (5, address(4))]:
        until(lambda: net.reaches(host, to), f"host {host} reaches {to} in another VLAN")
        assert net.reaches(host, to, 5)
    assert "ttl=63" in run("ip", "netns", "exec", net.there(1), "ping", "-c", "1", address(4))
    # A static route.
    run("ip", "-n", net.there(4), "addr", "add", "192.0.2.1/32", "dev", "lo")
    until(lambda: net.reaches(1, "192.0.2.1"), "the office reaches the network behind the server")


def access_lists_are_applied(net):
    """Access lists of a VLAN and of a port, also changed while packets flow."""
    for host in [3, 5]:
        assert not net.reaches(host, address(1)) and not net.reaches(host, address6(2))
    assert net.connects(3, 6, 80) and not net.connects(3, 6, 23) and net.connects(1, 6, 23)
    mark = net.datagram(2, address(1), 7)
    packet, = net.receive(mark, [4])
    assert packet.dst == "02:00:00:00:00:04" and packet[IP].dst == address(1)
    for _ in range(10):
        net.datagram(2, address(1), 9)
    metered = until(lambda: re.search(r"packet_in_count:10 .*\n0: packet_count:(\d+)", net.ofctl("meter-stats")), "they are metered")
    assert int(metered.group(1)) >= 8, metered.group()
    net.configure(net.config.read_text().replace("tcp_dst: 23", "tcp_dst: 80"))
    until(lambda: net.connects(3, 6, 23) and not net.connects(3, 6, 80), "the changed access list")
    assert net.reaches(3, address(6), 5)


def ports_are_followed(net):
    """A port that goes down and comes back."""
    run("ip", "-n", net.there(2), "link", "set", "e0", "down")
    until(lambda: "Port 2 (2) down" in net.log(), "Faucet is told that the port is down")
    run("ip", "-n", net.there(2), "link", "set", "e0", "up")
    until(lambda: net.log().count("Port 2 (2) up") >= 2, "Faucet is told that the port is up")
    until(lambda: net.reaches(1, address(2)), "the office is a VLAN again")
