"""Who may do what: the Unix socket, roles by certificate, the audit log, addresses that others can reach, metrics, SIGHUP."""

import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE, Daemon
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc
from test_tls import certs, credentials  # noqa: F401

ROUTER = "examples/router/router.p4"


def sluice(*args, **kwargs):
    command = [str(SLUICE), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, **kwargs)


def said(switch, pattern: str):
    """What a switch has said, or None if it has not said it yet."""
    ready, _, _ = select.select([switch.process.stdout], [], [], 0)
    if ready:
        switch.output += os.read(switch.process.stdout.fileno(), 65536).decode()
    return re.search(pattern, switch.output)


def socket_of(switch) -> Path:
    return Path(until(lambda: said(switch, r"admin service on (.*)\n"))[1])


def until(what):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.05)
    return found


def test_the_admin_service_is_on_a_socket_and_commands_find_it(daemon):
    switch = daemon(ROUTER, "-i", "1@memory")
    path = socket_of(switch)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    done = sluice("stats", "--grpc", switch.address)
    assert done.returncode == 0, done.stderr
    assert sluice("stats", "--admin", path).returncode == 0
    assert sluice("table", "list", "--admin", path).returncode == 0
    port = switch.address.rsplit(":", 1)[1]
    assert sluice("show", env={**os.environ, "SLUICE_GRPC": f"localhost:{port}"}).returncode == 0
    # By TCP there is P4Runtime, and no admin service.
    elsewhere = {**os.environ, "SLUICE_RUNTIME_DIR": "/nonexistent"}
    assert sluice("table", "list", "--grpc", switch.address, env=elsewhere).returncode == 0
    refused = sluice("load", ROUTER, "--grpc", switch.address, env=elsewhere)
    assert refused.returncode == 1 and "Unix socket" in refused.stderr
    second = sluice("run", "--grpc", "127.0.0.1:0", "--admin", path)
    assert second.returncode == 2 and "another switch answers on" in second.stderr
    switch.stop()
    assert not path.exists()
    gone = sluice("stats", "--grpc", switch.address)
    assert gone.returncode == 2 and "no switch answers" in gone.stderr and "TLS" not in gone.stderr


def test_a_socket_that_cannot_be_made_says_why(tmp_path):
    refused = sluice("run", "--grpc", "none", "--admin", tmp_path / "none" / "x.sock")
    assert refused.returncode == 2
    assert "none/x.sock: No such file" in refused.stderr and "--admin none does without" in refused.stderr


def test_who_may_not_use_the_socket_is_told_so(daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    switch = daemon(ROUTER, "-i", "1@memory")
    path = socket_of(switch)
    path.parent.chmod(0o755)
    if not shutil.which("setpriv"):
        pytest.skip("there is no setpriv")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(SLUICE)]
    done = subprocess.run([*nobody, "stats", "--admin", str(path)], capture_output=True, text=True, timeout=PATIENCE_S)
    if "No such file" in done.stderr or "failed to execute" in done.stderr:
        pytest.skip("the build is not readable by others")
    assert done.returncode == 2 and "may not connect to" in done.stderr, done.stderr


def test_bind_and_chain_ask_who_is_primary(daemon):
    switch = daemon(ROUTER, "--device", f"2={ROUTER}", "-i", "1@memory", "-i", "2@memory")
    with grpc.insecure_channel(switch.address) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        claim = p4runtime_pb2.StreamMessageRequest()
        claim.arbitration.device_id = 1
        claim.arbitration.election_id.low = 10
        ends = []

        def requests():
            yield claim
            while not ends:
                time.sleep(0.05)

        stream = stub.StreamChannel(requests())
        assert next(stream).arbitration.status.code == 0
        for command in [("bind", "2", "--to", "2"), ("chain", "1:10", "2:11"), ("chain", "2:11", "1:10")]:
            refused = sluice(*command, "--grpc", switch.address)
            assert refused.returncode == 1, refused.stdout
            assert "a controller is primary for device 1" in refused.stderr and "--force" in refused.stderr
        assert sluice("chain", "2:11", "1:10", "--force", "--grpc", switch.address).returncode == 0
        refused = sluice("unchain", "2:11", "--grpc", switch.address)
        assert refused.returncode == 1 and "a controller is primary" in refused.stderr
        ends.append(True)
        list(stream)
    # The controller has left: local commands work, whatever its election id was.
    line = "ipv4_lpm hdr.ipv4.dstAddr:10.0.0.0/8 set_nexthop(nexthop:1)"
    done = sluice("table", "add", line, "--grpc", switch.address)
    assert done.returncode == 0, done.stderr
    assert sluice("unchain", "2:11", "--grpc", switch.address).returncode == 0


