"""The places of a topic's queues: the disk of each queue, and its process there.

The queues of a topic are spread over the disks of the cluster: over zones first, then over the
disks of a zone, then to where there is most room. The topics of the services have queues on each
disk (service_queues.py); the node's other topics are on the coordinator's disk.

Where neither the topic nor the node says how many queues share a process, they are in the *common*
processes of their disk, together with those of all such topics: as many processes as the machine
has cores, since more store no faster, and each costs 120 MB. Otherwise a topic has processes of its
own, with up to *queues per process* queues each. The queues of a topic whose queues per process are
``shared`` are in the shared process of their disk, with those of the services.

Invariants
  1. A queue stays on its disk, and in its process, unless an operator moves it. A topic that gets
     more queues has them in processes of the same kind: in those with the fewest queues, and, if
     they are its own, in new ones.
  2. All queues of a process are on one disk.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as numbers
from typing import NamedTuple

from rocketray.base.names import SHARED, QueuesPerProcess, check_queues_per_process

Spread = Callable[[Sequence[str], int], tuple[str, ...]]
"""Returns the disks of that many queues, from those of the existing queues."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """A disk that takes new queues: its name in the catalog, zone and free bytes."""

    disk: str
    zone: str
    free_bytes: int


def all_on_one(present: Sequence[str], queues: int) -> tuple[str, ...]:
    """Return the disks of a topic's queues where there is no disk but the coordinator's."""
    return (*present, *[""] * (queues - len(present)))


def spread_over(disks: Iterable[DiskSpace], present: Sequence[str], queues: int) -> tuple[str, ...]:
    """Return the disks of *queues* queues of a topic, the first of which are on *present*.

    Each new queue is put into the zone, and there on the disk, with the fewest queues of the topic.
    Of disks with equally many the one with the most room is taken.
    """
    candidates = sorted(disks, key=lambda disk: (-disk.free_bytes, disk.disk))
    of_disk = Counter(present)
    zones = {space.disk: space.zone for space in candidates}
    of_zone: Counter[str] = Counter(zones[disk] for disk in present if disk in zones)
    placed = [*present]
    while len(placed) < queues:
        # Of equals, min() takes the first one, which has the most room.
        best = min(candidates, key=lambda space: (of_zone[space.zone], of_disk[space.disk]))
        placed.append(best.disk)
        of_zone[best.zone] += 1
        of_disk[best.disk] += 1
    return (*placed,)


class QueueMove(NamedTuple):
    """A queue that is to be moved, from one disk to another, by their names in the catalog."""

    queue_id: int
    source: str
    target: str


def drained(disks: Iterable[DiskSpace], present: Sequence[str], leaving: str) -> list[QueueMove]:
    """Return the moves after which no queue of a topic is on the disk *leaving*.

    *present* are the disks of its queues, *disks* those that take queues. They go where new queues
    would.
    """
    stay = [disk for disk in present if disk != leaving]
    others = [each for each in disks if each.disk != leaving]
    targets = iter(spread_over(others, stay, len(present))[len(stay) :])
    leave = [queue_id for queue_id, disk in enumerate(present) if disk == leaving]
    pairs = zip(leave, targets, strict=True)
    return [QueueMove(queue_id, leaving, target) for queue_id, target in pairs]


def rebalanced(disks: Iterable[DiskSpace], present: Sequence[str]) -> list[QueueMove]:
    """Return the fewest moves after which a topic's queues are spread as those of a new topic.

    Queues on other disks than *disks* stay: these disks do not answer, or are being drained.
    """
    counts = Counter(present)
    # Queues in place of bytes: of equal disks, those that have the most now keep theirs.
    spaces = [DiskSpace(space.disk, space.zone, counts[space.disk]) for space in disks]
    names = {space.disk for space in spaces}
    movable = [queue_id for queue_id, disk in enumerate(present) if disk in names]
    if not movable:
        return []
    wanted = Counter(spread_over(spaces, (), len(movable)))
    targets = iter((wanted - counts).elements())
    surplus = {disk: counts[disk] - wanted[disk] for disk in names}
    moves = []
    for queue_id in reversed(movable):
        disk = present[queue_id]
        if surplus[disk] > 0:
            surplus[disk] -= 1
            moves.append(QueueMove(queue_id, disk, next(targets)))
    return moves[::-1]


@dataclass(frozen=True, slots=True)
class Placement:
    """The rule for topics that have none of their own; ``spread`` says which disks they use.

    ``disks`` returns all disks that take queues, the coordinator's first.
    """

    queues_per_process: QueuesPerProcess = None
    # Those that this process may use: a container may have fewer than its machine.
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    spread: Spread = all_on_one
    disks: Callable[[], Sequence[str]] = lambda: ("",)

    def __post_init__(self) -> None:
        check_queues_per_process(self.queues_per_process)

    def place_own(
        self, present: tuple[int, ...], disks: Sequence[str], own: QueuesPerProcess
    ) -> tuple[int, ...]:
        """Return the number of the process of each queue among its topic's own; none if shared.

        *disks* are those of all queues. *present* are the processes of the queues that the topic
        has, if they are not shared; *own* are its own queues per process. A topic whose number is
        not known any more gets as many processes as there are cores.
        """
        wanted = own or self.queues_per_process
        if wanted == SHARED and not present:
            return ()
        unused = numbers(1 + max(present, default=-1))
        placed = [*present, *[-1] * (len(disks) - len(present))]
        for disk in dict.fromkeys(disks):
            queues = [queue for queue, its_disk in enumerate(disks) if its_disk == disk]
            loads = Counter(placed[queue] for queue in queues if queue < len(present))
            most = self.cores if not isinstance(wanted, int) else -(-len(queues) // wanted)
            for _ in range(min(most, len(queues)) - len(loads)):
                loads[next(unused)] = 0
            waiting = [(load, process) for process, load in loads.items()]
            heapq.heapify(waiting)
            for queue in queues:
                if queue >= len(present):
                    load, process = waiting[0]
                    placed[queue] = process
                    heapq.heapreplace(waiting, (load + 1, process))
        return (*placed,)

    def place_common(
        self, present: tuple[int, ...], disks: Sequence[str], loads: Mapping[tuple[str, int], int]
    ) -> tuple[int, ...]:
        """Return the number of the process of each queue among the common ones of its disk.

        *disks* are those of all queues of the topic, *present* the processes of those that it has,
        and *loads* the numbers of queues of all topics by disk and process. A queue goes where the
        fewest queues of its topic are, and of such processes to that with the fewest of all.
        """
        own = Counter(zip(disks, present, strict=False))
        placed = [*present]
        for disk in disks[len(present) :]:
            process = min(
                range(self.cores),
                key=lambda each: (own[disk, each], loads.get((disk, each), 0)),
            )
            own[disk, process] += 1
            placed.append(process)
        return (*placed,)


ONE_EACH = Placement(1)
"""A process for each queue."""
