"""On the node's machine, no call of a client loads Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.patience import patience
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving
from support.programs import client_without_ray


@pytest.mark.proves(
    "durability",
    "On the node's machine, no call of a client, producer or member loads Ray",
)
def test_no_call_of_a_client_loads_ray(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data") as node, serving(node):
        done = subprocess.run(
            [sys.executable, client_without_ray.__file__, str(node.data)],
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "read": 9,
        "found": 1,
        "explained": "Cause.STORED",
        "groups": ["readers"],
        "nobody": "is told",
        "engines": [],
    }
