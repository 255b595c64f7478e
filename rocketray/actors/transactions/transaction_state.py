"""What the service of transactions knows of a half, its limits, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from rocketray.actors.retries.deliveries import Place
from rocketray.transaction import Ending, Verdict

__all__ = [
    "Decided",
    "Fate",
    "Pending",
    "TransactionCounts",
    "TransactionLimits",
    "TransactionOverview",
    "TransactionProgress",
    "UndecidedHalf",
]


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """When a half is asked about, how often at most, and how old it may become.

    RocketMQ's ``transactionTimeOut``, ``transactionCheckInterval``, ``transactionCheckMax`` and
    ``fileReservedTime``.
    """

    timeout_ms: int = 6_000
    check_interval_ms: int = 30_000
    checks_max: int = 15
    age_max_ms: int = 72 * 3_600_000


@dataclass(frozen=True, slots=True)
class TransactionProgress:
    """From where the logs are read again after a restart; older than they are perhaps, never newer.

    ``checks`` is how often halves were asked about, by queue offset.
    """

    half_next: int = 0
    op_next: int = 0
    end_next: int = 0
    checks: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` made; the beginning where it says nothing."""
        half, op, end = (max(int(value.get(f"{log}Offset", 0)), 0) for log in ("half", "op", "end"))
        checks = {int(half): int(count) for half, count in value.get("checks", {}).items()}
        return cls(half, op, end, checks)

    def to_json(self) -> dict[str, Any]:
        """As it stands in a file."""
        return {
            "version": 1,
            "halfOffset": self.half_next,
            "opOffset": self.op_next,
            "endOffset": self.end_next,
            "checks": {str(half): count for half, count in self.checks.items()},
        }


@dataclass(slots=True)
class Pending:
    """A half without an outcome; ``op_offset`` is where ops stood when it was met."""

    group: str
    unique_key: str
    stored_ms: int
    immune_ms: int
    op_offset: int
    checks: int = 0
    asked_ms: int = -(10**18)


Fate = Ending | Literal["dead letter"]


@dataclass(slots=True)
class Decided:
    """A decision that is not carried out yet.

    ``outcome`` is what is done, which is not always what the ``verdict`` says: a message that its
    topic never takes is a dead letter.
    """

    verdict: Verdict
    outcome: Fate
    end_offset: int
    in_doubt: bool
    place: Place | None = None
    """Where its message goes, once that was looked up."""
    is_under_way: bool = False


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """``pending`` is now; the others count since the start."""

    pending: int
    committed: int
    rolled_back: int
    given_up: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class UndecidedHalf:
    """A half that nobody has decided: where it is among the halves, and how often it was asked about."""

    queue_offset: int
    group: str
    unique_key: str
    stored_ms: int
    checks: int


@dataclass(frozen=True, slots=True)
class TransactionOverview:
    """The oldest halves without a decision, how many there are in all, and what became of others."""

    halves: tuple[UndecidedHalf, ...] = ()
    undecided: int = 0
    counts: TransactionCounts = TransactionCounts(0, 0, 0, 0, 0)
