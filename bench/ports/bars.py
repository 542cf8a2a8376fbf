"""The bars that ratios of the benchmark through ports are held against: vhost-user ports, 64 bytes, both ways."""

from __future__ import annotations

import statistics

#: By workload and who is beside the switch: the least ratio of Mpps.
BESIDE = {
    ("l2", "testpmd macswap"): 0.92,
    ("l2", "ovs-dpdk"): 1.1,
    ("l2-tables", "ovs-dpdk"): 1.1,
    ("l2l3acl-64", "ovs-dpdk"): 1.2,
    ("l2l3acl-1m", "ovs-dpdk"): 1.7,
    ("l2l3acl-masks", "ovs-dpdk"): 4.0,
    ("l2l3acl-new", "ovs-dpdk"): 20.0,
    ("flood", "ovs-dpdk"): 1.3,
    ("mirror", "ovs-dpdk"): 1.3,
}
#: Of the switch alone: what it is, the workloads whose Mpps are divided, the bar, whether it is the most (else the least).
OWN = [
    ("l2 with 1,000 stations, 1M flows / 1 flow", "l2-1k-1m", "l2-1k-1", 0.7, False),
    ("first packet / later packet (64 flows / every packet a new one, with more rules)", "l2l3acl-64", "l2l3acl-new", 2.0, True),
]


def verdict(over: list[float], under: list[float], bar: float, at_most: bool = False) -> str:
    """Whether the ratio of medians reaches a bar; not, if the quartiles of the rounds' own ratios are on both sides of it."""
    of_medians = statistics.median(over) / statistics.median(under)
    each = [a / b for a, b in zip(over, under) if b]
    low, _, high = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else [of_medians] * 3
    if low < bar < high:
        result = "unclear: the spread hides it"
    else:
        result = "PASS" if (of_medians <= bar if at_most else of_medians >= bar) else "short"
    return f"bar {'≤' if at_most else '≥'} {bar}: {result}"


def own(readings: list[dict]) -> list[str]:
    """Ratios between workloads of the switch, as lines; of those that were measured."""
    lines = []
    for title, over, under, bar, at_most in OWN:
        rates = [
            [r["mpps"] for r in readings if (r["work"], r["link"], r["size"], r["direction"]) == (work, "vhost", "64", "bi")
             and r["middle"] == "sluice" and r["load"] == ""]
            for work in (over, under)
        ]  # fmt: skip
        if all(rates):
            ratio = statistics.median(rates[0]) / statistics.median(rates[1])
            lines.append(f"{title}: {ratio:.2f}; {verdict(rates[0], rates[1], bar, at_most)}")
    return lines
