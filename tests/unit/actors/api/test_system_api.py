"""What is known of transactions and delayed messages before the shared process was started."""

from __future__ import annotations

from typing import Any, Never

import pytest

from rocketray.actors.api.system_api import (
    DelaysApi,
    NodeDelays,
    NodeTransactions,
    TransactionOverview,
    TransactionsApi,
)
from rocketray.actors.topics.catalog import TopicCatalog
from rocketray.actors.topics.topics import Topics
from rocketray.errors import InvalidMessageError


class NoProcess:
    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> Never:
            raise AssertionError(f"{name} was called")

        return call


def test_a_node_on_which_no_transaction_was_begun_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = TopicCatalog().with_topic("Trade", 1)
    monkeypatch.setattr(Topics, "all", lambda _: catalog.topics)
    service: TransactionsApi = NoProcess()
    topics = Topics(NoProcess())
    assert NodeTransactions(service, topics).overview(10) == TransactionOverview()


def test_what_is_no_handle_is_recalled_without_a_call() -> None:
    service: DelaysApi = NoProcess()
    with pytest.raises(InvalidMessageError):
        NodeDelays(service).recall("no handle")
