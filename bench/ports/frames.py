"""Frames, addresses and arrays of frames as `portgen` reads them."""

from __future__ import annotations

import struct

#: Frame lengths of the simple IMIX, 7 of 64, 4 of 594 and 1 of 1518 bytes on the wire, without the check sequence.
IMIX = [60] * 7 + [590] * 4 + [1514]


def mac(text: str) -> bytes:
    """An address's bytes."""
    return bytes.fromhex(text.replace(":", ""))


def spell_mac(number: int) -> str:
    """An address from its number."""
    return ":".join(f"{b:02x}" for b in number.to_bytes(6, "big"))


def ip(a: int, b: int, c: int, d: int) -> int:
    """An IPv4 address as a number."""
    return a << 24 | b << 16 | c << 8 | d


def spell_ip(number: int) -> str:
    """And as text."""
    return ".".join(str(b) for b in number.to_bytes(4, "big"))


def prefix_mask(length: int) -> int:
    """The mask of a prefix."""
    return 0xFFFFFFFF << (32 - length) & 0xFFFFFFFF


def checksum(header: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def udp(dst: bytes, src: bytes, dst_ip: int, src_ip: int, sport: int, dport: int, size: int) -> bytes:
    """A UDP datagram in IPv4 in Ethernet, `size` bytes long."""
    header = struct.pack(">BBHHHBBHII", 0x45, 0, size - 14, 0, 0, 64, 17, 0, src_ip, dst_ip)
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    head = dst + src + b"\x08\x00" + header + struct.pack(">HHHH", sport, dport, size - 34, 0)
    return head + bytes(size - len(head))


def array(frames: list[bytes], mixed: bool) -> bytes:
    """Frames one after the other, with their lengths if they are mixed."""
    if mixed:
        return b"".join(struct.pack("<H", len(frame)) + frame for frame in frames)
    return b"".join(frames)
