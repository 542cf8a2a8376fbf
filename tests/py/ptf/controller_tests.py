"""PTF tests of tests/stf/controller/controller.p4: what p4runtime-shell writes decides where packets go.

Run by test_ptf.py: `ptf --test-dir tests/py/ptf -i 1@... -i 2@... -i 3@... --test-params "grpcaddr='...';p4info='...';config='...'"`.
"""

import p4runtime_sh.shell as sh
import ptf
import ptf.testutils as tu
from ptf.base_tests import BaseTest

# How long anything may take.
PATIENCE_S = 120
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


class Controller(BaseTest):
    """Connects, sets the program anew, and has no packets left over from earlier tests."""

    def setUp(self):
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        config = sh.FwdPipeConfig(tu.test_param_get("p4info"), tu.test_param_get("config"))
        sh.setup(device_id=1, grpc_addr=tu.test_param_get("grpcaddr"), election_id=(0, 1), config=config, verbose=False)

    def tearDown(self):
        sh.teardown()

    def station(self, address, action, **params):
        entry = sh.TableEntry("MyIngress.station")(action=f"MyIngress.{action}")
        entry.match["dst"] = address
        for name, value in params.items():
            entry.action[name] = value
        entry.insert()
        return entry


class Forwarding(Controller):
    def runTest(self):
        packet = tu.simple_tcp_packet(eth_src=A, eth_dst=B)
        entry = self.station(B, "forward", port="2")
        tu.send_packet(self, 1, packet)
        tu.verify_packets(self, packet, [2])
        entry.action["port"] = "3"
        entry.modify()
        tu.send_packet(self, 1, packet)
        tu.verify_packets(self, packet, [3])
        entry.delete()
        tu.send_packet(self, 1, packet)
        tu.verify_no_other_packets(self)


class Filter(Controller):
    def runTest(self):
        self.station(B, "forward", port="2")
        acl = sh.TableEntry("MyIngress.acl")(action="MyIngress.drop")
        acl.match["ether_type"] = "0x0800 &&& 0xffff"
        acl.match["port"] = "1"
        acl.priority = 10
        acl.insert()
        packet = tu.simple_tcp_packet(eth_src=A, eth_dst=B)
        tu.send_packet(self, 1, packet)
        tu.verify_no_other_packets(self)
        tu.send_packet(self, 3, packet)
        tu.verify_packets(self, packet, [2])
        other = tu.simple_arp_packet(eth_src=A, eth_dst=B)
        tu.send_packet(self, 1, other)
        tu.verify_packets(self, other, [2])


class PacketInAndOut(Controller):
    def runTest(self):
        packet = tu.simple_udp_packet(eth_src=B, eth_dst=A)
        received = []
        packet_in = sh.PacketIn()
        tu.send_packet(self, 2, packet)
        received.append(packet_in.packet_in_queue.get(timeout=PATIENCE_S).packet)
        packet_in.sniff(lambda message: received.append(message.packet), timeout=0.5)
        assert [bytes(p.payload) for p in received] == [bytes(packet)], received
        assert [m.value for m in received[0].metadata] == [b"\x02", b"\x01"]
        sh.PacketOut(bytes(packet), egress_port="3").send()
        tu.verify_packets(self, packet, [3])


class Counting(Controller):
    def runTest(self):
        packet = tu.simple_tcp_packet(eth_src=A, eth_dst=B, pktlen=100)
        self.station(B, "forward", port="1")
        for _ in range(5):
            tu.send_packet(self, 3, packet)
            tu.verify_packets(self, packet, [1])
        counter = sh.CounterEntry("MyIngress.received")
        counter.index = 3
        cells = []
        counter.read(lambda cell: cells.append((cell.packet_count, cell.byte_count)))
        assert cells == [(5, 500)], cells
