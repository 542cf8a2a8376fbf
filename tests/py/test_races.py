"""Controllers that compete, and controllers that vanish in the middle of something: what was acknowledged is there, what was
refused is not, and the others notice nothing but who is primary. grpc's own client with the published messages."""

import queue
import random
import threading

import grpc
import pytest
from conftest import PATIENCE_S, ROOT
from p4.v1 import p4runtime_pb2 as p4
from p4.v1 import p4runtime_pb2_grpc

PROGRAM = ROOT / "tests/py/everything.p4"


class Client:
    """A stream and calls; the election id is whatever was claimed last."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        self.say, self.election_id, self.status = queue.Queue(), 0, None
        self.answered, self.is_over = threading.Event(), False
        self.answers = self.stub.StreamChannel(iter(self.say.get, None))
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        try:
            for answer in self.answers:
                if answer.HasField("arbitration"):
                    self.status = answer.arbitration.status.code
                    self.answered.set()
        except grpc.RpcError:
            pass
        self.is_over = True
        self.answered.set()

    def claim(self, election_id: int) -> None:
        self.answered.clear()
        request = p4.StreamMessageRequest()
        request.arbitration.device_id = 1
        request.arbitration.election_id.low = election_id
        self.election_id = election_id
        self.say.put(request)
        # The stream may have ended before the request was made: then nobody answers any more.
        assert not self.is_over and self.answered.wait(PATIENCE_S) and not self.is_over, "the stream has ended"

    def request(self, keys, kind=p4.Update.INSERT) -> p4.WriteRequest:
        request = p4.WriteRequest(device_id=1)
        request.election_id.low = self.election_id
        for key in keys:
            update = request.updates.add(type=kind)
            entry = update.entity.table_entry
            entry.table_id = IDS["exact_table"]
            match = entry.match.add(field_id=1)
            match.exact.value = key.to_bytes(4, "big")
            entry.action.action.action_id = IDS["NoAction"]
        return request

    def insert(self, keys) -> bool:
        """Whether all were done; refused for want of primacy is the only other possibility."""
        try:
            self.stub.Write(self.request(keys), timeout=PATIENCE_S)
            return True
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.PERMISSION_DENIED, error
            return False

    def keys(self) -> set:
        query = p4.ReadRequest(device_id=1)
        query.entities.add().table_entry.table_id = IDS["exact_table"]
        entries = [entity.table_entry for answer in self.stub.Read(query, timeout=PATIENCE_S) for entity in answer.entities]
        return {int.from_bytes(entry.match[0].exact.value, "big") for entry in entries}

    def vanish(self) -> None:
        self.channel.close()


IDS = {}


@pytest.fixture
def switch(daemon):
    switch = daemon(str(PROGRAM), "-i", "1@memory")
    client = Client(switch.address)
    config = client.stub.GetForwardingPipelineConfig(p4.GetForwardingPipelineConfigRequest(device_id=1)).config
    for table in config.p4info.tables:
        IDS[table.preamble.alias] = table.preamble.id
    for action in config.p4info.actions:
        IDS[action.preamble.alias] = action.preamble.id
    client.vanish()
    return switch


def test_two_controllers_race_for_primacy(switch):
    """Both claim with rising ids and write; each entry is there if and only if its write was acknowledged."""
    rising, lock = iter(range(1, 10_000)), threading.Lock()
    done, refused = [set(), set()], [0, 0]

    def run(number: int) -> None:
        client = Client(switch.address)
        for i in range(30):
            if i % 3 == 0:
                with lock:
                    election_id = next(rising)
                client.claim(election_id)
            key = number * 1000 + i + 1
            if client.insert([key]):
                done[number].add(key)
            else:
                refused[number] += 1
        client.vanish()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    observer = Client(switch.address)
    assert observer.keys() == done[0] | done[1]
    assert done[0] and done[1]
    observer.vanish()


def test_clients_that_vanish_harm_nobody(switch):
    """Streams, writes, reads and half-open claims are cut off at random; a batch is there as a whole or not at all."""
    dice = random.Random(1)
    keeper = Client(switch.address)
    for round_number in range(40):
        client = Client(switch.address)
        what = dice.randrange(4)
        base = 10_000 + round_number * 100
        if what > 0:
            client.claim(round_number + 1)
        if what == 1:
            request = client.request(range(base, base + 1))
            call = client.stub.Write.future(request)
            del call
        elif what == 2:
            request = client.request([base], kind=p4.Update.MODIFY)
            client.stub.Write.future(request)
        elif what == 3:
            query = p4.ReadRequest(device_id=1)
            query.entities.add().table_entry.table_id = 0
            client.stub.Read(query)
        client.vanish()
    # The switch still elects, writes and reads.
    keeper.claim(1_000)
    assert keeper.status == 0
    before = keeper.keys()
    assert keeper.insert([1, 2, 3])
    assert keeper.keys() == before | {1, 2, 3}
    keeper.vanish()
