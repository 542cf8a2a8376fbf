"""A controller written with the unmodified client finsy: writes every kind of entity, reads it back, and sees it in packets.

Run by test_finsy.py in an environment of its own, because finsy and p4runtime-shell need different versions of protobuf:
    python finsy_controller.py ADDRESS P4INFO PROGRAM
"""

import asyncio
import logging
import struct
import sys
from pathlib import Path

import finsy as fy
from finsy.p4entity import P4Replica, P4ValueSetMember

LOOK = {"exact": 1, "lpm": 2, "acl": 3, "ecmp": 4, "value_set": 5, "register": 6, "meter": 7, "digest": 8, "multicast": 9, "clone": 10, "counter": 11}
CPU = 0xFFFFFFFD
# How long anything may take.
PATIENCE_S = 120


class Checks:
    def __init__(self, switch, packets):
        self.switch, self.packets = switch, packets
        self.done = 0

    async def ask(self, look, a=0, b=0, c=0, d=0, answers=1):
        """Results and instances of the packets that come back."""
        await self.switch.write([fy.P4PacketOut(struct.pack(">IIHH", a, b, c, d), look=LOOK[look])])
        found = [await asyncio.wait_for(anext(self.packets), PATIENCE_S) for _ in range(answers)]
        return sorted((packet["result"], packet["instance"]) for packet in found)

    async def result(self, look, **fields):
        return (await self.ask(look, **fields))[0][0]

    async def read(self, query):
        return [entity async for entity in self.switch.read(query)]

    def same(self, got, wanted, what):
        assert got == wanted, f"{what}: {got!r}, expected {wanted!r}"
        self.done += 1

    async def tables(self):
        answer = lambda result: fy.P4TableAction("answer", result=result)  # noqa: E731
        exact = fy.P4TableEntry("exact_table", match=fy.P4TableMatch(a=1), action=answer(11), metadata=b"me")
        await self.switch.insert([exact])
        self.same(await self.read(fy.P4TableEntry("exact_table")), [exact], "exact entry")
        self.same(await self.result("exact", a=1), 11, "hit")
        self.same(await self.result("exact", a=2), 9, "miss")
        default = fy.P4TableEntry("exact_table", is_default_action=True, action=answer(12))
        await self.switch.modify([default])
        self.same(await self.read(fy.P4TableEntry("exact_table", is_default_action=True)), [default], "default")
        self.same(await self.result("exact", a=2), 12, "changed default")

        acl = fy.P4TableEntry(
            "acl_table", match=fy.P4TableMatch(b="10.0.0.0/255.0.0.0", c=(5, 9), d=3), action=answer(21), priority=4
        )
        wide = fy.P4TableEntry("acl_table", match=fy.P4TableMatch(c=(0, 6)), action=answer(22), priority=9)
        await self.switch.insert([acl, wide])
        self.same(len(await self.read(fy.P4TableEntry("acl_table"))), 2, "acl entries")
        self.same(await self.result("acl", b=0x0A010101, c=8, d=3), 21, "ternary, range, optional")
        self.same(await self.result("acl", b=0x0A010101, c=5, d=3), 22, "priority")
        await self.switch.delete([acl, wide])
        self.same(await self.read(fy.P4TableEntry("acl_table")), [], "deleted")
        consts = await self.read(fy.P4TableEntry("const_table"))
        self.same([entry.is_const for entry in consts], [True], "const entry")
        self.same(await self.result("acl", c=7), 70, "const entry hit")

    async def direct_resources(self):
        route = fy.P4TableEntry(
            "lpm_table", match=fy.P4TableMatch(a="10.1.0.0/16"), action=fy.P4TableAction("route", result=31),
            meter_config=fy.P4MeterConfig(cir=1, cburst=1, pir=1, pburst=1), counter_data=fy.P4CounterData(byte_count=0, packet_count=5),
        )
        await self.switch.insert([route])
        self.same(await self.result("lpm", a=0x0A010203), 31, "lpm hit")
        query = fy.P4TableEntry("lpm_table", counter_data=fy.P4CounterData(), meter_config=route.meter_config)
        (found,) = await self.read(query)
        self.same(found.counter_data.packet_count, 6, "direct counter beside the entry")
        self.same(found.meter_config, route.meter_config, "direct meter beside the entry")
        key = fy.P4TableEntry("lpm_table", match=fy.P4TableMatch(a="10.1.0.0/16"))
        (direct,) = await self.read(fy.P4DirectCounterEntry("routed", table_entry=key))
        self.same(direct.packet_count, 6, "direct counter")
        await self.switch.modify([fy.P4DirectCounterEntry("routed", table_entry=key, data=fy.P4CounterData(packet_count=1))])
        (direct,) = await self.read(fy.P4DirectCounterEntry("routed", table_entry=key))
        self.same(direct.packet_count, 1, "direct counter set")
        config = fy.P4MeterConfig(cir=10, cburst=20, pir=30, pburst=40)
        await self.switch.modify([fy.P4DirectMeterEntry(table_entry=key, config=config)])
        (direct,) = await self.read(fy.P4DirectMeterEntry(table_entry=key))
        self.same(direct.config, config, "direct meter")

    async def idle_timeout(self):
        idle = fy.P4TableEntry(
            "lpm_table", match=fy.P4TableMatch(a="10.2.0.0/16"), action=fy.P4TableAction("route", result=1),
            idle_timeout_ns=200_000_000,
        )
        notices = self.switch.read_idle_timeouts()
        task = asyncio.create_task(anext(notices))
        await asyncio.sleep(0)
        await self.switch.insert([idle])
        notice = await asyncio.wait_for(task, PATIENCE_S)
        self.same([entry.idle_timeout_ns for entry in notice], [200_000_000], "idle notice")
        query = fy.P4TableEntry("lpm_table", match=idle.match, time_since_last_hit=1)
        (found,) = await self.read(query)
        self.same(found.time_since_last_hit >= 200_000_000, True, "time since last hit")
        await self.switch.delete([idle])

    async def profiles(self):
        members = [
            fy.P4ActionProfileMember("selector", member_id=i, action=fy.P4TableAction("answer", result=40 + i)) for i in (1, 2)
        ]
        group = fy.P4ActionProfileGroup(
            "selector", group_id=5, max_size=4, members=[fy.P4Member(1, weight=1), fy.P4Member(2, weight=2)]
        )
        by_member = fy.P4TableEntry("ecmp_table", match=fy.P4TableMatch(a=1), action=fy.P4IndirectAction(member_id=2))
        by_group = fy.P4TableEntry("ecmp_table", match=fy.P4TableMatch(a=2), action=fy.P4IndirectAction(group_id=5))
        await self.switch.insert([*members, group, by_member, by_group])
        self.same(await self.read(fy.P4ActionProfileMember("selector")), members, "members")
        self.same(await self.read(fy.P4ActionProfileGroup("selector")), [group], "group")
        self.same(await self.result("ecmp", a=1), 42, "member")
        seen = {await self.result("ecmp", a=2, d=flow) for flow in range(40)}
        self.same(seen, {41, 42}, "members of the group")
        await self.switch.delete([by_member, by_group, group, *members])
        one_shot = fy.P4TableEntry(
            "ecmp_table", match=fy.P4TableMatch(a=3),
            action=fy.P4IndirectAction([(1, fy.P4TableAction("answer", result=51)), (1, fy.P4TableAction("answer", result=52))]),
        )
        await self.switch.insert([one_shot])
        (found,) = await self.read(fy.P4TableEntry("ecmp_table"))
        self.same(found, one_shot, "action set")
        seen = {await self.result("ecmp", a=3, d=flow) for flow in range(40)}
        self.same(seen, {51, 52}, "actions of the set")
        await self.switch.delete([one_shot])

    async def arrays(self):
        await self.ask("counter", c=3)
        (cell,) = await self.read(fy.P4CounterEntry("seen", index=3))
        self.same(cell.packet_count, 1, "counter")
        await self.switch.modify([fy.P4CounterEntry("seen", data=fy.P4CounterData(packet_count=7, byte_count=9))])
        cells = await self.read(fy.P4CounterEntry("seen"))
        self.same([cell.packet_count for cell in cells], [7] * 8, "all cells")

        await self.switch.modify([fy.P4RegisterEntry("cells", index=2, data=99)])
        self.same(await self.result("register", c=2), 99, "register seen by a packet")
        (cell,) = await self.read(fy.P4RegisterEntry("cells", index=2))
        self.same(cell.data, 100, "register written by a packet")

        config = fy.P4MeterConfig(cir=1, cburst=1, pir=1, pburst=2)
        await self.switch.modify([fy.P4MeterEntry("police", index=1, config=config)])
        (cell,) = await self.read(fy.P4MeterEntry("police", index=1))
        self.same(cell.config, config, "meter")
        # A packet a second passes; on a busy machine a few may come that far apart.
        colours = [await self.result("meter", c=1) for _ in range(4)]
        while colours[-1] != 2 and len(colours) < 1000:
            colours.append(await self.result("meter", c=1))
        self.same(colours[-1], 2, "red")
        self.same(await self.result("meter", c=2), 0, "green")

    async def value_set_and_digest(self):
        self.same(await self.result("value_set", c=77), 0, "not in the set")
        await self.switch.modify([fy.P4ValueSetEntry("wanted", members=[P4ValueSetMember(77)])])
        self.same(await self.result("value_set", c=77), 1, "in the set")
        (found,) = await self.read(fy.P4ValueSetEntry("wanted", members=[]))
        self.same(len(found.members), 1, "value set")

        lists = self.switch.read_digests("seen_t")
        task = asyncio.create_task(anext(lists))
        await asyncio.sleep(0)
        digest = fy.P4DigestEntry("seen_t", max_list_size=1, max_timeout_ns=0, ack_timeout_ns=10**9)
        await self.switch.insert([digest])
        self.same(await self.read(fy.P4DigestEntry("seen_t")), [digest], "digest")
        await self.ask("digest", a=5, c=6)
        found = await asyncio.wait_for(task, PATIENCE_S)
        self.same(list(found), [{"a": 5, "c": 6}], "digest list")
        await self.switch.write([found.ack()])

    async def replication(self):
        group = fy.P4MulticastGroupEntry(6, replicas=(P4Replica(CPU, instance=1), P4Replica(CPU, instance=2)), metadata=b"x")
        session = fy.P4CloneSessionEntry(7, class_of_service=3, packet_length_bytes=6, replicas=(P4Replica(CPU, instance=9),))
        await self.switch.insert([group, session])
        self.same(await self.read(fy.P4MulticastGroupEntry()), [group], "multicast group")
        self.same(await self.read(fy.P4CloneSessionEntry()), [session], "clone session")
        self.same([i for _, i in await self.ask("multicast", c=6, answers=2)], [1, 2], "copies")
        await self.switch.write([fy.P4PacketOut(struct.pack(">IIHH", 1, 2, 7, 4), look=LOOK["clone"])])
        clone = await asyncio.wait_for(anext(self.packets), PATIENCE_S)
        self.same(clone["instance"], 9, "clone")
        await self.switch.delete([group, session])


async def ready(switch: fy.Switch) -> None:
    packets = switch.read_packets()
    first = asyncio.ensure_future(anext(packets))
    await asyncio.sleep(0)

    class Packets:
        """The queue of packets begins with the first `anext`."""

        async def __anext__(self):
            nonlocal first
            if first is not None:
                packet, first = await asyncio.shield(first), None
                return packet
            return await anext(packets)

    checks = Checks(switch, Packets())
    steps = ["tables", "direct_resources", "idle_timeout", "profiles", "arrays", "value_set_and_digest", "replication"]
    for step in steps:
        try:
            await getattr(checks, step)()
        except BaseException as error:
            print(f"FAILED in {step}: {type(error).__name__}: {error}", flush=True)
            raise
    print(f"{checks.done} checks passed", flush=True)


async def main() -> None:
    address, p4info, program = sys.argv[1:4]
    options = fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program), fail_fast=True)
    async with fy.Switch("sluice", address, options) as switch:
        await ready(switch)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main())
