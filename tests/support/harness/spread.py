"""How ``make test`` shares the tests among its processes: a file at a time, in a mixed order.

A module's fixtures are made once, so its tests run in one process. The modules that share a Spark
session, or a node, share a process, too.

Integration tests wait for the processes that they start, while most others compute. So files of the
two kinds alternate, which keeps the processors busy. Integration tests are all begun early, first
those that several files share and the longest: at the end, the run would wait for the one that came
last. Unit tests of loops and threads wait a little, too, so the quick ones of the pure parts come
last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

import pytest
from xdist.scheduler import LoadFileScheduling

NODE = "node"
_SHARED = {
    NODE: re.compile(
        r"tests/integration/"
        r"test_(console|faust_command|faust_node|members|node|ray_data|spark_kills|staging|topics)\.py"
    ),
    "spark": re.compile(r"tests/integration/test_(spark_\w+|exactly_once)\.py"),
}
_LONGEST = "tests/integration/test_joined_disk.py"  # minutes, one test after the other
_LAST = ("tests/unit/filters", "tests/unit/kernels", "tests/unit/store")
_BEGUN_BY = 0.75
"""The part of the other files by which the last integration test is begun."""
_T = TypeVar("_T")


class FilesAndShared(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Sends each file to one process, and all files that share something to the same."""

    def _split_scope(self, nodeid: str) -> str:
        return work_of(nodeid)


def work_of(nodeid: str) -> str:
    """Return the file of a test, or the name of what its file shares with others."""
    file = nodeid.partition("::")[0]
    return next((name for name, files in _SHARED.items() if files.fullmatch(file)), file)


def mixed(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with integration tests between the others; those of a file stay together."""
    work: dict[str, list[pytest.Item]] = {}
    for item in items:
        work.setdefault(work_of(item.nodeid), []).append(item)
    waits = {name: found[0].get_closest_marker("integration") for name, found in work.items()}
    integration = sorted((name for name in work if waits[name]), key=_begins_later)
    others = [name for name in work if not waits[name]]
    others.sort(key=lambda name: name.startswith(_LAST))
    return [item for name in alternated(integration, others) for item in work[name]]


def _begins_later(work: str) -> bool:
    return "/" in work and work != _LONGEST


def alternated(first: Sequence[_T], others: Sequence[_T]) -> list[_T]:
    """Return all: as many of the *others* behind each of the *first*, and the rest at the end."""
    rest = iter(others)
    count = int(len(others) * _BEGUN_BY / max(1, len(first)))
    found = [one for each in first for one in (each, *islice(rest, count))]
    return [*found, *rest]
