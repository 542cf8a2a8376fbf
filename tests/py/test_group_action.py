"""Group actions of action sets, `@groupaction` in the program (P4Runtime 1.6, "One Shot Action Selector Programming").

Run: cargo build -p sluice && pytest tests/py/test_group_action.py
"""

import pytest
from test_cli import Cli
from test_p4runtime import INSERT, RECONCILE_AND_COMMIT, Controller, find, messages  # noqa: F401 (a fixture)

MODIFY = 2
GROUP_ACTION = 3
VIA, AFTER = 2, 3


@pytest.fixture
def controller(messages, daemon):
    daemon = daemon("tests/py/group_action.p4", "-i", "1@memory")
    made = Controller(messages, daemon.address)
    made.switch = Cli(daemon.address)
    return made


def entry(controller, kind, key, group, members):
    p4info = controller.config().p4info
    request = controller.new("WriteRequest")
    table_entry = request.updates.add(type=kind).entity.table_entry
    table_entry.table_id = find(p4info.tables, "I.routes").preamble.id
    table_entry.match.add(field_id=1).exact.value = bytes([key])
    action_set = table_entry.action.action_profile_action_set

    def call(action, name, value):
        action.action_id = find(p4info.actions, f"I.{name}").preamble.id
        action.params.add(param_id=1, value=bytes([value]))

    if group is not None:
        call(action_set.group_action, "mark", group)
    for name, value in members:
        member = action_set.action_profile_actions.add(weight=1)
        call(member.action, name, value)
    return request


def found(controller, key, flow):
    message = controller.new("StreamMessageRequest")
    message.packet.payload = bytes(60)
    message.packet.metadata.add(metadata_id=1, value=bytes([key]))
    message.packet.metadata.add(metadata_id=2, value=bytes([flow]))
    controller.say.put(message)
    return tuple(m.value[0] for m in controller.hear().packet.metadata)


def test_the_group_action_runs_before_whichever_member(controller):
    program = controller.config().p4_device_config
    refs = find(controller.config().p4info.tables, "I.routes").action_refs
    assert [ref.scope == GROUP_ACTION for ref in refs] == [False, True, False, False]
    request = entry(controller, INSERT, 1, 40, [("via", 7), ("after", 2)])
    controller.write(request)
    controller.write(entry(controller, INSERT, 2, None, [("via", 7), ("after", 2)]))
    # The switch sees the member's action, as without a group action.
    assert {found(controller, 1, flow) for flow in range(64)} == {(40, 7, VIA), (40, 42, AFTER)}
    assert {found(controller, 2, flow) for flow in range(64)} == {(0, 7, VIA), (0, 2, AFTER)}
    assert controller.read()[0] == request.updates[0].entity.table_entry
    assert "one_of(first I.mark(by:0x28); I.via(hop:0x07); I.after(more:0x02))" in (
        controller.switch.sluice("table", "show", "routes")
    )
    # It can be changed, also to none, and outlives a reconciled config of another layout.
    controller.write(entry(controller, MODIFY, 1, 41, [("after", 3)]))
    assert found(controller, 1, 0) == (41, 44, AFTER)
    program = program.replace(b"{ via; @groupaction mark; after;", b"{ after; via; @groupaction mark;")
    controller.set_config(RECONCILE_AND_COMMIT, program)
    assert found(controller, 1, 0) == (41, 44, AFTER)
    controller.write(entry(controller, MODIFY, 1, None, [("via", 3)]))
    assert found(controller, 1, 0) == (0, 3, VIA)
