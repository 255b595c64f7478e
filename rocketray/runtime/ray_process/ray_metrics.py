"""Ray's metrics: whether the Ray node of this process exports any, and the calls that record them.

A bare ``ray`` has no agent, so what is recorded with it goes nowhere; ``ray[default]`` has one.
"""

from __future__ import annotations

from typing import Any

from .ray_runtime import ray


def exports_metrics() -> bool:
    """Return whether an agent of the Ray node that this process is on exports metrics."""
    own = ray.get_runtime_context().get_node_id()
    ports = [node.get("MetricsExportPort", -1) for node in ray.nodes() if node["NodeID"] == own]
    return any(port > 0 for port in ports)


def instruments() -> Any:
    from ray.util import metrics  # noqa: PLC0415 - not in every process

    return metrics
