from __future__ import annotations

import threading

from rocketray.topology.flow import FlowLimits, SharedWindow, Window


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
    window = SharedWindow(FlowLimits(messages=10, size_bytes=1000), lambda: woken.append(1))
    assert window.wait_for_room(0), "what is granted has to be taken up"
    window.share({0, 1})
    window.add(0, 5, 0)
    assert (window.full, window.wait_for_room(0)) == ({0}, True)
    window.add(1, 1, 500)
    assert (window.full, window.wait_for_room(0)) == ({0, 1}, False)
    window.remove(0, 1, 0)
    assert (window.full, window.wait_for_room(0), woken) == ({1}, True, [1])
    window.share({0})
    assert window.full == set(), "a queue alone has all of it"
    window.add(0, 6, 0)
    assert not window.wait_for_room(0)
    window.share({0, 1, 2})
    assert (window.full, window.wait_for_room(0)) == ({0, 1}, True)
    window.hold(held=True)
    assert not window.wait_for_room(0)
