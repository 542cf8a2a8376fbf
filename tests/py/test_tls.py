"""TLS and mutual TLS: who gets in, and what a bad certificate is answered with. grpc's own client, unmodified."""

import os
import subprocess

import grpc
import pytest
from conftest import PATIENCE_S, SLUICE
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

ROUTER = "examples/router/router.p4"


def openssl(*args: str, cwd) -> None:
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """An authority, and certificates that it signed for the switch (127.0.0.1) and for a client."""
    folder = tmp_path_factory.mktemp("certs")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ["ca", "other"]:
        openssl("req", "-x509", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}", cwd=folder)
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1")
    for name, signer in [("switch", "ca"), ("client", "ca"), ("stranger", "other")]:
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", cwd=folder)
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", f"{signer}.pem", "-CAkey", f"{signer}.key", "-CAcreateserial",
            "-days", "2", "-extfile", "ext", "-out", f"{name}.pem", cwd=folder,
        )
    return folder


def capabilities(address: str, credentials) -> str:
    """What the switch says about itself."""
    channel = grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
    with channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        return stub.Capabilities(p4runtime_pb2.CapabilitiesRequest(), timeout=PATIENCE_S).p4runtime_api_version


def credentials(folder, ca="ca", client=None):
    read = lambda name: (folder / name).read_bytes()  # noqa: E731
    pair = (read(f"{client}.key"), read(f"{client}.pem")) if client else (None, None)
    return grpc.ssl_channel_credentials(read(f"{ca}.pem"), *pair)


def test_with_tls_clients_check_the_switch(daemon, certs):
    switch = daemon(ROUTER, "-i", "1@memory", "--tls-cert", str(certs / "switch.pem"), "--tls-key", str(certs / "switch.key"))
    assert "(TLS)" in switch.output
    assert capabilities(switch.address, credentials(certs)) == "1.5.0"
    for refused in [None, credentials(certs, ca="other")]:
        with pytest.raises(grpc.RpcError) as error:
            capabilities(switch.address, refused)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    # The command line is a client, too.
    stats = [SLUICE, "table", "list", "--grpc", switch.address]
    done = subprocess.run([*stats, "--tls-ca", certs / "ca.pem"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "has it TLS" in refusal(*stats)
    assert "is not trusted: none of the certificates in --tls-ca" in refusal(*stats, "--tls-ca", certs / "other.pem")
    assert "ca.key: no certificate in PEM form" in refusal(*stats, "--tls-ca", certs / "ca.key")
    pair = ["--tls-client-cert", certs / "client.pem", "--tls-client-key", certs / "switch.key"]
    assert "not the private key of the certificate" in refusal(*stats, "--tls-ca", certs / "ca.pem", *pair)


def test_a_switch_without_tls_is_not_trusted(daemon, certs):
    switch = daemon()
    stats = [SLUICE, "stats", "--grpc", switch.address]
    assert "does not speak TLS" in refusal(*stats, "--tls-ca", certs / "ca.pem")


def refusal(*command) -> str:
    """What a command says that could not do its work."""
    # By TCP, and not by the switch's socket on this machine.
    env = {**os.environ, "SLUICE_RUNTIME_DIR": "/nonexistent"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 2, done.stdout
    return done.stderr


def test_with_mutual_tls_the_switch_checks_clients(daemon, certs):
    switch = daemon(
        ROUTER, "-i", "1@memory", "--tls-cert", str(certs / "switch.pem"), "--tls-key", str(certs / "switch.key"),
        "--tls-client-ca", str(certs / "ca.pem"),
    )
    assert "(mutual TLS)" in switch.output
    assert capabilities(switch.address, credentials(certs, client="client")) == "1.5.0"
    for refused in [credentials(certs), credentials(certs, client="stranger")]:
        with pytest.raises(grpc.RpcError) as error:
            capabilities(switch.address, refused)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    identity = ["--tls-client-cert", certs / "client.pem", "--tls-client-key", certs / "client.key"]
    tables = [SLUICE, "table", "list", "--grpc", switch.address, "--tls-ca", certs / "ca.pem"]
    done = subprocess.run([*tables, *identity], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "TLS for known clients only" in refusal(*tables)


@pytest.mark.parametrize(
    "cert, key, ca, message",
    [
        ("none.pem", "switch.key", None, "cannot read"),
        ("switch.key", "switch.key", None, "no certificate in PEM form"),
        ("switch.pem", "switch.pem", None, "no private key in PEM form"),
        ("switch.pem", "client.key", None, "not the private key of the certificate"),
        ("switch.pem", "switch.key", "client.key", "no certificate in PEM form"),
    ],
)
def test_bad_certificates_are_refused_before_anything_listens(certs, cert, key, ca, message):
    command = [SLUICE, "run", "--grpc", "127.0.0.1:0", "--tls-cert", certs / cert, "--tls-key", certs / key]
    command += ["--tls-client-ca", certs / ca] if ca else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode != 0
    assert message in done.stderr, done.stderr


def test_messages_above_the_limit_are_refused(daemon, certs):
    switch = daemon("-i", "1@memory", "--grpc-message-max", "1")
    with grpc.insecure_channel(switch.address) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        config = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=b"x" * (2 << 20))
        action = p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(device_id=1, action=action, config=config)
        with pytest.raises(grpc.RpcError) as error:
            stub.SetForwardingPipelineConfig(request)
        assert error.value.code() == grpc.StatusCode.OUT_OF_RANGE, error.value
