"""What a group's journal says of its deliveries: lost, handed out twice, out of order.

A message may come twice for one reason: a process died, or was taken for dead, before the
coordinator heard, and kept, that the message is finished. So each such end of a process is noted
with the offsets that the group had then. What had been handed out behind them, in the queues that
the process owned, may come once more. Nothing else may.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from support.models.journal import Entry, Outcome

Offsets = Mapping[tuple[int, int], int]
"""The next offsets of a group, by queue as entries name it."""
_Place = tuple[int, int, int]
_NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a process that owned queues, or the time when it was stopped.

    ``offsets`` are those of its group then. Of each queue it had *in_hands* messages at most that
    it had not written down: one that was stopped may do so when it goes on.
    """

    at_ns: int
    queues: frozenset[tuple[int, int]]
    offsets: Offsets
    in_hands: int = 0
    process: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of messages.

    ``twice`` were finished more than once, each time beyond the first counted; ``bound`` is how
    often that may be, and ``unexplained`` how often a message came again that should not.
    """

    lost: int
    twice: int
    bound: int
    unexplained: int


def judge(
    journal: Mapping[str, Sequence[Entry]],
    deaths: Sequence[Death],
    forgotten: Sequence[tuple[int, Offsets]],
    messages: int,
) -> Verdict:
    """The verdict on a group that got the numbers from 0 to *messages*.

    *forgotten* says when a coordinator was killed, and the offsets that it had saved: a dead member
    tells the next one nothing.
    """
    entries = _by_time(journal)
    settled = _settled(journal)
    excused: Counter[_Place] = Counter()
    for death in deaths:
        excused.update(_unfinished(entries, death, forgotten))
    done = Counter(entry.number for _, entry in entries if entry.outcome == Outcome.DONE)
    places: dict[int, set[_Place]] = defaultdict(set)
    for _, entry in entries:
        places[entry.number].add(_place(entry))
    again = sum(max(0, times - 1 - excused[place]) for place, times in settled.items())
    again += sum(
        max(0, times - 1 - sum(settled[place] - 1 for place in places[number]))
        for number, times in done.items()
    )
    twice = done.total() - len(done)
    return Verdict(messages - len(done), twice, excused.total(), again)


def out_of_order(journal: Mapping[str, Sequence[Entry]]) -> int:
    """How often a message of the group's topic came before one ahead of it in its queue was settled.

    One that comes again breaks no order: :func:`judge` says whether it may.
    """
    passed = 0
    settled: Counter[int] = Counter()
    for _, entry in _by_time(journal):
        if not entry.is_retry:
            passed += entry.queue_offset > settled[entry.queue_id]
            following = entry.queue_offset + (entry.outcome != Outcome.TRIED)
            settled[entry.queue_id] = max(settled[entry.queue_id], following)
    return passed


def chronicle(
    journal: Mapping[str, Sequence[Entry]],
    deaths: Sequence[Death],
    forgotten: Sequence[tuple[int, Offsets]],
) -> str:
    """Who had which messages of which queue, and when whom ended: to see why :func:`judge` blames.

    A line for each row of messages that a process had, in seconds of the machine's steady clock.
    """
    told = [(end.at_ns, f"end of who had {sorted(end.queues)} {end.offsets}") for end in deaths]
    told += [
        (at_ns, f"the coordinator ends, which saved {offsets}") for at_ns, offsets in forgotten
    ]
    seen: set[_Place] = set()
    rows: dict[tuple[int, int], tuple[str, list[Entry], int]] = {}

    def close(queue: tuple[int, int]) -> None:
        process, row, again = rows.pop(queue)
        first, last = row[0].queue_offset, row[-1].queue_offset
        until_s = row[-1].at_ns / 1e9
        text = (
            f"until {until_s:.3f} {process} has {first} to {last} of {queue}, {again} of them again"
        )
        told.append((row[0].at_ns, text))

    for process, entry in _by_time(journal):
        owner, row, again = rows.get(entry.queue, (process, [], 0))
        if owner != process or (row and entry.queue_offset < row[-1].queue_offset):
            close(entry.queue)
            row, again = [], 0
        rows[entry.queue] = process, [*row[:1], entry], again + (_place(entry) in seen)
        if entry.outcome != Outcome.TRIED:
            seen.add(_place(entry))
    for queue in [*rows]:
        close(queue)
    return "\n".join(f"    {at_ns / 1e9:.3f} {text}" for at_ns, text in sorted(told))


def _by_time(journal: Mapping[str, Sequence[Entry]]) -> list[tuple[str, Entry]]:
    found = [(process, entry) for process, entries in journal.items() for entry in entries]
    return sorted(found, key=lambda one: one[1].at_ns)


def _settled(journal: Mapping[str, Sequence[Entry]]) -> Counter[_Place]:
    """How often each place was settled: finished, or sent back."""
    settled: Counter[_Place] = Counter()
    for entries in journal.values():
        settled.update(_place(entry) for entry in entries if entry.outcome != Outcome.TRIED)
    return settled


def _unfinished(
    entries: Sequence[tuple[str, Entry]], death: Death, forgotten: Sequence[tuple[int, Offsets]]
) -> Iterator[_Place]:
    """What was handed out of the dead one's queues, and the group does not know to be finished."""
    for queue in death.queues:
        of_queue = [entry for _, entry in entries if entry.queue == queue]
        taken_over = min(
            (entry.at_ns for entry in of_queue if entry.at_ns > death.at_ns), default=_NEVER
        )
        known = death.offsets.get(queue, 0)
        for at_ns, offsets in forgotten:
            if death.at_ns < at_ns < taken_over:
                known = min(known, offsets.get(queue, 0))
        before = {_place(entry) for entry in of_queue if entry.at_ns <= death.at_ns}
        end = max((offset for _, _, offset in before), default=known - 1) + 1
        yield from (place for place in before if place[2] >= known)
        yield from ((*queue, offset) for offset in range(end, end + death.in_hands))


def _place(entry: Entry) -> _Place:
    return entry.is_retry, entry.queue_id, entry.queue_offset
