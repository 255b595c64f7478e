"""What programs outside of a node's processes use: a client and producers."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Unpack

from rocketray.actors.client.connected_client import ConnectedClient, open_transport
from rocketray.base.cluster import chosen_node
from rocketray.errors import StreamError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import MemberOptions
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.producer_options import ProducerOptions, batch_settings

__all__ = ["AsyncProducer", "Client", "Producer"]

_LOG = logging.getLogger(__name__)
_PLACE = ("data", "cluster", "ray_address")  # a mistyped option may stand for one of these, too


class Client(ConnectedClient):
    """A connection for queries and administration, which connects at once.

    ``Client(data)`` uses the node on that directory, on this machine, over the node's own socket.
    ``Client(cluster=name)`` uses the cluster of that name on the Ray at *ray_address*, from any of
    its machines; the address is by default that of RAY_ADDRESS, or of the Ray that was started on
    this machine.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        cluster: str | None = None,
        ray_address: str | None = None,
    ) -> None:
        super().__init__(open_transport(chosen_node(data, cluster, ray_address)))
        self._doubted: set[tuple[str, Subscription]] = set()

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription | FilterName,
        **options: Unpack[MemberOptions],
    ) -> GroupConsumer:
        """Return a new member of *group*; see :class:`MemberOptions`.

        A named filter of the topic is given as ``FilterName("large")``, or ``FilterName("large",
        2)`` for that version. Without a version it is the one that the group reads, if it has
        members and reads the same filter, else the latest one; ``member.subscription`` says which.

        Logs a warning, once for each topic and filter, if the filter most likely rejects messages
        that are wanted.
        """
        member = super().consumer(group, topic, subscription, **options)
        if (topic, member.subscription) not in self._doubted:
            self._doubted.add((topic, member.subscription))
            _warn_of_doubts(self, group, topic, member.subscription)
        return member


class Producer(NodeProducer):
    """A producer for the node on *data*: ``with Producer() as producer: producer.send(…)``."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        cluster: str | None = None,
        ray_address: str | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Connect as :class:`Client` does; the options are those of :class:`ProducerOptions`."""
        batch_settings(options, _PLACE)  # checked before anything is opened
        self._transport = open_transport(chosen_node(data, cluster, ray_address))
        super().__init__(ConnectedClient(self._transport), **options)
        self._transport.keep(self)

    def close(self) -> None:
        """Flush and release everything; raises as :meth:`flush`, and is closed nevertheless."""
        try:
            super().close()
        finally:
            self._transport.close()


class AsyncProducer(NodeAsyncProducer):
    """A producer for tasks: ``async with AsyncProducer() as producer: await producer.send(…)``."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        cluster: str | None = None,
        ray_address: str | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Take the options of :class:`Producer`; it connects when it is opened."""
        batch_settings(options, _PLACE)
        place = {"cluster": cluster, "ray_address": ray_address}
        super().__init__(partial(Producer, data, **place, **options))


def _warn_of_doubts(node: Client, group: str, topic: str, subscription: Subscription) -> None:
    """Log doubts about a filter, as apps and commands do; unreadable files are no error here."""
    try:
        for line in node.doubts([topic], subscription):
            _LOG.warning("group %s: %s", group, line)
    except (StreamError, OSError) as error:
        _LOG.debug("the filter of group %s was not compared with messages: %s", group, error)
