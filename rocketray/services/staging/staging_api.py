"""The calls about staged batches, and the values that they take and return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from rocketray.base.limits import Limit, SentTopic
from rocketray.runtime.calls.endpoint import GATEWAY_NAME, Endpoint
from rocketray.runtime.files.fragment_file import BatchName, Fragment

StagingVerdict = Literal["decided", "repeated"]
"""Whether this call decided the batch, or an earlier one had."""
_SHOWN_MAX = 1000  # batches in an overview, as ``rocketray staged --max`` allows


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch to decide: all its fragments, and the *run* of the program that staged them.

    ``is_single`` says that its writer has no other batch.
    """

    name: BatchName
    run: str
    fragments: tuple[Fragment, ...]
    is_single: bool = False


@dataclass(frozen=True, slots=True)
class StagedWork:
    """A batch that is staged, or decided and not yet wholly in its topics.

    ``problem`` says what its messages wait for, empty if for nothing but their turn. ``age_ms`` is
    that of its oldest fragment.
    """

    batch: BatchName
    is_decided: bool
    fragments: int
    size: int
    age_ms: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StagedCounts:
    """Counters since the start of the process.

    ``batches`` that were decided, ``repeated`` decisions, ``messages`` in their topics, ``dropped``
    fragments of batches that were aborted or decided before, ``orphans`` that no decision named in
    time, and ``lost`` messages of fragments that were missing after their decision.
    """

    batches: int = 0
    repeated: int = 0
    messages: int = 0
    dropped: int = 0
    orphans: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class StagedOverview:
    """What is staged or decided, oldest first; its total number; the counters; and the damage."""

    work: tuple[StagedWork, ...] = ()
    total: int = 0
    counts: StagedCounts = StagedCounts()
    problems: tuple[str, ...] = ()


class StagingApi(Protocol):
    """The calls about staged batches; see ``StagingService``."""

    def decide(self, wanted: StagedBatch) -> StagingVerdict:
        """Decide a batch, unless it was decided before; durable on return. May be repeated.

        Raises:
            StoreError: another run has taken over the writer, or a fragment is missing or damaged.
            ShardUnavailableError: earlier batches are not in their topics yet; or it is not known
                whether it is decided.
        """

    def publish(self, name: BatchName, fragments: Sequence[Fragment]) -> None:
        """Store the messages of fragments in their topics, without a decision: perhaps not all.

        May be repeated.

        Raises:
            StoreError: a fragment is missing or damaged.
        """

    def is_applied(self, batch: BatchName) -> bool:
        """Return whether all messages of a batch that was decided or published are in their topics.

        Raises:
            StoreError: it is not known: it was not decided, or published to an earlier process.
        """

    def drop(self, batch: BatchName, names: Sequence[str]) -> None:
        """Remove fragments of a batch, unless they are decided."""

    def overview(self, most: Annotated[int, Limit(_SHOWN_MAX)]) -> StagedOverview:
        """Return what is staged or decided, the oldest *most* of it."""


class TargetsApi(Protocol):
    """The call about the topics that rows are staged for."""

    def queues(self, topic: SentTopic) -> int:
        """Return the number of queues of a topic.

        Raises:
            TopicNotFoundError: there is no such topic.
        """


STAGING: Endpoint[StagingApi] = Endpoint(GATEWAY_NAME, StagingApi)
TARGETS: Endpoint[TargetsApi] = Endpoint(GATEWAY_NAME, TargetsApi)
