"""The offsets of one broadcast client in one topic, in a file of its own.

``DIRECTORY/<client id>/<group>/<topic>.json``, in the form of RocketMQ's ``LocalFileOffsetStore``,
which ignores our version. The file is written whole, at most once in ``SAVE_INTERVAL_MS`` and at
the end. After a crash, the messages since the last write are redelivered.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rocketray.base.file_form import FileForm
from rocketray.errors import ConfigError
from rocketray.groups.member_options import MemberOptions
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.files.paths import broadcast_directory
from rocketray.runtime.files.state_files import read_state, write_json
from rocketray.store.files.file_system import SYSTEM_FILES

SAVE_INTERVAL_MS = 5_000  # as RocketMQ's persistConsumerOffsetInterval
_LOG = logging.getLogger(__name__)
# It is the name of a directory: no slash, no dot at the start, at most Linux's 255 bytes. Ids of
# RocketMQ's broadcast clients, such as 10.0.0.1@DEFAULT, have this form.
_CLIENT_ID = re.compile(r"(?!\.)[A-Za-z0-9._@%|-]{1,255}", re.ASCII)
_FORM = FileForm("broadcast/CLIENT/GROUP/TOPIC.json")
_TABLE = "offsetTable"  # RocketMQ's name of the field


class LocalOffsets:
    """The next queue offsets of one client, used by one process at a time."""

    def __init__(
        self, directory: Path, client_id: str, group: str, topic: str, clock_ms: Callable[[], int]
    ) -> None:
        """Load the offsets that the client saved.

        Raises:
            ConfigError: *client_id* cannot be a file name, or another process uses it.
            StoreError: the file is damaged, or of a later version.
        """
        if _CLIENT_ID.fullmatch(client_id) is None:
            raise ConfigError(
                f"client id {client_id!r}: a client of a broadcast group stores its offsets under "
                "its id, which needs 1 to 255 letters, digits or ._@%|- and no dot at its start"
            )
        self._path = directory / client_id / group / f"{topic}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:  # before the file is read: its owner may replace it at any moment
            self._lock = SYSTEM_FILES.lock(self._path.with_suffix(".lock"), b"")
        except BlockingIOError:
            raise ConfigError(
                f"client {client_id!r} of group {group!r} already runs on topic {topic!r}: each "
                "client of a broadcast group needs an id of its own"
            ) from None
        try:
            self._offsets = read_state(self._path, _offsets, owns=True) or {}
        except BaseException:
            self._lock.release()
            raise
        self._clock_ms = clock_ms
        self._saved_ms = clock_ms()
        self._changed = False

    def get(self, queue: int) -> int:
        """Return the next queue offset, or -1."""
        return self._offsets.get(queue, -1)

    def queues(self) -> frozenset[int]:
        """Return the queues in which the client has an offset: those that it knew."""
        return frozenset(self._offsets)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Take next queue offsets; save them when they are due, or later if that fails."""
        self._changed |= bool(offsets)
        self._offsets.update(offsets)
        if self._clock_ms() - self._saved_ms >= SAVE_INTERVAL_MS:
            try:
                self.save()
            except OSError:
                _LOG.exception("%s was not written; trying again", self._path)

    def save(self) -> None:
        """Write the file if an offset changed."""
        self._saved_ms = self._clock_ms()  # first: after a failure, the next try is not at once
        if self._changed:
            table = {str(queue): offset for queue, offset in self._offsets.items()}
            write_json(self._path, _FORM.of({_TABLE: table}))
            self._changed = False

    def close(self) -> None:
        """Save, and release the client id for other processes."""
        try:
            self.save()
        finally:
            self._lock.release()


def _offsets(value: dict[str, Any]) -> dict[int, int]:
    table = _FORM.content(value).get(_TABLE, {})
    return {int(queue): int(offset) for queue, offset in table.items()}


def open_local_offsets(
    node: NodeClient, group: str, topic: str, options: MemberOptions, clock_ms: Callable[[], int]
) -> LocalOffsets | None:
    """Open the offsets of a broadcast member; None for one that shares messages."""
    if not options.get("broadcast"):
        return None
    given = options.get("offsets_directory")
    if given is None:
        given = broadcast_directory(node.files("a broadcast member without offsets_directory"))
    return LocalOffsets(Path(given), options.get("client_id") or "", group, topic, clock_ms)
