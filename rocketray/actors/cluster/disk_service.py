"""The coordinator's service for the disks of a cluster: they join, go away, and come back.

A disk joins with the node that is started on it. From then on the catalog may have queues there. A
disk that does not answer is a problem in ``rocketray status``; its queues are closed meanwhile, and
those of other disks are left alone. When it answers again, its shards are started. A full disk is a
problem, too.
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime

from rocketray.base.quantity import agreed, counted
from rocketray.base.system_topics import is_of_service
from rocketray.broker.disks.copy_rounds import RoundProgress
from rocketray.broker.disks.disks_api import DiskReport, MovedQueue
from rocketray.broker.disks.restored_disk import check_places, unknown_queues
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, StreamError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.home import Home
from rocketray.store.retention import FULL, DiskUse

from .cluster_state import ClusterState
from .node_disks import NodeDisks
from .queue_moves import QueueMoves
from .topic_service import TopicService

_LOG = logging.getLogger(__name__)


class DiskService:
    """The object behind ``DisksApi``."""

    def __init__(
        self,
        disks: NodeDisks,
        state: ClusterState,
        topics: TopicService,
        rules: FilterRules,
        moves: QueueMoves,
        *,
        place: Home,
    ) -> None:
        """Take the home, *place*, of the disk on whose machine the coordinator runs."""
        self._disks = disks
        self._state = state
        self._topics = topics
        self._rules = rules
        self._moves = moves
        self._place = place
        now = datetime.fromtimestamp(system_clock_ms() / 1000, UTC)
        self._since = f"{now:%Y-%m-%d %H:%M:%S} UTC"
        self._looking = threading.Lock()

    def homes(self) -> dict[str, Home]:
        return dict(self._disks.register.homes)

    def coordinator_place(self) -> Home:
        return self._place

    def reports(self) -> dict[str, DiskReport]:
        return dict(self._disks.register.reports)

    def rules(self) -> FilterRules:
        return self._rules

    def check(self, disk: str) -> Home:
        """Return the home of a disk that answers; raises as :meth:`NodeDisks.check`."""
        return self._disks.check(disk)

    def join(self, home: Home, kept: TopicCatalog) -> None:
        if home.uuid == self._disks.register.homes[""].uuid:
            raise ConfigError(
                f"{home.data} on {home.machine} is a copy of the data directory of cluster "
                f"{home.cluster!r}, which runs elsewhere: a disk joins with an empty directory"
            )
        if self._disks.register.awaits(home.disk):
            self._check_restored(home, kept)
        self._disks.register.add(home)
        self.look(home.disk)

    def _check_restored(self, home: Home, kept: TopicCatalog) -> None:
        """Check that a restored disk fits; what it has of other topics stays unused."""
        topics = self._state.topics
        check_places(topics.catalog, kept, home)
        topics.use_no_number_below(kept.next_shard_number)
        if unknown := unknown_queues(topics.catalog, kept, home.disk):
            self._state.problems.note(
                f"restored disk {home.disk}",
                f"{home.data} on {home.machine} has queues that the backup of the first disk "
                f"does not have: {', '.join(unknown)}; they are not used: restore a later "
                f"backup of the first disk, or move {home.data}/shards/TOPIC/QUEUE away",
            )

    def move(
        self, topic: str, queue_id: int, disk: str, wait_s: float
    ) -> MovedQueue | RoundProgress:
        return self._moves.move(topic, queue_id, disk, wait_s)

    def set_draining(self, disk: str, draining: bool) -> None:  # noqa: FBT001 - one value
        with self._looking:
            self._disks.register.set_draining(disk, draining=draining)

    def draining(self) -> frozenset[str]:
        return self._disks.register.draining

    def look(self, joining: str = "") -> None:
        """Ask all disks for their state, and start the shards of those that came back."""
        with self._looking:
            started = self._disks.look(joining)
            if started:
                _LOG.info("disks that answer now: %s", ", ".join(started))
            self._topics.start_again(came_back=bool(started))
            self.note_unavailable()
            self._note_full()
            self._note_unserved()
            for disk in filter(None, self._disks.register.reports):
                try:
                    self._disks.keep_catalog(disk, lambda: self._state.topics.catalog)
                except (StreamError, OSError) as error:
                    _LOG.warning("disk %s does not keep its topics yet: %s", disk, error)

    def note_unavailable(self) -> None:
        """Note which disks did not answer the last question, for ``rocketray status``."""
        register = self._disks.register
        for disk, home in register.homes.items():
            counts = {
                topic.name: len(topic.by_disk().get(disk, ()))
                for topic in self._state.topics.catalog.topics.values()
            }
            queues = sum(counts.values())
            # A drained disk has the queues of services only, which do not move: it may be stopped.
            is_left = not any(count for name, count in counts.items() if not is_of_service(name))
            was_stopped_for_good = is_left and disk in register.draining
            if disk in register.reports or was_stopped_for_good:
                self._state.problems.resolve(f"disk {disk}")
            else:
                said = (
                    _unavailable(disk, home, queues)
                    if disk
                    else _first_unavailable(home, queues, self._place, self._since)
                )
                self._state.problems.note(f"disk {disk}", said)

    def _note_unserved(self) -> None:
        """Note the disks whose fetch service does not listen, for ``rocketray status``."""
        register = self._disks.register
        for disk, report in register.reports.items():
            subject = f"fetch service of disk {disk}"
            if report.unserved:
                home = register.homes[disk]
                self._state.problems.note(
                    subject,
                    f"members and Spark on other machines get no messages of disk "
                    f"{disk or home.uuid}, {home.data} on {home.machine}: {report.unserved}",
                )
            else:
                self._state.problems.resolve(subject)

    def _note_full(self) -> None:
        """Note the disks that have no room, for ``rocketray status``."""
        register = self._disks.register
        for disk, report in register.reports.items():
            use = DiskUse(report.total_bytes - report.free_bytes, report.free_bytes)
            if use.reaches(FULL):
                said = _full(disk, register.homes[disk], use)
                self._state.problems.note(f"room of disk {disk}", said)
            else:
                self._state.problems.resolve(f"room of disk {disk}")


def _full(disk: str, home: Home, use: DiskUse) -> str:
    """Return what to do about a disk without room."""
    return (
        f"disk {disk or home.uuid}, {home.data} on {home.machine}, is {100 * use.ratio:.0f} % full; "
        "its queues refuse messages: free space there, lower a topic's retention with: rocketray "
        "topics alter TOPIC --retention 72h, delete one, or move queues to another disk with: "
        "rocketray move-queue"
    )


def _first_unavailable(home: Home, queues: int, place: Home, since: str) -> str:
    """Return what to do about the first disk, when the coordinator runs elsewhere."""
    return (
        f"the first disk, {home.data} on {home.machine}, does not answer; its "
        f"{counted(queues, 'queue')} {agreed(queues, 'are')} unavailable, and the coordinator runs "
        f"on {place.data} of {place.machine}, whose standby "
        f"took it over at {since}, until the first disk's node starts there again, with the same "
        f"options: rocketray start --cluster {home.cluster} --register URL "
        f"--ray-address HOST:PORT --data {home.data}"
    )


def _unavailable(disk: str, home: Home, queues: int) -> str:
    """Return what to do about a disk that does not answer."""
    start = f"rocketray start --cluster {home.cluster} --join --ray-address HOST:PORT --data"
    if home.machine:
        return (
            f"disk {disk}, {home.data} on {home.machine}, does not answer; its "
            f"{counted(queues, 'queue')} {agreed(queues, 'are')} unavailable: start its node there "
            f"again with: {start} {home.data}"
        )
    return (
        f"disk {disk}, restored from a backup of {home.data}, has not joined yet; its "
        f"{counted(queues, 'queue')} {agreed(queues, 'are')} unavailable: restore that backup, "
        "too, with: rocketray restore BACKUP "
        f"--cluster {home.cluster} --data DIR, and start its node with: {start} DIR"
    )
