"""nsg-ethz/p4-learning: solutions of its exercises in Mininet by p4-utils, tables by its thrift library and `simple_switch_CLI`."""

import os
import re
import shutil
import time
from pathlib import Path

import bm_cli
import pexpect
from bench import PATIENCE_S, Bench, Mininet, copy, wait_for

MESSAGE = "Hello H2"
#: How a flow is printed: addresses, ports, protocol, IP identification.
FLOW = r"'[\d.]+', '[\d.]+', \d+, \d+, \d+, \d+"
#: A link of 10 Mb/s that is taken by a flow.
FULL_MBPS = 7


def prepare(checkout: Path, work: Path, exercise: str) -> Bench:
    """A copy of an exercise in which the solution stands in the place of the skeleton."""
    folder = PARTS[exercise][0]
    copy(checkout, work, folder)
    solution = work / folder / "solution"
    if solution.is_dir():
        shutil.copytree(solution, work / folder, dirs_exist_ok=True)
    return Bench(work / folder)


def network(bench: Bench, script: str = "network.py") -> Mininet:
    """Starts a network; what p4-utils writes into switches must be taken."""
    # bmv2's Python has this module at the top, its package on PyPI has it inside.
    path = f"{os.environ.get('PYTHONPATH', '')}:{bm_cli.__path__[0]}"
    net = Mininet(bench, "python3", script, env={"PYTHONPATH": path})
    refused = re.search(r"Traceback|Invalid \w+ operation|^Error", net.begin, re.M)
    bench.check("all commands of the switches are taken", not refused, net.begin)
    return net


