"""The directories of each release, opened by this one; and files of a later one, which it refuses.

support/harness/release_corpus.py says what the directories hold, and how they were made.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.harness.file_forms import file_forms
from support.harness.release_content import read_content
from support.harness.release_corpus import RELEASES, THIS, make, unpacked
from support.nodes.stores import FakeClock

from rocketray.actors.cluster import queue_moves, registered_documents
from rocketray.actors.cluster.coordinator_settings import CoordinatorSettings
from rocketray.actors.cluster.groups_file import GroupsFile
from rocketray.actors.cluster.node import Node
from rocketray.base.file_form import FileForm
from rocketray.broker.backups.manifest import incomplete_disk, read_manifest
from rocketray.broker.disks.disk_register import saved_disks
from rocketray.broker.disks.joined_cluster import read_joined
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.named_filters.filter_book import parse_book
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError, StoreError
from rocketray.filters.consumer_filter_data import read_filters
from rocketray.groups.journal.group_journal import GroupJournals
from rocketray.messaging.consumers.local_offsets import LocalOffsets
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import settle_identity
from rocketray.runtime.files.node_description import read_description, write_description
from rocketray.runtime.files.paths import broadcast_directory, writers_directory
from rocketray.runtime.files.restorations import restorations_of
from rocketray.runtime.files.state_files import read_state
from rocketray.runtime.register.documents import RegisterDocuments
from rocketray.runtime.register.file_register import FileRegister
from rocketray.services.admin.dead_letters import Journal
from rocketray.services.delays import delay_service
from rocketray.services.staging.writer_ledger import WriterLedger
from rocketray.services.transactions.transaction_state import TransactionProgress
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.message_store import MessageStore
from rocketray.store.queues.gaps_file import read_gaps
from rocketray.store.recovery.recovery import read_past_recovery
from rocketray.store.recovery.scrub_progress import read_progress

pytestmark = pytest.mark.proves(
    "durability",
    "Each release's directories are opened with all that is in them; a file of a later "
    "version is refused, and nothing is changed",
)

FORMS = file_forms()
WHOLE = "directory.json"
"""The file whose version is that of the whole directory."""
ALL_RELEASES = sorted(path.name for path in RELEASES.iterdir())
KEY = re.compile(r"[a-z][A-Za-z._]*", re.ASCII)  # names in the directories begin otherwise
FIRST = "node/shards/Trade/0"
PLACES = {
    "directory.json": "node/directory.json",
    "node.json": "node/node.json",
    "config/topics.json": "node/config/topics.json",
    "config/groups.json": "node/config/groups.json",
    "config/namedFilters.json": "node/config/namedFilters.json",
    "config/groupJournal/GROUP.journal": "node/config/groupJournal/Predicates.journal",
    "config/transactions.json": "node/config/transactions.json",
    "config/stagedBatches/*.json": "node/config/stagedBatches/Job.json",
    "config/deliveriesUnderWay.json": "node/config/deliveriesUnderWay.json",
    "config/redriven/TOPIC.json": "node/config/redriven/%DLQ%Filtered.json",
    "config/filterRules.json": "node/config/filterRules.json",
    "config/consumerFilter.json": "node/config/consumerFilter.json",
    "config/joined.json": "joined/config/joined.json",
    "config/disks.json": "register/config/disks.json",
    "config/moves.json": "register/config/moves.json",
    "config/register.json": "register/config/register.json",
    "broadcast/CLIENT/GROUP/TOPIC.json": "node/broadcast/One/Broadcast/Trade.json",
    "store.json": f"{FIRST}/store.json",
    "stopped.json": f"{FIRST}/stopped.json",
    "recovered.json": "node/shards/Trade/1/recovered.json",
    "gaps.json": "node/shards/Trade/1/gaps.json",
    "restored.json": "node/shards/Trade/1/restored.json",
    "failed_disk.json": "failed/failed_disk.json",
    "scrub.json": "node/shards/Trade/1/scrub.json",
    "manifest.json": "backup/manifest.json",
    "incomplete.json": "incomplete/incomplete.json",
    "NAME/NUMBER": "register/keys/settings/00000000000000000002",
    "settings": "register/keys/settings/00000000000000000002",
}
"""A file of each form in the directories; node.json is removed with each stop."""


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with unpacked(THIS) as directories:
        write_description(directories / "node", {"machine": "Machine1"})
        yield directories


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories as today's code writes them."""
    directories = tmp_path_factory.mktemp("made")
    make(directories)
    return directories


