"""A holder of parts of tables whose lease a test lets lapse, and whose epochs it chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(eq=False)
class PartHolder:
    """Stands for a feed."""

    epochs: Mapping[int, int] = field(default_factory=dict)
    is_leased: bool = True
    given_up: list[tuple[int, int]] = field(default_factory=list)
    """The queues that it had to give up, and the newest epoch that it was told."""

    def epoch(self, queue_id: int) -> int:
        """Return the epoch of a queue; 0 for one without."""
        return self.epochs.get(queue_id, 0)

    def give_up(self, queue_id: int, newest_epoch: int) -> None:
        """Note that the queue has another owner."""
        self.given_up.append((queue_id, newest_epoch))
