"""The processes of a topic's queues: how many there are, and which queue is in which.

A process has up to *queues per process* queues of one topic. Where neither the topic nor the node
says how many, a topic has as many processes as the machine has cores, or as queues if these are
fewer: more processes than cores store no faster, and each costs 170 MB. The queues of a topic whose
queues per process are ``shared`` are in the node's shared process, with those of other topics.

Invariants
  1. A queue stays in its process. A topic that gets more queues has them added to the processes
     with the fewest queues, and to new ones.
"""

from __future__ import annotations

import heapq
import os
from dataclasses import dataclass, field

from rocketray.names import SHARED, QueuesPerProcess, check_queues_per_process

__all__ = ["ONE_EACH", "Placement"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The rule of a node for topics that have none of their own."""

    queues_per_process: QueuesPerProcess = None
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __post_init__(self) -> None:
        check_queues_per_process(self.queues_per_process)

    def place(
        self, present: tuple[int, ...], queues: int, own: QueuesPerProcess
    ) -> tuple[int, ...]:
        """Return the number of the process of each of *queues* queues; none if they are shared.

        *present* are those of the queues that the topic has, if they are not shared; *own* are its
        own queues per process.
        """
        wanted = own or self.queues_per_process
        if wanted == SHARED and not present:
            return ()
        count = -(-queues // wanted) if isinstance(wanted, int) else min(queues, self.cores)
        loads = [0] * max(count, 1 + max(present, default=-1))
        for process in present:
            loads[process] += 1
        waiting = [(load, process) for process, load in enumerate(loads)]
        heapq.heapify(waiting)
        placed = [*present]
        while len(placed) < queues:
            load, process = waiting[0]
            placed.append(process)
            heapq.heapreplace(waiting, (load + 1, process))
        return (*placed,)


ONE_EACH = Placement(1)
"""A process for each queue."""
