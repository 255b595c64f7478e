"""The metrics endpoint in the process that runs a node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from rocketray.errors import ActorError, ConfigError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from rocketray.actors.client.connection import Connection
    from rocketray.actors.cluster.node import Node
    from rocketray.actors.metrics.metrics_endpoint import MetricsEndpoint

__all__ = ["LOOPBACK", "NodeMetrics"]

LOOPBACK = "127.0.0.1"


class NodeMetrics:
    """The node's metrics, if a port is given; until :meth:`begin` a scrape is told that it starts.

    The endpoint listens before the node starts, so a wrong option or a taken port is told at once.
    """

    def __init__(
        self,
        port: int | None,
        host: str,
        token_file: Path | None,
        certificate: Path | None,
        key: Path | None,
    ) -> None:
        self.url: str | None = None
        self._connection: Connection | None = None
        self._endpoint: MetricsEndpoint | None = None
        if port is None:
            if (host, token_file, certificate, key) != (LOOPBACK, None, None, None):
                raise ConfigError("the options --metrics-… need a port: give --metrics-port, too")
            return
        from rocketray.actors.metrics.metrics_endpoint import (  # noqa: PLC0415 - NumPy
            Access,
            MetricsEndpoint,
        )

        access = Access(host, port, token_file, certificate, key, "--metrics-")
        self._endpoint = MetricsEndpoint(self._read, access)
        self.url = self._endpoint.url

    def begin(self, node: Node) -> None:
        """Serve the metrics of a node that is ready."""
        if self._endpoint is not None:
            self._connection = node.connection()

    def _read(self) -> list[Metric]:
        from rocketray.actors.metrics.metric_families import (  # noqa: PLC0415 - NumPy
            metrics_of,
        )

        if self._connection is None:
            raise ActorError("it starts, or stops; scrape again")
        return metrics_of(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection = None
        if self._endpoint is not None:
            self._endpoint.close()
