"""The filter bitmaps of one shard: their filters, and the time since when they have each.

A shard is a small broker's store, and its filters are kept likewise: ``config/consumerFilter.json``
in its directory says which groups' bits are in its bitmaps. Only the shard writes it, under the
lock under which it stores messages.

Invariants
  1. A filter in the file is born at the store time of the last message before it was known, or
     later. So a bitmap of a later message was made with it (RocketMQ's ``isMsgInLive``).
  2. The file is on disk before a bitmap is made from its new content, and the number of its version
     is published before such a message is visible. A reader that checks the version after the
     visible offset, and reads the file when the version is new, never uses a filter that a bitmap
     does not know.
  3. A message without a bitmap passes, as nothing is known about it. These are all messages that
     are stored while no bitmaps are wanted, or after a restart until they are wanted again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rocketray.errors import ConfigError, StreamError
from rocketray.filters.consumer_filter_data import ConsumerFilterData, read_filters
from rocketray.groups.group_descriptions import LiveSubscription
from rocketray.runtime.files.paths import filters_file
from rocketray.runtime.files.state_files import remove_half_written
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.store.message_store import MessageStore
from rocketray.store.queues.ext_reader import BitTest, bit_test

from .sql_filters import SqlFilters, is_registered

_LOG = logging.getLogger(__name__)


class ShardBitmaps:
    """The writer's side. All calls are made under the shard's lock."""

    def __init__(
        self,
        store: MessageStore,
        topic: str,
        control: ControlPage,
        clock_ms: Callable[[], int],
    ) -> None:
        """Take over the filters of an earlier incarnation; no bitmaps are made yet.

        If the file is missing or cannot be read, it begins without filters: existing bitmaps are
        not used any more.
        """
        self._store = store
        self._topic = topic
        self._control = control
        path = filters_file(store.directory)
        path.with_name(path.name + ".bak").unlink(missing_ok=True)  # older than some bitmaps
        remove_half_written(path.parent)

        def born_ms() -> int:
            return max(clock_ms(), store.last_store_timestamp_ms)

        try:
            self._filters = SqlFilters(path, born_ms)
        except (ConfigError, OSError) as error:
            _LOG.warning("%s; the shard's existing bitmaps are not used any more", error)
            path.replace(path.with_name(path.name + ".broken"))
            self._filters = SqlFilters(path, born_ms)
        self.are_kept = False
        # Readers that know the file of an earlier incarnation read it again: it may be gone.
        control.publish_filters(control.filters() + 1)

    @property
    def filters(self) -> Mapping[str, ConsumerFilterData]:
        """The filters that bitmaps are made of, by group."""
        return self._filters.manager.filters.get(self._topic, {})

    def keep(self, living: Sequence[LiveSubscription] | None) -> dict[str, ConsumerFilterData]:
        """Make bitmaps of *living*, the topic's subscriptions, from now on; none if it is None.

        Return the filters of which bitmaps are made now. Raises OSError, StreamError; then none are
        made before the next call.
        """
        if living is None:
            self._end()
            return {}
        try:
            # The file, its version, then the bitmaps: so a reader trusts none too early.
            if self._filters.register_living(living):
                self._control.publish_filters(self._control.filters() + 1)
            if not self.are_kept:
                self._store.begin_units(self._filters.manager)
                self.are_kept = True
        except (OSError, StreamError):
            self._end()
            raise
        return dict(self.filters)

    def _end(self) -> None:
        if self.are_kept:
            self._store.end_units()
            self.are_kept = False


class StreamBits:
    """The reader's side: the use of a shard's bitmaps for one stream's filter."""

    def __init__(
        self, directory: Path, control: ControlPage, subscription: LiveSubscription
    ) -> None:
        """Take the shard in *directory*; nothing is read before :meth:`test`."""
        self._path = filters_file(directory)
        self._control = control
        self._wanted = subscription
        self._version = -1
        self._test: BitTest | None = None

    def test(self) -> BitTest | None:
        """Return the bit test for all messages visible before the call; None if there is none."""
        version = self._control.filters()
        if version != self._version and is_registered(self._wanted.subscription):
            self._test = self._read()
            self._version = version
        return self._test

    def _read(self) -> BitTest | None:
        try:
            found = read_filters(self._path).get(self._wanted.topic, {}).get(self._wanted.group)
        except FileNotFoundError:
            return None
        except (ConfigError, OSError) as error:
            _LOG.warning("bitmaps are not used: %s", error)
            return None
        if found is None or found.subscription != self._wanted.subscription:
            return None
        return bit_test(found.bit_positions, found.bit_count, found.born_time_ms)
