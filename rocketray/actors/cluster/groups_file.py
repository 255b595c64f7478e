"""The saved consumer groups: one snapshot, the document ``groups``, replaced atomically.

Format: a JSON object on one line, of at most 64 MiB.
  - ``version``: 1. A document of a later version is refused (file_form.py).
  - ``stopped``: null while a coordinator runs. After a clean stop, the machine's boot id and the
    coordinator's steady clock: members silent since then count as gone.
  - ``subscriptionGroupTable``, ``offsetTable``: in the forms of RocketMQ's
    ``subscriptionGroup.json`` and ``consumerOffset.json``, with further keys that RocketMQ ignores.
  - ``startTable``, ``moveTable``: start offsets, and the moves that wait for an owner.
  - ``memberships``: the members, and the owner of each queue with its ownership epoch.
  - ``ownershipEpoch``: the epoch of the last grant (groups/ownership_epochs.py).

Invariants
  1. After a crash it holds one state of all groups: that of the last save, or of the one in
     progress. So nothing depends on the order in which subscriptions, offsets and owners change.
  2. ``stopped`` is saved as null before a coordinator answers a heartbeat. Otherwise, after a
     later crash, members that have a lease would count as gone.

Topics have a document of their own, which shards and Spark read (topics/catalog.py). The registered
SQL92 filters, in a broker's format, can be recreated (sql_filters.py).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from rocketray.base.file_form import FileForm
from rocketray.errors import StoreError
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.journal.group_journal import GroupJournals
from rocketray.runtime.files.file_documents import Documents
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import read_state
from rocketray.runtime.machine import here

_NAME = "groups"
_FORM = FileForm("config/groups.json")


class GroupsFile:
    """The snapshots of one coordinator, with numbers from 1 on.

    One is taken under the coordinator's lock, and written without it: a write may wait for a disk,
    or for a register. The newest snapshot is written, so one write serves all calls that wait.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._encoded: dict[str, orjson.Fragment] = {}  # each table as of its last change
        self._taken = _Snapshot(0, {})
        self._written = 0
        self.names_stop = False
        """Whether the newest snapshot has the time of a clean stop, which every call replaces."""

    def load(self, journals: GroupJournals, now_ms: int) -> GroupRegistry:
        """Return the groups of the last save; none if nothing was ever saved.

        Raises:
            StoreError: the snapshot is damaged, or of another version.
        """
        parse = partial(_parse, journals, now_ms)
        found = self._documents.load(_NAME, lambda value: parse(_FORM.content(value))) or parse({})
        self.names_stop = found.value.get("stopped") is not None
        return found.registry

    def must_take(self, registry: GroupRegistry) -> bool:
        """Return whether there are changes that have to be saved, and are in no snapshot yet."""
        return self.names_stop or registry.must_save

    def take(self, registry: GroupRegistry, *, stopped_ms: int | None = None) -> int:
        """Return the number of a snapshot of the groups as they are, for :meth:`write`.

        *stopped_ms* is the time of a clean stop.
        """
        unsaved = registry.to_json(only_unsaved=bool(self._encoded))
        is_stop = stopped_ms is not None
        if unsaved or self.names_stop or is_stop:
            for name, table in unsaved.items():
                self._encoded[name] = orjson.Fragment(orjson.dumps(table))
            registry.saved()
            stopped = {"bootId": here()["bootId"], "steadyMs": stopped_ms} if is_stop else None
            value = _FORM.of({"stopped": stopped, **self._encoded})
            self._taken = _Snapshot(self._taken.number + 1, value)
            self.names_stop = is_stop
        return self._taken.number

    def is_written(self, number: int) -> bool:
        """Return whether a snapshot is durable, or a later one."""
        return self._written >= number

    def write(self) -> None:
        """Write the newest snapshot; durable on return. One thread at a time may call this.

        Raises:
            OSError, RegisterUnavailableError: it cannot be written; the next call tries again.
            StoreError: it would be too large.
        """
        taken = self._taken
        self._documents.save(_NAME, taken.value, is_indented=False)
        self._written = taken.number


def rocketmq_files(data: Path) -> dict[str, dict[str, Any]]:
    """Return the content of RocketMQ's files of groups, by name, from the last save in *data*.

    Raises:
        StoreError: the file is missing, damaged, or of another version.
    """
    path = config_directory(data) / f"{_NAME}.json"
    value = read_state(path, _FORM.content)
    if value is None:
        raise StoreError(f"{path} does not exist; start the node and let a consumer join a group")
    tables = {
        "subscriptionGroup.json": "subscriptionGroupTable",
        "consumerOffset.json": "offsetTable",
    }
    return {name: {table: value[table]} for name, table in tables.items()}


class _Snapshot(NamedTuple):
    number: int
    value: dict[str, Any]


class _Parsed(NamedTuple):
    registry: GroupRegistry
    value: dict[str, Any]


def _parse(journals: GroupJournals, now_ms: int, value: dict[str, Any]) -> _Parsed:
    registry = GroupRegistry(journals)
    registry.load(value, _seen_ms(value, now_ms))
    return _Parsed(registry, value)


def _seen_ms(value: dict[str, Any], now_ms: int) -> int:
    """Return when the members were last seen, by the steady clock.

    That is the time of a clean stop if this machine has run since then. Otherwise the time that has
    passed is unknown: the wall clock, which may have been set meanwhile, does not tell.
    """
    stopped = value.get("stopped") or {}
    # A machine that does not tell its boot id has "", which must not count as the same boot.
    is_same_clock = bool(stopped) and stopped["bootId"] == here()["bootId"] != ""
    return min(int(stopped["steadyMs"]), now_ms) if is_same_clock else now_ms
