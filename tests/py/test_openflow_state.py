"""`sluice run --openflow --state DIR`: what a barrier acknowledged is there after `kill -9` and after `sluice restart`.

Run as root: cargo build -p sluice && pytest tests/py/test_openflow_state.py
"""

import json
import os
import random
import re
import shutil
import subprocess
import threading
import time

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE, Daemon
from openflow_net import Net, run, until
from test_programs import COUNT, compiled, needs_clang

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is missing: scripts/setup"),
]

KILLS = int(os.environ.get("SLUICE_KILLS", "3"))

#: Of everything that can be in a flow, something; in the version that has it. What 1.0 says otherwise is kept as it is said there.
FLOWS = {
    10: [
        "priority=1,tcp,actions=mod_tp_dst:80,mod_nw_tos:16,enqueue:1:2",
        "priority=2,dl_vlan=7,actions=mod_vlan_vid:9,mod_vlan_pcp:3,strip_vlan,mod_dl_src:02:00:00:00:00:07,output:2",
        "priority=3,in_port=1,actions=load:0x1234->NXM_NX_REG0[0..15],move:NXM_NX_REG0[]->NXM_NX_REG1[],resubmit(,4)",
        "priority=4,udp,tp_src=0x10/0xff0,actions=multipath(symmetric_l4,50,modulo_n,4,0,NXM_NX_REG2[0..3]),dec_ttl(1,2)",
        "table=4,priority=5,ip,nw_frag=first,actions=note:01.02.03,controller(max_len=99,id=3,reason=action)",
        "priority=6,ipv6,ipv6_src=fd00::/16,actions=bundle(eth_src,0,hrw,ofport,members:1,2),exit",
        "priority=7,arp,actions=learn(table=9,idle_timeout=5,priority=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
        "priority=8,tcp,actions=fin_timeout(idle_timeout=5,hard_timeout=9),NORMAL",
        "priority=9,conj_id=7,ip,actions=drop",
        "priority=10,ip,nw_src=10.0.0.0/0.255.0.255,actions=conjunction(7,1/2)",
        "priority=11,actions=push:NXM_NX_REG0[],pop:NXM_NX_REG3[],clone(set_field:5->reg5,output:1),LOCAL",
        "priority=12,icmp6,icmp_type=135,icmp_code=0,nd_target=fd00::9,actions=check_pkt_larger(1500)->NXM_NX_REG6[4],FLOOD",
    ],
    13: [
        "table=1,priority=1,ip,actions=meter:7,set_field:10.9.8.7->ip_dst,dec_ttl,goto_table:2",
        "table=1,priority=2,mpls,mpls_label=99,actions=pop_mpls:0x0800,write_actions(output:2,group:5),write_metadata:0x12/0xff",
        "table=2,priority=3,metadata=5/7,actions=set_queue:3,group:1234,clear_actions",
        "table=253,priority=65535,in_port=2,vlan_vid=0x1000/0x1000,actions=push_vlan:0x88a8,set_field:4099->vlan_vid,all",
        "table=3,priority=0,actions=CONTROLLER:65535",
        "table=3,priority=4,send_flow_rem,no_packet_counts,tcp,tcp_flags=+syn-ack,actions=IN_PORT",
        "table=3,priority=5,tun_id=0x7/0xff,actions=set_field:9->tun_id,push_mpls:0x8847,set_mpls_ttl:3,output:1",
    ],
    14: ["table=5,priority=1,importance=77,idle_timeout=3000,hard_timeout=60000,cookie=0xfedcba9876543210,actions=output:2"],
    15: ["table=6,priority=1,actions=set_field:02:00:00:00:00:07/ff:00:00:00:00:0f->eth_dst,output:1"],
}
GROUPS = [
    # Through one that has a higher number, so that they come back in another order.
    "group_id=5,type=all,bucket=actions=group:1234,bucket=actions=output:1",
    "group_id=6,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:1234,actions=group:1234",
]
GROUP_15 = (
    "group_id=1234,type=select,selection_method=hash,fields(ip_src=255.255.0.0,tcp_dst),selection_method_param=9,"
    "bucket=bucket_id=7,weight=3,actions=set_field:5->reg0,output:2,bucket=bucket_id=9,weight=1,actions=drop"
)
METERS = ["meter=7,pktps,burst,band=type=drop,rate=100,burst_size=20", "meter=8,kbps,band=type=dscp_remark,rate=5,prec_level=2"]


