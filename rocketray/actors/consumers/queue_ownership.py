"""Queue ownership of a group member: granted and held queues, and the lease to deliver messages.

The heartbeat thread takes the coordinator's answers. The polling thread opens the queues that they
grant, and releases those that they do not. An answer may arrive while the polling thread is opening
a queue, which can take as long as a call.

Invariants
  1. A queue is taken up only while the last answer grants it. It counts as held from the answer
     that grants it until it is released. So no heartbeat leaves out a queue that was taken up, and
     no queue is taken up that a heartbeat left out.
  2. A released queue is taken up again only by the answer to a heartbeat that left it out: that
     heartbeat brought its last commit, and the answer says where to resume.
  3. An answer renews the lease (lease.py). An answer that arrives after the lease expired, and does
     not grant all held queues, renews it only after those queues are released: another member may
     have had them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from rocketray.actors.groups.lease import Lease

__all__ = ["QueueOwnership"]


class QueueOwnership:
    """One member's queues by number; any thread may call."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._lock = threading.Lock()
        self._granted: dict[int, int] = {}
        self._taken: frozenset[int] = frozenset()
        self._left_out: frozenset[int] = frozenset()  # released since the last heartbeat
        self._late_answer: int | None = None

    def held(self) -> frozenset[int]:
        """Return the queues that the next heartbeat has to name; for one thread at a time."""
        with self._lock:
            self._left_out = frozenset()
            return self._taken | self._granted.keys()

    def answer(self, held: frozenset[int], asked_ms: int, granted: Mapping[int, int]) -> None:
        """Take the answer to a heartbeat that named *held*: next queue offsets by queue."""
        with self._lock:
            self._granted = {
                queue: offset for queue, offset in granted.items() if queue not in self._left_out
            }
            if self.lease.is_running or held - self._left_out <= self._granted.keys():
                self.lease.renew(asked_ms)
            else:
                self._late_answer = asked_ms

    @property
    def needs_rebalance(self) -> bool:
        """Whether there is a queue to release or to take up, or a lease to renew by that."""
        with self._lock:
            return self._granted.keys() != self._taken or self._late_answer is not None

    def lost(self) -> tuple[frozenset[int], int | None]:
        """Return the queues to release, and an answer for :meth:`renew` once that is done."""
        with self._lock:
            late_answer, self._late_answer = self._late_answer, None
            return self._taken - self._granted.keys(), late_answer

    def renew(self, late_answer: int | None) -> None:
        """Renew the lease after the lost queues were released, unless another answer renewed it."""
        with self._lock:
            if late_answer is not None and not self.lease.is_running:
                self.lease.renew(late_answer)

    def give_up(self, queue_ids: frozenset[int]) -> None:
        """Stop holding queues that are not read now, and whose commits are ready to send."""
        with self._lock:
            self._taken -= queue_ids
            self._left_out |= queue_ids
            for queue_id in queue_ids & self._granted.keys():
                del self._granted[queue_id]

    def take_up(self) -> dict[int, int]:
        """Return the new queues, with the next offset of each; they are held from now on."""
        with self._lock:
            new = {
                queue: offset for queue, offset in self._granted.items() if queue not in self._taken
            }
            self._taken |= new.keys()
            return new
