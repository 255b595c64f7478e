"""A future of a shipment is what asyncio's own future would be, whenever it is looked at."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from rocketray.errors import StoreFullError
from rocketray.message import Message
from rocketray.messaging.producers.batch import SendResult
from rocketray.topology.delivery.shipment import Shipment, StoredFuture

COUNT = 3


def shipment() -> tuple[Shipment, list[StoredFuture]]:
    made, loop = Shipment("T", None, 0), asyncio.get_running_loop()
    messages = [Message("T", b"%d" % number) for number in range(COUNT)]
    return made, [made.add(one, None, loop, is_told=False) for one in messages]


def results() -> list[SendResult]:
    return [SendResult(f"id{number}", "off", 2, 10 + number) for number in range(COUNT)]


def in_time(what: Callable[[Shipment, list[StoredFuture]], Any], *, is_early: bool) -> Any:
    """Return the result of *what*, which is begun before the outcome is known, or behind it."""

    async def scenario() -> Any:
        made, futures = shipment()
        if is_early:
            waiting = asyncio.ensure_future(what(made, futures))
            await asyncio.sleep(0)
            made.settle(results())
            return await waiting
        made.settle(results())
        return await what(made, futures)

    return asyncio.run(scenario())


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize(
    "wait",
    [
        lambda futures: asyncio.gather(*futures),
        lambda futures: asyncio.gather(*map(asyncio.shield, futures)),
        lambda futures: asyncio.gather(*[asyncio.wait_for(each, 5) for each in futures]),
        lambda futures: asyncio.gather(*map(_awaited, futures)),
        lambda futures: asyncio.gather(*map(_called_back, futures)),
    ],
)
def test_all_ways_to_wait_give_the_places(wait: Any, is_early: bool) -> None:
    async def places(_: Shipment, futures: list[StoredFuture]) -> list[Any]:
        return list(await wait(futures))

    found = in_time(places, is_early=is_early)
    assert [(one.topic, one.partition, one.offset) for one in found] == [
        ("T", 2, 10), ("T", 2, 11), ("T", 2, 12),
    ]  # fmt: skip
    assert [one.topic_partition for one in found] == [("T", 2)] * COUNT
    assert [one.recall_handle for one in found] == [None] * COUNT


async def _awaited(future: StoredFuture) -> Any:
    return await future


async def _called_back(future: StoredFuture) -> Any:
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(told.set_result)
    assert await told is future
    return future.result()


@pytest.mark.parametrize("is_early", [True, False])
def test_a_set_of_futures_is_waited_for(is_early: bool) -> None:
    async def waited(_: Shipment, futures: list[StoredFuture]) -> Any:
        done, left = await asyncio.wait(futures, timeout=5)
        assert done == {*futures}
        assert not left
        return [await one for one in asyncio.as_completed(futures)]

    assert {one.offset for one in in_time(waited, is_early=is_early)} == {10, 11, 12}


def test_a_look_does_not_wait() -> None:
    async def scenario() -> None:
        made, (first, second, third) = shipment()
        assert not first.done()
        with pytest.raises(asyncio.InvalidStateError):
            second.result()
        with pytest.raises(asyncio.InvalidStateError):
            second.exception()
        assert not third.cancelled()
        made.settle(results())
        assert first.done()
        assert second.exception() is None
        assert third.result() is third.result()
        assert not third.cancel()

    asyncio.run(scenario())


def test_a_cancelled_future_stays_cancelled_and_the_others_have_their_places() -> None:
    async def scenario() -> None:
        made, (first, second, third) = shipment()
        waiting = asyncio.ensure_future(_awaited(first))
        await asyncio.sleep(0)
        waiting.cancel()
        assert second.cancel()
        made.settle(results())
        assert (await third).offset == 12
        assert first.cancelled()
        assert second.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_early", [True, False])
def test_an_error_is_of_all_and_logged_by_none(
    is_early: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        made, futures = shipment()
        if is_early:
            assert not futures[0].done()
        made.settle(StoreFullError("no room"))
        with pytest.raises(StoreFullError):
            await futures[1]
        assert isinstance(futures[2].exception(), StoreFullError)
        assert futures[0].done()
        del futures
        gc.collect()

    asyncio.run(scenario())
    assert not caplog.records


def test_a_message_costs_no_object_that_lives_on() -> None:
    """Each would have the garbage collector look at all objects of the program more often."""

    async def scenario() -> None:
        made, loop = Shipment("T", None, 0), asyncio.get_running_loop()
        message = Message("T", b"m", "pay", ["k"], {"a": "b"})
        gc.collect()
        before = gc.get_count()[0]
        for _ in range(500):
            made.add(message, None, loop, is_told=False)
        assert gc.get_count()[0] - before < 50

    asyncio.run(scenario())
