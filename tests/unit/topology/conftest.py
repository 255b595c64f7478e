"""A node in this process for tests of apps."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest
from support.local_node import LocalNode


@pytest.fixture(scope="session")
def closing() -> Iterator[Executor]:
    """Threads that close nodes, which is waiting for sleeping threads, while tests go on."""
    with ThreadPoolExecutor(4) as executor:
        yield executor


@pytest.fixture
def node(tmp_path: Path, closing: Executor) -> Iterator[LocalNode]:
    local = LocalNode(tmp_path)
    yield local
    closing.submit(local.close)
