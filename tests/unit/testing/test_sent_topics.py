"""Topics that an app only sends to are there from its start."""

from __future__ import annotations

import asyncio

import pytest

import rocketray as rr
from rocketray.testing import Broker


def test_a_topic_that_an_app_only_sends_to_exists_from_its_start(broker: Broker) -> None:
    async def scenario() -> None:
        app = rr.App("app", connection=broker)
        app.topic("Alerts", value_type=str, queues=3)
        assert not broker.topics.exists("Alerts")
        async with broker.running(app):
            assert broker.topics.exists("Alerts")
            assert broker.stored("Alerts") == []
            assert broker.topics.get("Alerts").queues == 3
        assert list(broker.topics.all()) == ["Alerts"], "and none that Faust names itself"

    asyncio.run(scenario())


def test_an_app_that_may_not_create_topics_starts_without_them(broker: Broker) -> None:
    async def scenario() -> None:
        app = rr.App("app", connection=broker, topic_allow_declare=False)
        app.topic("Alerts", value_type=str)
        async with broker.running(app):
            assert not broker.topics.exists("Alerts")

    asyncio.run(scenario())


def test_a_call_that_topics_do_not_have_says_which_they_have(broker: Broker) -> None:
    with pytest.raises(AttributeError, match=r"no 'list'; look them up with all\(\), get"):
        broker.topics.list()  # type: ignore[attr-defined]  # what a user may try
    assert not hasattr(broker.topics, "names")
