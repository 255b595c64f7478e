"""What a spare gateway does before it has the port."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rocketray.actors.cluster import gateway_actor
from rocketray.errors import ShardUnavailableError


class Filters:
    """The calls of a disk's filter actor, which may not answer."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.calls = 0
        self.filters = self

    def statistics(self) -> None:
        self.calls += 1
        if not self.answers:
            raise ShardUnavailableError("actor filter", "as the test wants")


@pytest.mark.parametrize("answers", [True, False])
def test_it_loads_the_kernels_and_finds_the_filter_actor(
    answers: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = []
    monkeypatch.setattr(gateway_actor, "warm", lambda: loaded.append("kernels"))
    caplog.set_level(logging.INFO, gateway_actor.__name__)
    node: Any = Filters(answers=answers)
    gateway_actor._prepare(node)
    assert (loaded, node.calls) == (["kernels"], 1)
    assert len(caplog.records) == (not answers)