class Bridge:
    """A bridge that keeps its state, without hosts."""

    def __init__(self, folder, *args):
        self.folder, self.target = folder, f"unix:{folder}/m"
        self.args = ["--openflow", "--mgmt", f"{folder}/m", "--state", f"{folder}/state", "--admin", f"{folder}/a",
                     "-i", "1@memory", "-i", "2@memory", *args]
        self.daemon = None
        self.start()

    def start(self, *args):
        self.daemon = Daemon(*self.args, *args)

    def kill(self):
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.output += self.daemon.process.stdout.read()
        self.daemon.process.stdout.close()

    def again(self):
        """Kills it and starts it again."""
        self.kill()
        self.start()

    def stop(self):
        if not self.daemon.process.stdout.closed:
            assert self.daemon.stop() == 0, self.daemon.output
            assert "panicked" not in self.daemon.output, self.daemon.output

    def ofctl(self, command, *words, version=13, options=(), code=0, **kwargs):
        return run("ovs-ofctl", *options, "-O", f"OpenFlow{version}", command, self.target, *words, code=code, **kwargs)

    def cli(self, *words, code=0):
        return run(str(SLUICE), *words, "--admin", f"{self.folder}/a", code=code)

    def dump(self):
        """Everything that is kept, in the version that says most of it."""
        lines = []
        for version in (13, 15):
            text = self.ofctl("dump-flows", version=version, options=("--no-stats", "--no-names"))
            lines += sorted(line.strip() for line in text.splitlines() if "actions=" in line)
        for command in ["dump-groups", "dump-meters"]:
            text = self.ofctl(command, version=15)
            lines += sorted(re.split(r"\n\s*(?=group_id|meter=)", text)[1:])
        text = self.ofctl("dump-table-desc", version=14)
        lines += [re.sub(r"\(xid=\w+\)", "", text), self.ofctl("get-frags")]
        ports = self.ofctl("show", version=10)
        lines += re.findall(r"^ \d+\(.*|config: .*", ports, re.M)
        return lines


@pytest.fixture
def bridge(tmp_path):
    one = Bridge(tmp_path, "--fail-mode", "secure")
    yield one
    one.stop()


def fill(bridge):
    for meter in METERS:
        bridge.ofctl("add-meter", meter)
    bridge.ofctl("add-group", GROUP_15, version=15)
    for group in GROUPS:
        bridge.ofctl("add-group", group)
    for version, flows in FLOWS.items():
        bridge.ofctl("add-flows", "-", version=version, input="\n".join(flows))
    bridge.ofctl("mod-port", "1", "no-flood", version=10)
    bridge.ofctl("mod-port", "2", "down")
    bridge.ofctl("mod-table", "5", "evict", version=14)
    bridge.ofctl("mod-table", "6", "vacancy:20,80", version=14)
    bridge.ofctl("set-frags", "drop", version=10)


