"""Every task of docs/cookbook.md, and what docs/faq.md shows, run as a reader would, in a network of its own: see pages.py.

Run: cargo build -p sluice && pytest tests/py/test_cookbook.py
"""

import os
import re

import pages
import pytest
from conftest import PATIENCE_S, ROOT, SLUICE

BEFORE, *TASKS = pages.sections(ROOT / "docs/cookbook.md")


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("task", TASKS, ids=[task.title for task in TASKS])
def test_a_task_does_what_it_says(tmp_path, task):
    assert pages.run(BEFORE.steps + task.steps, tmp_path, SLUICE, PATIENCE_S) > len(BEFORE.steps)


ANSWERS = [answer for answer in pages.sections(ROOT / "docs/faq.md") if answer.steps]


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("answer", ANSWERS, ids=[answer.title for answer in ANSWERS])
def test_an_answer_does_what_it_says(tmp_path, answer):
    assert pages.run(answer.steps, tmp_path, SLUICE, PATIENCE_S) > 0


def test_every_reason_of_the_switch_is_explained():
    text = (ROOT / "crates/datapath/src/drops.rs").read_text()
    names = re.findall(r'RuntimeDrop::\w+ => "([^"]+)"', text)
    page = (ROOT / "docs/faq.md").read_text()
    assert len(names) > 10 and not [name for name in names if f"| `{name}` |" not in page]


def test_there_are_twenty_tasks():
    assert len(TASKS) >= 20
