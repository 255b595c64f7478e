"""Fixtures: a node in this process for tests of apps, and stops with patience."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from support.harness import open_nodes
from support.harness.patience import patience
from support.nodes.local_node import LocalNode

from rocketray.topology.delivery.returns import Returns


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


@pytest.fixture(autouse=True)
def patient_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a stop the run's patience for what was sent back.

    What handlers finished is committed when a stop returns. A failed message is finished when the
    node has stored it, for which a stop waits some seconds; then it stays uncommitted.
    """
    flush = Returns.flush
    monkeypatch.setattr(Returns, "flush", lambda own, grace_s: flush(own, patience(2 * grace_s)))


def _close(local: LocalNode) -> None:
    local.close()
    shutil.rmtree(local.data)