def test_everything_is_there_again_after_the_switch_was_killed(bridge):
    fill(bridge)
    before = bridge.dump()
    assert len([line for line in before if "actions=" in line]) >= 2 * sum(map(len, FLOWS.values()))
    for _ in range(2):
        # The second time it is read from what the first start has left.
        bridge.again()
        assert re.search(r"21 flows, 3 groups, 2 meters and 0 programs back", bridge.daemon.output), bridge.daemon.output
        assert "not applied" not in bridge.daemon.output
        assert bridge.dump() == before
    # Also from a copy of the directory that was made as text.
    bridge.kill()
    state, text, copy = (str(bridge.folder / name) for name in ("state", "dump.txt", "copy"))
    (bridge.folder / "dump.txt").write_text(run(str(SLUICE), "state", "dump", state))
    run(str(SLUICE), "state", "restore", text, copy)
    assert "entities, running" in run(str(SLUICE), "state", "check", copy)
    shutil.rmtree(state)
    os.rename(copy, state)
    bridge.start()
    assert bridge.dump() == before
    # What is removed stays removed, and the rest goes with it.
    bridge.ofctl("del-groups", "group_id=1234", code=None)
    bridge.ofctl("del-groups")
    bridge.ofctl("del-meters")
    bridge.ofctl("mod-port", "1", "flood", version=10)
    bridge.ofctl("mod-port", "2", "up")
    bridge.ofctl("set-frags", "normal", version=10)
    left = bridge.dump()
    assert left != before and not any("group:" in line or "meter:" in line for line in left if "actions=" in line)
    bridge.again()
    assert bridge.dump() == left


def test_times_go_on_over_a_restart_and_idle_ones_begin_anew(bridge):
    flows = ["priority=1,hard_timeout=6,actions=drop", "priority=2,idle_timeout=4,actions=drop",
             "priority=3,hard_timeout=1,actions=drop", "priority=4,actions=drop"]
    bridge.ofctl("add-flows", "-", input="\n".join(flows))
    began = time.monotonic()
    time.sleep(2)
    bridge.ofctl("mod-flows", "--strict", "priority=4,actions=output:1")
    bridge.again()
    shown = bridge.ofctl("dump-flows")
    durations = {int(p): float(d) for d, p in re.findall(r"duration=([\d.]+)s.*priority=(\d)", shown)}
    # It had ended before.
    assert 3 not in durations and set(durations) == {1, 2, 4}, shown
    assert all(duration >= 2 for duration in durations.values()), shown
    until(lambda: "priority=1" not in bridge.ofctl("dump-flows"), "the hard timeout", patience=20)
    assert 5.5 < time.monotonic() - began < 20
    until(lambda: "priority=2" not in bridge.ofctl("dump-flows"), "the idle timeout", patience=20)
    # What ended is not there again.
    bridge.again()
    shown = bridge.ofctl("dump-flows")
    assert "priority=4" in shown and "priority=1" not in shown and "priority=2" not in shown


class Writer(threading.Thread):
    """Changes flows of its own until the switch is gone: `kept` is what was acknowledged, `open` what may be."""

    def __init__(self, bridge, table, kept, chance):
        super().__init__(daemon=True)
        self.bridge, self.table, self.kept, self.chance = bridge, table, kept, chance
        self.open, self.rounds = kept, 0

    def run(self):
        while True:
            new, lines = dict(self.kept), []
            for _ in range(self.chance.randint(1, 30)):
                key = self.chance.randrange(300)
                if key in new and self.chance.random() < 0.4:
                    del new[key]
                    lines.append(f"delete_strict table={self.table},priority={key}")
                else:
                    new[key] = self.chance.randrange(1, 60000)
                    lines.append(f"add table={self.table},priority={key},cookie={new[key]},actions=output:{new[key]}")
            self.open = new
            done = subprocess.run(
                ["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", self.bridge.target, "-"],
                input="\n".join(lines), capture_output=True, text=True, timeout=PATIENCE_S,
            )
            if done.returncode != 0:
                assert "OFPT_ERROR" not in done.stderr, done.stderr
                return
            self.kept = new
            self.rounds += 1


