"""``rocketray metrics``: the node's metrics for Prometheus, over HTTP or printed once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    DATA_DEFAULT,
    DataOption,
    ListenAddressOption,
    ListenPortOption,
)
from rocketray.cli.terminal.output import print_line, progress
from rocketray.runtime.signal_handlers import stop_signals

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from rocketray.messaging.api.node_client import NodeClient


def metrics(
    *,
    host: ListenAddressOption = "127.0.0.1",
    port: ListenPortOption = 5557,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The token that a scrape has to show, Prometheus' credentials_file.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate for TLS, in PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, in PEM.")] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the metrics once, and do not listen.")
    ] = False,
    data: DataOption = DATA_DEFAULT,
) -> None:
    """Serve the node's metrics to Prometheus.

    They are at http://ADDRESS:PORT/metrics until Ctrl-C; "rocketray start --metrics-port PORT" has
    the node serve them itself. The names are RocketMQ 5's, with its
    default port, and those of rocketray's filters. The node is asked at each scrape, so metrics
    cost nothing between two. What does not answer has no samples, and a sample of rocketray_unknown
    with its name.

    Other machines can reach an address that is not loopback, so it needs --token-file,
    --tls-certificate and --tls-key.

    Examples:
        rocketray metrics
        rocketray metrics --once
    """
    from rocketray.services.metrics.metric_families import metrics_of  # slow
    from rocketray.services.metrics.metrics_endpoint import (  # prometheus_client
        Access,
        MetricsEndpoint,
    )

    access = Access(host, port, token_file, tls_certificate, tls_key)
    access.check()
    if once:
        with ask(data) as node:
            print_line(_printed(node))
        return
    with ask(data, stays=True) as connection, stop_signals() as signals:
        endpoint = MetricsEndpoint(lambda: metrics_of(connection), access)
        progress(f"metrics at {endpoint.url}; Ctrl-C stops")
        signals.event.wait()
        endpoint.close()


def _printed(node: NodeClient) -> str:
    from prometheus_client import CollectorRegistry, generate_latest  # 20 ms

    from rocketray.services.metrics.metric_families import metrics_of  # slow

    class Once:
        def collect(self) -> list[Metric]:
            return metrics_of(node)

    registry = CollectorRegistry()
    registry.register(Once())
    return generate_latest(registry).decode().removesuffix("\n")
