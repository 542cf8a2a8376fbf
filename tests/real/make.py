#!/usr/bin/env python3
"""Rewrites the STF scripts of this folder. Needs scapy (`pip install scapy`)."""

import importlib
import pathlib

HERE = pathlib.Path(__file__).parent

for module in ("dash", "fabric", "pins"):
    for name, script in importlib.import_module(module).scripts().items():
        (HERE / f"{name}.stf").write_text(script.text())
        print(f"{name}.stf: {len(script.lines)} lines")