def test_bundles_that_were_answered_are_there_and_others_are_whole_or_not(bridge):
    chance = random.Random(3)
    kept, rounds = {table: {} for table in (1, 2)}, 0
    for turn in range(KILLS):
        writers = [Writer(bridge, table, kept[table], random.Random(f"{turn}/{table}")) for table in kept]
        for writer in writers:
            writer.start()
        time.sleep(chance.uniform(0.3, 0.7))
        until(lambda writers=writers: all(writer.rounds for writer in writers), "a bundle is committed")
        bridge.kill()
        for writer in writers:
            writer.join(PATIENCE_S)
            assert not writer.is_alive()
        bridge.start()
        shown = bridge.ofctl("dump-flows", options=("--no-stats",))
        for writer in writers:
            lines = re.findall(rf"cookie=(0x\w+|0), table={writer.table}, priority=(\d+)", shown)
            found = {int(priority): int(cookie, 16) for cookie, priority in lines}
            assert found in (writer.kept, writer.open), f"turn {turn}, table {writer.table}"
            kept[writer.table] = found
            rounds += writer.rounds
    assert rounds >= 2 * KILLS


def test_a_state_of_something_else_is_refused(tmp_path):
    bridge = Bridge(tmp_path)
    bridge.ofctl("add-flow", "priority=3,actions=output:1")
    bridge.kill()
    common = ["--state", f"{tmp_path}/state", "--grpc", "none", "--admin", "none", "-i", "1@memory"]
    text = run(str(SLUICE), "run", "examples/router/router.p4", *common, code=2, cwd=ROOT)
    assert "holds an OpenFlow bridge's flows for device 1: start it with --openflow" in text
    # Another program, without a field that a flow has: the start is refused and names it. One that has all goes on.
    protocols = (ROOT / "crates/bridge/p4/openflow.p4").read_text()
    (tmp_path / "more.p4").write_text(protocols + "\n// Changed.\n")
    bridge.args[0] = f"--openflow={tmp_path}/more.p4"
    bridge.start()
    bridge.ofctl("add-flow", "priority=9,tcp,tcp_dst=80,actions=output:2")
    bridge.kill()
    without = protocols.replace('@oxm("tcp_dst", 14) @nxm(0, 10)', '@oxm("tcp_dst", 114) @nxm(0, 110)')
    assert without != protocols
    (tmp_path / "more.p4").write_text(without)
    text = run(str(SLUICE), "run", *bridge.args, "--grpc", "none", code=2)
    assert "does not fit what" in text and "--forget starts empty" in text, text
    (tmp_path / "more.p4").write_text(protocols)
    bridge.start()
    shown = bridge.ofctl("dump-flows")
    assert "priority=9,tcp,tp_dst=80" in shown and "priority=3" in shown
    bridge.stop()


def test_a_disk_that_fails_refuses_changes_and_packets_go_on(bridge):
    bridge.ofctl("add-flow", "priority=1,actions=output:1")
    os.rename(bridge.folder / "state", bridge.folder / "elsewhere")
    time.sleep(0.2)
    text = bridge.ofctl("add-flow", "priority=2,actions=output:2", code=None)
    assert "OFPBRC_EPERM" in text, text
    # That one is in force, but not kept; the next ones are not even done.
    text = bridge.ofctl("add-flow", "priority=3,actions=output:2", code=None)
    assert "OFPBRC_EPERM" in text, text
    os.rename(bridge.folder / "elsewhere", bridge.folder / "state")

    def added():
        return "OFPT_ERROR" not in bridge.ofctl("add-flow", "priority=4,actions=output:2", code=None)

    until(added, "changes are accepted again")
    before = bridge.dump()
    assert "priority=3" not in "".join(before)
    bridge.again()
    assert bridge.dump() == before


@needs_clang
def test_programs_are_there_again_with_the_entries_that_were_set(bridge, tmp_path):
    marked = compiled(tmp_path, "marked", COUNT, MARK="0x33", RESULT="XDP_PASS")
    bridge.cli("program", "load", "3", marked)
    bridge.cli("program", "map", "3", "ports", "set", "7", "77")
    bridge.cli("program", "map", "3", "ports", "set", "8", "88")
    bridge.cli("program", "map", "3", "ports", "delete", "8")
    bridge.cli("program", "load", "4", marked)
    bridge.cli("program", "load", "5", marked)
    bridge.cli("program", "unload", "5")
    bridge.again()
    assert "2 programs back" in bridge.daemon.output
    shown = json.loads(bridge.cli("program", "list", "--json"))["programs"]
    assert [(one["id"], one["function"], one["file"]) for one in shown] == [(3, "count", marked), (4, "count", marked)]
    entries = json.loads(bridge.cli("program", "map", "3", "ports", "--json"))["entries"]
    assert [(e["key_number"], e["value_number"]) for e in entries] == [(7, 77)]
    # A new version without the old one's maps has none of them after the next start either.
    bridge.cli("program", "load", "3", marked)
    bridge.again()
    assert json.loads(bridge.cli("program", "map", "3", "ports", "--json"))["entries"] == []


