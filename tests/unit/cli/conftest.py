"""Commands over a node in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode

from rocketray.cli.application import command_tree


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNode]:
    """A node in this process that each command asks, whatever its --data says."""
    command_tree()  # a module that is loaded later would import what is set here, and keep it
    with LocalNode(tmp_path) as made:
        for name, module in [*sys.modules.items()]:
            if name.startswith("rocketray.cli."):
                for each in {"ask", "connect"} & vars(module).keys():
                    monkeypatch.setattr(module, each, lambda *_, **_options: nullcontext(made))
        yield made
