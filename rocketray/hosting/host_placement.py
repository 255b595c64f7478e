"""The machines of an app's hosts, and the options that start an actor on one of them.

- An app that is brought up on a data directory is imported from a directory, and its hosts stay on
  that machine. An app of a cluster that is named may run on every machine: its code is an archive
  that Ray unpacks there (code_upload.py), or it is installed there.
- Hosts are started on the machines that have the fewest of them. Ray's own strategy SPREAD may put
  two of two on one machine, and a soft affinity is not followed for actors without resources. So an
  actor asks for the label of one Ray node, and when that node has gone, for the plan's labels only.
- A host takes no CPUs in Ray, so Ray would put it on a machine with --num-cpus=0, too, which keeps
  the work of programs away. Such machines are left out unless the plan has labels, or none of the
  machines has CPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rocketray.errors import ConfigError
from rocketray.runtime.ray_process.ray_runtime import (
    NODE_LABEL,
    label_of_machine,
    namespace_of,
    ray,
)

from .host_plan import HostPlan

_OPTIONS: Mapping[str, Any] = {
    # Without a limit: a host that fails at each start pauses itself (host.py).
    "max_restarts": -1,
    "max_task_retries": -1,
    "max_concurrency": 4,  # status while another call waits for the start or the stop
}


def plan_here(path: str, cluster: str, directory: str, data: str | None = None) -> HostPlan:
    """Return a plan for hosts on this machine, which import from a directory of it."""
    return HostPlan(path, cluster, directory, labels=(label_of_machine(),), data=data)


def host_options(
    plan: HostPlan, ray_node: str, num_cpus: float = 0, *, left_out: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the options of an actor that is to start on *ray_node*, with CPUs of its own.

    When that node is gone, those that are *left_out* are the last choice.
    """
    wanted = dict(plan.labels)
    fallbacks = [wanted]
    if left_out:
        fallbacks.insert(0, {**wanted, NODE_LABEL: f"!in({','.join(left_out)})"})
    options = {
        **_OPTIONS,
        "num_cpus": num_cpus,
        "namespace": namespace_of(plan.cluster),
        "label_selector": {**wanted, NODE_LABEL: ray_node},
        "fallback_strategy": [{"label_selector": each} for each in fallbacks],
    }
    if plan.code is not None:
        options["runtime_env"] = {"working_dir": plan.code}
    return options


def nodes_with(labels: Sequence[tuple[str, str]], num_cpus: float = 0) -> list[str]:
    """Return the ids of the Ray nodes that have all *labels*, and CPUs for an actor.

    Without labels, those that :func:`without_cpus` returns are left out.

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
    large = [each for each in found if num_cpus <= _cpus(each)]
    if not large and num_cpus:
        raise ConfigError(
            f"no machine of the Ray has num_cpus={num_cpus:g}, which the app's SparkOptions "
            "reserve; reserve fewer, or none"
        )
    left_out = {*without_cpus(labels)}
    ids = [each["Labels"][NODE_LABEL] for each in (large if num_cpus else found)]
    return [each for each in ids if each not in left_out]


def without_cpus(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Return the ids of the Ray nodes without CPUs, if hosts are to leave them out.

    They are not if there are *labels*, which ask for machines, or if no node has CPUs.
    """
    alive = [each for each in ray.nodes() if each["Alive"]]
    found = [each["Labels"][NODE_LABEL] for each in alive if not _cpus(each)]
    return [] if labels or len(found) == len(alive) else found


def _cpus(node: Mapping[str, Any]) -> float:
    return float(node.get("Resources", {}).get("CPU", 0))


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
