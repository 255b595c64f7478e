"""Whether what an app stored was on disk when it committed the offsets of what came before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import orjson
import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.topics.ownership_record import epoch_of
from rocketray.message import SHARDING_KEY, StoredMessage
from rocketray.messaging.consumers.app_member import AppMember
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.topology.tables.key_form import changed_key


class Input(NamedTuple):
    """The message that an app was given when it stored another one."""

    topic: str
    queue_id: int
    queue_offset: int


class CommitWatch:
    """Looks, whenever a member commits, which messages behind that commit power loss would take.

    The app may be storing messages of later input meanwhile: those may wait for a later commit.
    """

    def __init__(
        self,
        node: LocalNode,
        monkeypatch: pytest.MonkeyPatch,
        input_of: Callable[[StoredMessage], Input],
        *topics: str,
    ) -> None:
        """*input_of* says of a message in one of *topics* which input, or the last one, it is of."""
        self._node = node
        self._input_of = input_of
        self._topics = topics
        self.seen = 0
        """How many messages of the topics there were at the last commit."""
        self.endangered: list[StoredMessage] = []
        group_commit, app_commit = GroupConsumer.commit, AppMember.commit

        def of_group(member: GroupConsumer, topic: str, queue_id: int, offset: int) -> None:
            self.look({(topic, queue_id): offset})
            group_commit(member, topic, queue_id, offset)

        def of_app(member: AppMember, offsets: Mapping[tuple[str, int], int]) -> None:
            self.look(offsets)
            app_commit(member, offsets)

        monkeypatch.setattr(GroupConsumer, "commit", of_group)
        monkeypatch.setattr(AppMember, "commit", of_app)

    def look(self, committed: Mapping[tuple[str, int], int]) -> None:
        """Compare what a commit of these next queue offsets covers with what is on disk."""
        self.seen = 0
        for topic in self._node.topics.all().keys() & set(self._topics):
            for queue_id in range(self._node.topics.get(topic).queues):
                writer = self._node.shard(topic, queue_id).writer
                flushed = writer.control.flushed()  # first: what comes to disk now comes too late
                for message in writer.store.reads.scan():
                    if epoch_of(message) is not None:
                        continue  # it is of no input
                    self.seen += 1
                    if message.physical_offset + message.size > flushed:
                        given = self._input_of(message)
                        if given.queue_offset < committed.get(given[:2], 0):
                            self.endangered.append(message)


def summed_input(node: LocalNode, topic: str) -> Callable[[StoredMessage], Input]:
    """Say of a change the last input that it is of, where a table sums the numbers of *topic*."""

    def input_of(change: StoredMessage) -> Input:
        key, wanted = orjson.loads(changed_key(change)), int(change.body)
        total, offsets = 0, []
        for message in node.shard(topic, change.queue_id).writer.store.reads.scan():
            if message.properties[SHARDING_KEY] == key:
                total += int(message.body)
                if total == wanted:
                    offsets.append(message.queue_offset)
        return Input(topic, change.queue_id, offsets[-1])

    return input_of
