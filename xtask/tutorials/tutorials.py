"""p4lang/tutorials: each exercise's solution, with its own `make`, `run_exercise.py`, topology, scripts and controller.

A function for each exercise does what the steps of its README say and checks what they promise.
"""

import re
import shutil
import time
from pathlib import Path

from bench import Bench, Mininet, Started, copy, field, wait_for

MESSAGE = "P4 is cool"


def prepare(checkout: Path, work: Path, exercise: str) -> Bench:
    """A copy of an exercise in which the solution stands in the place of the skeleton."""
    copy(checkout, work, "utils", "bin", f"exercises/{exercise}")
    folder = work / "exercises" / exercise
    for solution in [*(folder / "solution").glob("*.p4"), *(folder / "solution").glob("*.py")]:
        shutil.copy(solution, folder)
    return Bench(folder)


def network(bench: Bench) -> Mininet:
    return Mininet(bench, "make", "run")


def ptf(bench: Bench) -> None:
    """`make test`: the exercise's packet tests."""
    _, text = bench.run("make", "test", timeout=600)
    ran = re.search(r"^Ran (\d+) tests? in", text, re.M)
    passed = ran and int(ran.group(1)) > 0 and re.search(r"^OK$", text, re.M) and "FAILED" not in text
    bench.check(f"make test: {ran.group(1) if ran else 'no'} packet tests pass", passed, text)


def all_reach_each_other(net: Mininet, count: int) -> bool:
    text = net.do("pingall")
    pairs = count * (count - 1)
    return net.bench.check(f"pingall: {pairs} of {pairs}", f"0% dropped ({pairs}/{pairs} received)" in text, text)


def basic(bench: Bench) -> None:
    net = network(bench)
    bench.check("h1 pings h2", net.pings("h1", "h2"))
    all_reach_each_other(net, 4)
    listener = net.listen("h2")
    net.do(f'h1 ./send.py 10.0.2.2 "{MESSAGE}"')
    bench.check("a message from h1 comes to h2", listener.wait(lambda text: MESSAGE in text), listener.text())
    net.stop()
    ptf(bench)


def basic_tunnel(bench: Bench) -> None:
    net = network(bench)
    h2, h3 = net.listen("h2"), net.listen("h3", "./receive.py")

    def sends(to: str, options: str, at, other, name: str) -> None:
        before = len(at.packets()), len(other.packets())
        net.do(f'h1 ./send.py {to} "{MESSAGE}" {options}')
        at.wait(lambda _: len(at.packets()) > before[0], 30)
        came = at.settled()[before[0]:]
        good = len(came) == 1 and MESSAGE in came[0] and ("MyTunnel" in came[0]) == bool(options)
        bench.check(name, good and len(other.packets()) == before[1], at.text() + other.text())

    sends("10.0.2.2", "", h2, h3, "without a tunnel a message to h2 comes to h2 only")
    sends("10.0.3.3", "", h3, h2, "without a tunnel a message to h3 comes to h3 only")
    sends("10.0.2.2", "--dst_id 2", h2, h3, "through tunnel 2 it comes to h2, with its header")
    sends("10.0.3.3", "--dst_id 2", h2, h3, "through tunnel 2 it comes to h2 also with the address of h3")
    net.stop()
    ptf(bench)


def calc(bench: Bench) -> None:
    net = network(bench)
    sums = [("1+1", 2), ("9-4", 5), ("12&10", 8), ("12|3", 15), ("5^6", 3), ("0-1", 2**32 - 1)]
    text = net.talk("h1 python3 calc.py", [("> ", line) for line, _ in sums], "quit")
    for line, result in sums:
        right = re.search(rf"{re.escape(line)}\s+{result}\s", text)
        bench.check(f"{line} is {result}", right, text)
    net.stop()


def ecn(bench: Bench) -> None:
    net = network(bench)
    listener = net.listen("h2")
    text = net.do(f'h1 ./send.py 10.0.2.2 "{MESSAGE}" 5')
    listener.wait(lambda _: len(listener.packets()) >= 5, 30)
    packets = listener.settled()
    good = len(packets) == 5 and all(MESSAGE in p and field(p, "tos") == "0x1" for p in packets)
    bench.check("5 messages from h1 come to h2 with tos 0x1", good, text + listener.text())
    fill_narrow_link(net)
    before = len(listener.packets())
    net.do(f'h1 ./send.py 10.0.2.2 "{MESSAGE}" 30')
    marked = lambda: "0x3" in [field(p, "tos") for p in listener.packets()[before:]]  # noqa: E731
    bench.check("messages come with tos 0x3 where a queue has built up", wait_for(marked, 60), listener.text()[-2000:])
    net.stop()


def fill_narrow_link(net: Mininet) -> None:
    """As READMEs do it: twice as much as the link between s1 and s2 takes."""
    net.do("h22 iperf -s -u > /dev/null 2>&1 &")
    net.do("h11 iperf -c 10.0.2.22 -t 15 -u > iperf.log 2>&1 &")


