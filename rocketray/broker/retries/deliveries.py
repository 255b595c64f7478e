"""Outbound deliveries of system services (deliveries), in parallel; a target may be unavailable.

A target that does not answer delays its own messages, and no others: each delivery has a thread,
and the service that begins one waits for it only briefly, and checks it again later.

Invariants
  1. A target has one delivery at a time, so its messages keep their order.
  2. A target that did not accept everything is paused for a second, then two, up to a minute.
  3. A message that an earlier attempt stored is not stored again, and counts as delivered only when
     it is on disk: that attempt may have ended before it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rocketray.base.quantity import counted
from rocketray.errors import (
    InvalidMessageError,
    InvalidNameError,
    MessageTooLargeError,
    StreamError,
    TopicNotFoundError,
)
from rocketray.message import ForwardedMessage

_LOG = logging.getLogger(__name__)
PATIENCE_S = 0.1
"""How long a service waits for what it has just begun: most deliveries take milliseconds."""
LOOK_MS = 50
"""How soon to check deliveries in progress."""
# 1, 2, 4, … 32, 60 s: a target that has failed for a minute is tried once a minute (invariant 2).
_PAUSE_MS, _PAUSE_MAX_MS = 1000, 60_000
_GONE = (TopicNotFoundError, InvalidNameError)
_NEVER = (*_GONE, InvalidMessageError, MessageTooLargeError)

Place = tuple[str, int]
Submit = Callable[[Callable[[], Any]], "Future[Any]"]
"""Runs a task, possibly in another thread."""
ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")
WhatT = TypeVar("WhatT")
ResultT = TypeVar("ResultT")


def at_once(delivery: Callable[[], Any]) -> Future[Any]:
    """Run it now, in this thread; its errors are raised here."""
    future: Future[Any] = Future()
    future.set_result(delivery())
    return future


class TargetQueues(Protocol):
    """The queues that messages are delivered to; called by several threads, each for other queues.

    A topic may be missing (:class:`TopicNotFoundError`), and a queue may not answer now
    (:class:`StreamError`).
    """

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        """Store messages, all or none of them; they are on disk when this returns.

        A missing dead-letter topic is created.

        Raises:
            InvalidMessageError, MessageTooLargeError: there is one that the target never accepts.
        """

    def is_stored(self, message: ForwardedMessage, queue_id: int) -> bool:
        """Return whether a queue has exactly this message, perhaps in memory only."""

    def sync(self, topic: str, queue_id: int) -> None:
        """Bring to disk what a queue has."""


def store_once(
    targets: TargetQueues, place: Place, messages: Iterable[tuple[ForwardedMessage, bool]]
) -> None:
    """Store messages in a queue, except those that it has (invariant 3).

    Only those that are in doubt, the second of each pair, are looked for. Raises as *targets*.
    """
    pairs = [*messages]
    new = [
        message for message, in_doubt in pairs if not (in_doubt and _has(targets, place, message))
    ]
    if new:
        targets.forward(*place, new)
    elif pairs:
        targets.sync(*place)


def _has(targets: TargetQueues, place: Place, message: ForwardedMessage) -> bool:
    try:
        return targets.is_stored(message, place[1])
    except TopicNotFoundError:
        return False


class Attempt(NamedTuple, Generic[ItemT]):
    """The outcome of storing some items; each list is in their order."""

    done: list[ItemT]
    refused: list[ItemT]
    """The target never accepts them."""
    waiting: list[ItemT]
    """The target does not accept them now, or the outcome is unknown."""


def attempt(
    items: Sequence[ItemT], store: Callable[[Sequence[ItemT]], None], where: str
) -> Attempt[ItemT]:
    """Call *store* with *items*, all or none at a time; a refused item does not block others."""
    try:
        store(items)
    except _NEVER as error:
        if len(items) == 1 or isinstance(error, _GONE):
            _LOG.error(
                "%s for %s cannot be delivered: %s", counted(len(items), "message"), where, error
            )
            return Attempt([], [*items], [])
        # All or none are stored, so halves are tried until those that are refused stand alone: two
        # calls for each level, some 2 log n for one bad item among n.
        half = len(items) // 2
        first = attempt(items[:half], store, where)
        if first.waiting:  # later items must not overtake it
            return Attempt(first.done, first.refused, [*first.waiting, *items[half:]])
        second = attempt(items[half:], store, where)
        return Attempt(first.done + second.done, first.refused + second.refused, second.waiting)
    except StreamError as error:
        _LOG.warning("delivering %s for %s later: %s", counted(len(items), "message"), where, error)
        return Attempt([], [], [*items])
    return Attempt([*items], [], [])


def portions(
    items: Iterable[ItemT], size_of: Callable[[ItemT], int], max_bytes: int
) -> Iterator[list[ItemT]]:
    """Yield *items* in lists of at most *max_bytes* each, or of one larger item."""
    portion: list[ItemT] = []
    left = max_bytes
    for item in items:
        size = size_of(item)
        if portion and size > left:
            yield portion
            portion, left = [], max_bytes
        portion.append(item)
        left -= size
    if portion:
        yield portion


def grouped(pairs: Iterable[tuple[KeyT, ItemT]]) -> dict[KeyT, list[ItemT]]:
    """Return the items of each key, in their order, from pairs of a key and an item."""
    found: dict[KeyT, list[ItemT]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


class Ended(NamedTuple, Generic[WhatT, ResultT]):
    """A delivery that has ended."""

    target: Place
    what: WhatT
    result: ResultT


class OutboundDeliveries(Generic[WhatT, ResultT]):
    """The deliveries of one service. For one thread at a time; the deliveries run in others."""

    def __init__(self, submit: Submit = at_once) -> None:
        self._submit = submit
        self._under_way: dict[Place, tuple[WhatT, Future[ResultT]]] = {}
        self._pauses: dict[Place, tuple[int, int]] = {}  # its end, and its length, in ms

    def may_begin(self, target: Place, now_ms: int) -> bool:
        """Return whether *target* has no delivery, and no pause."""
        until_ms, _ = self._pauses.get(target, (now_ms, 0))
        return target not in self._under_way and now_ms >= until_ms

    def begin(self, target: Place, what: WhatT, run: Callable[[], ResultT]) -> None:
        """Begin to *run*; *what* is the content of the delivery."""
        assert target not in self._under_way
        self._under_way[target] = what, self._submit(run)

    def under_way(self) -> Iterable[WhatT]:
        """Return the deliveries in progress, and those that :meth:`ended` has not returned."""
        return [what for what, _ in self._under_way.values()]

    def ended(self, *, patience_s: float = 0.0) -> list[Ended[WhatT, ResultT]]:
        """Return the deliveries that ended since the last call; wait up to *patience_s* for all.

        A delivery's error is raised here.
        """
        wait([future for _, future in self._under_way.values()], patience_s)
        over = [
            Ended(target, what, future.result())
            for target, (what, future) in self._under_way.items()
            if future.done()
        ]
        for one in over:
            del self._under_way[one.target]
        return over

    def succeeded(self, target: Place) -> None:
        """Record that the target accepted everything."""
        self._pauses.pop(target, None)

    def failed(self, target: Place, now_ms: int) -> None:
        """Record that the target accepted less: its pause is longer than the last one."""
        _, last_ms = self._pauses.get(target, (now_ms, 0))
        # Twice nothing after a success: then the first pause.
        length_ms = min(2 * last_ms, _PAUSE_MAX_MS) or _PAUSE_MS
        self._pauses[target] = now_ms + length_ms, length_ms

    def end_pauses(self) -> None:
        """Let every target be tried again at once: the clock was set back."""
        self._pauses.clear()

    def next_ms(self, now_ms: int, waiting: Iterable[Place]) -> int | None:
        """Return when the targets in *waiting* can be tried again."""
        idle = (target for target in waiting if target not in self._under_way)
        times = [self._pauses.get(target, (now_ms, 0))[0] for target in idle]
        return min([*times, now_ms + LOOK_MS] if self._under_way else times, default=None)

    def abandon(self) -> list[WhatT]:
        """Wait until all have ended, and drop them; return what they were, for the only time."""
        wait([future for _, future in self._under_way.values()])
        abandoned = [what for what, _ in self._under_way.values()]
        self._under_way.clear()
        return abandoned
