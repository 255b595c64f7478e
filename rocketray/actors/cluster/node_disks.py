"""The disks of a cluster, as the coordinator reaches them: by calls to the agent on each.

The first disk has its agent in the coordinator itself. While its machine is down, and the
coordinator runs elsewhere (standby.py), that disk does not answer.

No call waits for a disk that does not answer longer than a few seconds, and none is made to a disk
whose agent has ended, or has not answered a question for ``_SILENCE_S``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate

from rocketray.actors.client.ray_transport import begin
from rocketray.base.names import disk_words
from rocketray.broker.disks.copy_rounds import RoundProgress
from rocketray.broker.disks.disk_agent import DiskAgent
from rocketray.broker.disks.disk_register import DiskRegister
from rocketray.broker.disks.disks_api import CopiedQueue, DiskApi, DiskReport, agent_of
from rocketray.broker.shards.shard_api import ShardApi, ShardStatistics, shard_of
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.errors import ConfigError, ShardUnavailableError
from rocketray.runtime.calls.endpoint import Arguments
from rocketray.runtime.files.file_documents import Documents
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import (
    RayError,
    RayTaskError,
    raised_there,
    ray,
)

_LOG = logging.getLogger(__name__)
_REPORT_S = 2.0
_SILENCE_S = 6.0
"""A disk whose machine is busy answers later than ``_REPORT_S``; it is there all the same."""
_CALL_S = 10.0  # by then the looks have found a silent disk, and the next call raises at once


class NodeDisks:
    """The agents of all disks, the ``MovingDisks``; safe to use from several threads."""

    def __init__(self, home: Home, own: DiskAgent | None, documents: Documents) -> None:
        """Load the disks from *documents*; the first one, at *home*, has the agent *own*, if any.

        Raises as :class:`DiskRegister`.
        """
        self._cluster = home.cluster
        self.register = DiskRegister(home, documents)
        self._own = own
        self._asked: dict[str, tuple[Any, float]] = {}
        """The question to each disk that it has not answered, and when that was asked."""
        self._kept: dict[str, dict[str, Any]] = {}
        """The catalog that each joined disk keeps, as JSON."""
        self._keeping: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def look(self, joining: str = "") -> list[str]:
        """Ask each disk for its report; return those that have started since the last time.

        The disk that is *joining* has a new agent, so what the last one was asked is forgotten.
        A restored disk is asked from its join on: until then, its home is that of the original.
        """
        self._asked.pop(joining, None)
        own = None if self._own is None else self._own.report()
        found: list[tuple[str, DiskReport | None]] = [("", own)]
        # One question at a time: a disk that is busy answers that of an earlier look.
        for disk in self.register.homes:
            if disk and disk not in self._asked and not self.register.awaits(disk):
                try:
                    call = begin(self._cluster, agent_of(disk), DiskApi.report)
                except ShardUnavailableError:
                    found.append((disk, None))
                else:
                    self._asked[disk] = call, time.monotonic()
        calls = [call for call, _ in self._asked.values()]
        answers = ray.wait(calls, num_returns=len(calls), timeout=_REPORT_S)[0] if calls else []
        for disk, (call, asked_s) in list(self._asked.items()):
            if call in answers:
                found.append((disk, _report(call)))
                del self._asked[disk]
            elif time.monotonic() - asked_s >= _SILENCE_S:
                found.append((disk, None))
                del self._asked[disk]
        started = [disk for disk, report in found if self.register.take_report(disk, report)]
        for disk in started:
            self._kept.pop(disk, None)
        return [disk for disk in started if disk]

    def check(self, disk: str) -> Home:
        """Return the home of a disk that answers.

        Raises:
            ShardUnavailableError: it does not, or it is not of this cluster.
        """
        home = self.register.homes.get(disk)
        is_own = not disk and self._own is not None
        if home is None or not (is_own or disk in self.register.reports):
            raise ShardUnavailableError(disk_words(disk), _away(home))
        return home

    def keep_catalog(self, disk: str, catalog: Callable[[], TopicCatalog]) -> None:
        """Have a disk keep the present *catalog* of its topics, if that has changed.

        Raises:
            ShardUnavailableError: the disk does not answer. StoreError: it cannot be written.
        """
        if not disk:
            return
        with self._keeping[disk]:  # a later catalog is written later
            part = catalog().of_disk(disk)
            written = {name: topic.to_json() for name, topic in part.topics.items()}
            if self._kept.get(disk) != written:
                self._call(disk, DiskApi.keep_catalog, part)
                self._kept[disk] = written

    def remove_files(self, topic: TopicConfig) -> None:
        """Remove the files of a deleted topic from all disks but the coordinator's own.

        Raises:
            ShardUnavailableError: a disk does not answer. StoreError, OSError: a file stays.
        """
        for disk in topic.by_disk():
            if disk or self._own is None:
                self._call(disk, DiskApi.remove_files, topic)

    def copy_queue(
        self, topic: TopicConfig, queue_id: int, target: str, *, is_closed: bool
    ) -> CopiedQueue:
        """See ``MovingDisks``; waits as long as the target answers."""
        self.check(target)
        source = topic.disk_of(queue_id)
        agent, copy = agent_of(target), DiskApi.copy_queue
        call = begin(self._cluster, agent, copy, topic, queue_id, source, is_closed=is_closed)
        while call not in ray.wait([call], timeout=_REPORT_S)[0]:
            self.check(target)
            self.check(source)
        found: CopiedQueue = self._result(target, call)
        return found

    def copy_progress(self, disk: str, topic: str, queue_id: int) -> RoundProgress:
        found: RoundProgress = self._call(disk, DiskApi.copy_progress, topic, queue_id)
        return found

    def remove_queue(
        self, disk: str, topic: str, queue_id: int, store_host: tuple[str, int]
    ) -> None:
        self._call(disk, DiskApi.remove_queue, topic, queue_id, store_host)

    def check_target(self, disk: str) -> None:
        if disk not in self.register.homes:
            known = ", ".join(name or self.register.homes[""].uuid for name in self.register.homes)
            raise ConfigError(f"the cluster has no disk {disk!r:.60}; its disks: {known}")
        if disk in self.register.draining:
            raise ConfigError(f"disk {disk} is being drained: end that first")
        self.check(disk)

    def end_of(self, topic: TopicConfig, queue_id: int) -> int:
        """Return the end of a queue on another disk than the coordinator's own.

        Raises:
            ShardUnavailableError: the disk does not answer.
        """
        self.check(topic.disk_of(queue_id))
        call = begin(self._cluster, shard_of(topic, queue_id), ShardApi.statistics)
        found: ShardStatistics = self._result(topic.disk_of(queue_id), call)
        return found.max_queue_offset

    def _call(
        self,
        disk: str,
        method: Callable[Concatenate[DiskApi, Arguments], object],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Any:
        self.check(disk)
        return self._result(
            disk, begin(self._cluster, agent_of(disk), method, *arguments, **options)
        )

    def _result(self, disk: str, call: Any) -> Any:
        home = self.register.homes[disk]
        try:
            return ray.get(call, timeout=_CALL_S)
        except RayTaskError as error:
            raise raised_there(error, Path(home.data)) from None
        except RayError as error:
            raise ShardUnavailableError(disk_words(disk), _away(home)) from error


def _report(call: Any) -> DiskReport | None:
    try:
        report: DiskReport = ray.get(call)
    except RayError as error:
        _LOG.warning("the agent of a disk failed: %r", error)
        return None
    return report


def _away(home: Home | None) -> str:
    if home is None:
        return "it is not a disk of this cluster"
    return f"{home.data} on {home.machine} does not answer"
