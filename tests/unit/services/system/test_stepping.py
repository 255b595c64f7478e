"""The steps of services: when they are called, and what a failure or the end of the process does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.harness.patience import patience, wait_until

from rocketray.errors import StoreError
from rocketray.services.system import stepping
from rocketray.services.system.stepping import RETRY_AFTER_MS, SteppedServices


class Counting:
    """A service that fails when told to."""

    def __init__(self, next_ms: int | None = 500, *, fails: bool = False) -> None:
        self.next_ms = next_ms
        self.fails = fails
        self.calls = 0
        self.seen_ms = -1
        self.called = threading.Event()
        self.is_closed = False

    def step(self, now_ms: int) -> int | None:
        assert not self.is_closed
        self.calls += 1
        self.seen_ms = now_ms
        self.called.set()
        if self.fails:
            raise StoreError("out of order")
        return None if self.next_ms is None else now_ms + self.next_ms

    def close(self) -> None:
        self.is_closed = True


class Ticks:
    """A clock that stands still until a test sets it."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Ticks:
    return Ticks()


@pytest.fixture
def services(clock: Ticks) -> Iterator[SteppedServices]:
    services = SteppedServices("services", clock)
    yield services
    services.close()


def test_a_service_says_when_it_is_called_next_and_a_failing_one_stops_no_other(
    services: SteppedServices,
) -> None:
    failing, last = Counting(fails=True), Counting(500)
    services.stepped = (Counting(700), failing, last)
    assert services.step(1_000) == 1_500
    assert (failing.calls, last.calls) == (1, 1)
    services.stepped = (failing,)
    assert services.step(0) == RETRY_AFTER_MS


def test_services_without_work_are_looked_at_once_a_minute(services: SteppedServices) -> None:
    assert services.step(1_000) == 61_000
    services.stepped = (Counting(None),)
    assert services.step(1_000) == 61_000


def test_a_service_is_called_when_it_is_due_and_when_it_is_woken(
    services: SteppedServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "_LOOK_S", 3600)
    idle, busy = Counting(None), Counting(0)
    services.stepped = (idle,)
    services.start()
    for _ in range(3):
        assert idle.called.wait(patience(30))
        idle.called.clear()
        services.wake()
    services.stepped = (busy,)
    services.wake()
    wait_until(lambda: busy.calls > 3)


def test_a_clock_that_is_set_is_noticed_while_nothing_is_due(
    services: SteppedServices, clock: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "_LOOK_S", 0.001)
    service = Counting(None)
    services.stepped = (service,)
    clock.now_ms = 1_000_000
    services.start()
    wait_until(lambda: service.seen_ms == 1_000_000)
    clock.now_ms = 5
    wait_until(lambda: service.seen_ms == 5)


def test_a_service_that_failed_is_called_again(
    services: SteppedServices, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "RETRY_AFTER_MS", 1)
    failing = Counting(fails=True)
    services.stepped = (failing,)
    services.start()
    wait_until(lambda: failing.calls > 2)
    assert "Counting failed; trying again" in caplog.text


@pytest.mark.parametrize("is_started", [False, True])
def test_the_end_waits_for_a_step_and_closes_each_service(
    services: SteppedServices, *, is_started: bool
) -> None:
    both = Counting(0), Counting(0)
    services.stepped = both
    if is_started:
        services.start()
        assert both[1].called.wait(patience(30))
    services.close()
    assert all(one.is_closed for one in both), "a step that came later would have failed"
