"""The readings as SVG bars: one file per workload and kind of ports, a group of bars per size and direction.

A bar is the median of the rounds, the line on it their spread. Written by hand, as a few rectangles need no library.
"""

from __future__ import annotations

import html
import statistics
from pathlib import Path

COLOURS = ["#999999", "#666666", "#4c78a8", "#e4572e", "#f2b134", "#76b041"]
BAR, GAP, HEIGHT, TOP, LEFT = 34, 30, 300, 60, 60


def write(folder: Path, readings: list[dict]) -> list[Path]:
    """Writes all plots; says where."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, str], dict[str, dict[str, list[float]]]] = {}
    for line in readings:
        if line["load"] != "":
            continue
        groups = found.setdefault((line["work"], line["link"]), {})
        group = groups.setdefault(f"{line['size']} {line['direction']}", {})
        group.setdefault(line["middle"], []).append(line["mpps"])
    paths = []
    for (work, link), groups in found.items():
        path = folder / f"ports-{work}-{link}.svg"
        path.write_text(bars(f"{work} through {link} ports, millions of packets a second", groups))
        paths.append(path)
    return paths


def bars(title: str, groups: dict[str, dict[str, list[float]]]) -> str:
    """One plot."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    highest = max((max(rates) for group in groups.values() for rates in group.values()), default=0) or 1
    width = LEFT + sum(len(group) * BAR + GAP for group in groups.values()) + 150
    parts = [f'<text x="{LEFT}" y="24" font-size="16">{html.escape(title)}</text>']

    def y(rate: float) -> float:
        return TOP + HEIGHT * (1 - rate / highest)

    for tick in range(5):
        rate = highest * tick / 4
        parts.append(f'<line x1="{LEFT}" x2="{width - 150}" y1="{y(rate):.1f}" y2="{y(rate):.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:.2f}</text>')
    x = LEFT + GAP / 2
    for label, group in groups.items():
        parts.append(f'<text x="{x + len(group) * BAR / 2:.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{html.escape(label)}</text>')
        for name, rates in group.items():
            median, middle = statistics.median(rates), x + BAR / 2 - 2
            colour = COLOURS[names.index(name) % len(COLOURS)]
            parts.append(
                f'<rect x="{x:.1f}" y="{y(median):.1f}" width="{BAR - 4}" height="{TOP + HEIGHT - y(median):.1f}" fill="{colour}"/>'
                f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{y(min(rates)):.1f}" y2="{y(max(rates)):.1f}" stroke="black"/>'
                f'<text x="{middle:.1f}" y="{y(max(rates)) - 5:.1f}" text-anchor="middle" font-size="10">{median:.2f}</text>'
            )
            x += BAR
        x += GAP
    for i, name in enumerate(names):
        at = TOP + 20 * i
        parts.append(f'<rect x="{width - 140}" y="{at}" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>')
        parts.append(f'<text x="{width - 122}" y="{at + 11}">{html.escape(name)}</text>')
    body = "\n".join(parts)
    size = f'width="{width}" height="{TOP + HEIGHT + 40}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
