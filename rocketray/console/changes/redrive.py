"""Redrives of dead letters with a rate: one at a time for each group, in a thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rocketray.base.json_fields import json_fields
from rocketray.console.facts.console_link import ConsoleLink
from rocketray.errors import ConfigError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.api.node_client import NodeClient

# A step redrives as many letters as a second may have, in one call of the node.
RATE_MAX = 10_000
_STEP_S = 1.0  # a step sends as many letters as a second may have


@dataclass(slots=True)
class RedriveJob:
    """A redrive that runs or has ended; ``rate`` is in letters a second."""

    group: str
    rate: int
    limit: int
    count: int = 0
    is_over: bool = False
    error: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def record(self) -> dict[str, Any]:
        content = json_fields(self)
        del content["group"], content["stop"]
        return content


class Redrives:
    """The redrives since the console started: the last one of each group."""

    def __init__(self, link: ConsoleLink) -> None:
        self._link = link
        self.jobs: dict[str, RedriveJob] = {}

    def begin(self, group: str, chosen: Subscription, rate: int, limit: int) -> RedriveJob:
        """Begin a redrive of at most *limit* letters that match *chosen*.

        Raises:
            ConfigError: one of the group runs, or the rate is out of range.
        """
        running = self.jobs.get(group)
        if running is not None and not running.is_over:
            raise ConfigError(f"a redrive of group {group!r} runs; stop it, or wait for its end")
        if not 1 <= rate <= RATE_MAX:
            raise ConfigError(f"the rate is {rate}; give 1 to {RATE_MAX} letters a second")
        job = RedriveJob(group, rate, limit)
        thread = threading.Thread(target=self._run, args=(job, chosen), name="redrive", daemon=True)
        thread.start()  # first: a redrive whose thread cannot be started is none that runs
        self.jobs[group] = job
        return job

    def stop(self, group: str) -> None:
        """Stop the redrive of a group after its current step."""
        if group in self.jobs:
            self.jobs[group].stop.set()

    def close(self) -> None:
        for job in self.jobs.values():
            job.stop.set()

    def _run(self, job: RedriveJob, chosen: Subscription) -> None:
        try:
            while job.count < job.limit and not job.stop.is_set():
                some = min(job.rate, job.limit - job.count)
                sent = self._link.ask(partial(_redrive, job.group, chosen, some))
                job.count += sent
                if sent < some or job.stop.wait(_STEP_S):
                    break
        except (StreamError, OSError) as error:
            job.error = str(error)
        except Exception as error:  # noqa: BLE001  # else the page shows an end without a failure
            job.error = f"it failed: {error!r}"
        finally:
            job.is_over = True


def _redrive(group: str, chosen: Subscription, most: int, node: NodeClient) -> int:
    return node.letters.redrive(group, chosen, None, most)
