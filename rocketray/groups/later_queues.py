"""Queues that a topic gets when it has groups: these begin there at the first message.

``start=`` of a member says where its group begins, not where a queue does that came later. A topic
that was deleted and is created again has later queues only, for the groups that it had; a restart
of the coordinator forgets these.
"""

from __future__ import annotations

from rocketray.groups.journal.group_journal import EntryKind, GroupJournals

from .group_offsets import GroupOffsets
from .group_subscriptions import GroupSubscriptions


class LaterQueues:
    """The beginnings of all groups in queues that are added."""

    def __init__(
        self, subscriptions: GroupSubscriptions, offsets: GroupOffsets, journals: GroupJournals
    ) -> None:
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._journals = journals
        self._readers_of_deleted: dict[str, set[str]] = {}

    def note_deleted(self, topic: str) -> None:
        """Remember the groups of *topic*, before it is deleted."""
        self._readers_of_deleted.setdefault(topic, set()).update(self._subscriptions.sharing(topic))

    def forget_group(self, group: str) -> None:
        """Forget a deleted group: one of the same name begins where its ``start=`` says."""
        for readers in self._readers_of_deleted.values():
            readers.discard(group)

    def will_come(self, topic: str, queues: range) -> None:
        """Have each group of *topic* begin at the first message of *queues*, which are added now.

        A queue in which a group has an offset is left alone.
        """
        deleted = self._readers_of_deleted.pop(topic, ())
        for group in {*self._subscriptions.sharing(topic), *deleted}:
            fresh = {q: (-1, 0) for q in queues if self._offsets.get(group, topic, q) < 0}
            self._journals.note(EntryKind.BEGIN, group, topic, fresh)
            for queue in fresh:
                self._offsets.begin(group, topic, queue, 0)
