"""What a row of the benchmark consists of: what is sent, and the same function for each switch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Workload:
    """One row: P4 and entries for Sluice, OpenFlow for OVS, forwarding modes of testpmd where one does the same."""

    name: str
    title: str
    program: Path
    entries: str
    flows: str
    #: Arrays of frames as `portgen` reads them: for a length (None: mixed lengths), what each of the two ports sends.
    frames: Callable[[int | None], list[bytes]]
    testpmd: list[str] = field(default_factory=list)
    #: Further arguments of `portgen`.
    generator: list[str] = field(default_factory=list)
    #: Settings (`other_config`) with which OVS is fastest here, beside those that it always has.
    ovs: list[str] = field(default_factory=list)
    #: Most megaflows that OVS may have. It is sent this traffic before the first round until it makes no more.
    megaflows_max: int = 5_000_000
    #: The same for VPP, as its commands; `{0}` and `{1}` are its interfaces.
    vpp: list[str] = field(default_factory=list)
    #: How many ports there are; of those beyond the first two, `frames` may have no bytes: they only receive.
    ports: int = 2
    #: Calls of `ovs-vsctl` behind the ports', as their arguments.
    ovs_commands: list[list[str]] = field(default_factory=list)
