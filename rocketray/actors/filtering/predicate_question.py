"""One call of a predicate for one stored message, outside of any stream: for explanations.

As in a stream, the predicate must be allowed, runs in its own thread and has the same time limit.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from rocketray.actors.files.paths import shard_directory
from rocketray.errors import PredicateError
from rocketray.filters.message_filter import compile_filter
from rocketray.filters.predicate_run import FAILED, PredicateRun
from rocketray.filters.subscription import Subscription
from rocketray.store.reading.columns import read_columns
from rocketray.store.reading.reader import QueueReader

from .filter_rules import FilterRules

__all__ = ["ask_once"]


def ask_once(
    data: Path,
    rules: FilterRules,
    subscription: Subscription,
    place: tuple[str, int, int],
) -> bool:
    """Return the result of the predicate of *subscription* for the message at *place*.

    *place* is the message's topic, queue id and queue offset.

    Raises:
        PredicateError: it is not allowed, it raised, or it did not return in time.
    """
    topic, queue_id, queue_offset = place
    matcher = compile_filter(subscription, allowed=rules.allowed)
    with QueueReader(shard_directory(data, topic, queue_id), topic, queue_id) as reader:
        entries = reader.entries(queue_offset, queue_offset + 1)
        message: Any
        if matcher.batch_columns is None:
            message = reader.messages(entries)[0]
        else:
            message = read_columns(reader, entries, matcher.batch_columns)

    def ask(_first: int, _stop: int) -> npt.NDArray[np.bool_]:
        if matcher.batch_columns is None:
            return np.array([matcher.matches_record(message)])
        return matcher.matches_batch(message)

    limit_s = rules.time_limit_ms / 1000
    run = PredicateRun(
        1,
        ask,
        batch=True,
        stop_on_error=True,
        time_limit_s=limit_s,
        clock_s=time.monotonic,
    )
    thread = Thread(target=run.go, name=f"question to {subscription.expression}", daemon=True)
    thread.start()
    thread.join(limit_s)
    verdicts = run.take()
    if len(verdicts) and verdicts[0] == FAILED:
        raise PredicateError(run.error)
    if not len(verdicts) or verdicts[0] < 0:
        raise PredicateError(
            f"class filter {subscription.expression!r} gave no answer within {limit_s:g} s"
        )
    return bool(verdicts[0])
