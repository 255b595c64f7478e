"""The metrics endpoint in the process that runs a node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from rocketray.cli.terminal.output import progress
from rocketray.errors import ActorError, ConfigError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from rocketray.actors.client.connection import Connection
    from rocketray.actors.cluster.node import Node
    from rocketray.services.metrics.metrics_endpoint import MetricsEndpoint
    from rocketray.services.metrics.ray_mirror import RayMirror

LOOPBACK = "127.0.0.1"
_NO_AGENT = (
    "--ray-metrics has no effect: the Ray of this node exports no metrics, because it has no agent; "
    "install ray[default] on its machines, start Ray there without --include-dashboard=false, and "
    "join it with --ray-address; a Ray that the node starts itself never has one"
)


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
        self._mirror: RayMirror | None = None
        if port is None:
            if (host, token_file, certificate, key) != (LOOPBACK, None, None, None):
                raise ConfigError("the options --metrics-… need a port: give --metrics-port, too")
            return
        from rocketray.services.metrics.metrics_endpoint import (  # noqa: PLC0415 - not for help
            Access,
            MetricsEndpoint,
        )

        access = Access(host, port, token_file, certificate, key, "--metrics-")
        self._endpoint = MetricsEndpoint(self._read, access)
        self.url = self._endpoint.url

    def begin(self, node: Node, *, with_ray: bool) -> None:
        """Serve the metrics of a node that is ready; *with_ray*, have its Ray export them, too."""
        if self._endpoint is not None or with_ray:
            self._connection = node.connection()
        if with_ray:
            from rocketray.runtime.ray_process import ray_metrics  # noqa: PLC0415 - Ray
            from rocketray.services.metrics.ray_mirror import RayMirror  # noqa: PLC0415 - optional

            if not ray_metrics.exports_metrics():
                progress(_NO_AGENT)
                return
            self._mirror = RayMirror(self._read, ray_metrics.instruments())
            self._mirror.start()

    def _read(self) -> list[Metric]:
        from rocketray.services.metrics.metric_families import (  # noqa: PLC0415 - not for help
            metrics_of,
        )

        if self._connection is None:
            raise ActorError("it starts, or stops; scrape again")
        return metrics_of(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._mirror is not None:
            self._mirror.close()
        self._connection = None
        if self._endpoint is not None:
            self._endpoint.close()
