"""Shards of a topic that goes are stopped, whatever became of their processes."""

from __future__ import annotations

from typing import Any

import pytest

from rocketray.actors import shard_calls
from rocketray.actors.catalog import TopicCatalog
from rocketray.actors.ray_runtime import RayError
from rocketray.errors import ShardUnavailableError


class Actor:
    """A shard's actor: its calls are made by ``remote`` and answered by ``get``."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.stop = self
        self.stopped = self.killed = False

    def remote(self) -> Actor:
        return self

    def answer(self) -> None:
        if self._error is not None:
            raise self._error
        self.stopped = True


class FakeRay:
    """As much of Ray as stopping a shard needs."""

    def get(self, call: Actor) -> None:
        call.answer()

    def kill(self, actor: Actor) -> None:
        actor.killed = True


def test_shards_that_died_do_not_keep_the_others_of_their_topic_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actors = [Actor(RayError("it died and cannot start again")), None, Actor(None)]
    names = [shard_calls.shard_name("T", queue_id) for queue_id in range(3)]

    def find(name: str) -> Any:
        actor = actors[names.index(name)]
        if actor is None:
            raise ShardUnavailableError(name, 1000, "there is no such actor")
        return actor

    monkeypatch.setattr(shard_calls, "find_actor", find)
    monkeypatch.setattr(shard_calls, "ray", FakeRay())
    shard_calls.remove_shards(TopicCatalog().with_topic("T", 3).get("T"))
    assert [actor and (actor.stopped, actor.killed) for actor in actors] == [
        (False, True),
        None,
        (True, True),
    ]
