"""Class filters for tests, named by import path."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketray.filters.class_filter import predicate
from rocketray.message import StoredMessage


def fails_always(message: StoredMessage) -> bool:
    """Raise on every message."""
    raise RuntimeError(f"broken on purpose at {message.keys}")


def body_is_short(message: StoredMessage) -> bool:
    """True for bodies under 10 bytes."""
    return len(message.body) < 10


def is_even(message: StoredMessage) -> bool:
    """True for bodies that are even numbers; raises on those that are none."""
    return int(message.body) % 2 == 0


@predicate(batch=True, columns=["body"])
def are_even(batch: pa.RecordBatch) -> pa.BooleanArray:
    """The same, for a batch."""
    return pa.array([int(body) % 2 == 0 for body in batch.column("body").to_pylist()])


@predicate(batch=True, columns=["tags", "properties"])
def are_tagged(batch: pa.RecordBatch) -> Any:
    """Compare the tags with a constant: null where there is none."""
    assert batch.schema.names == ["tags", "properties"]
    return pc.equal(batch.column("tags"), "a")


@predicate(batch=True, columns=["nonsense"])
def asks_for_nonsense(_: pa.RecordBatch) -> Any:
    """A batch predicate that no store can feed."""
    raise AssertionError("never called")


RELEASE = threading.Event()


def hangs_on_stop(message: StoredMessage) -> bool:
    """True, but for bodies ``stop``: then nothing, until RELEASE is set."""
    if message.body == b"stop":
        RELEASE.wait(60)
    return True


@predicate(batch=True, columns=["body"])
def hang_on_stop(batch: pa.RecordBatch) -> Any:
    """The same, for a batch."""
    if b"stop" in batch.column("body").to_pylist():
        RELEASE.wait(60)
    return np.ones(len(batch), np.bool_)
