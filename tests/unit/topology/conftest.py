"""A node in this process for tests of apps."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from support import open_nodes
from support.local_node import LocalNode


@pytest.fixture(scope="session")
def closing() -> Iterator[Callable[[LocalNode], None]]:
    """What closes nodes, which is waiting for sleeping threads, while tests go on."""
    closed: list[Future[None]] = []
    with ThreadPoolExecutor(4) as executor:

        def close(local: LocalNode) -> None:
            open_nodes.forget(local)
            closed.append(executor.submit(_close, local))

        yield close
    for one in closed:
        one.result()


@pytest.fixture
def node(memory: Path | None, closing: Callable[[LocalNode], None]) -> Iterator[LocalNode]:
    local = LocalNode(Path(tempfile.mkdtemp(dir=memory)))
    yield local
    closing(local)


def _close(local: LocalNode) -> None:
    local.close()
    shutil.rmtree(local.data)
