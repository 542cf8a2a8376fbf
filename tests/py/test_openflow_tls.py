"""OpenFlow over TLS, both ways: `--controller ssl:` and `pssl:` with ovs-ofctl, certificates of ovs-pki, and OpenSSL.

Run: cargo build -p sluice && pytest tests/py/test_openflow_tls.py
"""

import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess

import pytest
from conftest import PATIENCE_S, SLUICE
from openflow_net import run, until

pytestmark = pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is missing: scripts/setup")


def openssl(*words, cwd):
    subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """Certificates of two authorities: `ca`, who has signed for `switch`, `controller` (without a host's name), `named` (for
    127.0.0.1) and `elsewhere` (for another host); and `other-ca`, who has signed for `stranger`."""
    folder = tmp_path_factory.mktemp("pki")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ("ca", "other-ca"):
        openssl("req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}",
                cwd=folder)
    names = {"named": "IP:127.0.0.1,DNS:localhost", "elsewhere": "DNS:controller.example"}
    for name in ("switch", "controller", "named", "elsewhere", "stranger"):
        ca = "other-ca" if name == "stranger" else "ca"
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", cwd=folder)
        extension = "basicConstraints=CA:FALSE\n" + (f"subjectAltName={names[name]}\n" if name in names else "")
        (folder / "extension").write_text(extension)
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2",
                "-extfile", "extension", "-out", f"{name}.pem", cwd=folder)
    return folder


def flags(pki, name="switch", ca="ca"):
    return ["--private-key", f"{pki}/{name}.key", "--certificate", f"{pki}/{name}.pem", "--ca-cert", f"{pki}/{ca}.pem"]


def ofctl_flags(pki, name="controller", ca="ca"):
    return [f"--private-key={pki}/{name}.key", f"--certificate={pki}/{name}.pem", f"--ca-cert={pki}/{ca}.pem"]


def started(daemon, tmp_path, *args):
    return daemon("--openflow", "--mgmt", f"{tmp_path}/m", "-i", "1@memory", "--admin", "none", *args)


class Controller:
    """Waits for a switch by TLS, and says hello."""

    def __init__(self, pki, name="controller", ca="ca"):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(f"{pki}/{name}.pem", f"{pki}/{name}.key")
        self.context.load_verify_locations(f"{pki}/{ca}.pem")
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        self.port = self.listener.getsockname()[1]

    def accept(self):
        plain, _ = self.listener.accept()
        plain.settimeout(PATIENCE_S)
        stream = self.context.wrap_socket(plain, server_side=True)
        stream.sendall(struct.pack("!BBHI", 4, 0, 8, 1))
        return stream


def message(stream):
    """Kind, number and body of the next one."""
    data = b""
    while len(data) < 8 or len(data) < struct.unpack("!H", data[2:4])[0]:
        more = stream.recv(8 if len(data) < 8 else struct.unpack("!H", data[2:4])[0] - len(data))
        assert more, "the switch has closed"
        data += more
    return data[1], struct.unpack("!I", data[4:8])[0], data[8:]


def ask(stream, kind, xid, body=b""):
    """The answer to a request, whatever else comes before."""
    stream.sendall(struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body)
    while True:
        found, number, body = message(stream)
        if number == xid and found != 2:
            return found, body


def test_ovs_ofctl_over_tls_with_certificates_of_openssl(daemon, tmp_path, pki):
    switch = started(daemon, tmp_path, "--controller", "pssl:0:127.0.0.1", *flags(pki))
    port = re.search(r"controllers may connect to 127.0.0.1:(\d+) with TLS", switch.output).group(1)
    target = f"ssl:127.0.0.1:{port}"
    run("ovs-ofctl", *ofctl_flags(pki), "-O", "OpenFlow13", "add-flow", target, "priority=3,actions=output:1")
    # More than a TLS record and a buffer, there and back.
    many = "\n".join(f"table=2,priority={i},udp,tp_dst={i},actions=output:1,note:{'01' * 60}" for i in range(4000))
    run("ovs-ofctl", *ofctl_flags(pki), "-O", "OpenFlow13", "add-flows", target, "-", input=many)
    shown = run("ovs-ofctl", *ofctl_flags(pki), "-O", "OpenFlow13", "dump-flows", target)
    assert shown.count("table=2") == 4000 and "priority=3" in shown
    # A stranger's certificate, and none.
    text = run("ovs-ofctl", *ofctl_flags(pki, "stranger"), "show", target, code=1)
    assert "alert unknown ca" in text or "OFPT" not in text, text
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(f"{pki}/ca.pem")
    with socket.create_connection(("127.0.0.1", int(port)), PATIENCE_S) as plain:
        with pytest.raises((ssl.SSLError, ConnectionError, BrokenPipeError)):
            stream = context.wrap_socket(plain)
            stream.recv(1)
            stream.recv(1)
    with socket.create_connection(("127.0.0.1", int(port)), PATIENCE_S) as plain:
        plain.sendall(struct.pack("!BBHI", 4, 0, 8, 1))
        assert plain.recv(100)[:1] != b"\x04", "no OpenFlow without TLS"
    assert switch.process.poll() is None
    assert switch.stop() == 0
    assert "it shows no certificate" in switch.output, switch.output
    assert f"its certificate is not signed by an authority of {pki}/ca.pem" in switch.output, switch.output
    assert "it does not speak TLS" in switch.output, switch.output