def write_request(device: int):
    request = p4runtime_pb2.WriteRequest(device_id=device)
    request.election_id.low = 1
    return request


def code(call) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_certificates_do_what_the_roles_file_says_and_the_audit_log_says_who(daemon, certs, tmp_path):  # noqa: F811
    roles, audit = tmp_path / "roles", tmp_path / "audit"
    roles.write_text("# the trial\nCN=client p4runtime devices=1\n")
    switch = daemon(
        ROUTER, "-i", "1@memory", "--device", f"2={ROUTER}", "--tls-cert", str(certs / "switch.pem"),
        "--tls-key", str(certs / "switch.key"), "--tls-client-ca", str(certs / "ca.pem"),
        "--roles", str(roles), "--audit", str(audit),
    )
    denied = grpc.StatusCode.PERMISSION_DENIED
    identity = ["--tls-ca", certs / "ca.pem", "--tls-client-cert", certs / "client.pem", "--tls-client-key", certs / "client.key"]
    with grpc.secure_channel(switch.address, credentials(certs, client="client")) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)

        def ask(device):
            request = p4runtime_pb2.GetForwardingPipelineConfigRequest(device_id=device)
            return stub.GetForwardingPipelineConfig(request, timeout=PATIENCE_S)

        assert code(lambda: ask(1)) == grpc.StatusCode.OK
        assert code(lambda: ask(2)) == denied
        # On device 1 the protocol's own rule decides, on device 2 the file.
        with pytest.raises(grpc.RpcError) as error:
            stub.Write(write_request(1), timeout=PATIENCE_S)
        assert "no primary" in error.value.details()
        with pytest.raises(grpc.RpcError) as error:
            stub.Write(write_request(2), timeout=PATIENCE_S)
        assert "device 2" in error.value.details()
        for command in (["bind", "1", "--to", "2"], ["port", "add", "3@memory"], ["log", "warn"]):
            refused = sluice(*command, "--grpc", switch.address, *identity)
            assert refused.returncode == 1 and "needs `admin`" in refused.stderr, refused

        # The file is read again; a wrong one changes nothing.
        roles.write_text("CN=client everything\n")
        switch.process.send_signal(signal.SIGHUP)
        until(lambda: said(switch, "is no right"))
        assert code(lambda: ask(1)) == grpc.StatusCode.OK
        roles.write_text("CN=other admin\n")
        switch.process.send_signal(signal.SIGHUP)
        until(lambda: code(lambda: ask(1)) == denied)
        roles.write_text("CN=client admin\n")
        switch.process.send_signal(signal.SIGHUP)
        until(lambda: code(lambda: ask(2)) == grpc.StatusCode.OK)
    done = sluice("bind", "1", "--to", "2", "--grpc", switch.address, *identity)
    assert done.returncode == 0, done.stderr
    assert sluice("bind", "1", "--to", "1", "--admin", socket_of(switch)).returncode == 0
    for code_, command in [(0, ["port", "add", "3@memory"]), (0, ["port", "remove", "3"]), (1, ["port", "remove", "3"]), (0, ["log", "warn"])]:
        done = sluice(*command, "--grpc", switch.address, *identity)
        assert done.returncode == code_, done
    switch.stop()

    records = [json.loads(line) for line in audit.read_text().splitlines()]
    binds = [r for r in records if r["method"] == "/sluice.v1.Admin/Bind"]
    assert [r["outcome"] for r in binds] == ["PermissionDenied", "Ok", "Ok"]
    assert "CN=client" in binds[1]["certificate"] and binds[1]["peer"].startswith("127.0.0.1:")
    assert binds[1]["what"] == "device 2, ports=1"
    assert binds[2]["uid"] == os.geteuid() and "certificate" not in binds[2]
    writes = [r for r in records if r["method"].endswith("/Write")]
    assert [w["what"] for w in writes] == [f"device {n}, role default, election id 1" for n in (1, 2)]
    def outcomes(method):
        return [(r["what"], r["outcome"]) for r in records if r["method"] == f"/sluice.v1.Admin/{method}"]

    ports = outcomes("Port")
    assert [outcome for _, outcome in ports] == ["PermissionDenied", "Ok", "Ok", "FailedPrecondition"], ports
    assert "port=3@memory" in ports[1][0] and "remove=3" in ports[2][0], ports
    logs = outcomes("Log")
    assert [outcome for _, outcome in logs] == ["PermissionDenied", "Ok"] and "filter=warn" in logs[1][0], logs
    assert not any(r["method"].endswith("/Stats") for r in records)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", r["time"]) for r in records)
    assert stat.S_IMODE(audit.stat().st_mode) & 0o007 == 0


