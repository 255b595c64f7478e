from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from support.harness.patience import patience, wait_until

from rocketray.errors import ConfigError, StreamError, TopicNotFoundError
from rocketray.queries.spark import sink_runner
from rocketray.queries.spark.sink_runner import RestartPolicy, SinkRunner
from rocketray.topology.app.sink_statistics import SinkState

FAST = RestartPolicy(limit=2, first_delay_s=0.01)


class ScriptedQuery:
    """A query that ends as its script says: with an error, by itself, or when it is stopped."""

    def __init__(self, ends_with: Exception | None, batch_id: int | None, *, stays: bool) -> None:
        self.error = ends_with
        self.batch_id = batch_id
        self.stays = stays
        self.stopped = threading.Event()
        self.begins = 0

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        if self.batch_id is None:
            return None
        source = {"endOffset": '{"T": {"0": 5}}'}
        return {"batchId": self.batch_id, "numInputRows": 3, "sources": [source]}

    @property
    def status(self) -> Any:
        self.begins -= 1
        return {"message": "Initializing sources" if self.begins >= 0 else "Waiting for data"}

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        if self.stays:
            assert self.stopped.wait(patience(10))
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.stopped.set()


class Opener:
    """Hands out scripted queries in turn, and remembers with which trigger."""

    def __init__(self, *queries: ScriptedQuery) -> None:
        self.queries = list(queries)
        self.triggers: list[Mapping[str, Any]] = []

    def __call__(self, trigger: Mapping[str, Any]) -> ScriptedQuery:
        self.triggers.append(trigger)
        return self.queries[len(self.triggers) - 1]


def failing(batch_id: int | None) -> ScriptedQuery:
    return ScriptedQuery(RuntimeError("boom"), batch_id, stays=False)


def test_a_failed_query_starts_again_until_it_ends_well() -> None:
    opener = Opener(failing(None), failing(None), ScriptedQuery(None, 4, stays=False))
    runner = SinkRunner("s", opener, FAST)

    runner.start({"once": True})

    assert runner.join(patience(60))
    assert (runner.state, runner.restarts) == (SinkState.FINISHED, 2)
    assert opener.triggers == [{"once": True}] * 3
    progress = runner.progress()
    assert progress is not None
    assert (progress.batch_id, progress.input_rows) == (4, 3)
    assert progress.end_offset == {"T": {"0": 5}}


def test_a_query_that_never_gets_on_is_given_up_with_its_error() -> None:
    runner = SinkRunner("s", Opener(*[failing(None)] * 3), FAST)

    runner.start({})

    assert runner.join(patience(60))
    assert (runner.state, runner.restarts) == (SinkState.FAILED, 2)
    assert str(runner.error) == "boom"


@pytest.mark.proves("spark", "Restarts: their delays and their limit")
def test_a_batch_in_between_gives_new_tries() -> None:
    batches = [failing(number) for number in range(6)]
    runner = SinkRunner("s", Opener(*batches, ScriptedQuery(None, 6, stays=False)), FAST)

    runner.start({})

    assert runner.join(patience(60))
    assert (runner.state, runner.restarts) == (SinkState.FINISHED, 6)


@pytest.mark.proves("spark", "The call `stop()`")
def test_stop_ends_a_running_query_and_waits_for_it() -> None:
    query = ScriptedQuery(None, None, stays=True)
    runner = SinkRunner("s", Opener(query), FAST)
    runner.start({})
    assert not runner.join(0.02)

    runner.stop()

    assert query.stopped.is_set()
    assert runner.state is SinkState.STOPPED


@pytest.mark.proves("spark", "The call `stop()`")
def test_a_query_that_spark_cannot_end_is_told_and_may_be_stopped_again() -> None:
    query = ScriptedQuery(None, None, stays=True)
    runner = SinkRunner("s", Opener(query), FAST)
    runner.start({})

    def time_out() -> None:
        raise RuntimeError("failed to stop within 60000 milliseconds")

    with pytest.MonkeyPatch.context() as hung:
        hung.setattr(query, "stop", time_out)
        with pytest.raises(StreamError, match="'s' does not stop: failed to stop within 60000"):
            runner.stop()
    runner.stop()

    assert runner.state is SinkState.STOPPED


class SlowStart:
    """Spark that starts its query when it is told to."""

    def __init__(self, query: ScriptedQuery) -> None:
        self.query = query
        self.goes_on = threading.Event()

    def __call__(self, trigger: Mapping[str, Any]) -> ScriptedQuery:
        assert self.goes_on.wait(patience(60))
        return self.query


@pytest.mark.proves("spark", "The call `stop()`")
def test_stop_waits_for_a_query_that_still_starts_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opener = SlowStart(ScriptedQuery(None, None, stays=True))
    runner = SinkRunner("s", opener, FAST)
    runner.start_soon({})
    told: list[str] = []

    @contextmanager
    def logged_wait(what: str) -> Iterator[None]:
        told.append(what)
        opener.goes_on.set()
        yield

    monkeypatch.setattr(sink_runner, "logged_wait", logged_wait)
    runner.stop()

    assert told == ["sink s is being stopped and waits for Spark to start its query"]
    assert opener.query.stopped.is_set()
    assert runner.state is SinkState.STOPPED


