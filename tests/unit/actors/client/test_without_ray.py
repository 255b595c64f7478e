"""On the node's machine, no call of a client loads Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience
from support.harness.source_tree import ROOT
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

PROGRAMS = ROOT / "tests/support/programs"
pytestmark = pytest.mark.proves(
    "durability",
    "On the node's machine, no call of a client, producer, member or app loads Ray",
)


def told_by(program: str, *arguments: str, data: Path) -> Any:
    """What a program beside the node on *data* prints."""
    done = subprocess.run(
        [sys.executable, program, *arguments],
        env={**os.environ, "ROCKETRAY_DATA": str(data)},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_call_of_a_client_loads_ray(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data") as node, serving(node):
        told = told_by(str(PROGRAMS / "client_without_ray.py"), str(node.data), data=node.data)
    assert told == {
        "read": 9,
        "found": 1,
        "explained": "Cause.STORED",
        "groups": ["readers"],
        "nobody": "is told",
        "engines": [],
    }


def test_an_app_beside_its_node_loads_no_ray(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data") as node, serving(node):
        node.topics.ensure("Purchases", 1)
        with node.producer() as producer:
            producer.send("Purchases", b"tea set")
        told = told_by(str(PROGRAMS / "app_without_ray.py"), data=node.data)
    assert told == {"got": "tea set", "ray": False}
