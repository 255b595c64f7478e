"""The limit of ``settle``: rounds in which nothing is finished, whatever time they take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from rocketray.testing import Broker

LIMIT = 50


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """The kit's fixture with another limit, as docs/how-to/testing.md shows it."""
    broker.settle_rounds = LIMIT
    return broker


@pytest.fixture
def settle(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Settles an app whose finished messages have these numbers, a round each; counts rounds."""

    def run(finished: Iterator[int], **options: int) -> int:
        rounds = 0

        async def unfinished() -> str:
            nonlocal rounds
            rounds += 1
            present = next(finished, None)
            monkeypatch.setattr(broker, "_progress", lambda: present)
            return "" if present is None else "orders/0 at offset 0 of 9"

        monkeypatch.setattr(broker, "_progress", lambda: 0)
        monkeypatch.setattr(broker, "_unfinished", unfinished)
        try:
            asyncio.run(broker.settle(**options))
        except TimeoutError as error:
            raise TimeoutError(f"{error} (round {rounds})") from None
        return rounds

    return run


def test_it_waits_while_messages_are_finished(settle: Callable[..., int]) -> None:
    slow = chain.from_iterable(repeat(number, LIMIT) for number in range(1, 6))
    assert settle(slow) == 5 * LIMIT + 1


def test_it_gives_up_when_nothing_was_finished_for_so_many_rounds(
    settle: Callable[..., int],
) -> None:
    wrong = rf"no message was finished in {LIMIT} rounds: orders/0 at .* of 9 \(round {LIMIT + 2}\)"
    with pytest.raises(TimeoutError, match=wrong):
        settle(chain([1, 2], repeat(2)))


def test_a_call_may_wait_longer(settle: Callable[..., int]) -> None:
    assert settle(repeat(0, 3 * LIMIT), rounds=4 * LIMIT) == 3 * LIMIT + 1


def test_an_app_that_sends_itself_messages_for_ever_is_given_up(
    settle: Callable[..., int],
) -> None:
    wrong = f"messages are finished and others come, after {30 * LIMIT:,} rounds: orders/0"
    with pytest.raises(TimeoutError, match=wrong):
        settle(iter(range(1, 10**9)))