def firewall(bench: Bench) -> None:
    net = network(bench)
    net.serve("h1", "h2", "h3")
    bench.check("h1 connects to h2, inside", net.rate("h1", "10.0.2.2") > 0)
    bench.check("h1 connects to h3, outside", net.rate("h1", "10.0.3.3") > 0)
    bench.check("h3 does not connect to h1", net.rate("h3", "10.0.1.1") == 0)
    bench.check("h3 does not connect to h2", net.rate("h3", "10.0.2.2") == 0)
    bench.check("h3 pings h1: only TCP is looked at", net.pings("h3", "h1"))
    net.stop()


def controller(bench: Bench) -> Started:
    return bench.start("python3", "-u", "mycontroller.py", log="controller.log")


def flowcache(bench: Bench) -> None:
    net = network(bench)
    bench.check("no program, no ping", not net.pings("h1", "h2", 1, 3))
    started = controller(bench)
    bench.must("the controller sets the programs", wait_for(lambda: "on s3" in started.text()), started.text())
    bench.check("h1 pings h2, the first packets through the controller", wait_for(lambda: net.pings("h1", "h2")))
    bench.check("h1 pings h3", wait_for(lambda: net.pings("h1", "h3")))
    text = started.text()
    bench.check("packets come to the controller", "Received PacketIn message" in text, text)
    bench.check("it adds entries", "added table entry to send packets" in text, text)
    counts = [int(n) for n in re.findall(r"MyEgress.egressPktInCounter \d+: (\d+) packets", text)]
    bench.check("packets to the controller are counted", counts and max(counts) > 0, text)
    # By an address that the program does not parse in them, so that it is 0.
    command = "echo counter_read MyIngress.ingressPktOutCounter 0 | simple_switch_CLI --thrift-port 9090"
    _, read = bench.run("sh", "-c", command)
    bench.check("packets from the controller are counted", re.search(r"[1-9]\d* packets", read), read)
    bench.not_asserted(
        "their counts by host: ingressPktOutCounter is indexed by the address of a header that is not parsed, where bmv2 has what an "
        "earlier packet left"
    )
    idle = wait_for(lambda: "Deleted flow_cache entry" in started.text(), 60)
    bench.check("entries that are not used are reported and deleted", idle, started.text())
    bench.check("and come again", wait_for(lambda: net.pings("h1", "h2")), started.text())
    bench.check("no error of P4Runtime", "gRPC" not in started.text(), started.text())
    started.stop()
    net.stop()


def link_monitor(bench: Bench) -> None:
    net = network(bench)
    listener = net.listen("h1")
    net.do("h1 ./send.py > /dev/null 2>&1 &")
    wait_for(lambda: listener.text().count("Switch") >= 8, 30)
    quiet = listener.text()
    hops = re.findall(r"Switch (\d+) - Port (\d+): (\S+) Mbps", quiet)
    # The path of the probe, from its end: see send.py and the topology.
    path = [(1, 1), (3, 1), (2, 4), (4, 1), (1, 4)]
    seen = [(int(switch), int(port)) for switch, port, _ in hops]
    bench.check("probes bring the switches and ports of their path", all(hop in seen for hop in path), quiet)
    net.serve("h4")
    mbps = net.rate("h1", "10.0.4.4", 10)
    time.sleep(2)
    after = re.findall(r"Switch (\d+) - Port (\d+): (\S+) Mbps", listener.text())[len(hops):]
    found = {}
    for switch, port, told in after:
        found.setdefault((int(switch), int(port)), []).append(float(told))
    if bench.check("h1 connects to h4", mbps > 0):
        # Where the flow from h1 to h4 and probes go the same way; probes at its beginning and end see less of it.
        most = max((max(rates) for hop, rates in found.items() if hop in [(1, 4), (1, 3)]), default=0)
        agree = mbps / 2 < most < mbps * 2
        bench.check("the utilisation that probes tell agrees with iperf", agree, f"{most} and {mbps} Mb/s: {found}")
    net.stop()


def load_balance(bench: Bench) -> None:
    net = network(bench)
    h2, h3 = net.listen("h2"), net.listen("h3")
    for _ in range(12):
        net.do(f'h1 ./send.py 10.0.0.1 "{MESSAGE}"')
    wait_for(lambda: len(h2.packets()) + len(h3.packets()) >= 12, 30)
    counts = len(h2.settled()), len(h3.settled())
    bench.check("all messages come", sum(counts) == 12, counts)
    bench.check("some come to h2, some to h3", min(counts) > 0, counts)
    net.stop()


