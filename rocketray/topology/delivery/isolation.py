"""A handler for each queue: agents with ``isolated_partitions=True``.

The agent has one member and one feed, like every agent. The feed passes each delivery to the
handler of its queue. The first delivery starts that handler, and the revocation of the queue ends
it. So a handler sees one queue, in order, and the state in its variables belongs to that queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from faust.types.tuples import TP

from rocketray.errors import ConfigError
from rocketray.topology.values.topic import Topic

from .delivery import Delivery


def check_isolation(agent: str, channel: Any, concurrency: int, *, ordered: bool | None) -> None:
    """Raise :class:`ConfigError` for options that an agent with isolated queues cannot have."""
    if not (channel is None or isinstance(channel, str | Topic)):
        raise ConfigError(f"agent {agent}: isolated_partitions= needs a topic, which has queues")
    if concurrency != 1:
        raise ConfigError(
            f"agent {agent}: isolated_partitions= has one handler for each queue, concurrency= "
            "several for all queues; leave one of the two out"
        )
    if ordered is False:
        raise ConfigError(
            f"agent {agent}: with isolated_partitions= a failed message is retried in its own "
            "queue; leave ordered=False out"
        )


class Isolation:
    """The handlers of one agent, by queue: the queue of the channel that its feed fills.

    Used on the app's loop only.
    """

    def __init__(self, agent: Any, channel: Topic) -> None:
        self._agent = agent
        self._channel = channel
        self._channels: dict[TP, Topic] = {}

    def force_put_nowait(self, delivery: Delivery) -> None:
        """Pass *delivery* to the handler of its queue."""
        queue = TP(delivery.topic, delivery.queue_id)
        if queue not in self._channels:
            channel = self._channel.clone(is_iterator=True, active_partitions={queue})
            self._channels[queue] = channel
            self._agent.add_future(self._agent.start_isolated(channel))
        self._channels[queue].queue.force_put_nowait(delivery)

    def is_open(self, channel: Any) -> bool:
        """Return whether the handler that reads *channel* may get more."""
        return channel in self._channels.values()

    def end(self, topic: str, queue_ids: Iterable[int]) -> None:
        """End the handlers of these queues: they get nothing more."""
        for queue_id in queue_ids:
            channel = self._channels.pop(TP(topic, queue_id), None)
            if channel is not None:
                self._agent.add_future(self._agent.end_isolated(channel))
