from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rocketray.topology.delivery.flow import FlowLimits, SharedWindow, Window


def test_a_window_stops_the_poll_until_there_is_room() -> None:
    window = Window(FlowLimits(messages=10, size_bytes=1000))
    window.add(0, 12, 0)
    assert not window.wait_for_room(0.01)
    threading.Timer(0.02, window.remove, [0, 3, 0]).start()
    assert window.wait_for_room(5)
    window.add(0, 0, 1000)
    assert not window.wait_for_room(0.01)
    window.remove(0, 0, 1)
    assert window.wait_for_room(5)
    window.hold(held=True)
    assert not window.wait_for_room(0.01)


def test_queues_that_share_a_window_are_full_one_by_one() -> None:
    woken: list[int] = []
    window = SharedWindow(FlowLimits(messages=16, size_bytes=1600), lambda: woken.append(1))
    assert window.wait_for_room(0), "what is granted has to be taken up"
    window.share({0, 1})
    window.add(0, 7, 0)
    assert (window.wait_for_room(0), window.full) == (True, set()), "a half is for any queue"
    window.add(0, 1, 0)
    assert (window.wait_for_room(0), window.full) == (True, {0})
    window.add(1, 3, 0)
    assert (window.wait_for_room(0), window.full) == (True, {0})
    window.add(1, 0, 800)
    assert (window.wait_for_room(0), window.full) == (False, {0, 1})
    window.remove(1, 0, 1)
    assert (window.wait_for_room(0), window.full, woken) == (True, {0}, [1])
    window.add(1, 1, 0)
    assert (window.wait_for_room(0), window.full) == (False, {0, 1})
    window.remove(0, 5, 0)
    assert (window.wait_for_room(0), window.full, woken) == (True, set(), [1, 1])
    window.share({1})
    window.add(1, 11, 0)
    assert window.wait_for_room(0), "a queue alone has all of it"
    window.add(1, 1, 0)
    assert (window.wait_for_room(0), window.full) == (False, {1})
    window.remove(1, 1, 0)
    assert window.wait_for_room(0)
    window.hold(held=True)
    assert not window.wait_for_room(0)


@pytest.mark.parametrize("make", [Window, lambda limits: SharedWindow(limits, lambda: None)])
def test_a_poll_of_all_queues_brings_half_the_limit(make: Callable[[FlowLimits], Window]) -> None:
    window = make(FlowLimits(messages=8192))
    window.share({0})
    assert window.queue_poll_max == 4096
    window.share(set(range(8)))
    assert window.queue_poll_max == 512
    window.share(set(range(1000)))
    assert window.queue_poll_max == 256, "and not less, because each batch has its cost"
    window = make(FlowLimits(messages=10))
    window.share({0, 1})
    assert window.queue_poll_max == 10
