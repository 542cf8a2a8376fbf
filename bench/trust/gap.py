"""How long packets, or answers of P4Runtime, stay away: for row `restart` of `run.py`, which runs this in the switch's network namespace.

    gap.py packets FROM TO MAC      sends a frame a millisecond by FROM to MAC, and expects them on TO
    gap.py control HOST:PORT        asks for the capabilities, on a connection of its own each time

Prints a line for each pause: when it began and ended, in seconds of the monotonic clock. Ends with its input.
"""

from __future__ import annotations

import select
import socket
import sys
import time

#: Shorter ones are not told: frames come each millisecond, an answer takes two.
TOLD_S = 0.004


def told_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def seen(last: float) -> float:
    """Something came now, the last before it at `last`."""
    now = time.monotonic()
    if now - last > TOLD_S:
        print(f"{last:.6f} {now:.6f}", flush=True)
    return now


def packets(source: str, target: str, mac: str) -> None:
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind((source, 0))
    receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
    receiver.bind((target, 0x88B5))
    receiver.setblocking(False)
    frame = bytes.fromhex(mac.replace(":", "")) + b"\x02\0\0\0\0\x01" + b"\x88\xb5" + bytes(46)
    last = time.monotonic()
    while not told_to_end():
        sender.send(frame)
        if select.select([receiver], [], [], 0.001)[0]:
            while True:
                try:
                    receiver.recv(2048)
                except BlockingIOError:
                    break
            last = seen(last)
            time.sleep(0.001)


def control(address: str) -> None:
    import grpc

    last = time.monotonic()
    while not told_to_end():
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            try:
                channel.unary_unary("/p4.v1.P4Runtime/Capabilities")(b"", timeout=1)
                last = seen(last)
            except grpc.RpcError:
                pass
        time.sleep(0.001)


if __name__ == "__main__":
    {"packets": packets, "control": control}[sys.argv[1]](*sys.argv[2:])
