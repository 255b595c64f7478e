"""The machines of an app's hosts, and the options that start an actor on one of them.

- An app that is brought up on a data directory is imported from a directory, and its hosts stay on
  that machine. An app of a cluster that is named may run on every machine: its code is an archive
  that Ray unpacks there (code_upload.py), or it is installed there.
- Hosts are started on the machines that have the fewest of them. Ray's own strategy SPREAD may put
  two of two on one machine, and a soft affinity is not followed for actors without resources. So an
  actor asks for the label of one Ray node, and when that node has gone, for the plan's labels only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rocketray.actors.ray_process.ray_runtime import (
    NODE_LABEL,
    label_of_machine,
    namespace_of,
    ray,
)
from rocketray.errors import ConfigError

from .host_plan import HostPlan

__all__ = ["host_options", "least_busy", "nodes_with", "plan_here"]

_OPTIONS: Mapping[str, Any] = {
    "max_restarts": -1,
    "max_task_retries": -1,
    "max_concurrency": 4,  # status while another call waits for the start or the stop
}


def plan_here(path: str, cluster: str, directory: str, data: str | None = None) -> HostPlan:
    """Return a plan for hosts on this machine, which import from a directory of it."""
    return HostPlan(path, cluster, directory, labels=(label_of_machine(),), data=data)


def host_options(plan: HostPlan, ray_node: str, num_cpus: float = 0) -> dict[str, Any]:
    """Return the options of an actor that is to start on *ray_node*, with CPUs of its own."""
    wanted = dict(plan.labels)
    options = {
        **_OPTIONS,
        "num_cpus": num_cpus,
        "namespace": namespace_of(plan.cluster),
        "label_selector": {**wanted, NODE_LABEL: ray_node},
        "fallback_strategy": [{"label_selector": wanted}],
    }
    if plan.code is not None:
        options["runtime_env"] = {"working_dir": plan.code}
    return options


def nodes_with(labels: Sequence[tuple[str, str]], num_cpus: float = 0) -> list[str]:
    """Return the ids of the Ray nodes that have all *labels*, and CPUs for an actor.

    Raises:
        ConfigError: there is none, and Ray would wait for one.
    """
    alive = [each for each in ray.nodes() if each["Alive"]]
    nodes = [each["Labels"] for each in alive]
    found = [each for each in alive if {*labels} <= {*each["Labels"].items()}]
    if not found:
        known = sorted({f"{key}={value}" for each in nodes for key, value in each.items()})
        wanted = " and ".join(f"{key}={value}" for key, value in labels)
        raise ConfigError(
            f"no machine of the Ray has {wanted}; these labels exist: {', '.join(known)}"
        )
    large = [each for each in found if num_cpus <= each.get("Resources", {}).get("CPU", 0)]
    if not large and num_cpus:
        raise ConfigError(
            f"no machine of the Ray has {num_cpus:g} CPUs, which the app's SparkOptions reserve "
            "(num_cpus); reserve fewer, or none"
        )
    return [each["Labels"][NODE_LABEL] for each in (large if num_cpus else found)]


def least_busy(
    nodes: Sequence[str], own: Sequence[str], others: Sequence[str], count: int
) -> list[str]:
    """Return the Ray node for each of *count* further hosts.

    *own* has the node of each host that the app has already, and *others* of those of other apps:
    an app is spread evenly first.
    """
    hosts, all_hosts = Counter(own), Counter([*own, *others])
    chosen: list[str] = []
    for _ in range(count):
        node = min(nodes, key=lambda each: (hosts[each], all_hosts[each]))
        hosts[node] += 1
        all_hosts[node] += 1
        chosen.append(node)
    return chosen
