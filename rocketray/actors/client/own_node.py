"""The transports to a node of this process: they are told when it loses its Ray.

A call would show it later, or wait for ever; and of a node that ends in this process, each call
says why.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from rocketray.errors import StreamError
from rocketray.runtime.one_process import OfOneProcess

if TYPE_CHECKING:
    from rocketray.messaging.producers.producer import NodeProducer

_TRANSPORTS: WeakSet[ToldTransport] = WeakSet()
"""Those of this process."""


os.register_at_fork(after_in_child=_TRANSPORTS.clear)  # a fork has no node that could be lost


def lose_node(data: Path, error: StreamError) -> None:
    """Have every client of this process of the node on *data* raise *error* from now on."""
    for transport in list(_TRANSPORTS):
        if transport.coordinator_data == data:
            transport.lose(error)


class ToldTransport(OfOneProcess, what="client"):
    """A transport, and the producers that use it."""

    def __init__(self, coordinator_data: Path) -> None:
        self.coordinator_data = coordinator_data
        self._left: StreamError | None = None
        self._producers: WeakSet[NodeProducer] = WeakSet()
        _TRANSPORTS.add(self)

    def keep(self, producer: NodeProducer) -> None:
        """Have *producer* told when the node is lost."""
        self._producers.add(producer)

    def lose(self, error: StreamError) -> None:
        """Raise *error* from now on."""
        self._left = error
        for producer in list(self._producers):
            producer.lose(error)

    def check_left(self) -> None:
        """Raise the error of a node that is lost."""
        if self._left is not None:
            raise self._left
