"""Writes STF scripts: table entries as text, frames made by scapy.

Scapy is an independent implementation of the protocols, so lengths and checksums of the frames that are expected do not come
from the switch under test. `python3 tests/real/make.py` rewrites every script; `docs/stf.md` has the language.
"""

from scapy.packet import Packet


class Script:
    """One STF script for one program of a p4lang/p4c checkout."""

    def __init__(self, program: str, about: str, defines: tuple[str, ...] = ()):
        self.lines = [f"# program: {program}"]
        if defines:
            self.lines.append(f"# defines: {' '.join(defines)}")
        self.lines += [f"# {line}" for line in about.strip().splitlines()]
        self.lines.append("# Written by `python3 tests/real/make.py`; change the .py file beside it, not this.")

    def title(self, text: str) -> None:
        """Begins a part of the script."""
        self.lines += ["", f"# {text}"]

    def do(self, *commands: str) -> None:
        """Commands that are no frames."""
        self.lines += commands

    def send(self, port: int, frame: Packet | bytes, expect: dict[int, Packet | bytes] | None = None) -> None:
        """A frame in, and for every port what must come out; nothing at all without `expect`."""
        self.lines.append(f"packet {port} {bytes(frame).hex()}")
        if not expect:
            self.lines.append("no_packet")
        for out, wanted in (expect or {}).items():
            self.lines.append(f"expect {out} {bytes(wanted).hex()}$")

    def send_any(self, port: int, frame: Packet | bytes, out: int, pattern: str) -> None:
        """A frame in, and a pattern with `*` for what must come out."""
        self.lines += [f"packet {port} {bytes(frame).hex()}", f"expect {out} {pattern}$"]

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