@pytest.mark.skipif(not shutil.which("ovs-pki"), reason="ovs-pki is missing: scripts/setup")
def test_certificates_of_ovs_pki(daemon, tmp_path):
    for words in (["init"], ["req+sign", "ctl", "controller"], ["req+sign", "sw", "switch"]):
        run("ovs-pki", f"--dir={tmp_path}/pki", f"--log={tmp_path}/log", *words, cwd=tmp_path)
    files = {name: f"{tmp_path}/{name}" for name in ("sw-privkey.pem", "sw-cert.pem", "ctl-privkey.pem", "ctl-cert.pem")}
    switch = started(daemon, tmp_path, "--controller", "pssl:0:127.0.0.1", "--private-key", files["sw-privkey.pem"],
                     "--certificate", files["sw-cert.pem"], "--ca-cert", f"{tmp_path}/pki/controllerca/cacert.pem")
    port = re.search(r"controllers may connect to 127.0.0.1:(\d+) with TLS", switch.output).group(1)
    shown = run("ovs-ofctl", f"--private-key={files['ctl-privkey.pem']}", f"--certificate={files['ctl-cert.pem']}",
                f"--ca-cert={tmp_path}/pki/switchca/cacert.pem", "show", f"ssl:127.0.0.1:{port}")
    assert "dpid:0000000000000001" in shown


@pytest.mark.parametrize("name", ["controller", "named"])
def test_a_controller_is_dialled_and_dialled_again(daemon, tmp_path, pki, name):
    controller = Controller(pki, name)
    started(daemon, tmp_path, "--controller", f"ssl:127.0.0.1:{controller.port}", *flags(pki))
    for _ in range(2):
        with controller.accept() as stream:
            assert message(stream)[0] == 0
            assert ask(stream, 5, 7)[0] == 6, "features"
            # More than a TLS record at a time: an echo of 60,000 bytes.
            blob = bytes(range(250)) * 240
            assert ask(stream, 2, 8, blob) == (3, blob)
            assert stream.getpeercert()["subject"] == ((("commonName", "switch"),),)


def test_a_controller_with_a_wrong_certificate_is_named(daemon, tmp_path, pki):
    cases = [("elsewhere", "its certificate is for other hosts"),
             ("stranger", f"its certificate is not signed by an authority of {pki}/ca.pem")]
    for name, reason in cases:
        controller = Controller(pki, name)
        target = f"ssl:127.0.0.1:{controller.port}"
        switch = started(daemon, tmp_path, "--controller", target, *flags(pki))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            stream = controller.accept()
            message(stream)
        assert switch.stop() == 0
        assert f"{target}: {reason}" in switch.output, switch.output
    # One that does not trust the switch.
    controller = Controller(pki, ca="other-ca")
    switch = started(daemon, tmp_path, "--controller", f"ssl:127.0.0.1:{controller.port}", *flags(pki))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        message(controller.accept())
    until(lambda: controller.listener is not None, "it is dialled")
    assert switch.stop() == 0
    assert "it refuses this side's certificate" in switch.output, switch.output


def test_certificates_are_read_again(daemon, tmp_path, pki):
    for name in ("key", "pem"):
        shutil.copy(pki / f"stranger.{name}", tmp_path / f"mine.{name}")
    shutil.copy(pki / "ca.pem", tmp_path / "ca.pem")
    switch = started(daemon, tmp_path, "--controller", "pssl:0:127.0.0.1", "--private-key", f"{tmp_path}/mine.key",
                     "--certificate", f"{tmp_path}/mine.pem", "--ca-cert", f"{tmp_path}/ca.pem")
    port = re.search(r"controllers may connect to 127.0.0.1:(\d+) with TLS", switch.output).group(1)
    words = ["ovs-ofctl", *ofctl_flags(pki), "show", f"ssl:127.0.0.1:{port}"]
    run(*words, code=1)
    for name in ("key", "pem"):
        shutil.copy(pki / f"switch.{name}", tmp_path / f"mine.{name}")
    switch.process.send_signal(signal.SIGHUP)
    until(lambda: subprocess.run(words, capture_output=True).returncode == 0, "the new certificate")


def test_files_that_cannot_be_used_are_named(tmp_path, pki):
    (tmp_path / "text").write_text("hello")
    common = ["run", "--openflow", "--grpc", "none", "--admin", "none", "-i", "1@memory"]
    ssl_target = ["--controller", "ssl:127.0.0.1"]
    good = flags(pki)
    cases = [
        (ssl_target, "--controller ssl: and pssl: need --private-key, --certificate and --ca-cert"),
        ([*ssl_target, *good[:1], f"{tmp_path}/none", *good[2:]], f"cannot read {tmp_path}/none: No such file"),
        ([*ssl_target, *good[:3], f"{tmp_path}/text", *good[4:]], f"{tmp_path}/text: no certificate in PEM form"),
        ([*ssl_target, *good[:5], f"{tmp_path}/text"], f"{tmp_path}/text: no certificate in PEM form"),
        ([*ssl_target, *good[:1], f"{pki}/stranger.key", *good[2:]], "this is not the private key of the certificate"),
        ([*ssl_target, *good[:4]], "--ca-cert"),
        (["--controller", "ssl:"], "no host"),
    ]
    for words, reason in cases:
        assert reason in run(str(SLUICE), *common, *words, code=2), words
