"""The commands of docs/tutorial.md, docs/openflow.md and README.md, run as a reader would, and what they print compared with what the pages show.

How pages are read and run: pages.py. As root, for namespaces.

Run: cargo build -p sluice && pytest tests/py/test_tutorial.py
"""

import os
import shutil

import pages
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE

TUTORIAL, OPENFLOW, README = ROOT / "docs/tutorial.md", ROOT / "docs/openflow.md", ROOT / "README.md"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@needs_root
def test_the_tutorial_does_what_it_says(tmp_path):
    (whole,) = pages.sections(TUTORIAL)
    assert pages.run(whole.steps, tmp_path, SLUICE, PATIENCE_S) > 20


@needs_root
@pytest.mark.skipif(shutil.which("ovs-ofctl") is None, reason="the page uses ovs-ofctl (openvswitch-common)")
def test_the_page_about_openflow_does_what_it_says(tmp_path):
    (whole,) = pages.sections(OPENFLOW)
    assert pages.run(whole.steps, tmp_path, SLUICE, PATIENCE_S) > 15


@needs_root
def test_the_readme_does_what_it_says(tmp_path):
    (whole,) = pages.sections(README)
    assert pages.run(whole.steps, tmp_path, SLUICE, PATIENCE_S) > 10


def test_wrong_output_is_noticed():
    assert pages.same(["a  b", "...", "took ... ms"], ["a b", "x", "y", "took 3 ms"])
    assert pages.same(["..."], [])
    for printed in (["a c"], [], ["a b", "more"], ["took ms"]):
        assert not pages.same(["a b"], printed)
    assert not pages.same(["3 received, 0% packet loss ..."], ["3 received, 100% packet loss"])


@needs_root
def test_wrong_exit_codes_and_a_shell_that_ends_are_noticed(tmp_path):
    for number, (command, said) in enumerate([("false", "ended with 1"), ("exit 3", "the shell ended")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(AssertionError, match=said):
            pages.run([pages.Command(command, [], 1)], folder, SLUICE, PATIENCE_S)
