"""What a host of an app reports, and what is found out about it: values, without Ray and Faust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.topology.app.agent_statistics import AgentStatistics
from rocketray.topology.app.loop_stall import LoopStall
from rocketray.topology.app.sink_statistics import SinkStatistics

from .code_version import CodeVersion
from .host_failure import HostFailure
from .host_plan import HostPlan

APP_PREFIX = "app:"
"""What the names of actors begin with that run apps."""
SINKS: Literal["sinks"] = "sinks"
"""The number of the host of an app's sinks."""
HostNumber = int | Literal["sinks"]
HostState = Literal["running", "starting", "restarting", "silent"]
STATUS_TIMEOUT_S = 5.0
"""A host that does not report within this time is silent."""
LOOP_TIMEOUT_S = 3.0
"""A host whose loop does not answer within this time reports without asking it."""


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One instance of an app: where it runs, its agents' counters, and the queues it reads.

    ``plan`` is what further hosts need. ``queues`` are pairs of a topic and a queue id. An app that
    ``has_failed`` starts again soon, in another process. ``logs`` are the files with the process's
    output, and with its log, on its ``machine``. The host of an app's ``sinks`` has no agents.
    ``version`` is that of the code, once it is imported. ``stall`` is what blocks the app's loop,
    so that agents and queues are those of an earlier answer or missing, or what blocked it last.
    """

    plan: HostPlan
    machine: str
    pid: int
    is_running: bool
    agents: tuple[AgentStatistics, ...]
    queues: tuple[tuple[str, int], ...] = ()
    has_failed: bool = False
    logs: tuple[str, ...] = ()
    sinks: tuple[SinkStatistics, ...] = ()
    version: CodeVersion | None = None
    stall: LoopStall | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """One instance of an app; ``status`` is its own report, if it answers.

    A host that does not answer in time is ``silent``; one that failed is ``restarting`` until the
    app starts again in a new process. ``last_error`` is its last fatal failure, if it was reported;
    ``cluster`` is the node's. The host of the app's sinks has the number ``SINKS``.
    """

    app: str
    number: HostNumber
    state: HostState
    restarts: int
    status: HostStatus | None
    last_error: HostFailure | None = None
    cluster: str = DEFAULT_CLUSTER

    @property
    def name(self) -> str:
        return actor_name(self.app, self.number)

    @property
    def label(self) -> str:
        """What it is called in sentences."""
        which = "the sinks" if self.number == SINKS else f"host {self.number}"
        return f"{which} of app {self.app!r}"

    @property
    def full_name(self) -> str:
        """Its name and its cluster's, for what is stored at Ray's head."""
        return full_name(self.cluster, self.name)


def actor_name(app: str, number: HostNumber) -> str:
    return f"{APP_PREFIX}{app}:{number}"


def full_name(cluster: str, name: str) -> str:
    """Return the name of a host for what is stored at Ray's head, which clusters share."""
    return f"{cluster}/{name}"