@pytest.mark.parametrize("release", ALL_RELEASES)
def test_this_release_finds_what_a_release_left(release: str) -> None:
    expected = json.loads((RELEASES / release / "content.json").read_text())
    with unpacked(release) as directories:
        assert _like(expected, read_content(directories)) == expected


def _like(expected: Any, found: Any) -> Any:
    """Leave out of *found* what later releases read beyond it."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: _like(expected[key], found[key]) for key in expected.keys() & found.keys()}
    return found


def test_every_form_has_a_file_there(root: Path) -> None:
    assert PLACES.keys() == FORMS.keys()
    assert all((root / place).is_file() for place in PLACES.values())


@pytest.mark.parametrize("release", ALL_RELEASES)
def test_a_new_key_raises_the_version(release: str, made: Path) -> None:
    """A release that does not know it would drop it at its next save.

    A version that is not released yet may still change: make corpus.
    """
    with unpacked(release) as before:
        for name in FORMS.keys() - {"node.json"}:
            then, now = (_value(name, root / PLACES[name]) for root in (before, made))
            if _version(then) == _version(now):
                assert _keys(then) == _keys(now), (
                    f"{name}: raise its version, and that of {WHOLE}; or make corpus"
                )


def test_every_json_file_of_ours_has_a_version(made: Path) -> None:
    of_others = {"consumerFilter.json", "delayOffset.json", "checkpoint.json"}
    files = [path for path in made.rglob("*.json") if path.name not in of_others]
    assert len(files) > len(FORMS)
    assert [path for path in files if "version" not in json.loads(path.read_bytes())] == []


@pytest.mark.parametrize("release", ALL_RELEASES)
def test_the_version_of_a_directory_rises_with_that_of_any_file(release: str) -> None:
    with unpacked(release) as before:
        versions = {
            name: _version(_value(name, before / place))
            for name, place in PLACES.items()
            if (before / place).exists()
        }
    for whole in (WHOLE, "manifest.json"):
        if versions[whole] == FORMS[whole].version:
            now = {name: FORMS[name].version for name in versions}
            assert versions == now, f"raise that of {whole}, too"


def _value(name: str, path: Path) -> Any:
    """The content of a file of that form."""
    raw = path.read_bytes()
    if name in {"NAME/NUMBER", "settings"}:
        outer = json.loads(zlib.decompress(raw))
        return outer["value"] if name == "settings" else {**outer, "value": None}
    if path.suffix == ".journal":
        head, *entries = (json.loads(line.partition(b" ")[2]) for line in raw.splitlines())
        return {**head, "entries": entries}
    return json.loads(raw)


def _version(value: dict[str, Any]) -> int:
    return int(value.get("version", 1))


def _keys(value: object) -> set[str]:
    """The keys of the form, at any depth: those that are no names of topics and the like."""
    if isinstance(value, dict):
        return {key for key in value if KEY.fullmatch(key)}.union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


def _register(root: Path) -> RegisterDocuments:
    return RegisterDocuments(FileRegister(root / "register" / "keys"))


REFUSED: dict[str, Callable[[Path], object]] = {
    "directory.json": lambda root: settle_identity(root / "node"),
    "node.json": lambda root: read_description(root / "node"),
    "config/topics.json": lambda root: TopicCatalog.load(root / "node"),
    "config/groups.json": lambda root: GroupsFile(FileDocuments(root / "node")).load(
        GroupJournals(FakeClock()), 0
    ),
    "config/namedFilters.json": lambda root: FileDocuments(root / "node").load(
        "namedFilters", parse_book
    ),
    "config/transactions.json": lambda root: read_state(
        root / PLACES["config/transactions.json"], TransactionProgress.from_json, owns=True
    ),
    "config/stagedBatches/*.json": lambda root: WriterLedger(writers_directory(root / "node")).get(
        "Job"
    ),
    "config/redriven/TOPIC.json": lambda root: Journal(
        root / "node", TopicCatalog.load(root / "node").get("%DLQ%Filtered"), owns=True
    ),
    "config/filterRules.json": lambda root: FilterRules.load(root / "node"),
    "config/joined.json": lambda root: read_joined(root / "joined"),
    "config/disks.json": lambda root: saved_disks(FileDocuments(root / "register")),
    "config/moves.json": lambda root: FileDocuments(root / "register").load(
        "moves", queue_moves._parsed
    ),
    "config/register.json": lambda root: registered_documents._used(root / "register"),
    "broadcast/CLIENT/GROUP/TOPIC.json": lambda root: LocalOffsets(
        broadcast_directory(root / "node"), "One", "Broadcast", "Trade", FakeClock()
    ),
    "store.json": lambda root: MessageStore(root / FIRST, clock_ms=FakeClock()),
    "gaps.json": lambda root: read_gaps(root / "node/shards/Trade/1"),
    "restored.json": lambda root: restorations_of(root / "node/shards/Trade/1"),
    "failed_disk.json": lambda root: MessageStore(root / "failed", clock_ms=FakeClock()),
    "scrub.json": lambda root: read_progress(SYSTEM_FILES, root / "node/shards/Trade/1"),
    "manifest.json": lambda root: read_manifest(root / "backup"),
    "incomplete.json": lambda root: incomplete_disk(root / "incomplete"),
    "NAME/NUMBER": lambda root: CoordinatorSettings.load(_register(root)),
    "settings": lambda root: CoordinatorSettings.load(_register(root)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_of_a_later_release_is_refused_and_nothing_is_changed(name: str, root: Path) -> None:
    known = FORMS[name].version
    with _raised(FORMS[name], root) as path:
        before = _files(root)
        with pytest.raises(StoreError) as refused:
            REFUSED[name](root)
        assert _files(root) == before
    assert path.name in str(refused.value)
    assert (
        f"its version is {known + 1}, and this release of rocketray reads versions up to {known}; "
        "use the release that wrote it, or a newer one"
    ) in str(refused.value)


def test_a_node_does_not_start_on_a_directory_of_a_later_release(root: Path) -> None:
    with _raised(FORMS[WHOLE], root):
        before = _files(root)
        with pytest.raises(StoreError, match=r"directory\.json: its version is 2"):
            Node(root / "node")
        assert _files(root) == before


NOT_USED: dict[str, Callable[[Path], object]] = {
    "recovered.json": lambda root: read_past_recovery(root / "node/shards/Trade/1"),
    "config/deliveriesUnderWay.json": lambda root: delay_service._noted(
        root / PLACES["config/deliveriesUnderWay.json"]
    ),
}
"""Files that only help: without them, nothing is lost."""


@pytest.mark.parametrize("name", NOT_USED)
def test_a_help_of_a_later_release_is_not_used(name: str, root: Path) -> None:
    assert NOT_USED[name](root)
    with _raised(FORMS[name], root):
        assert not NOT_USED[name](root)


def test_filters_of_a_later_release_are_not_used(root: Path) -> None:
    with (
        _raised(FORMS["config/consumerFilter.json"], root) as path,
        pytest.raises(ConfigError, match=r"consumerFilter\.json .* its version is 2"),
    ):
        read_filters(path)


def test_a_store_that_a_later_release_closed_is_recovered() -> None:
    with (
        unpacked(THIS) as root,
        _raised(FORMS["stopped.json"], root),
        MessageStore(root / FIRST, clock_ms=FakeClock()) as store,
    ):
        assert store.recovery is not None
        assert store.recovery.cause.endswith("stopped.json is not of this version")


def test_all_forms_were_raised() -> None:
    of_others = {"config/consumerFilter.json", "stopped.json"}
    put_aside = {"config/groupJournal/GROUP.journal"}  # test_journal_file.py
    assert REFUSED.keys() | NOT_USED.keys() | of_others | put_aside == FORMS.keys()


@contextmanager
def _raised(form: FileForm, root: Path) -> Iterator[Path]:
    """Have a later release write the file, and its copy; they are as before at the end."""
    path = root / PLACES[form.name]
    copy = path.with_name(path.name + ".bak")
    files = {each: each.read_bytes() for each in (path, copy) if each.exists()}
    for each, raw in files.items():
        each.write_bytes(_in_version(form, raw))
    try:
        yield path
    finally:
        for each, raw in files.items():
            each.write_bytes(raw)


def _in_version(form: FileForm, raw: bytes) -> bytes:
    if form.name in {"NAME/NUMBER", "settings"}:
        outer = json.loads(zlib.decompress(raw))
        (outer["value"] if form.name == "settings" else outer)["version"] = form.version + 1
        return zlib.compress(json.dumps(outer).encode())
    return json.dumps({**json.loads(raw), "version": form.version + 1}).encode()


def _files(root: Path) -> dict[Path, bytes]:
    """All files, but for those that are only locked."""
    paths = (path for path in root.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in paths if path.suffix != ".lock"}
