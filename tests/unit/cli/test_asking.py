"""Commands that ask the node of their machine: over its socket, without what takes long to load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.harness.patience import patience
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

from rocketray.filters.subscription import Subscription

SLOW = ("ray", "pyarrow", "numba", "numpy", "faust", "pyspark")
COMMANDS = (
    "ping",
    "topics list",
    "topics describe Trade",
    "topics alter Trade --perm 6",
    "groups list",
    "groups progress",
    "groups lag",
    "groups reset g --to earliest",
    "filter stats",
    "query Trade --key k1",
    "explain k1 --group g",
    "transactions",
    "dlq list",
    "dlq show g",
    "dlq redrive g --sql a>1",
)
PROGRAM = f"""
import json, sys
from rocketray.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main([*command.split(), "--data", sys.argv[2]])
    except SystemExit as end:
        assert not end.code, command
    slow = set({SLOW}) & set(sys.modules)
    assert not slow, (command, slow)
"""


def test_a_command_that_asks_loads_nothing_slow(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node, serving(node):
        for topic in ("Trade", "%DLQ%g"):
            node.topics.ensure(topic, 1, queues_per_process="shared")
        with node.producer() as producer:
            producer.send("Trade", b"body", tags="a", keys=["k1"])
        node.consumer("g", "Trade", Subscription.tags("a")).close()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS), tmp_path],
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Trade/0@0" in done.stdout
