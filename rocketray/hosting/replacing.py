"""New code for an app that is up: its hosts are replaced, one at a time.

Order
  1. A further host starts with the new code. Where it fails, nothing was ended, and the roll stops.
  2. When it runs, a host with the old code is drained and ended. Then the next one.
  3. The sinks are last: two hosts of them would run the same queries, so theirs is ended first. By
     then the hosts of agents have shown that the new code can be imported.

An app with broadcast agents has no two members of one name on a machine: each of its hosts ends
before its successor starts. Hosts that run the new version already are left alone, so a roll that
was stopped can be repeated; unless a filter of theirs is outdated, whose name the code has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rocketray.errors import ActorError, ConfigError
from rocketray.topology.app.app import App
from rocketray.topology.app.spark_options import SparkOptions

from .code_archive import CodeArchive
from .code_upload import upload
from .code_version import CodeVersion
from .host_actors import take_down
from .host_placement import nodes_with
from .host_plan import HostPlan
from .host_status import SINKS, Host, HostNumber
from .hosting import check_checkpoints, start_hosts


@dataclass(frozen=True, slots=True)
class Replacement:
    """What is to replace the hosts: the app's new code, which this process has imported.

    ``outdated`` are hosts to replace whatever code they run.
    """

    plan: HostPlan
    app: App
    version: CodeVersion
    code: CodeArchive | None = None
    outdated: frozenset[HostNumber] = frozenset()


def replace_hosts(
    new: Replacement,
    hosts: Sequence[Host],
    tell: Callable[[str], object],
    is_given_up: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Replace those of *hosts* that run other code, or are outdated.

    *tell* gets a sentence for each step.

    Returns the sentences of :func:`take_down`.

    Raises:
        ConfigError: the new code has sinks that cannot run there.
        ActorError: a host did not start with the new code; it says which hosts run which.
    """
    old = [
        host
        for host in hosts
        if host.number in new.outdated or not new.version.is_same(_version(host))
    ]
    if not old:
        tell(f"all hosts of app {_id(new)!r} run version {new.version} already")
        return []
    plan = new.plan
    if new.app.sinks and plan.directory is None:
        check_checkpoints(new.app.sinks.values())
    if new.code is not None:
        nodes_with(plan.labels)  # raises before the upload
        plan = replace(plan, code=upload(new.code))
    roll = _Roll(new, plan, list(hosts), tell, is_given_up)
    for host in old:
        if host.number != SINKS:
            roll.replace_agents(host)
    sinks = next((host for host in old if host.number == SINKS), None)
    roll.replace_sinks(sinks)
    return roll.said


class _Roll:
    """The steps, and which hosts there are."""

    def __init__(
        self,
        new: Replacement,
        plan: HostPlan,
        hosts: list[Host],
        tell: Callable[[str], object],
        is_given_up: Callable[[], bool],
    ) -> None:
        self._new, self._plan, self._hosts = new, plan, hosts
        self._tell, self._is_given_up = tell, is_given_up
        self.said: list[str] = []
        """What :func:`take_down` said."""

    def replace_agents(self, host: Host) -> None:
        overlaps = not any(
            agent.membership is not None and agent.membership.is_broadcast
            for agent in self._new.app.agents.values()
        )
        number = host.number
        if overlaps:
            taken = {each.number for each in self._hosts}
            # The new host needs a name before the old one has given its own back.
            number = next(each for each in range(len(taken) + 1) if each not in taken)
        else:
            self._end(host)
        assert number != SINKS
        self._start(host, number, None)
        if overlaps:
            self._end(host)
        self._tell(f"{host.label}: host {number} runs version {self._new.version} in its place")

    def replace_sinks(self, host: Host | None) -> None:
        """Replace the host of the sinks; start one if only the new code has sinks."""
        if host is not None:
            self._end(host)
        if self._new.app.sinks and SINKS not in {each.number for each in self._hosts}:
            self._start(None, None, self._new.app.spark)
            self._tell(f"the sinks of app {_id(self._new)!r} run version {self._new.version}")

    def _start(self, host: Host | None, number: int | None, spark: SparkOptions | None) -> None:
        what = f"the sinks of app {_id(self._new)!r}" if host is None else host.label
        try:
            start_hosts(
                self._plan,
                _id(self._new),
                [] if number is None else [number],
                self._is_given_up,
                detached=True,
                spark=spark,
            )
        except (ActorError, ConfigError) as error:
            raise ActorError(f"{what}: the roll stopped: {error}; {self._now(host)}") from error
        started = SINKS if number is None else number
        self._hosts.append(
            Host(_id(self._new), started, "running", 0, None, cluster=self._plan.cluster)
        )

    def _end(self, host: Host) -> None:
        self.said += take_down([host])
        self._hosts.remove(host)

    def _now(self, failed: Host | None) -> str:
        """Return which hosts run which code, that *failed* is down if it was ended, what to do."""
        old = [str(each.number) for each in self._hosts if each.status is not None]
        new = [str(each.number) for each in self._hosts if each.status is None]
        said = [
            f"still with the code that they had: hosts {', '.join(old)}" if old else "",
            f"with version {self._new.version}: hosts {', '.join(new)}" if new else "",
            "down: the sinks" if failed is None else "",
            "" if failed is None or failed in self._hosts else f"down: host {failed.number}",
        ]
        return f"{'; '.join(filter(None, said))}; correct the code, then run this command again"


def _id(new: Replacement) -> str:
    return str(new.app.conf.id)


def _version(host: Host) -> CodeVersion | None:
    return None if host.status is None else host.status.version
