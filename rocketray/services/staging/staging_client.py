"""A client of the staged batches of a node: a task that stages rows, or a driver that decides.

Where the disk is on this machine, fragments are written to its directory, and topics are looked up
in its catalog; else both go to its fetch service. Decisions always do.
"""

from __future__ import annotations

import os
import time

from rocketray.broker.fetching.flight_link import FlightLink
from rocketray.broker.fetching.read_plan import DiskPlace
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.runtime.calls.endpoint import client_of
from rocketray.runtime.files.fragment_file import (
    BatchName,
    FragmentFile,
    FragmentSink,
    FragmentWriter,
    new_fragment,
)
from rocketray.runtime.files.home import has_identity
from rocketray.runtime.files.paths import staged_directory

from .fragment_upload import FragmentUpload
from .staging_api import STAGING, TARGETS

# Small batches are in their topics within milliseconds; a large one is asked for twenty times a
# second.
_POLL_S, _POLL_MAX_S = 0.002, 0.05


class StagingClient:
    """The staged batches of the node whose first disk is at a place; for one thread."""

    def __init__(self, place: DiskPlace) -> None:
        """Connect with the first call."""
        assert place.service is not None
        self._place, self._service = place, place.service
        link = FlightLink(_Known(place))
        self.calls = client_of(link, STAGING)
        self._targets = client_of(link, TARGETS)
        self._is_here = has_identity(place.data, place.uuid) and os.access(place.data, os.W_OK)
        self._queues: dict[str, int] = {}

    def new_fragment(self, batch: BatchName) -> FragmentWriter:
        """Begin a fragment of a batch: a file on this machine, or an upload to that of the disk."""
        name = new_fragment(batch)
        return FragmentWriter(name, self._sink(name))

    def queues_of(self, topic: str) -> int:
        """Return the number of queues of a topic.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        if topic not in self._queues:
            if self._is_here:
                self._queues[topic] = TopicCatalog.load(self._place.data).get(topic).queues
            else:
                self._queues[topic] = self._targets.queues(topic)
        return self._queues[topic]

    def wait_applied(self, batch: BatchName, timeout_s: float) -> bool:
        """Wait until the messages of a decided batch are in their topics; False if time is over."""
        end_s, pause_s = time.monotonic() + timeout_s, _POLL_S
        while not self.calls.is_applied(batch):
            if time.monotonic() >= end_s:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_MAX_S)
        return True

    def _sink(self, name: str) -> FragmentSink:
        if self._is_here:
            return FragmentFile(staged_directory(self._place.data), name)
        return FragmentUpload(self._service, name)


class _Known:
    """Finds a service whose address came with the query."""

    def __init__(self, place: DiskPlace) -> None:
        self._place = place

    def place(self) -> DiskPlace:
        """Return the place as it was given: a driver has no Ray to ask for a later one."""
        return self._place
