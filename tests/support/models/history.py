"""The history of a run of real processes, and how it violates what rocketray promises.

A number is sent once. Whether a group wants a number follows from the number, so from the histories
of the producers and from the log at the end it is known what each group has to get: that, in the
order of each queue, and twice only where a process died or was stopped (verdict.py).

:func:`violations` is a pure function; the histories come from support/programs/history_run.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from support.models.journal import Entry, Outcome
from support.models.verdict import Death, Offsets, Verdict, judge, out_of_order

Journal = Mapping[str, Sequence[Entry]]


class Told(StrEnum):
    """What a producer was told of a message; of one that got no answer, nothing."""

    STORED = "stored"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    REFUSED = "refused"
    NOTHING = "nothing"


_KEPT = (Told.STORED, Told.COMMITTED)
_NOT_KEPT = (Told.ROLLED_BACK, Told.REFUSED)


@dataclass(frozen=True, slots=True)
class Sent:
    """A number that a producer may have sent, and where it was stored, if the producer knows."""

    producer: str
    number: int
    told: Told = Told.NOTHING
    queue_id: int = -1
    queue_offset: int = -1


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """What one group got.

    ``seen`` are its offsets as the coordinator told them, with the times. ``forgotten`` are those
    that a coordinator had saved when it was killed.
    """

    wants: Callable[[int], bool]
    keeps_order: bool
    journal: Journal
    deaths: Sequence[Death] = ()
    forgotten: Sequence[tuple[int, Offsets]] = ()
    seen: Sequence[tuple[int, Offsets]] = ()


@dataclass(frozen=True, slots=True)
class History:
    """All that was noted; ``log`` has the queue offsets and the numbers of each queue.

    ``explained`` has groups and numbers, and whether an explanation said that it was delivered.
    """

    sent: Sequence[Sent]
    log: Mapping[int, Sequence[tuple[int, int]]]
    groups: Mapping[str, GroupHistory]
    explained: Sequence[tuple[str, int, bool]] = ()


def violations(history: History) -> list[str]:
    """A line for each promise that was broken, with the numbers; [] if all were kept."""
    found = [*_of_log(history), *_in_order(history)]
    for name, group in history.groups.items():
        found += [f"{name}: {line}" for line in _of_group(group, history.log)]
    for name, number, is_delivered in history.explained:
        if is_delivered != history.groups[name].wants(number):
            found.append(f"{name}: explained wrongly: {number} as delivered: {is_delivered}")
    return found


def verdict(group: GroupHistory, log: Mapping[int, Sequence[tuple[int, int]]]) -> Verdict:
    """What verdict.py says of a group for which the rest of the log does not exist."""
    ranks = _ranks(group, log)
    deaths = [replace(one, offsets=_ranked(one.offsets, ranks)) for one in group.deaths]
    forgotten = [(at_ns, _ranked(offsets, ranks)) for at_ns, offsets in group.forgotten]
    count = sum(map(len, ranks.values()))
    return judge(_ranked_journal(group.journal, ranks), deaths, forgotten, count)


def _of_log(history: History) -> Iterator[str]:
    places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for queue_id, content in history.log.items():
        for queue_offset, number in content:
            places[number].append((queue_id, queue_offset))
    for one in history.sent:
        found = places.pop(one.number, [])
        if len(found) > 1:
            yield f"stored twice: {one.number} at {found}"
        if not found and one.told in _KEPT:
            yield f"told {one.told} and not in the log: {one.number}"
        if found and one.told in _NOT_KEPT:
            yield f"told {one.told} and in the log: {one.number} at {found}"
        if found and one.told is Told.STORED and (one.queue_id, one.queue_offset) not in found:
            yield f"stored elsewhere than told: {one} at {found}"
    if places:
        yield f"in the log and never sent: {sorted(places)[:20]}"


def _in_order(history: History) -> Iterator[str]:
    """Numbers of a producer that were told to be stored are in a queue in their order."""
    producers = {one.number: one.producer for one in history.sent if one.told is Told.STORED}
    for queue_id, content in history.log.items():
        last: dict[str, int] = {}
        for _, number in content:
            if (producer := producers.get(number)) is not None:
                if number < last.get(producer, -1):
                    yield f"stored out of order in queue {queue_id}: {number}, {last[producer]}"
                last[producer] = number


def _of_group(group: GroupHistory, log: Mapping[int, Sequence[tuple[int, int]]]) -> Iterator[str]:
    numbers = {(0, queue): dict(content) for queue, content in log.items()}
    wanted = {n for content in log.values() for _, n in content if group.wants(n)}
    entries = [entry for part in group.journal.values() for entry in part]
    done = {entry.number for entry in entries if entry.outcome == Outcome.DONE}
    if lost := sorted(wanted - done):
        yield f"not delivered: {lost[:20]}, {len(lost)} in all"
    if unwanted := sorted({entry.number for entry in entries} - wanted):
        yield f"delivered and not wanted, or not in the log: {unwanted[:20]}"
    moved = [
        entry
        for entry in entries
        if not entry.is_retry
        and numbers.get(entry.queue, {}).get(entry.queue_offset) != entry.number
    ]
    if moved:
        yield f"delivered with the offset of another: {moved[:3]}"
    if unexplained := verdict(group, log).unexplained:
        yield f"delivered twice without a cause: {unexplained}"
    ranks = _ranks(group, log)
    if group.keeps_order and (count := out_of_order(_ranked_journal(group.journal, ranks))):
        yield f"delivered out of order: {count}"
    yield from _shared_queues(group)
    yield from _steps_back(group)


def _shared_queues(group: GroupHistory) -> Iterator[str]:
    """Two processes had a queue at a time: the spans of their deliveries overlap.

    A process counts the times that its queues changed. One that was stopped may finish what it had
    in hands when it goes on.
    """
    spans: defaultdict[tuple[int, int], dict[tuple[str, int], tuple[int, int]]] = defaultdict(dict)
    for process, entries in group.journal.items():
        stops = [one for one in group.deaths if one.process == process and one.in_hands]
        finished: Counter[tuple[int, tuple[int, int]]] = Counter()
        for entry in sorted(entries):
            before = [one for one in stops if one.at_ns < entry.at_ns]
            stop = len(before), entry.queue
            finished[stop] += 1
            if not entry.stint or (before and finished[stop] <= before[-1].in_hands):
                continue
            first, _ = spans[entry.queue].get((process, entry.stint), (entry.at_ns, 0))
            spans[entry.queue][process, entry.stint] = first, entry.at_ns
    for queue, found in spans.items():
        in_time = sorted((*span, process) for (process, _), span in found.items())
        for (_, end_ns, one), (begin_ns, _, other) in pairwise(in_time):
            if begin_ns < end_ns and one != other:
                yield f"queue {queue} has two owners: {one} and {other}"


def _steps_back(group: GroupHistory) -> Iterator[str]:
    """An offset went back, other than to what a coordinator that was killed had saved."""
    known: dict[tuple[int, int], int] = {}
    events = [(at_ns, 1, offsets) for at_ns, offsets in group.seen]
    events += [(at_ns, 0, offsets) for at_ns, offsets in group.forgotten]
    for _, is_seen, offsets in sorted(events, key=lambda one: one[:2]):
        if not is_seen:
            known = {queue: offsets.get(queue, -1) for queue in known}
            continue
        for queue, offset in offsets.items():
            if offset < known.get(queue, offset):
                yield f"the offset of {queue} went back from {known[queue]} to {offset}"
            known[queue] = max(offset, known.get(queue, offset))


def _ranks(
    group: GroupHistory, log: Mapping[int, Sequence[tuple[int, int]]]
) -> dict[tuple[int, int], list[int]]:
    """The queue offsets that the group wants, in order: their places count for verdict.py."""
    return {
        (0, queue): [queue_offset for queue_offset, number in content if group.wants(number)]
        for queue, content in log.items()
    }


def _ranked(offsets: Offsets, ranks: Mapping[tuple[int, int], list[int]]) -> Offsets:
    return {
        queue: bisect_left(ranks[queue], offset) if queue in ranks else offset
        for queue, offset in offsets.items()
    }


def _ranked_journal(journal: Journal, ranks: Mapping[tuple[int, int], list[int]]) -> Journal:
    return {
        process: [
            entry._replace(queue_offset=bisect_left(ranks[entry.queue], entry.queue_offset))
            if entry.queue in ranks
            else entry
            for entry in entries
        ]
        for process, entries in journal.items()
    }