def mri(bench: Bench) -> None:
    net = network(bench)
    listener = net.listen("h2")
    net.do(f'h1 ./send.py 10.0.2.2 "{MESSAGE}" 2')
    listener.wait(lambda _: len(listener.packets()) >= 2, 30)
    packets = listener.settled()
    good = len(packets) == 2 and all(MESSAGE in p for p in packets)
    bench.must("messages from h1 come to h2", good, listener.text())
    packet = packets[0]
    swids = re.findall(r"swid\s*= (\d+)", packet)
    bench.check("count is 2, and the path 2, 1", field(packet, "count") == "2" and swids == ["2", "1"], packet)
    bench.check("each hop has a queue depth", len(re.findall(r"qdepth\s*= \d+", packet)) == 2, packet)
    bench.check("the header has the length that this takes", field(packet, "ihl") == "10", packet)
    fill_narrow_link(net)
    net.do(f'h1 ./send.py 10.0.2.2 "{MESSAGE}" 30')
    deep = lambda: any(int(n) >= 10 for n in re.findall(r"qdepth\s*= (\d+)", listener.text()))  # noqa: E731
    bench.check("the queue of the narrow link is deep beside other traffic", wait_for(deep, 60), listener.text()[-2000:])
    net.stop()


def multicast(bench: Bench) -> None:
    net = network(bench)
    for a, b in [("h1", "h2"), ("h2", "h3"), ("h3", "h1")]:
        bench.check(f"{a} pings {b}", net.pings(a, b))
    bench.check("h1 does not reach h4, which is not in the group", not net.pings("h1", "h4", 1, 3))
    net.stop()
    shutil.copy(bench.folder / "solution/s1-runtime.json", bench.folder / "sig-topo/s1-runtime.json")
    net = network(bench)
    all_reach_each_other(net, 4)
    net.stop()


def p4runtime(bench: Bench) -> None:
    net = network(bench)
    bench.check("no program, no ping", not net.pings("h1", "h2", 1, 3))
    started = controller(bench)
    bench.must("the controller sets the programs", wait_for(lambda: "on s2" in started.text()), started.text())
    bench.check("h1 pings h2 through the tunnel", wait_for(lambda: net.pings("h1", "h2")), started.text())
    rules = started.text()
    named = "MyIngress.ipv4_lpm:" in rules and "-> MyIngress.myTunnel_egress" in rules
    bench.check("the controller reads its rules", named, rules)
    counters = [
        "s1 MyIngress.ingressTunnelCounter 100", "s2 MyIngress.egressTunnelCounter 100",
        "s2 MyIngress.ingressTunnelCounter 200", "s1 MyIngress.egressTunnelCounter 200",
    ]
    for counter in counters:
        counts = lambda: [int(n) for n in re.findall(rf"{counter}: (\d+) packets", started.text())]  # noqa: B023, E731
        bench.check(f"{counter} counts", wait_for(lambda: max(counts(), default=0) > 0, 20), started.text()[-800:])  # noqa: B023
    bench.check("no error of P4Runtime", "gRPC Error" not in started.text(), started.text())
    started.stop()
    net.stop()


def qos(bench: Bench) -> None:
    net = network(bench)
    listener = net.listen("h2")
    for protocol, tos in [("UDP", "0xb9"), ("TCP", "0xb1")]:
        before = len(listener.packets())
        net.do(f'h1 ./send.py --p={protocol} --des=10.0.2.2 --m="{MESSAGE}" --dur=2')
        listener.wait(lambda _: len(listener.packets()) >= before + 2, 30)  # noqa: B023
        # Nobody listens on the port, so the host answers by ICMP, with the message in it.
        came = [p for p in listener.settled()[before:] if MESSAGE in p and "ICMP" not in p]
        good = len(came) == 2 and all(field(p, "tos") == tos for p in came)
        bench.check(f"{protocol} comes with tos {tos}", good, listener.text())
    net.stop()


def source_routing(bench: Bench) -> None:
    net = network(bench)
    listener = net.listen("h2")
    ask = "to quit: "
    net.talk("h1 python3 send.py 10.0.2.2", [(ask, "2 3 2 2 1"), (ask, "2 1")], "q")
    listener.wait(lambda _: len(listener.packets()) >= 2, 30)
    ttls = [field(p, "ttl") for p in listener.settled()]
    bench.check("by `2 3 2 2 1` a message comes with ttl 59, by `2 1` with 62", ttls == ["59", "62"], listener.text())
    net.stop()


ALL = [
    basic, basic_tunnel, calc, ecn, firewall, flowcache, link_monitor, load_balance, mri, multicast, p4runtime, qos, source_routing,
]


def exercises(checkout: Path) -> list[tuple[str, object]]:
    """By name. What the checkout has and this does not know is listed, too: it fails."""
    known = {run.__name__: run for run in ALL}
    there = sorted(path.parent.name for path in (checkout / "exercises").glob("*/Makefile"))

    def unknown(bench: Bench) -> None:
        bench.check("is known to this suite", False, "a new exercise")

    return [(name, known.get(name, unknown)) for name in there]
