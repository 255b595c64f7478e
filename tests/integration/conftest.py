"""Expensive things that integration tests share: a Spark session, and a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from support.harness.spread import NODE, work_of

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.queries.spark.session import spark_session

_SMALL = (("commit_log_segment_bytes", 4 * 1024 * 1024), ("index_entries", 50_000))
_PLUGIN = "shared_node"


class SharedNode:
    """A pytest plugin: the node of the files that need none of their own, one after another.

    It is not there for other tests: one process has one Ray.
    """

    def __init__(self) -> None:
        self._node: Node | None = None

    def get(self, directories: pytest.TempPathFactory) -> Node:
        """Return the node; started in a directory of its own unless it runs already.

        One that a failed test has lost is followed by another one.
        """
        if self._node is None or self._node.lost() is not None:
            data = directories.mktemp("node") / "data"
            options = NodeOptions(num_cpus=2, shard_sizes=_SMALL, queues_per_process="shared")
            self._node = Node(data, options)
        return self._node

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """Stop the node behind the last test of the files that share it."""
        is_last = nextitem is None or work_of(nextitem.nodeid) != NODE
        if self._node is not None and is_last:
            node, self._node = self._node, None
            if node.lost() is None:
                node.stop()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SharedNode(), _PLUGIN)


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The node that files share (support/harness/spread.py lists them); topics share its one process.

    A test that kills a shard's process has a topic with processes of its own.
    """
    assert work_of(request.node.nodeid) == NODE
    shared = request.config.pluginmanager.get_plugin(_PLUGIN)
    assert isinstance(shared, SharedNode)
    return shared.get(tmp_path_factory)


@pytest.fixture
def connection(node: Node) -> Iterator[Connection]:
    with node.connection() as connection:
        yield connection


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of the run, on whatever Java this machine has."""
    directory = tmp_path_factory.mktemp("spark")
    session = spark_session("tests", work_directory=directory, short_lived=True)
    yield session
    session.stop()