def test_the_switchs_own_flow_and_the_one_that_it_has_replaced(tmp_path):
    listener = f"punix:{tmp_path}/c"
    bridge = Bridge(tmp_path, "--controller", listener)
    own = "cookie=0x736c756963650001"

    def flows():
        return bridge.ofctl("dump-flows", options=("--no-stats",))

    def connect():
        return subprocess.Popen(["ovs-ofctl", "-O", "OpenFlow13", "monitor", f"unix:{tmp_path}/c", "65534"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env=os.environ | {"OVS_RUNDIR": str(tmp_path)})

    try:
        assert own in flows()
        controller = connect()
        until(lambda: own not in flows(), "the controller decides")
        bridge.ofctl("add-flow", "priority=0,cookie=0x5,actions=output:2")
        controller.kill()
        controller.wait()
        until(lambda: own in flows(), "the switch stands in")
        bridge.again()
        # Exactly as it was.
        assert own in flows() and "cookie=0x5" not in flows()
        controller = connect()
        until(lambda: "cookie=0x5" in flows(), "the controller's flow is given back")
        assert own not in flows()
        # A switch that ends while its controller decides begins so; the controller has time to come back.
        bridge.daemon.stop()
        controller.kill()
        controller.wait()
        bridge.start()
        assert own not in flows() and "cookie=0x5" in flows()
    finally:
        bridge.stop()


def test_restart_under_traffic_has_a_flow_for_each_packet():
    net = Net("--fail-mode", "secure", hosts=2, start=False)
    try:
        net.args += ["--state", str(net.directory / "state"), "--admin", str(net.directory / "a")]
        net.start()
        flows = [f"table=1,priority=9,udp,tp_dst={port},actions=output:2" for port in range(2000)]
        # Hosts solicit IPv6 routers on their own, at any time.
        net.reset(*flows, "priority=1,in_port=1,actions=goto_table:1", "priority=1,in_port=2,actions=output:1",
                  "table=1,priority=1,arp,actions=output:2", "table=1,priority=1,ip,actions=output:2",
                  "table=1,priority=1,ipv6,actions=output:2", "table=1,priority=0,cookie=0xbad,actions=output:2")
        assert net.ping(1, 2) == 3
        before = sorted(net.flows())
        flood = net.begin(1, "ping", "-n", "-i", "0.005", "-W", "1", "10.0.0.2")
        time.sleep(0.3)
        told = json.loads(run(str(SLUICE), "restart", "--json", "--admin", str(net.directory / "a")))
        net.daemon.successor = told["pid"]
        time.sleep(0.3)
        assert sorted(net.flows()) == before
        # Every packet has met its own flow, in the new process as well.
        bad = re.search(r"cookie=0xbad, [^\n]*n_packets=(\d+)", net.ofctl("dump-flows", "table=1"))
        assert bad.group(1) == "0"
        flood.send_signal(2)
        text = flood.communicate(timeout=PATIENCE_S)[0]
        sent, received = map(int, re.search(r"(\d+) packets transmitted, (\d+) received", text).groups())
        # What came while no process had the ports is lost, as in any restart.
        assert sent > 50 and received >= sent - 60, text
        assert net.ping(1, 2) == 3
    finally:
        pid = getattr(net.daemon, "successor", None)
        if pid:
            os.kill(pid, 15)
            net.daemon.process.wait(timeout=PATIENCE_S)
        net.close()
