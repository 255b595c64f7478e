"""Ctrl-C while something runs that must not be left half done, and the signals to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketray.runtime.signal_handlers import interrupted_behind, stop_signals


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """Python's own, which a process in the background of a shell does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    of_stop = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) == of_stop
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_comes_behind_the_block_and_a_second_one_ends_the_process() -> None:
    seen: list[object] = []

    @interrupted_behind()
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        seen.append(signal.getsignal(signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen == [signal.SIG_DFL]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_is_raised_as_it_is() -> None:
    @interrupted_behind()
    def fails() -> None:
        signal.raise_signal(signal.SIGINT)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fails()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_s_own_handler_and_other_threads_are_left_alone() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(handler_in_block).result() is signal.default_int_handler
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)

    signal.signal(signal.SIGINT, note)
    assert handler_in_block() is note
    with interrupted_behind():
        signal.raise_signal(signal.SIGINT)
        assert came == [signal.SIGINT]


def handler_in_block() -> object:
    with interrupted_behind():
        return signal.getsignal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_event_and_a_second_one_is_not_taken(number: signal.Signals) -> None:
    with stop_signals() as stopping:
        assert not stopping.event.is_set()
        signal.raise_signal(number)
        assert stopping.event.is_set()
        assert signal.getsignal(number) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_job_that_a_shell_had_ignore_ctrl_c_takes_it_when_it_is_ready() -> None:
    """``rocketray start &`` in a script: SIGINT is ignored until then, as its help says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupted_behind():  # while Ray starts
        signal.raise_signal(signal.SIGINT)
    with stop_signals() as stopping:
        assert not stopping.event.is_set()
        signal.raise_signal(signal.SIGINT)
        assert stopping.event.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_stop_handler_that_another_library_has_replaced_is_taken_back() -> None:
    with stop_signals() as stopping:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stopping.take_back()
        signal.raise_signal(signal.SIGINT)
        assert stopping.event.is_set()
