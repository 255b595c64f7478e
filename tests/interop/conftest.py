"""One name server and one JVM for RocketMQ's clients, for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.rocketmq.interop import RocketMQ
from support.rocketmq.rocketmq import NameServer, rocketmq_classpath
from support.rocketmq.rocketmq_client import client_jvm


@pytest.fixture(scope="session")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    classpath = rocketmq_classpath()
    work = tmp_path_factory.mktemp("rocketmq")
    with (
        NameServer(classpath, work / "name-server") as name_server,
        client_jvm(classpath, work / "client") as jvm,
    ):
        yield RocketMQ(classpath, work, name_server.address, jvm)
