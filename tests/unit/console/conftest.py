"""A node with all that the pages ask for, and its console: for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.nodes.console_client import ConsoleClient
from support.nodes.console_node import console_node
from support.nodes.local_node import LocalNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    with console_node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="module")
def console(node: LocalNode) -> Iterator[ConsoleClient]:
    with ConsoleClient(node.data, lambda: node, trace_url="http://jaeger/{trace_id}?a") as console:
        yield console
