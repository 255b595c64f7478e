"""Every test is in the order of a run once, and files that share what is expensive stay together."""

from __future__ import annotations

import pytest
from support.harness.spread import FilesAndShared, alternated, mixed


def test_integration_tests_are_begun_early_and_others_fill_the_rest() -> None:
    assert alternated("AB", "abcdefgh") == list("AabcBdefgh")
    assert alternated("AB", "a") == list("ABa")
    assert alternated("", "ab") == list("ab")


def test_files_stay_together_and_no_test_is_lost(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    found = mixed(items)
    assert sorted(item.nodeid for item in found) == sorted(item.nodeid for item in items)
    paths = [item.path for item in found]
    begun = [path for path, before in zip(paths, [None, *paths], strict=False) if path != before]
    assert len(begun) == len(set(begun))


@pytest.mark.parametrize(
    ("test", "scope"),
    [
        ("tests/integration/test_spark_sink.py::test_a[b]", "spark"),
        ("tests/integration/test_spark_batch.py::test_a", "spark"),
        ("tests/integration/test_spark_kills.py::test_a", "node"),
        ("tests/integration/test_node.py::test_spark_a", "node"),
        ("tests/integration/test_topics.py::test_a", "node"),
        (
            "tests/unit/broker/topics/test_topics.py::test_a",
            "tests/unit/broker/topics/test_topics.py",
        ),
        ("tests/integration/test_disks.py::test_spark_a", "tests/integration/test_disks.py"),
    ],
)
def test_files_that_share_a_session_or_a_node_are_one_piece_of_work(test: str, scope: str) -> None:
    assert FilesAndShared._split_scope(FilesAndShared.__new__(FilesAndShared), test) == scope