def test_claims_to_be_primary_are_recorded_with_what_they_came_to(daemon, certs, tmp_path):  # noqa: F811
    roles, audit = tmp_path / "roles", tmp_path / "audit"
    roles.write_text("CN=client p4runtime devices=1\n")
    switch = daemon(
        ROUTER, "-i", "1@memory", "--device", f"2={ROUTER}", "--tls-cert", str(certs / "switch.pem"),
        "--tls-key", str(certs / "switch.key"), "--tls-client-ca", str(certs / "ca.pem"),
        "--roles", str(roles), "--audit", str(audit),
    )
    ended = threading.Event()

    def claim(device, election_id):
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = device
        request.arbitration.election_id.low = election_id

        def requests():
            yield request
            ended.wait(PATIENCE_S)

        return stub.StreamChannel(requests())

    with grpc.secure_channel(switch.address, credentials(certs, client="client")) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        first = claim(1, 10)
        assert next(first).arbitration.status.code == 0
        second = claim(1, 5)
        assert next(second).arbitration.status.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
        for device, election_id, refusal in [(1, 10, "INVALID_ARGUMENT"), (2, 1, "PERMISSION_DENIED")]:
            with pytest.raises(grpc.RpcError) as error:
                next(claim(device, election_id))
            assert error.value.code().name == refusal
        ended.set()
        list(first), list(second)
    switch.stop()
    records = [json.loads(line) for line in audit.read_text().splitlines()]
    claims = {(r["what"], r["outcome"]) for r in records if "claims to be primary" in r["what"]}
    said = "device {}, role default, election id {}, claims to be primary"
    assert claims == {
        (said.format(1, 10), "Granted"), (said.format(1, 5), "Backup"), (said.format(1, 10), "InvalidArgument"),
        (said.format(2, 1), "PermissionDenied"),
    }, claims


@pytest.mark.parametrize("option", ["--grpc", "--metrics"])
def test_an_address_for_everybody_needs_tls_or_insecure(daemon, option):
    others = ["--grpc", "none", "--admin", "none"] if option == "--metrics" else ["--admin", "none"]
    refused = sluice("run", *others, option, "0.0.0.0:0")
    assert refused.returncode == 2
    assert "other machines can connect there" in refused.stderr and "--insecure" in refused.stderr
    switch = daemon(ROUTER, "-i", "1@memory", option, "0.0.0.0:0", "--insecure")
    switch.stop()
    assert "open to other machines without TLS" in switch.output


def get(url, headers=None, context=None):
    request = urllib.request.Request(url, headers=headers or {})
    with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_metrics_with_tls_and_a_token(daemon, certs, tmp_path):  # noqa: F811
    (tmp_path / "token").write_text("s3cret\n")
    switch = daemon(
        ROUTER, "-i", "1@memory", "--metrics", "127.0.0.1:0", "--metrics-tls-cert", str(certs / "switch.pem"),
        "--metrics-tls-key", str(certs / "switch.key"), "--metrics-token-file", str(tmp_path / "token"),
    )
    context = ssl.create_default_context(cafile=certs / "ca.pem")
    url = f"https://{switch.metrics}/metrics"
    for headers in [{}, {"Authorization": "Bearer wrong"}]:
        with pytest.raises(urllib.error.HTTPError) as error:
            get(url, headers, context)
        assert error.value.code == 401
    kind, text = get(url, {"Authorization": "Bearer s3cret"}, context)
    assert kind.startswith("text/plain; version=0.0.4") and "sluice_uptime_seconds" in text
    empty = tmp_path / "empty"
    empty.write_text("\n")
    refused = sluice("run", "--grpc", "none", "--admin", "none", "--metrics", "127.0.0.1:0", "--metrics-token-file", empty)
    assert refused.returncode == 2 and "holds no token" in refused.stderr


