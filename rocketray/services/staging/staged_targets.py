"""The queues of decided messages: their shards store frames from the fragments of their own disk.

The bytes of a fragment go by calls to a shard on another disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rocketray.base.system_topics import WAITING_QUEUES
from rocketray.broker.retries.deliveries import Place, portions
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.files.fragment_file import FragmentFrame, read_frame
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.runtime.ipc.append_status import refusal

# A call names the frames, and the shard reads them from the fragment: so much is in its memory.
_CALL_BYTES = 8 * 1024 * 1024
# To another disk the bytes themselves travel, as arguments of a Ray call: in memory on both sides.
_REMOTE_CALL_BYTES = 1024 * 1024


class StagedTargets:
    """The shards of the topics of a node, from the disk that has the fragments."""

    def __init__(self, find_node: Callable[[], NodeClient]) -> None:
        """Take *find_node*, which is called when the first messages are stored."""
        self._find_node = find_node

    def store(
        self, place: Place, fragment: Path, frames: Sequence[FragmentFrame], *, in_doubt: bool
    ) -> None:
        """See ``FragmentTargets``; in another queue if the topic was created again with fewer."""
        topic, queue_id = place
        node = self._find_node()
        if topic in WAITING_QUEUES:
            node.topics.ensure(topic, WAITING_QUEUES[topic])
        config = node.topics.get(topic)
        queue_id %= config.queues
        is_here = config.disk_of(queue_id) == node.disk
        shard = node.shard_calls(config, queue_id)
        for some in _portions(frames, _CALL_BYTES if is_here else _REMOTE_CALL_BYTES):
            content = () if is_here else tuple(read_frame(fragment, frame) for frame in some)
            ack = shard.append_staged(fragment.name, some, *content, in_doubt=in_doubt)
            if ack.status is not AppendStatus.OK:
                raise refusal(ack.status, f"{topic}/{queue_id}", node.data)


def _portions(frames: Sequence[FragmentFrame], most: int) -> Iterator[list[FragmentFrame]]:
    return portions(frames, lambda frame: frame.size, most)
