"""Ownership epochs: a number for each grant of a queue, larger than those of all earlier grants.

A process that was stopped does not know that its queue has another owner by now. So what an owner
stores on behalf of a queue, such as the changes of a table, carries the epoch of its grant. The
shard refuses an epoch that is older than the newest one that it has seen
(``shards/ownership_fence.py``).

All groups of a cluster share one counter. So the epochs of an app's members can be compared across
topics and groups, and those of a group that was deleted are not given again.

Invariants
  1. No two grants have one epoch: the counter is saved with the owner, before the owner learns it.
  2. A queue that its process reclaims, because no other member took it, keeps its epoch.
  3. A coordinator that lost epochs, as one of a restored backup, catches up: a member that is
     refused reports the newest epoch that the store knows, and its next grant has a larger one.
"""

from __future__ import annotations

EPOCH_MAX = 2**62 - 1  # it is an i64 in a batch; a billion grants a second use it up in a century
NOTED_MAX = EPOCH_MAX // 2
"""The largest epoch of a log that counts: behind one that a program forged there is room, too."""


class OwnershipEpochs:
    """The counter of a cluster; ``changed``: it has to be saved."""

    def __init__(self, last: int = 0) -> None:
        """Continue behind *last*; raise as :func:`check_epoch`."""
        self.last = check_epoch(last)
        """The epoch of the last grant."""
        self.changed = False

    def next(self) -> int:
        """Return the epoch of a new grant."""
        self.last += 1
        self.changed = True
        return self.last

    def pass_by(self, epoch: int) -> None:
        """Give no epoch up to *epoch*, which a store knows; ignore one that was never given."""
        if self.last < epoch <= NOTED_MAX:
            self.last = epoch
            self.changed = True


def check_epoch(epoch: int) -> int:
    """Return *epoch*; raise ``ValueError`` if no counter has that value."""
    if not 0 <= epoch <= EPOCH_MAX:
        raise ValueError(f"an ownership epoch of {epoch}")
    return epoch
