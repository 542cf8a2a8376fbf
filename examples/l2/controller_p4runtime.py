"""A controller that makes l2.p4 a learning switch, with P4Runtime's own messages (pip install p4runtime grpcio).

    sluice run examples/l2/l2.p4 -i 1@port1 -i 2@port2 -i 3@port3
    python examples/l2/controller_p4runtime.py 127.0.0.1:9559 1 2 3
"""

import queue
import sys

import grpc
from p4.v1 import p4runtime_pb2 as p4, p4runtime_pb2_grpc

address, ports = sys.argv[1], [int(port) for port in sys.argv[2:]]
stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(address))
election = p4.Uint128(low=1)

# The stream makes this controller the primary, and brings the digests.
to_switch = queue.SimpleQueue()
to_switch.put(p4.StreamMessageRequest(arbitration=p4.MasterArbitrationUpdate(device_id=1, election_id=election)))
stream = stub.StreamChannel(iter(to_switch.get, None))
assert next(stream).arbitration.status.code == 0, "another controller is primary"

# Names to ids, as the switch's P4Info says.
info = stub.GetForwardingPipelineConfig(p4.GetForwardingPipelineConfigRequest(device_id=1)).config.p4info
ids = {o.preamble.alias: o.preamble.id for objects in (info.tables, info.actions, info.digests) for o in objects}


def write(kind, **entity):
    update = p4.Update(type=kind, entity=p4.Entity(**entity))
    stub.Write(p4.WriteRequest(device_id=1, election_id=election, updates=[update]))


def entry(table, vid, address, action, port):
    match = [p4.FieldMatch(field_id=i, exact=p4.FieldMatch.Exact(value=value)) for i, value in [(1, vid), (2, address)]]
    run = p4.Action(action_id=ids[action], params=[p4.Action.Param(param_id=1, value=port)])
    return p4.TableEntry(table_id=ids[table], match=match, action=p4.TableAction(action=run))


# Group 1 is where frames of VLAN 1 to unknown stations go. Digests come alone, at once.
flood = p4.MulticastGroupEntry(multicast_group_id=1, replicas=[p4.Replica(egress_port=port) for port in ports])
write(p4.Update.INSERT, packet_replication_engine_entry=p4.PacketReplicationEngineEntry(multicast_group_entry=flood))
config = p4.DigestEntry.Config(max_list_size=1, ack_timeout_ns=10**9)
write(p4.Update.INSERT, digest_entry=p4.DigestEntry(digest_id=ids["learn_t"], config=config))
print("ready", flush=True)

seen = set()
for digest in (message.digest for message in stream if message.HasField("digest")):
    for station in digest.data:
        vid, address, port = (member.bitstring for member in station.struct.members)
        print(f"station {address.hex():>012} is at port {int.from_bytes(port)}", flush=True)
        kind = p4.Update.MODIFY if (vid, address) in seen else p4.Update.INSERT
        write(kind, table_entry=entry("mac_learning", vid, address, "seen", port))
        write(kind, table_entry=entry("switching", vid, address, "forward", port))
        seen.add((vid, address))
    to_switch.put(p4.StreamMessageRequest(digest_ack=p4.DigestListAck(digest_id=digest.digest_id, list_id=digest.list_id)))
