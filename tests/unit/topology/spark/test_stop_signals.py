"""The first signal is a wish, whatever else took it meanwhile, and all is given back."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from rocketray.topology.spark.stop_signals import stop_signals


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_event_and_a_second_one_is_not_taken(number: signal.Signals) -> None:
    with stop_signals() as stopping:
        assert not stopping.event.is_set()
        signal.raise_signal(number)
        assert stopping.event.is_set()
        assert signal.getsignal(number) is signal.SIG_DFL


def test_a_handler_that_spark_has_replaced_is_taken_back() -> None:
    with stop_signals() as stopping:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stopping.take_back()
        signal.raise_signal(signal.SIGINT)
        assert stopping.event.is_set()
