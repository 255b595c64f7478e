"""The checker of histories: each kind of violation is found in a history that has it, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.models.history import GroupHistory, History, Sent, Told, violations
from support.models.journal import Entry, Outcome
from support.models.verdict import Death

pytestmark = pytest.mark.proves(
    "durability",
    "The same while processes are stopped longer than their leases, the wall clock is "
    "set, the disk is slow, and memory or the disk is full",
)

ALL = "all"


def log(count: int = 12) -> dict[int, list[tuple[int, int]]]:
    """Two queues; the numbers take turns."""
    return {queue: [(n // 2, n) for n in range(count) if n % 2 == queue] for queue in range(2)}


def entries(start_ns: int, queue: int, numbers: list[int], stint: int = 1) -> list[Entry]:
    """A delivery each nanosecond."""
    return [
        Entry(start_ns + at, 0, queue, n // 2, n, Outcome.DONE, stint)
        for at, n in enumerate(numbers)
    ]


def sound() -> History:
    """Two groups: one wants every third number, and one has two members, each with a queue."""
    thirds = entries(0, 0, [0, 6]) + entries(10, 1, [3, 9])
    both = {"a": entries(0, 0, [0, 2, 4, 6, 8, 10]), "b": entries(0, 1, [1, 3, 5, 7, 9, 11])}
    return History(
        [Sent("p", n, Told.STORED, n % 2, n // 2) for n in range(12)],
        log(),
        {
            "thirds": GroupHistory(lambda n: n % 3 == 0, True, {"c": thirds}),
            ALL: GroupHistory(
                lambda _: True, True, both, seen=[(5, {(0, 0): 2}), (9, {(0, 0): 6})]
            ),
        },
        [("thirds", 0, True), ("thirds", 1, False), (ALL, 1, True)],
    )


def with_group(history: History, **changes: object) -> History:
    group = replace(history.groups[ALL], **changes)  # type: ignore[arg-type]
    return replace(history, groups={**history.groups, ALL: group})


def delivered(**journal: list[Entry]) -> History:
    return with_group(sound(), journal={**sound().groups[ALL].journal, **journal})


def told(number: int, what: Told) -> History:
    sent = [replace(one, told=what) if one.number == number else one for one in sound().sent]
    return replace(sound(), sent=sent)


def stored(queue: int, content: list[tuple[int, int]]) -> History:
    return replace(sound(), log={**log(), queue: content})


def test_a_sound_history_has_no_violation() -> None:
    assert violations(sound()) == []


@pytest.mark.parametrize(
    ("history", "line"),
    [
        (stored(1, log()[1][:-1]), "told stored and not in the log: 11"),
        (told(4, Told.ROLLED_BACK), "told rolled-back and in the log: 4"),
        (told(4, Told.REFUSED), "told refused and in the log: 4"),
        (stored(1, [*log()[1], (6, 11)]), "stored twice: 11"),
        (stored(1, [*log()[1], (6, 99)]), "in the log and never sent: [99]"),
        (
            replace(sound(), sent=[replace(one, queue_offset=0) for one in sound().sent]),
            "stored elsewhere than told",
        ),
        (
            replace(stored(0, [(0, 2), (1, 0), *log()[0][2:]]), groups={}, explained=()),
            "stored out of order in queue 0: 0, 2",
        ),
        (delivered(b=entries(0, 1, [1, 3, 5, 7, 9])), "all: not delivered: [11], 1 in all"),
        (
            with_group(sound(), wants=lambda n: n != 3),
            "all: delivered and not wanted, or not in the log: [3]",
        ),
        (
            delivered(b=[one._replace(number=one.number ^ 2) for one in entries(0, 1, [1, 3])]),
            "all: delivered with the offset of another",
        ),
        (
            delivered(b=entries(0, 1, [1, 3, 5, 3, 5, 7, 9, 11])),
            "all: delivered twice without a cause: 2",
        ),
        (delivered(b=entries(0, 1, [1, 5, 3, 7, 9, 11])), "all: delivered out of order: 1"),
        (
            delivered(b=entries(0, 1, [1, 3, 5, 7]), d=entries(2, 1, [9, 11])),
            "all: queue (0, 1) has two owners: b and d",
        ),
        (
            with_group(sound(), seen=[(5, {(0, 0): 6}), (9, {(0, 0): 2})]),
            "all: the offset of (0, 0) went back from 6 to 2",
        ),
        (
            replace(sound(), explained=[("thirds", 1, True)]),
            "thirds: explained wrongly: 1 as delivered: True",
        ),
    ],
    ids=lambda given: given.replace(":", "") if isinstance(given, str) else "",
)
def test_each_violation_is_found(history: History, line: str) -> None:
    found = violations(history)
    assert any(each.startswith(line) for each in found), found


def test_what_has_a_cause_is_no_violation() -> None:
    died = Death(20, frozenset({(0, 1)}), {(0, 1): 1}, process="b")
    again = delivered(b=entries(0, 1, [1, 3, 5]), d=entries(30, 1, [3, 5, 7, 9, 11]))
    assert violations(again) == ["all: delivered twice without a cause: 2"]
    assert violations(with_group(again, deaths=[died])) == []
    assert violations(told(4, Told.NOTHING)) == []
    assert violations(told(4, Told.COMMITTED)) == []
    back = with_group(
        sound(), seen=[(5, {(0, 0): 6}), (9, {(0, 0): 2})], forgotten=[(7, {(0, 0): 2})]
    )
    assert violations(back) == []


def test_a_queue_that_is_given_back_has_one_owner_and_one_that_was_stopped_finishes() -> None:
    handed = delivered(
        b=entries(0, 1, [1, 3]) + entries(20, 1, [9, 11], stint=2), d=entries(10, 1, [5, 7])
    )
    assert violations(handed) == []
    resumed = delivered(
        b=[*entries(0, 1, [1, 3]), *entries(40, 1, [5])], d=entries(30, 1, [5, 7, 9, 11])
    )
    assert any("two owners" in line for line in violations(resumed))
    stopped = Death(10, frozenset({(0, 1)}), {(0, 1): 2}, in_hands=1, process="b")
    assert violations(with_group(resumed, deaths=[stopped])) == []
