"""A controller that makes l2.p4 a learning switch, with the client finsy (pip install finsy).

    sluice run examples/l2/l2.p4 -i 1@port1 -i 2@port2 -i 3@port3
    python examples/l2/controller_finsy.py 127.0.0.1:9559 1 2 3
"""

import asyncio
import sys

import finsy as fy


async def main(address, ports):
    async with fy.Switch("l2", address) as switch:
        await switch.delete_all()
        # Group 1 is where frames of VLAN 1 to unknown stations go. Digests come alone, at once.
        flood = fy.P4MulticastGroupEntry(1, replicas=ports)
        digests = fy.P4DigestEntry("learn_t", max_list_size=1, max_timeout_ns=0, ack_timeout_ns=10**9)
        await switch.write([+flood, +digests])
        print("ready", flush=True)
        seen = {}
        async for learnt in switch.read_digests("learn_t"):
            for station in learnt:
                key, port = (station["vid"], station["srcAddr"]), station["port"]
                print(f"station {station['srcAddr']:012x} is at port {port}", flush=True)
                tables = [("mac_learning", "srcAddr", "seen"), ("switching", "dstAddr", "forward")]
                for table, field, action in tables:
                    match = fy.P4TableMatch({"meta.vid": key[0], f"hdr.ethernet.{field}": key[1]})
                    entry = fy.P4TableEntry(table, match=match, action=fy.P4TableAction(action, port=port))
                    await switch.write([~entry if key in seen else +entry])
                seen[key] = port
            await switch.write([learnt.ack()])


asyncio.run(main(sys.argv[1], [int(port) for port in sys.argv[2:]]))