def test_a_query_that_never_starts_is_told_and_may_be_stopped_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opener = SlowStart(ScriptedQuery(None, None, stays=True))
    runner = SinkRunner("s", opener, FAST)
    runner.start_soon({})

    monkeypatch.setattr(sink_runner, "_START_TIMEOUT_S", 0.05)
    with pytest.raises(StreamError, match="'s' does not stop: it waited 0"):
        runner.stop()
    monkeypatch.undo()
    opener.goes_on.set()
    runner.stop()

    assert runner.state is SinkState.STOPPED


def test_stop_ends_the_pause_before_a_restart() -> None:
    opener = Opener(failing(None))
    runner = SinkRunner("s", opener, RestartPolicy(limit=3, first_delay_s=3600, max_delay_s=3600))
    runner.start({})
    wait_until(lambda: runner.state is SinkState.RESTARTING)

    runner.stop()

    assert len(opener.triggers) == 1
    assert runner.state is SinkState.STOPPED


def test_a_stopped_runner_starts_again() -> None:
    first = ScriptedQuery(None, 1, stays=True)
    runner = SinkRunner("s", Opener(first, ScriptedQuery(None, 2, stays=False)), FAST)
    runner.start({"processingTime": "1 second"})
    runner.stop()

    runner.start({"availableNow": True})

    assert runner.join(patience(60))
    assert runner.state is SinkState.FINISHED


def test_an_error_in_the_definition_is_raised_at_the_start() -> None:
    def refuse(trigger: Mapping[str, Any]) -> ScriptedQuery:
        raise ConfigError("no writer")

    runner = SinkRunner("s", refuse, FAST)

    with pytest.raises(ConfigError, match="no writer"):
        runner.start({})
    assert runner.join(0)


@pytest.mark.proves("spark", "Restarts: their delays and their limit")
def test_delays_grow_up_to_their_limit() -> None:
    policy = RestartPolicy(first_delay_s=1, factor=2, max_delay_s=5)

    assert [policy.delay_s(failures) for failures in (1, 2, 3, 4, 1000)] == [1, 2, 4, 5, 5]


@pytest.mark.parametrize("factor", [65_536, 70_000.0, 1e308, math.inf])
def test_a_delay_never_outgrows_what_a_float_or_a_thread_can_take(factor: float) -> None:
    policy = RestartPolicy(limit=None, first_delay_s=1, factor=factor)
    assert [policy.delay_s(failures) for failures in (1, 2, 65, 10**6)] == [1, 30, 30, 30]
    at_once = RestartPolicy(limit=None, first_delay_s=0, factor=factor)
    assert [at_once.delay_s(failures) for failures in (1, 2, 10**6)] == [0, 0, 0]
    endless = RestartPolicy(limit=None, factor=factor, max_delay_s=math.inf)
    assert endless.delay_s(10**6) == threading.TIMEOUT_MAX


@pytest.mark.parametrize("field", ["factor", "first_delay_s", "max_delay_s"])
def test_a_senseless_policy_is_refused(field: str) -> None:
    for value in (-0.5, math.nan):
        options: Any = {field: value}
        with pytest.raises(ConfigError, match="the factor 1 or more"):
            RestartPolicy(**options)


@pytest.mark.proves("spark", "A topic that does not exist yet is waited for")
def test_a_topic_that_is_missing_is_waited_for_and_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing = iter([True, True])

    def open_query(trigger: Mapping[str, Any]) -> ScriptedQuery:
        if next(missing, False):
            raise TopicNotFoundError("T", "/data")
        return ScriptedQuery(None, 0, stays=False)

    runner = SinkRunner("s", open_query, FAST)
    runner.start_soon({})

    assert runner.join(patience(60))
    assert (runner.state, runner.restarts, runner.error) == (SinkState.FINISHED, 0, None)
    [waits] = [each.getMessage() for each in caplog.records if each.name == sink_runner.__name__]
    assert waits.startswith("sink s waits for its topic: topic 'T' does not exist in /data; ")


@pytest.mark.proves(
    "spark",
    "Under `rocketray up` a sink is restarted for as long as the app is up",
)
@pytest.mark.parametrize(("limit", "restarts"), [(5, 0), (None, 2)])
def test_a_sink_that_never_ran_is_given_up_at_once_unless_restarts_have_no_limit(
    limit: int | None, restarts: int
) -> None:
    wrong = iter([True, True])

    def open_query(trigger: Mapping[str, Any]) -> ScriptedQuery:
        if next(wrong, False):
            raise ConfigError("no writer")
        return ScriptedQuery(None, 0, stays=False)

    runner = SinkRunner("s", open_query, RestartPolicy(limit=limit, first_delay_s=0.01))
    runner.start_soon({})

    assert runner.join(patience(60))
    assert runner.restarts == restarts
    assert runner.state is (SinkState.FINISHED if restarts else SinkState.FAILED)
    assert str(runner.error) == "no writer"


def test_options_that_are_wrong_are_given_up_at_once() -> None:
    wrong = RuntimeError(
        "STREAM_FAILED Traceback (most recent call last):\n"
        "rocketray.errors.ConfigError: the checkpoint was written with another filter\n"
    )
    opener = Opener(ScriptedQuery(wrong, None, stays=False))
    runner = SinkRunner("s", opener, FAST)
    runner.start({})

    assert runner.join(patience(60))
    assert (runner.state, runner.restarts) == (SinkState.FAILED, 0)


def test_a_query_that_begins_is_stopped_when_it_has_begun() -> None:
    query = ScriptedQuery(None, None, stays=True)
    runner = SinkRunner("s", Opener(query), FAST)
    runner.start({})
    query.begins = 3

    runner.stop()

    assert query.begins == -1
