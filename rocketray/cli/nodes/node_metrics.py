"""The metrics endpoint in the process that runs a node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from rocketray.cli.terminal.output import progress
from rocketray.errors import ActorError, ConfigError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from rocketray.actors.client.connection import Connection
    from rocketray.actors.cluster.node import Node
    from rocketray.services.metrics.metrics_endpoint import MetricsEndpoint
    from rocketray.services.metrics.ray_mirror import RayMirror

_NO_AGENT = (
    "--ray-metrics has no effect: the Ray of this node exports no metrics, because it has no agent; "
    "install ray[default] on its machines, start Ray there without --include-dashboard=false, and "
    "join it with --ray-address; a Ray that the node starts itself never has one"
)


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """The options of ``rocketray start`` about metrics."""

    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve the node's metrics to Prometheus there; 0 for any free port. See: rocketray "
            "metrics --help.  [default: not at all]",
        ),
    ] = None
    metrics_host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address on which to serve the metrics.")
    ] = "127.0.0.1"
    metrics_token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The token that a scrape of the metrics has to show."),
    ] = None
    metrics_tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The metrics' certificate, in PEM.")
    ] = None
    metrics_tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its key, in PEM.")
    ] = None
    ray_metrics: Annotated[
        bool,
        typer.Option(
            "--ray-metrics",
            help="Have the Ray that the node joins export the metrics with its own, as ray_...; "
            "samples of single queues are left out.",
        ),
    ] = False


class NodeMetrics:
    """The node's metrics, if a port is given; until :meth:`begin` a scrape is told that it starts.

    The endpoint listens before the node starts, so a wrong option or a taken port is told at once.
    """

    def __init__(self, options: MetricsOptions) -> None:
        self.url: str | None = None
        self._with_ray = options.ray_metrics
        self._connection: Connection | None = None
        self._endpoint: MetricsEndpoint | None = None
        self._mirror: RayMirror | None = None
        if options.metrics_port is None:
            if replace(options, ray_metrics=False) != MetricsOptions():
                raise ConfigError("the options --metrics-… need a port: give --metrics-port, too")
            return
        from rocketray.services.metrics.metrics_endpoint import Access, MetricsEndpoint

        access = Access(
            options.metrics_host,
            options.metrics_port,
            options.metrics_token_file,
            options.metrics_tls_certificate,
            options.metrics_tls_key,
            "--metrics-",
        )
        self._endpoint = MetricsEndpoint(self._read, access)
        self.url = self._endpoint.url

    def begin(self, node: Node) -> None:
        """Serve the metrics of a node that is ready, and have its Ray export them if wanted."""
        if self._endpoint is not None or self._with_ray:
            self._connection = node.connection()
        if self._with_ray:
            from rocketray.runtime.ray_process import ray_metrics  # Ray
            from rocketray.services.metrics.ray_mirror import RayMirror  # optional

            if not ray_metrics.exports_metrics():
                progress(_NO_AGENT)
                return
            self._mirror = RayMirror(self._read, ray_metrics.instruments())
            self._mirror.start()

    def _read(self) -> list[Metric]:
        from rocketray.services.metrics.metric_families import metrics_of

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
