"""A node in this process for tests of apps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.local_node import LocalNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        yield local
