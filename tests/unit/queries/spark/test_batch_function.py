from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from support.harness.patience import patience

from rocketray.errors import StreamError
from rocketray.queries.spark import batch_function
from rocketray.queries.spark.batch_function import BatchFunction


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's report is waited for as long as the test takes to give it."""
    monkeypatch.setattr(batch_function, "REPORT_S", 3600.0)


class Slow:
    """A function that takes as long as the test wants."""

    def __init__(self) -> None:
        self.is_called = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, frame: Any, batch_id: int) -> None:
        self.is_called.set()
        assert self.may_end.wait(patience(60))


def test_nothing_is_waited_for_between_two_calls() -> None:
    function, asked = BatchFunction(lambda _frame, _batch_id: None), []

    def reported() -> int:
        asked.append("once")
        return 3

    function("frame", 3)
    function.close(reported, 3600)
    assert asked == ["once"]


def test_a_call_that_has_returned_is_waited_for_until_its_batch_is_reported() -> None:
    function = BatchFunction(lambda _frame, _batch_id: None)
    function("frame", 3)
    reports = iter([None, 2, 3])
    function.close(lambda: next(reports), 3600)
    assert list(reports) == []


@pytest.mark.proves("spark", "The call `run()`")
def test_a_call_under_way_is_waited_for_until_its_batch_is_reported() -> None:
    slow = Slow()
    function = BatchFunction(slow)
    calling = threading.Thread(target=function, args=("frame", 3))
    calling.start()
    assert slow.is_called.wait(patience(60))
    asked: list[int] = []

    def reported() -> int | None:
        asked.append(len(asked))
        return 2 if len(asked) < 3 else 3

    threading.Timer(0.05, slow.may_end.set).start()
    function.close(reported, 3600)
    calling.join()
    assert len(asked) == 3


def test_a_call_that_hangs_is_left() -> None:
    slow = Slow()
    function = BatchFunction(slow)
    calling = threading.Thread(target=function, args=("frame", 3))
    calling.start()
    assert slow.is_called.wait(patience(60))
    function.close(lambda: 0, 0.05)
    assert calling.is_alive()
    slow.may_end.set()
    calling.join()


def test_no_call_begins_once_it_is_closed_until_it_is_opened_again() -> None:
    done: list[int] = []
    function = BatchFunction(lambda _frame, batch_id: done.append(batch_id))
    function("frame", 3)
    function.close(lambda: 3, 3600)
    with pytest.raises(StreamError, match="being stopped; its next run processes batch 4"):
        function("frame", 4)
    function.open()
    function("frame", 4)
    assert done == [3, 4]


def test_py4js_log_has_the_errors_of_functions_and_not_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    BatchFunction(lambda _frame, _batch_id: None).open()
    log = logging.getLogger("py4j.clientserver")
    for error in (ValueError("theirs"), StreamError("ours")):
        try:
            raise error
        except (ValueError, StreamError):
            log.exception("There was an exception")
    assert [str(record.exc_text).splitlines()[-1] for record in caplog.records] == [
        "ValueError: theirs"
    ]
