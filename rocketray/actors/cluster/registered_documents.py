"""The documents of a cluster in a register, with copies in the directory of its first disk.

    DATA/config/register.json       {"version": 1, "url": URL, "isComplete": BOOL, "startId": ID}: a
                                    register has the documents; or some of them, as the first use is
                                    not over. The last start of a node that took over had that id

The shards, Spark and backups read the copies; the coordinator never does. So the cluster continues
on an empty directory, with the documents of the register.

Invariants
  1. A document is saved in the register, and then copied. A copy that fails is made up for.
  2. The register has ``disks`` if and only if it has all documents of a cluster. On the first use
     the directory names its register first, and ``disks`` is carried over last: an interrupted
     start is repeated by the next one, from the same files.
  3. A start that is refused changes nothing, and takes nothing over.
  4. After an error of the register, no call waits for it again until :meth:`look` finds that it
     answers: the coordinator has a lock while it saves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import json_fields, read_value
from rocketray.broker.disks.disk_register import DiskRegister, SavedDisks, saved_disks
from rocketray.errors import ConfigError, RegisterUnavailableError, StoreError, SupersededError
from rocketray.runtime.files.file_documents import Documents, FileDocuments
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import config_directory, coordinator_directory, filters_file
from rocketray.runtime.files.state_files import read_state, write_json
from rocketray.runtime.register.documents import DocumentWriter, RegisterDocuments
from rocketray.runtime.register.register import Register, open_register

from .coordinator_settings import CoordinatorSettings

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_FORM = FileForm("config/register.json")
_LAST = "disks"
_NAMES = ("groups", "moves", "namedFilters", "settings", "topics", _LAST)
_NOT_INDENTED = {"groups"}  # megabytes with a thousand groups, every five seconds


@dataclass(frozen=True, slots=True)
class RegisterOfStart:
    """The register of a coordinator, and the id of the start of its node, whatever Ray restarts."""

    url: str
    start_id: str


@dataclass(frozen=True, slots=True)
class _Used:
    """The register that a directory is used with, and whether that has all documents."""

    url: str
    is_complete: bool
    start_id: str = ""


class RegisteredDocuments:
    """The documents of one coordinator in a register; for any thread."""

    def __init__(
        self, data: Path, register: Register, start_id: str = "", *, home: Home | None = None
    ) -> None:
        """Copy to the directory *data* what is saved; :meth:`take_over` comes before a save."""
        self._register = register
        self._documents = RegisterDocuments(register, start_id, home=home)
        self._copies = FileDocuments(data)
        self._copying = threading.Lock()
        self._late: dict[str, object] = {}  # the values whose copy failed, by name
        self._failed: RegisterUnavailableError | None = None
        self._taker = ""
        self.superseded = threading.Event()
        """Set when another coordinator is found to have taken over."""

    def take_over(self, *, is_again: bool = False) -> None:
        with self._noting():
            self._documents.take_over(_NAMES, is_again=is_again)

    def has_changed_since(self, start_id: str) -> bool:
        return self._documents.has_changed_since(start_id)

    def load(self, name: str, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
        with self._noting():
            return self._documents.load(name, parse)

    def save(self, name: str, value: object, *, is_indented: bool = True) -> None:  # noqa: ARG002 - of the protocol
        """See ``RegisterDocuments.save``; an error of the last call is raised at once."""
        if self._failed is not None:  # invariant 4
            raise RegisterUnavailableError(self._failed.address, self._failed.reason)
        with self._noting():
            self._documents.save(name, value)
        self._copy(name, value)

    def check(self) -> None:
        """Raise :class:`SupersededError` if another coordinator is known to have taken over."""
        if self.superseded.is_set():
            raise self.end()

    def end(self) -> SupersededError:
        """Return the error of a coordinator that was superseded."""
        return SupersededError(self._register.address, _LAST, self._taker)

    def look(self) -> None:
        """Find out whether the register answers, and whether the documents are still its own.

        Raises:
            RegisterUnavailableError: it does not answer.
            SupersededError: another coordinator has taken over.
        """
        self.load(_LAST, dict)
        self._failed = None
        for name in [*self._late]:
            self._copy(name, self._late[name])

    def copy(self) -> None:
        for name in _NAMES:
            value = self.load(name, dict)
            if value is not None:
                self._copy(name, value)

    def _copy(self, name: str, value: object) -> None:
        with self._copying:
            try:
                self._copies.save(name, value, is_indented=name not in _NOT_INDENTED)
            except (OSError, StoreError) as error:
                if name not in self._late:
                    _LOG.warning("the copy of document %r is not updated yet: %s", name, error)
                self._late[name] = value
            else:
                self._late.pop(name, None)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except RegisterUnavailableError as error:
            self._failed = error
            raise
        except SupersededError as error:
            self._taker = error.taker
            self.superseded.set()
            raise


def check_register(data: Path, url: str | None, cluster: str, disk: str) -> str:
    """Return the id of the cluster whose coordinator may start on *data*, with UUID *disk*.

    *url* is that of the register, None without one. Nothing is changed.

    Raises:
        ConfigError: the directory, the register and the name of the cluster do not fit.
        RegisterUnavailableError: the register does not answer.
        StoreError: a document is damaged, or of another version.
    """
    used = _used(data)
    if used is not None and used.url != url:
        moved = (
            f", not --register {url}; if the register has moved there with all its keys, change the "
            f"URL in {_file(data)}"
        )
        raise ConfigError(
            f"{data} is the first disk of a cluster whose state is in a register, and has an old "
            f"copy of it: start it with --register {used.url}{'' if url is None else moved}"
        )
    saved = saved_disks(FileDocuments(data)) if url is None else _fitting(data, url, cluster, used)
    return disk if saved is None else saved.cluster_id


def check_standby(url: str, cluster: str, cluster_id: str = "") -> None:
    """Check that the register at *url* has all that another coordinator of a cluster needs.

    *cluster_id* is empty if it is not known. Nothing is changed.

    Raises:
        ConfigError: it has no cluster, or another one. RegisterUnavailableError: it does not
            answer. StoreError: a document is damaged, or of another version.
    """
    documents = RegisterDocuments(open_register(url))
    saved = saved_disks(documents)
    if saved is None or CoordinatorSettings.load(documents) is None:
        raise ConfigError(
            f"the register {url} does not have the state of cluster {cluster!r}: start the node of "
            f"its first disk with the same --register, and this one then"
        )
    if saved.cluster != cluster or cluster_id not in ("", saved.cluster_id):
        raise ConfigError(
            f"the register {url} has the state of cluster {saved.cluster!r}, which began on "
            f"directory {saved.cluster_id}, and not that of the one that this disk joined, "
            f"{cluster!r}"
        )


def taker_of(register: RegisterOfStart) -> DocumentWriter | None:
    """Return who has taken the documents over from that start; None while it has them.

    Raises:
        RegisterUnavailableError: the register does not answer.
        StoreError: the document is damaged, or of another version.
    """
    writer = RegisterDocuments(open_register(register.url)).writer(_LAST)
    return None if writer is None or writer.start_id == register.start_id else writer


def state_directory(home: Home) -> Path:
    """Return the directory of what a coordinator at *home* keeps on its disk; raises as that."""
    return coordinator_directory(home.directory()) if home.is_joined else home.directory()


def has_coordinated(data: Path) -> bool:
    """Return whether *data* is the first disk of a cluster whose state is in a register."""
    return _used(data) is not None


def take_over(home: Home, register: RegisterOfStart) -> RegisteredDocuments:
    """Return the documents of the cluster in a register; the coordinator's are all.

    On the first use, those of the directory are carried over. If another coordinator had them since
    the last use, the directory's file of filters is removed: one may have changed, and back. Raises
    as :func:`check_register`, on a disk that joined as :func:`check_standby`, and
    :class:`SupersededError` if another coordinator takes over at the same time, or has done so
    since this start did.
    """
    url, start_id = register.url, register.start_id
    data = state_directory(home)
    if home.is_joined:
        check_standby(url, home.cluster, home.cluster_id)
    check_register(data, url, home.cluster, home.uuid)
    documents = RegisteredDocuments(data, open_register(url), start_id, home=home)
    used = _used(data)
    before = "" if used is None else used.start_id
    documents.take_over(is_again=used is not None and before == start_id)
    if documents.has_changed_since(before):  # perhaps a filter, and it was changed back
        filters_file(data).unlink(missing_ok=True)
    if saved_disks(documents) is None:
        _note(data, _Used(url, is_complete=False))
        _carry_over(home, FileDocuments(data), documents)
    else:
        documents.copy()
    _note(data, _Used(url, is_complete=True, start_id=start_id))
    return documents


def _carry_over(home: Home, files: Documents, documents: RegisteredDocuments) -> None:
    for name in _NAMES:
        value = files.load(name, dict)
        if value is not None and name != _LAST:
            documents.save(name, value)
    DiskRegister(home, files).save_in(documents)


def _fitting(data: Path, url: str, cluster: str, used: _Used | None) -> SavedDisks | None:
    """Return the disks in the register, None if it has no cluster yet; see ``check_register``."""
    documents = RegisteredDocuments(data, open_register(url))
    saved = saved_disks(documents)
    if saved is None and used is not None and used.is_complete:
        raise ConfigError(
            f"the register {url} is empty, and had the state of this cluster: mount its file "
            "system, or restore it; if it is lost, remove "
            f"{_file(data)} to begin with the copy in that directory"
        )
    if saved is None:
        if used is None and any(documents.load(name, dict) is not None for name in _NAMES):
            raise ConfigError(
                f"the register {url} has only a part of a cluster's state: its first start, on "
                "another directory, was interrupted; start the node there again, or name an empty "
                "register"
            )
        return saved_disks(FileDocuments(data))
    if saved.cluster != cluster:
        raise ConfigError(
            f"the register {url} has the state of cluster {saved.cluster!r}, not of {cluster!r}; "
            f"start with --cluster {saved.cluster}, or name another register"
        )
    own = _own(data) if used is None else []
    if own:
        raise ConfigError(
            f"{data} has state of its own ({', '.join(own)}), and the register {url} has that of "
            f"cluster {cluster!r}: start on an empty directory to continue with the register's, or "
            "name an empty register to continue with the directory's"
        )
    return saved


def _own(data: Path) -> list[str]:
    """Return some of the topics and groups in the files of a directory."""
    files, found = FileDocuments(data), []
    for name, table in (("topics", "topicConfigTable"), ("groups", "subscriptionGroupTable")):
        value = files.load(name, dict) or {}
        found += (
            [f"{name} {', '.join(sorted(value.get(table, ()))[:3])}"] if value.get(table) else []
        )
    return found


def _used(data: Path) -> _Used | None:
    return read_state(_file(data), _parsed)


def _note(data: Path, used: _Used) -> None:
    write_json(_file(data), _FORM.of(json_fields(used)))


def _file(data: Path) -> Path:
    return config_directory(data) / "register.json"


def _parsed(value: dict[str, Any]) -> _Used:
    return read_value(_Used, {"startId": "", **_FORM.content(value)})
