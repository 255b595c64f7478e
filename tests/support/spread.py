"""How ``make test`` shares the tests among its processes: a file at a time, in a mixed order.

A module's fixtures are made once, so its tests run in one process. The modules that share a Spark
session share a process, too.

Integration tests wait for the processes that they start, while most others compute. So files of the
two kinds alternate, which keeps the processors busy. Integration tests are all begun early: at the
end, the run would wait for the one that came last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import TypeVar

import pytest
from xdist.scheduler import LoadFileScheduling

__all__ = ["FilesAndSpark", "alternated", "mixed"]

_BEGUN_BY = 0.75
"""The part of the other files by which the last integration test is begun."""
_T = TypeVar("_T")


class FilesAndSpark(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Sends each file to one process, and all files that share the Spark session to the same."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if PurePosixPath(file).name.startswith("test_spark_") else file


def mixed(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with integration tests between the others; those of a file stay together."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(str(item.path), []).append(item)
    waits = {path: found[0].get_closest_marker("integration") for path, found in files.items()}
    integration = [path for path in files if waits[path]]
    others = [path for path in files if not waits[path]]
    return [item for path in alternated(integration, others) for item in files[path]]


def alternated(first: Sequence[_T], others: Sequence[_T]) -> list[_T]:
    """Return all: as many of the *others* behind each of the *first*, and the rest at the end."""
    rest = iter(others)
    count = int(len(others) * _BEGUN_BY / max(1, len(first)))
    found = [one for each in first for one in (each, *islice(rest, count))]
    return [*found, *rest]
