"""What an agent reports of itself: values, for the processes that show them. Imports no Faust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rocketray.groups.failing import FailingMessage
from rocketray.topology.delivery.noted_failure import NotedFailure


class HeldQueue(NamedTuple):
    """A queue that an agent holds at a failing message."""

    topic: str
    queue_id: int
    message: FailingMessage


@dataclass(frozen=True, slots=True)
class AgentStatistics:
    """Counters of one agent since its app started, in messages unless said otherwise.

    - ``failures`` counts exceptions of the handler and of the steps before it; ``decode_failures``
      are those of decoding.
    - ``held`` are the queues that are held now at a failing message.
    - ``sent_back`` messages are redelivered later, ``dead_lettered`` ones are not; both are
      finished.
    - ``overdue`` messages were not finished for 15 minutes (overdue.py).
    - ``damaged`` messages were not delivered: they cannot be read.
    - ``last_failure`` is the latest of the failures.
    """

    name: str
    group: str
    batches: int
    received: int
    finished: int
    failures: int
    sent_back: int = 0
    dead_lettered: int = 0
    overdue: int = 0
    damaged: int = 0
    decode_failures: int = 0
    held: tuple[HeldQueue, ...] = ()
    last_failure: NotedFailure | None = None
