"""Staged batches on the node: decides each once, and stores its messages in their topics.

A plain object that is stepped. Tasks stage messages as fragments (fragment_file.py). The driver
then asks for the decision, which names the fragments. What is decided is applied: each queue gets
its frames, in the order of the decisions and of the fragments in them.

Invariants
  1. A writer's batches are decided in the order of their numbers, each once and as a whole, by the
     file that says so (writer_ledger.py). The first decision counts: the fragments of a repetition
     are dropped, however it divides the same messages.
  2. One run of a writer decides. A run that comes later takes over, and the one before it is
     refused from then on.
  3. Fragments are on disk before they are decided, and are removed after all of their messages are
     on disk in their topics. A frame that was perhaps stored is stored as far as its queue does not
     have it (shards/staged_appends.py). So each message of a decided batch is stored once.
  4. Nothing but a decision is ever applied, and no call undoes a decision.
  5. A fragment that no decision names is dropped when its batch is decided, or after a time.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from rocketray.base.quantity import agreed, counted
from rocketray.broker.retries.deliveries import LOOK_MS, OutboundDeliveries, Place, Submit, at_once
from rocketray.errors import ShardUnavailableError, StoreError, StreamError
from rocketray.runtime.files.fragment_file import (
    BatchName,
    Fragment,
    FragmentFrame,
    batch_of,
    check_fragment,
    new_fragment,
)
from rocketray.store.age_clock import AgeClock

from .staged_fragments import StagedFragments
from .staging_api import StagedBatch, StagedCounts, StagedOverview, StagingVerdict
from .writer_ledger import DecidedBatch, WriterLedger, WriterState

_LOG = logging.getLogger(__name__)
# A step waits so long for what it began, with the service's lock: decisions wait for it. Shorter
# than PATIENCE_S, because here a driver waits for each decision.
_PATIENCE_S = 0.02
_HOUR_MS = 3_600_000
# Batches without a decision that are in their topics. Their drivers ask at once; what is older than
# 10,000 others counts as unknown.
_FINISHED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class StagingLimits:
    """How long what is not used stays, and how many batches of a writer wait for their topics."""

    fragment_ms: int = 24 * _HOUR_MS
    """Of a fragment that nothing decides: a batch whose tasks take longer than that fails."""
    single_ms: int = _HOUR_MS
    """Of a writer with one batch, whose decision only its own driver repeats."""
    writer_ms: int = 90 * 24 * _HOUR_MS
    """Of other writers: a query that was stopped for longer may repeat its last batch."""
    sweep_ms: int = 60_000
    """Between two looks for what is not used any more."""
    waiting_max: int = 16
    """Fragments of decided batches fill the disk while a topic does not take them."""


class FragmentTargets(Protocol):
    """The queues of topics."""

    def store(
        self, place: Place, fragment: Path, frames: Sequence[FragmentFrame], *, in_doubt: bool
    ) -> None:
        """Store the messages of frames, on disk on return; called by several threads.

        If *in_doubt*, some may be stored already.

        Raises:
            StreamError: some are not stored, or it is not known. FileNotFoundError: there is no
                such fragment.
        """


@dataclass(slots=True)
class _Share:
    """The messages of one fragment for one queue."""

    batch: BatchName
    fragment: Path
    frames: list[FragmentFrame]
    in_doubt: bool


class _Tried(NamedTuple):
    """The outcome of storing shares: how many are done, why the next is not, what is missing."""

    done: int
    error: StreamError | None
    missing: frozenset[Path]


class StagingEngine:
    """The staged batches of a node, as ``StagingApi``; for one thread at a time."""

    def __init__(
        self,
        directory: Path,
        ledger: WriterLedger,
        targets: FragmentTargets,
        limits: StagingLimits | None = None,
        *,
        clock: AgeClock,
        submit: Submit = at_once,
    ) -> None:
        """Take the *directory* of the fragments, and begin with what *ledger* has decided."""
        self._fragments = StagedFragments(directory, clock)
        self._ledger = ledger
        self._targets = targets
        self._limits = limits or StagingLimits()
        self._clock = clock
        self._shares: dict[Place, deque[_Share]] = {}
        self._left: Counter[BatchName] = Counter()
        self._published: dict[BatchName, list[str]] = {}
        self._finished: OrderedDict[BatchName, None] = OrderedDict()  # of those that were published
        self._problems: dict[Place, str] = {}
        self._deliveries = OutboundDeliveries[int, _Tried](submit)
        self._seen: dict[str, int] = {}  # the last use of each writer, by the steady clock
        self._swept_ms: int | None = None
        self._last_ms = 0
        self._counts: Counter[str] = Counter()
        for state in ledger:
            for batch in state.decided:
                self._begin_batch(BatchName(state.writer, batch.number), batch, in_doubt=True)

    def decide(self, wanted: StagedBatch) -> StagingVerdict:
        """See ``StagingApi``; an ``OSError`` leaves it unknown whether the batch is decided."""
        writer, number = wanted.name
        new_fragment(wanted.name)  # raises for a name that is none
        state = self._ledger.get(writer)
        if wanted.run in state.former:
            raise StoreError(
                f"writer {writer}: run {wanted.run} was replaced by run {state.run}, so it stores "
                "nothing more; one query at a time may use a checkpoint or a txnAppId: stop the "
                "other one, then start this one again"
            )
        state = state.taken_over(wanted.run)
        if number <= state.last:
            self._save(state)  # the run that repeats it has taken over, and its writer is in use
            self._drop_undecided(wanted.name, [fragment.name for fragment in wanted.fragments])
            self._counts["repeated"] += 1
            return "repeated"
        batch = DecidedBatch(number, wanted.fragments)
        if len(state.decided) >= self._limits.waiting_max:
            raise ShardUnavailableError(
                f"the staging of writer {writer}",
                f"{len(state.decided)} decided batches are not in their topics yet "
                f"({self._why(BatchName(writer, state.decided[0].number))}); repair that first",
            )
        frames = {
            fragment.name: self._checked(wanted.name, fragment) for fragment in wanted.fragments
        }
        waiting = (*state.decided, batch) if wanted.fragments else state.decided
        self._save(replace(state, last=number, is_single=wanted.is_single, decided=waiting))
        self._counts["batches"] += 1
        if wanted.fragments:
            self._queue(wanted.name, frames, in_doubt=False)
        return "decided"

    def publish(self, name: BatchName, fragments: Sequence[Fragment]) -> None:
        if name in self._published or name in self._finished:
            return  # the call is repeated, since its answer was lost
        frames = {fragment.name: self._checked(name, fragment) for fragment in fragments}
        self._published[name] = [fragment.name for fragment in fragments]
        self._queue(name, frames, in_doubt=False)

    def is_applied(self, batch: BatchName) -> bool:
        if batch in self._published or batch in self._finished:
            return batch in self._finished
        if not self._ledger.knows(batch):
            raise StoreError(f"batch {batch.number} of writer {batch.writer} is not decided")
        return all(each.number != batch.number for each in self._ledger.get(batch.writer).decided)

    def drop(self, batch: BatchName, names: Sequence[str]) -> None:
        self._drop_undecided(batch, names)

    def step(self, now_ms: int) -> int | None:
        """Store what is decided, and remove what is not used; return when to step again.

        None if only a decision can bring work soon.
        """
        if now_ms < self._last_ms:  # pauses end by the wall clock, which was set back
            self._deliveries.end_pauses()
        self._last_ms = now_ms
        self._settle(now_ms, 0.0)
        if self._begin(now_ms):
            self._settle(now_ms, _PATIENCE_S)
        if self._swept_ms is None or abs(now_ms - self._swept_ms) >= self._limits.sweep_ms:
            self._swept_ms = now_ms
            self._sweep()
        if self._deliveries.under_way():
            return now_ms + LOOK_MS
        waiting = [place for place, shares in self._shares.items() if shares]
        return self._deliveries.next_ms(now_ms, waiting)

    def abandon(self) -> None:
        """Wait for deliveries in progress, and ignore them: a new engine begins with the ledger."""
        self._deliveries.abandon()

    def overview(self, most: int) -> StagedOverview:
        kept: set[str] = set()
        found = []
        for state in self._ledger:
            for batch in state.decided:
                name = BatchName(state.writer, batch.number)
                names = [fragment.name for fragment in batch.fragments]
                found.append(self._fragments.work(name, names, self._why(name)))
                kept.update(names)
        staged: dict[BatchName, list[str]] = {}
        for fragment, name in self._fragments.names().items():
            if fragment not in kept:
                staged.setdefault(name, []).append(fragment)
        found += [self._fragments.work(name, names, None) for name, names in staged.items()]
        found.sort(key=lambda work: (not work.is_decided, -work.age_ms))
        problems = [str(error) for error in self._ledger.damaged.values()]
        return StagedOverview(
            tuple(found[:most]), len(found), StagedCounts(**self._counts), tuple(problems)
        )

    def problems(self, most: int) -> list[str]:
        """Return what was lost, which writers are closed, and what decided batches wait for.

        These are at most *most* lines.
        """
        found = [str(error) for error in self._ledger.damaged.values()]
        if lost := self._counts["lost"]:
            count = f"{counted(lost, 'message')} of decided batches {agreed(lost, 'are')}"
            found.insert(0, f"{count} lost: see the gateway's log")
        decided = [
            BatchName(state.writer, batch.number)
            for state in self._ledger
            for batch in state.decided
        ]
        found += [
            f"batch {name.number} of Spark's writer {name.writer} is decided and not stored yet: "
            f"{why}; see: rocketray staged"
            for name in decided
            if (why := self._why(name))
        ]
        return found[:most]

    def _save(self, state: WriterState) -> None:
        self._seen[state.writer] = self._clock.steady_ms()
        self._ledger.save(replace(state, used_ms=self._clock()))

    def _checked(self, batch: BatchName, fragment: Fragment) -> list[FragmentFrame]:
        """Return the frames of a fragment, which is whole, and of that batch."""
        if batch_of(check_fragment(fragment.name)) != batch:
            raise StoreError(
                f"fragment {fragment.name} is not of batch {batch.number} of {batch.writer}"
            )
        try:
            return self._fragments.frames(fragment)
        except FileNotFoundError:
            raise StoreError(
                f"fragment {fragment.name} is not there any more: batch {batch.number} of "
                f"writer {batch.writer} was aborted, or took too long; run it again"
            ) from None

    def _begin_batch(self, name: BatchName, batch: DecidedBatch, *, in_doubt: bool) -> None:
        """Queue the frames of a batch that is decided."""
        frames: dict[str, list[FragmentFrame]] = {}
        for fragment in batch.fragments:
            try:
                frames[fragment.name] = self._fragments.frames(fragment)
            except FileNotFoundError:
                self._note_lost(fragment.name, fragment.messages)
            except StoreError as error:
                _LOG.error("%s; the other fragments of its batch are stored", error)
                self._note_lost(fragment.name, fragment.messages)
        self._queue(name, frames, in_doubt=in_doubt)

    def _queue(
        self, name: BatchName, frames: dict[str, list[FragmentFrame]], *, in_doubt: bool
    ) -> None:
        for fragment, those in frames.items():
            by_place: dict[Place, list[FragmentFrame]] = {}
            for frame in those:
                by_place.setdefault((frame.topic, frame.queue_id), []).append(frame)
            for place, share in by_place.items():
                shares = self._shares.setdefault(place, deque())
                shares.append(_Share(name, self._fragments.path(fragment), share, in_doubt))
                self._left[name] += 1
        if not self._left[name]:
            self._end_batch(name)

    def _begin(self, now_ms: int) -> bool:
        has_begun = False
        for place, shares in self._shares.items():
            if shares and self._deliveries.may_begin(place, now_ms):
                chosen = [replace(share) for share in shares]
                for share in shares:
                    share.in_doubt = True  # until it is known to be stored
                self._deliveries.begin(place, len(chosen), partial(self._store, place, chosen))
                has_begun = True
        return has_begun

    def _store(self, place: Place, shares: Sequence[_Share]) -> _Tried:
        """Store shares of one queue, in order; called by any thread."""
        missing = set()
        for done, share in enumerate(shares):
            try:
                self._targets.store(place, share.fragment, share.frames, in_doubt=share.in_doubt)
            except FileNotFoundError:
                missing.add(share.fragment)
            except StreamError as error:
                return _Tried(done, error, frozenset(missing))
        return _Tried(len(shares), None, frozenset(missing))

    def _settle(self, now_ms: int, patience_s: float) -> None:
        for place, _, tried in self._deliveries.ended(patience_s=patience_s):
            shares = self._shares[place]
            ended = [shares.popleft() for _ in range(tried.done)]
            if tried.error is None:
                self._deliveries.succeeded(place)
                self._problems.pop(place, None)
            else:
                self._deliveries.failed(place, now_ms)
                if self._problems.get(place) != str(tried.error):
                    _LOG.warning("staged messages for %s/%d wait: %s", *place, tried.error)
                self._problems[place] = str(tried.error)
            if not shares:
                del self._shares[place]
            for share in ended:
                count = sum(frame.messages for frame in share.frames)
                if share.fragment in tried.missing:
                    self._note_lost(share.fragment.name, count)
                else:
                    self._counts["messages"] += count
                self._left[share.batch] -= 1
            for batch in dict.fromkeys(share.batch for share in ended):
                if not self._left[batch]:
                    self._end_batch(batch)

    def _end_batch(self, name: BatchName) -> None:
        """Note that all messages of a batch are in their topics, then remove its fragments."""
        del self._left[name]
        if (published := self._published.pop(name, None)) is not None:
            for fragment_name in published:
                self._fragments.remove(fragment_name)
            self._finished[name] = None
            if len(self._finished) > _FINISHED_MAX:
                self._finished.popitem(last=False)
            return
        # Saved first: fragments of which the ledger knows nothing are removed by a sweep, but a
        # ledger that names removed fragments would report their messages as lost.
        state = self._ledger.get(name.writer)
        self._ledger.save(state.without(name.number))
        for batch in state.decided:
            if batch.number == name.number:
                for fragment in batch.fragments:
                    self._fragments.remove(fragment.name)

    def _note_lost(self, name: str, messages: int) -> None:
        _LOG.error(
            "lost %s: fragment %s was decided, and is missing or damaged",
            counted(messages, "message"),
            name,
        )
        self._counts["lost"] += messages

    def _decided_fragments(self) -> set[str]:
        return {
            fragment.name
            for state in self._ledger
            for batch in state.decided
            for fragment in batch.fragments
        }

    def _drop_undecided(self, batch: BatchName, names: Sequence[str]) -> None:
        kept = self._decided_fragments()
        for name in names:
            if batch_of(check_fragment(name)) == batch and name not in kept:
                self._fragments.remove(name)
                self._counts["dropped"] += 1

    def _sweep(self) -> None:
        """Remove fragments that no decision needs any more; forget writers that are not used."""
        kept = self._decided_fragments()
        for name, batch in self._fragments.names().items():
            if name in kept:
                continue
            if self._ledger.knows(batch):
                counter = "dropped"
            elif self._fragments.age_ms(name) >= self._limits.fragment_ms:
                counter = "orphans"
                _LOG.warning("fragment %s is removed: nothing decided its batch in time", name)
            else:
                continue
            self._fragments.remove(name)
            self._counts[counter] += 1
        now_ms = self._clock.steady_ms()
        for state in self._ledger:
            limit = self._limits.single_ms if state.is_single else self._limits.writer_ms
            seen_ms = self._seen.setdefault(state.writer, now_ms)
            if not state.decided and self._clock.age_ms(state.used_ms, seen_ms, now_ms) >= limit:
                self._ledger.remove(state.writer)
                del self._seen[state.writer]

    def _why(self, batch: BatchName) -> str:
        """Return what the messages of a decided batch wait for."""
        for place, shares in self._shares.items():
            if place in self._problems and any(share.batch == batch for share in shares):
                return self._problems[place]
        return ""
