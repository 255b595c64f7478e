"""Rebalancing: how a queue is handed over from one member to another. States and transitions.

In a group, each queue of a topic is in one state:

    free       no owner
    owned      assigned to a member, which may read it
    revoked    its owner may not read on, and has to release it
    orphaned   its owner is a process whose name another one took; it may still read the queue
    lapsed     no owner: that was silent for the session timeout, and may reclaim the queue

Transitions, by event. Any other is a bug, and fails an assertion:

    assign     free, lapsed              -> owned
    reclaim    lapsed                    -> owned
    keep       revoked                   -> owned
    revoke     owned                     -> revoked
    release    owned, revoked, orphaned  -> free
    replace    owned, revoked            -> orphaned
    expire     owned, revoked, orphaned  -> lapsed
    forget     lapsed                    -> free

So a queue changes hands by ``revoke``, ``release`` and ``assign``: the reply to the owner's
heartbeat does not name the queue; the owner finishes its work, and its next heartbeat has the last
commit and does not name the queue; the reply to the next owner's heartbeat does. A queue whose
owner is silent goes by ``expire`` and ``assign``. Each ``assign`` gives the owner a new ownership
epoch (ownership_epochs.py). An owner that gets its lapsed queue back by ``reclaim`` keeps its own.

One heartbeat of a member makes these steps, in this order (``GroupRegistry.heartbeat``):

    1. expire the silent members          before the shares are counted
    2. check, join; replace a namesake    a refused member changes nothing
    3. reclaim the member's lapsed queues before its commits, which count again then
    4. take commits and filter switches   while the member still owns what it releases in step 5
    5. release what it holds no more      before the moves, which only touch queues without an owner
    6. move offsets                       before step 7: the next owner starts at the new offset
    7. assign or keep its share, revoke the rest; a queue that it lost and still holds is neither
    8. save, then reply                   the owner on disk is never older than one that reads

:meth:`GroupRegistry.leave` makes steps 3 to 6 and 8: all that the member owned is released.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .ownership_epochs import OwnershipEpochs


class QueueState(enum.Enum):
    """The state of one queue in one group."""

    FREE = "free"
    OWNED = "owned"
    REVOKED = "revoked"
    ORPHANED = "orphaned"
    LAPSED = "lapsed"


_FREE, _OWNED, _REVOKED, _ORPHANED, _LAPSED = QueueState

TRANSITIONS: Mapping[str, tuple[frozenset[QueueState], QueueState]] = {
    "assign": (frozenset({_FREE, _LAPSED}), _OWNED),
    "reclaim": (frozenset({_LAPSED}), _OWNED),
    "keep": (frozenset({_REVOKED}), _OWNED),
    "revoke": (frozenset({_OWNED}), _REVOKED),
    "release": (frozenset({_OWNED, _REVOKED, _ORPHANED}), _FREE),
    "replace": (frozenset({_OWNED, _REVOKED}), _ORPHANED),
    "expire": (frozenset({_OWNED, _REVOKED, _ORPHANED}), _LAPSED),
    "forget": (frozenset({_LAPSED}), _FREE),
}


def process_name(member: str, instance: str) -> str:
    """Return the owner name of a process that lost the name *member*; no member can have it."""
    return f"{member}\n{instance}"


class _Queue(NamedTuple):
    state: QueueState
    owner: str = ""
    """The member; :func:`process_name` if orphaned, and, if lapsed, of the former owner."""
    epoch: int = 0
    """The ownership epoch of the grant; 0 in a file of a release that had none."""


_NO_OWNER = _Queue(_FREE)


class QueueOwners:
    """The state and the owner of each queue; ``changed``: an owner, since the last save."""

    def __init__(
        self, names: Mapping[int, str] | None = None, epochs: Mapping[int, int] | None = None
    ) -> None:
        """Restore the results of :attr:`names` and :attr:`epochs`."""
        # Whether a queue was revoked is not saved: its owner's next heartbeat has it revoked again.
        known = epochs or {}
        self._queues = {
            queue: _Queue(_ORPHANED if "\n" in name else _OWNED, name, known.get(queue, 0))
            for queue, name in (names or {}).items()
        }
        self.changed = False

    @property
    def names(self) -> dict[int, str]:
        """The name of each owner, by queue; a lapsed queue has none, also not on disk."""
        return {
            queue: each.owner for queue, each in self._queues.items() if each.state is not _LAPSED
        }

    @property
    def epochs(self) -> dict[int, int]:
        """The ownership epoch of each owner, by queue."""
        return {
            queue: each.epoch for queue, each in self._queues.items() if each.state is not _LAPSED
        }

    def state(self, queue: int) -> QueueState:
        """Return the state of a queue; free, if it never had an owner."""
        return self._queues.get(queue, _NO_OWNER).state

    def owned(self, name: str) -> set[int]:
        """Return the queues of the owner *name*, also revoked ones: it may still read these."""
        return {
            queue
            for queue, each in self._queues.items()
            if each.owner == name and each.state is not _LAPSED
        }

    def lapsed(self, process: str) -> set[int]:
        """Return the queues that *process* may reclaim."""
        return {
            queue
            for queue, each in self._queues.items()
            if each.owner == process and each.state is _LAPSED
        }

    def assign(self, queue: int, member: str, epochs: OwnershipEpochs) -> bool:
        """Assign a queue without an owner to *member*; return whether it owns the queue now."""
        found = self._queues.get(queue, _NO_OWNER)
        if found.state is _FREE or found.state is _LAPSED:
            self._enter("assign", queue, member, epochs.next())
            return True
        if found.owner == member and found.state is _REVOKED:
            self._enter("keep", queue, member)
        return found.owner == member

    def reclaim(self, member: str, process: str) -> set[int]:
        """Give the lapsed queues of *process* back to it, as *member*; return them."""
        found = self.lapsed(process)
        for queue in found:
            self._enter("reclaim", queue, member)
        return found

    def number(self, epochs: OwnershipEpochs) -> None:
        """Give an epoch to each owner that has none: an earlier release knew no epochs."""
        for queue, each in self._queues.items():
            if not each.epoch:
                self._queues[queue] = each._replace(epoch=epochs.next())
                self.changed = True

    def revoke(self, member: str, granted: Iterable[int]) -> None:
        """Revoke the queues of *member* that are not *granted* any more."""
        for queue in self.owned(member).difference(granted):
            if self._queues[queue].state is _OWNED:
                self._enter("revoke", queue, member)

    def release(self, queues: Iterable[int]) -> None:
        """Free queues that their owners do not read any more."""
        for queue in queues:
            self._enter("release", queue)

    def replace(self, member: str, process: str) -> None:
        """Leave the queues of *member* to *process*, whose name another process took."""
        for queue in self.owned(member):
            self._enter("replace", queue, process)

    def expire(self, name: str, process: str) -> None:
        """Free the queues of the silent owner *name*; *process* may reclaim them."""
        for queue in self.owned(name):
            self._enter("expire", queue, process)

    def forget(self, queues: Iterable[int] | None = None) -> None:
        """Let no member reclaim *queues*, by default all: they are to be read in another way."""
        for queue in tuple(self._queues) if queues is None else queues:
            if self.state(queue) is _LAPSED:
                self._enter("forget", queue)

    def _enter(self, event: str, queue: int, owner: str = "", epoch: int | None = None) -> None:
        allowed, state = TRANSITIONS[event]
        before = self.state(queue)
        assert before in allowed, f"{event} of queue {queue}, which is {before.value}"
        if state is _FREE:
            del self._queues[queue]
        else:
            kept = self._queues.get(queue, _NO_OWNER).epoch
            self._queues[queue] = _Queue(state, owner, kept if epoch is None else epoch)
        # These leave what is on disk: a revoked queue has its owner, a lapsed one has none.
        self.changed |= event not in ("keep", "revoke", "forget")