def script_on_host(bench: Bench, *command: str, log: str):
    """A controller, which runs beside the network."""
    os.environ["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', '')}:{bm_cli.__path__[0]}"
    return bench.start("python3", "-u", *command, log=log)


def sent_bytes(interface: str) -> int:
    """Bytes that a switch has sent through an interface."""
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def all_reach_each_other(net: Mininet) -> bool:
    text = net.do("pingall", timeout=600)
    found = re.search(r"Results: (\d+)% dropped \((\d+)/(\d+) received\)", text)
    return net.bench.check(
        f"pingall: {found.group(3) if found else 'some'} of all", found and found.group(1) == "0", text
    )


def packets(interface: str) -> int:
    """Packets that an interface has received from its switch."""
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_packets").read_text())


def spread(bench: Bench, net: Mininet, command: str, links: list[str]) -> list[int]:
    """By link: the packets that a command sends through it."""
    before = [packets(link) for link in links]
    net.do(command, timeout=300)
    time.sleep(1)
    return [packets(link) - count for link, count in zip(links, before, strict=True)]


def reflector(bench: Bench) -> None:
    net = network(bench)
    net.shell.sendline("h1 python3 -u send_receive.py")
    net.shell.expect_exact("to send a packet:")
    net.shell.sendline("")
    came = net.shell.expect(["A packet was reflected", "to send a packet:.*to send a packet:"])
    bench.check("a packet comes back with its addresses swapped", came == 0, net.tail())
    # Scapy takes an interrupt that comes before its `sendp` has returned.
    for _ in range(10):
        net.shell.sendintr()
        if net.shell.expect_exact(["mininet> ", pexpect.TIMEOUT], timeout=5) == 0:
            break
    net.stop()


def repeater(bench: Bench) -> None:
    for script in ["network.py", "network_table.py"]:
        net = network(bench, script)
        listener = net.listen("h2", "receive.py", said="")
        time.sleep(2)
        net.do(f'h1 python3 send.py 10.0.0.2 "{MESSAGE}"')
        # It shows the message's layer by its name.
        came = listener.wait(lambda text: "MESSAGE" in text and "dst: 10.0.0.2" in text, 30)
        bench.check(f"{script}: a message comes", came, listener.text())
        bench.check(f"{script}: h1 pings h2", net.pings("h1", "h2"))
        net.serve("h2")
        bench.check(f"{script}: iperf", net.rate("h1", "10.0.0.2") > 0)
        net.stop()


def l2_forwarding(bench: Bench) -> None:
    net = network(bench)
    all_reach_each_other(net)
    net.stop()


def l2_flooding(bench: Bench) -> None:
    for script in ["network-all-ports.py", "network-other-ports.py"]:
        net = network(bench, script)
        if script == "network-other-ports.py":
            controller = script_on_host(bench, "switch_controller.py", log="controller.log")
            wait_for(lambda: controller.process.poll() is not None, 60)  # noqa: B023
        all_reach_each_other(net)
        net.stop()


def l2_learning(bench: Bench) -> None:
    net = network(bench, "network_cpu.py")
    script_on_host(bench, "l2_learning_controller.py", "s1", "cpu", log="controller.log")
    time.sleep(5)
    all_reach_each_other(net)
    _, text = bench.run("sh", "-c", "echo table_dump dmac | simple_switch_CLI --thrift-port 9090")
    bench.check("the controller has learnt four addresses", text.count("Dumping entry") == 4, text)
    net.stop()
    net = network(bench, "network_digest.py")
    controller = script_on_host(bench, "l2_learning_controller.py", "s1", "digest", log="digests.log")
    time.sleep(5)
    all_reach_each_other(net)
    _, text = bench.run("sh", "-c", "echo table_dump dmac | simple_switch_CLI --thrift-port 9090")
    learnt = controller.text().count("mac: ")
    bench.check("it has learnt them by digests, each once", text.count("Dumping entry") == learnt == 4, controller.text() + text)
    net.stop()


def mpls(bench: Bench) -> None:
    net = network(bench)
    all_reach_each_other(net)
    net.stop()


class Prompt:
    """A controller with a command line of its own."""

    def __init__(self, bench: Bench, script: str, prompt: str) -> None:
        path = f"{os.environ.get('PYTHONPATH', '')}:{bm_cli.__path__[0]}"
        self.prompt = prompt
        self.shell = pexpect.spawn(
            "python3", [script], cwd=str(bench.folder), timeout=PATIENCE_S, env={**os.environ, "PYTHONPATH": path}, echo=False
        )
        self.shell.expect_exact(prompt)

    def do(self, line: str) -> str:
        self.shell.sendline(line)
        self.shell.expect_exact(self.prompt)
        return self.shell.before.decode(errors="replace")


def rsvp(bench: Bench) -> None:
    net = network(bench)
    controller = Prompt(bench, "rsvp_controller.py", "rsvp-menu> ")
    bench.check("no reservation, no ping", not net.pings("h1", "h6", 1, 3))
    for line in ["add_reservation h1 h6 30 5", "add_reservation h6 h1 30 5"]:
        text = controller.do(line)
        bench.check(f"{line} succeeds", "Successful reservation" in text, text)
    bench.check("h1 pings h6 along the reserved paths", net.pings("h1", "h6"))
    bench.check("reservations end, and pings with them", wait_for(lambda: not net.pings("h1", "h6", 1, 3), 90))
    net.stop()


def fast_reroute(bench: Bench) -> None:
    net = network(bench)
    controller = Prompt(bench, "controller.py", "link-menu> ")
    all_reach_each_other(net)
    controller.do("fail s1 s2")
    bench.check("h1 pings h2 by the alternative next hop when a link fails", net.pings("h1", "h2"))
    controller.do("notify")
    all_reach_each_other(net)
    controller.do("reset")
    controller.do("notify")
    all_reach_each_other(net)
    net.stop()


def congestion_aware(bench: Bench) -> None:
    net = network(bench, "network_medium.py")
    done = script_on_host(bench, "routing-controller.py", log="controller.log")
    bench.check("the controller writes the routes", done.process.wait(120) == 0, done.text())
    all_reach_each_other(net)
    uplinks = [f"s1-eth{port}" for port in range(5, 9)]
    pairs = {"h1": "h5", "h2": "h6", "h3": "h7", "h4": "h8"}
    for number, (sender, receiver) in enumerate(pairs.items()):
        net.do(f"{receiver} iperf3 -s -p {7000 + number} --one-off > /dev/null 2>&1 &")
    time.sleep(1)
    # Congestion control that fills queues; where a system's default is BBR, which does not, no flow would be hashed anew.
    for number, (sender, receiver) in enumerate(pairs.items()):
        net.do(f"{sender} iperf3 -C cubic -M 9000 -c {receiver} -t 1000 -p {7000 + number} > /dev/null 2>&1 &")
    best, seen = 0, []

    def spread_out() -> bool:
        nonlocal best
        before = [sent_bytes(link) for link in uplinks]
        time.sleep(5)
        rates = [(sent_bytes(link) - count) * 8 / 5e6 for link, count in zip(uplinks, before, strict=True)]
        seen.append([round(rate, 1) for rate in rates])
        best = max(best, sum(rate > FULL_MBPS for rate in rates))
        return best == len(uplinks)

    # Each link carries 10 Mb/s, and flows are hashed anew at random as long as they meet in a queue.
    wait_for(spread_out, 240)
    bench.check("four flows end on four paths", best == len(uplinks), f"{best} paths were full at a time; Mb/s: {seen}")
    for host in [*pairs, *pairs.values()]:
        net.do(f"{host} kill $!")
    net.stop()


LINKS = [f"s1-eth{port}" for port in range(2, 6)]


def ecmp(bench: Bench) -> None:
    net = network(bench)
    all_reach_each_other(net)
    counts = spread(bench, net, "h1 ping -c 10 -i 0.1 h2", LINKS)
    bench.check("one flow takes one path", sum(count >= 10 for count in counts) == 1, counts)
    counts = spread(bench, net, "h1 python3 send.py 10.0.6.2 200", LINKS)
    bench.check("many flows take all paths", min(counts) > 0 and sum(counts) >= 200, counts)
    net.stop()


def flowlet(bench: Bench) -> None:
    net = network(bench)
    all_reach_each_other(net)
    counts = spread(bench, net, "h1 ping -c 20 -i 0.3 h2", LINKS)
    bench.check("pings with gaps between them take several paths", sum(count > 0 for count in counts) > 1, counts)
    net.stop()


def heavy_hitter(bench: Bench) -> None:
    net = network(bench)
    all_reach_each_other(net)
    listener = net.listen("h2", "receive.py", said="")
    time.sleep(2)
    net.do("h1 python3 send.py 10.0.2.2 1200", timeout=300)
    time.sleep(3)
    counts = [int(n) for n in re.findall(r"total: (\d+)", listener.text())]
    bench.check("1000 packets of a flow come, and no more", counts and max(counts) == 1000, listener.text()[-500:])
    net.stop()


def sketch(bench: Bench) -> None:
    net = network(bench)
    done = script_on_host(bench, "cm-sketch-controller.py", "--option", "set_hashes", log="set_hashes.log")
    bench.check("the controller runs", done.process.wait(60) == 0, done.text())
    net.do("h1 python3 send.py --n-pkt 500 --n-hh 5 --n-sfw 50", timeout=300)
    time.sleep(2)
    _, text = bench.run("sh", "-c", "echo register_read sketch0 | simple_switch_CLI --thrift-port 9090")
    cells = re.search(r"sketch0= ([\d, ]+)", text)
    total = sum(int(cell) for cell in cells.group(1).split(",")) if cells else 0
    bench.check("a row of the sketch has counted all packets", total == 500, text)
    done = script_on_host(bench, "cm-sketch-controller.py", "--n", "500", "--mod", "28", "--option", "decode", log="decode.log")
    bench.check("the controller decodes the rows", done.process.wait(60) == 0, done.text())
    flows = [(int(sent), int(read)) for sent, read in re.findall(r"cms: (\d+)/(\d+)", done.text())]
    # It computes the CRCs itself: were one of them another, most flows would have too small a count.
    bench.check("no flow has a smaller count than it has packets", flows and all(read >= sent for sent, read in flows), done.text())
    net.stop()


def loss_detection(bench: Bench) -> None:
    net = network(bench)
    controller = script_on_host(bench, "packet-loss-controller.py", log="controller.log")
    time.sleep(5)
    all_reach_each_other(net)
    # Other traffic takes the switches to the next batch.
    net.do("h1 ping -i 0.05 -c 2000 h2 > /dev/null 2>&1 &")
    for hops, link in [(1, "s1->s2"), (2, "s2->s3")]:
        found = False
        # The program keeps no field of its clones, so that the controller is always told that batch 0 is over: what was lost in batch 1,
        # which is every other 2.1 s, it does not look for.
        for _ in range(8):
            told = len(controller.text())
            text = net.do(f"h1 python3 send.py --n-pkt 15 --n-drops 5 --fail-hops {hops}", timeout=120)
            sent = set(re.findall(rf"\(({FLOW}), \d+\)", text))
            time.sleep(4.5)
            new = controller.text()[told:]
            found |= len(sent) == 5 and sent <= set(re.findall(rf"\(({FLOW})\)", new)) and link in new
        bench.check(f"{link}: five flows that are lost there are told", found, controller.text()[-2000:])
    bench.not_asserted("losses in every other batch: the program's clones tell the controller of batch 0 only")
    net.stop()


def routing(bench: Bench) -> None:
    net = network(bench)
    done = script_on_host(bench, "routing-controller.py", log="controller.log")
    bench.check("the controller writes the routes", done.process.wait(120) == 0, done.text())
    all_reach_each_other(net)
    net.stop()


def traceroutable(bench: Bench) -> None:
    net = network(bench)
    done = script_on_host(bench, "routing-controller.py", log="controller.log")
    bench.check("the controller writes the routes", done.process.wait(120) == 0, done.text())
    all_reach_each_other(net)
    net.stop()


PARTS = {
    "01-Reflector": ("exercises/01-Reflector", reflector),
    "02-Repeater": ("exercises/02-Repeater/thrift", repeater),
    "03-L2_Basic_forwarding": ("exercises/03-L2_Basic_forwarding/thrift", l2_forwarding),
    "03-L2_Flooding": ("exercises/03-L2_Flooding/thrift", l2_flooding),
    "04-L2_Learning": ("exercises/04-L2_Learning/thrift", l2_learning),
    "04-MPLS-basics": ("exercises/04-MPLS/thrift/mpls_basics", mpls),
    "04-MPLS-stacked": ("exercises/04-MPLS/thrift/mpls_stacked", mpls),
    "04-RSVP": ("exercises/04-RSVP/thrift", rsvp),
    "05-ECMP": ("exercises/05-ECMP", ecmp),
    "05-Flowlet_Switching": ("exercises/05-Flowlet_Switching", flowlet),
    "06-Heavy_Hitter_Detector": ("exercises/06-Heavy_Hitter_Detector", heavy_hitter),
    "07-Count-Min-Sketch": ("exercises/07-Count-Min-Sketch", sketch),
    "08-Simple_Routing": ("exercises/08-Simple_Routing/thrift", routing),
    "09-Traceroutable": ("exercises/09-Traceroutable", traceroutable),
    "10-Congestion_Aware": ("exercises/10-Congestion_Aware_Load_Balancing", congestion_aware),
    "11-Packet-Loss-Detection": ("exercises/11-Packet-Loss-Detection", loss_detection),
    "12-Fast-Reroute": ("exercises/12-Fast-Reroute", fast_reroute),
}


def exercises(_: Path) -> list[tuple[str, object]]:
    """By name."""
    return [(name, run) for name, (_, run) in PARTS.items()]
