"""What a member was granted and what it holds, and with that whether it may hand anything out.

The heartbeat's thread brings the coordinator's answers; the polling thread takes up what they grant
and gives up what they do not. The coordinator may change its mind while the polling thread is about
to open a queue, which can take as long as a call takes.

Invariants
  1. A queue is taken up while it is granted, by the last answer there is then, and counts as held
     from the answer that grants it until it is given up. So no heartbeat leaves out a queue that
     was taken up, and none is taken up that a heartbeat left out.
  2. A queue that was given up is taken up again only by the answer to a heartbeat that left it out:
     that one brought its last commit, and the answer says where to go on.
  3. An answer renews the lease (lease.py). One that came when the lease was over, and does not
     grant all that was held, does so only when that is given up: another may have had it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from rocketray.actors.groups.lease import Lease

__all__ = ["Grants"]


class Grants:
    """One member's queues by number; any thread may call."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._lock = threading.Lock()
        self._granted: dict[int, int] = {}
        self._taken: frozenset[int] = frozenset()
        self._left_out: frozenset[int] = frozenset()  # given up since the last heartbeat
        self._late_answer: int | None = None

    def held(self) -> frozenset[int]:
        """What a heartbeat has to name; one is asked at a time."""
        with self._lock:
            self._left_out = frozenset()
            return self._taken | self._granted.keys()

    def answer(self, held: frozenset[int], asked_ms: int, granted: Mapping[int, int]) -> None:
        """A heartbeat that named *held* was answered; next queue offsets by queue."""
        with self._lock:
            self._granted = {
                queue: offset for queue, offset in granted.items() if queue not in self._left_out
            }
            if self.lease.is_running or held - self._left_out <= self._granted.keys():
                self.lease.renew(asked_ms)
            else:
                self._late_answer = asked_ms

    @property
    def has_to_settle(self) -> bool:
        """There is something to give up or to take up, or a lease to be renewed by that."""
        with self._lock:
            return self._granted.keys() != self._taken or self._late_answer is not None

    def lost(self) -> tuple[frozenset[int], int | None]:
        """What is to be given up, and an answer for :meth:`renew` once that is done."""
        with self._lock:
            late_answer, self._late_answer = self._late_answer, None
            return self._taken - self._granted.keys(), late_answer

    def renew(self, late_answer: int | None) -> None:
        """What was lost is given up; nothing is to be done where another answer came meanwhile."""
        with self._lock:
            if late_answer is not None and not self.lease.is_running:
                self.lease.renew(late_answer)

    def give_up(self, queue_ids: frozenset[int]) -> None:
        """Hold these no more: nothing of them is read, and their commits are ready to be sent."""
        with self._lock:
            self._taken -= queue_ids
            self._left_out |= queue_ids
            for queue_id in queue_ids & self._granted.keys():
                del self._granted[queue_id]

    def take_up(self) -> dict[int, int]:
        """What is new, with the next queue offset to begin at; it is held from now on."""
        with self._lock:
            new = {
                queue: offset for queue, offset in self._granted.items() if queue not in self._taken
            }
            self._taken |= new.keys()
            return new