def test_metrics_have_nothing_to_lint(daemon):
    switch = daemon(ROUTER, "-i", "1@memory", "--metrics", "127.0.0.1:0")
    url = f"http://{switch.metrics}/metrics"
    kind, text = get(url)
    assert kind.startswith("text/plain; version=0.0.4") and "# EOF" not in text
    kind, openmetrics = get(url, {"Accept": "application/openmetrics-text; version=1.0.0"})
    assert kind.startswith("application/openmetrics-text") and openmetrics.endswith("# EOF\n")
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("there is no promtool (Debian package prometheus); crates/sluice/src/metrics.rs has its rules")
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_log_is_changed_while_the_switch_runs_and_hangup_does_not_end_it(daemon):
    switch = daemon(ROUTER, "-i", "1@memory")
    assert sluice("log", "--grpc", switch.address).stdout == "info\n"
    assert sluice("log", "warn,control=debug", "--grpc", switch.address).stdout == "warn,control=debug\n"
    refused = sluice("log", "loud", "--grpc", switch.address)
    assert refused.returncode == 1 and "warn,control=debug" in refused.stderr
    switch.process.send_signal(signal.SIGHUP)
    until(lambda: sluice("log", "--grpc", switch.address).stdout == "info\n")


def test_a_nonsense_log_variable_is_refused():
    refused = sluice("run", "--grpc", "none", "--admin", "none", env={**os.environ, "SLUICE_LOG": "nonsense"})
    assert refused.returncode == 2
    assert "SLUICE_LOG: `nonsense` is not what can be logged" in refused.stderr
    assert "warn,control=debug" in refused.stderr


def test_info_has_no_lines_of_the_code_generator():
    command = [str(SLUICE), "run", ROUTER, "-i", "1@memory", "--grpc", "127.0.0.1:0"]
    env = {**os.environ, "SLUICE_LOG": "info"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    for line in process.stdout:
        if line.startswith("admin service on"):
            break
        assert "cranelift" not in line, line
    process.terminate()
    rest = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0 and "cranelift" not in rest, rest


def test_a_switch_without_descriptors_goes_on_and_takes_clients_again():
    if not shutil.which("prlimit"):
        pytest.skip("there is no prlimit")
    switch = Daemon(ROUTER, "-i", "1@memory", "--admin", "none", prefix=["prlimit", "--nofile=64:64"])
    try:
        host, port = switch.address.rsplit(":", 1)
        silent = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(120)]
        # The log says so once, not for each attempt.
        until(lambda: said(switch, "a connection could not be accepted: .*os error 24"))
        for connection in silent:
            connection.close()
        until(lambda: sluice("table", "list", "--grpc", switch.address).returncode == 0)
        said(switch, "")
        assert switch.output.count("could not be accepted") < 20
    finally:
        assert switch.stop() == 0, switch.output


def test_a_switch_outlives_whoever_read_its_lines(tmp_path):
    """A supervisor that stops reading after the first line must not take the switch with it."""
    reader, writer = os.pipe()
    os.close(reader)
    path = tmp_path / "admin.sock"
    command = [SLUICE, "run", ROOT / "examples/l2/l2.p4", "-i", "1@memory", "--grpc", "127.0.0.1:0", "--admin", path]
    switch = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    try:
        until(lambda: path.exists() or switch.poll() is not None)
        answer = sluice("stats", "--admin", path)
        assert switch.poll() is None, switch.stderr.read()
        assert answer.returncode == 0, answer.stderr
    finally:
        switch.terminate()
        switch.wait(PATIENCE_S)
        switch.stderr.close()
