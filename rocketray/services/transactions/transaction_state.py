"""The state of a half message, and the limits of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import Natural, json_fields, read_value
from rocketray.base.transaction import Ending, Verdict
from rocketray.broker.retries.deliveries import Place

_FORM = FileForm("config/transactions.json")


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """The time before a half is checked, the number of checks, and the greatest age of a half.

    RocketMQ's ``transactionTimeOut``, ``transactionCheckInterval``, ``transactionCheckMax`` and
    ``fileReservedTime``.
    """

    timeout_ms: int = 6_000
    check_interval_ms: int = 30_000
    checks_max: int = 15
    age_max_ms: int = 72 * 3_600_000


@dataclass(frozen=True, slots=True)
class TransactionProgress:
    """The position from which logs are read after a restart; may be older than they are, not newer.

    ``checks`` is the number of checks of each half, by queue offset.
    """

    half_next: Natural = field(default=0, metadata={"json": "halfOffset"})
    op_next: Natural = field(default=0, metadata={"json": "opOffset"})
    end_next: Natural = field(default=0, metadata={"json": "endOffset"})
    checks: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the progress of :meth:`to_json`; missing values are the beginning."""
        return read_value(cls, {**json_fields(cls()), **_FORM.content(value)})

    def to_json(self) -> dict[str, Any]:
        return _FORM.of(json_fields(self))


@dataclass(slots=True)
class Pending:
    """A half without an outcome; ``op_offset`` is the end of the ops when it was read.

    ``stored_ms`` is by the wall clock, when it was read and last checked by the steady clock.
    """

    group: str
    unique_key: str
    stored_ms: int
    immune_ms: int
    seen_ms: int
    op_offset: int
    queue_id: int = 0
    checks: int = 0
    asked_ms: int = -(10**18)  # before any time, so that the first check does not wait


Fate = Ending | Literal["dead letter"]


@dataclass(slots=True)
class Decided:
    """A decision that is not carried out yet.

    ``outcome`` is the action, which may differ from the ``verdict``: a message that its topic never
    accepts is dead-lettered.
    """

    verdict: Verdict
    outcome: Fate
    end_offset: int
    in_doubt: bool
    place: Place | None = None
    """The queue for its message, once it was determined."""
    is_under_way: bool = False
