"""The controllers of examples/: hosts ping through the switch that they teach. And the commands of examples/README.md.

Run: cargo build -p sluice && pytest tests/py/test_examples.py
"""

import os

import pages
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE

PAGE = """
```console
$ examples/hosts add 3
h1: 10.0.0.1, behind port1
h2: 10.0.0.2, behind port2
h3: 10.0.0.3, behind port3
$ sluice run examples/l2/l2.p4 -i 1@port1 -i 2@port2 -i 3@port3 > switch.log 2>&1 &
```
```console retry
$ sluice port show
port  device  kind       bound to  state  ...
1     port1   af_packet  1         up     ...
2     port2   af_packet  1         up     ...
3     port3   af_packet  1         up     ...
```
```console
$ PYTHON CONTROLLER 127.0.0.1:9559 1 2 3 > controller.log 2>&1 &
```
```console retry
$ cat controller.log
...
ready
$ ip netns exec h1 ping -c 1 -W 1 10.0.0.2
...
1 packets transmitted, 1 received, 0% packet loss...
...
$ cat controller.log
...
station 02000000000... is at port ...
station 02000000000... is at port ...
$ sluice table show switching | sort
# 2 of 1048576 entries
# MyIngress.switching, default MyIngress.flood()
MyIngress.switching meta.vid:0x001 hdr.ethernet.dstAddr:0x020000000001 MyIngress.forward(port:0x001)
MyIngress.switching meta.vid:0x001 hdr.ethernet.dstAddr:0x020000000002 MyIngress.forward(port:0x002)
```
A station that moves to another port:
```console
$ ip -n h1 link set eth0 down; ip -n h3 link set eth0 address 02:00:00:00:00:01; ip -n h3 address add 10.0.0.1/24 dev eth0
```
```console retry
$ ip netns exec h3 ping -c 1 -W 1 -I 10.0.0.1 10.0.0.2
...
1 packets transmitted, 1 received, 0% packet loss...
...
$ sluice table show switching | sort
# 2 of 1048576 entries
# MyIngress.switching, default MyIngress.flood()
MyIngress.switching meta.vid:0x001 hdr.ethernet.dstAddr:0x020000000001 MyIngress.forward(port:0x003)
MyIngress.switching meta.vid:0x001 hdr.ethernet.dstAddr:0x020000000002 MyIngress.forward(port:0x002)
```
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize(("python", "controller"), [(".venv-finsy", "controller_finsy.py"), (".venv", "controller_p4runtime.py")])
def test_a_learning_switch(tmp_path, python, controller):
    interpreter = ROOT / python / "bin/python"
    assert interpreter.exists(), f"{interpreter} is missing: scripts/setup"
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("PYTHON", str(interpreter)).replace("CONTROLLER", f"examples/l2/{controller}"))
    folder = tmp_path / "work"
    folder.mkdir()
    (whole,) = pages.sections(page)
    pages.run(whole.steps, folder, SLUICE, PATIENCE_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_the_overview_does_what_it_says(tmp_path):
    (whole,) = pages.sections(ROOT / "examples/README.md")
    assert pages.run(whole.steps, tmp_path, SLUICE, PATIENCE_S) > 5
