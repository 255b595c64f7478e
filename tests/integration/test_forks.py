"""A process with a node, a producer and a member forks over a real Ray, and loses nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.patience import patience

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.proves(
        "durability",
        "A fork writes nothing over messages of its parent, ends by itself, and leaves ring, "
        "group and node alone; what it inherits raises, and ids differ between all processes",
    ),
]
PROGRAM = Path(__file__).parent.parent / "support/programs/forking_program.py"


def test_a_fork_beside_a_node_raises_ends_by_itself_and_takes_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "data")],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=patience(120),
    )
    seen = json.loads(done.stdout.splitlines()[-1])
    parent, child = seen["pids"]
    things = [text.partition(" was made")[0] for text in seen["found"]]
    assert things == [
        *("this producer", "this client", "this consumer", "this node"),
        "this connection to Ray",
    ]
    for text in seen["found"]:
        assert f"was made in process {parent}, and this is process {child}, a fork of it" in text
    assert seen["code"] == 5
    assert (seen["count"], seen["of the fork"]) == (203, 1)
    assert seen["stored"] == [*[f"parent {number}" for number in range(200)], "after"]
