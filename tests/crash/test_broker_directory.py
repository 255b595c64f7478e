"""``store recover`` on what RocketMQ wrote, damaged: below the cut it answers as the whole store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.nodes.stores import (
    GOLDEN_CONFIG,
    GOLDEN_STORE,
    FakeClock,
    open_golden,
    read_all,
)

from rocketray.message import StoredMessage
from rocketray.store.files.store_settings import Salvage
from rocketray.store.importing.foreign import read_foreign_settings
from rocketray.store.message_store import MessageStore
from rocketray.store.recovery.recovery import RecoveryReport

pytestmark = pytest.mark.proves(
    "durability",
    "Queues, ConsumeQueueExt, index and checkpoint are rebuilt from the log",
)

SEGMENT = GOLDEN_CONFIG.commit_log_segment_bytes
QUEUE = Path("consumequeue/TopicA/1")
LAST_QUEUE_FILE = QUEUE / f"{4000:020d}"


@pytest.fixture(scope="module")
def whole() -> list[StoredMessage]:
    with open_golden() as store:
        return list(store.reads.scan())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy, as a broker leaves it that was killed."""
    copied = tmp_path / "store"
    shutil.copytree(GOLDEN_STORE, copied, copy_function=shutil.copyfile)
    for path in [copied, *copied.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    (copied / "abort.bak").rename(copied / "abort")
    return copied


@dataclass(frozen=True)
class Recovered:
    messages: list[StoredMessage]
    report: RecoveryReport


def recover(directory: Path, slots: int | None = 100) -> Recovered:
    """Recover as the command does, and check that all parts agree and that nothing is foreign."""
    config = read_foreign_settings(directory, index_hash_slots=slots).config
    with MessageStore(directory, config, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        assert store.verify().problems == ()
        assert store.recovery is not None
        found = Recovered(list(store.reads.scan()), store.recovery)
        for topic, queue_id in store.reads.queues():
            assert read_all(store, topic, queue_id) == [
                one for one in found.messages if (one.topic, one.queue_id) == (topic, queue_id)
            ]
    assert not (directory / "abort").exists()
    assert not list(directory.glob("st*.json"))
    sizes = {path.stat().st_size for path in (directory / "commitlog").iterdir() if path.is_file()}
    assert sizes == {SEGMENT}  # else the broker would refuse them
    return found


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def flip(path: Path, position: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 16]))


def segment_of(directory: Path, message: StoredMessage) -> tuple[Path, int]:
    start = message.physical_offset // SEGMENT * SEGMENT
    return directory / "commitlog" / f"{start:020d}", message.physical_offset - start


def noise(size: int) -> bytes:
    return bytes(i * 37 % 251 for i in range(size))


DERIVED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "no checkpoint": lambda d: (d / "checkpoint").unlink(),
    "short checkpoint": lambda d: truncate(d / "checkpoint", 11),
    "no queues": lambda d: shutil.rmtree(d / "consumequeue"),
    "no queues and no ext": lambda d: remove(d / "consumequeue", d / "consumequeue_ext"),
    "no ext": lambda d: shutil.rmtree(d / "consumequeue_ext"),
    "one queue missing": lambda d: shutil.rmtree(d / QUEUE),
    "first queue file missing": lambda d: (d / QUEUE / f"{0:020d}").unlink(),
    "middle queue file missing": lambda d: (d / QUEUE / f"{2000:020d}").unlink(),
    "last queue file missing": lambda d: (d / LAST_QUEUE_FILE).unlink(),
    "queue files swapped": lambda d: swap(d / QUEUE / f"{0:020d}", d / QUEUE / f"{1000:020d}"),
    "short queue file": lambda d: truncate(d / LAST_QUEUE_FILE, 30),
    "empty queue file": lambda d: truncate(d / LAST_QUEUE_FILE, 0),
    "short middle queue file": lambda d: truncate(d / QUEUE / f"{1000:020d}", 501),
    "queue file of zeros": lambda d: overwrite(d / QUEUE / f"{1000:020d}", 0, bytes(1000)),
    "queue file of noise": lambda d: overwrite(d / LAST_QUEUE_FILE, 0, noise(1000)),
    "flipped bit in an entry's offset": lambda d: flip(d / QUEUE / f"{2000:020d}", 200 + 6),
    "flipped bit in an entry's size": lambda d: flip(d / QUEUE / f"{2000:020d}", 200 + 10),
    "flipped bit in an entry's code": lambda d: flip(d / QUEUE / f"{2000:020d}", 200 + 19),
    "entries behind the end": lambda d: overwrite(d / LAST_QUEUE_FILE, 500, noise(100)),
    "flipped bit in ext": lambda d: flip(d / "consumequeue_ext/TopicA/1" / f"{0:020d}", 46),
    "no index": lambda d: shutil.rmtree(d / "index"),
    "last index file missing": lambda d: max((d / "index").iterdir()).unlink(),
    "first index file missing": lambda d: min((d / "index").iterdir()).unlink(),
    "index file of zeros": lambda d: overwrite(max((d / "index").iterdir()), 0, bytes(8440)),
    "index file of noise": lambda d: overwrite(min((d / "index").iterdir()), 0, noise(8440)),
    "short index file": lambda d: truncate(max((d / "index").iterdir()), 77),
    "flipped bit in an index header": lambda d: flip(max((d / "index").iterdir()), 39),
    "flipped bit in an index slot": lambda d: flip(min((d / "index").iterdir()), 41 + 4 * 9),
    "flipped bit in an index entry": lambda d: flip(min((d / "index").iterdir()), 440 + 20 * 9 + 9),
    "an empty segment follows": lambda d: following(d).write_bytes(bytes(SEGMENT)),
    "a short segment follows": lambda d: following(d).write_bytes(b""),
}  # fmt: skip


def remove(*directories: Path) -> None:
    for directory in directories:
        shutil.rmtree(directory)


def swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def following(directory: Path) -> Path:
    return directory / "commitlog" / f"{8 * SEGMENT:020d}"


@pytest.mark.parametrize("fault", DERIVED)
def test_what_can_be_made_from_the_log_is_made_again(
    directory: Path, whole: list[StoredMessage], fault: str
) -> None:
    DERIVED[fault](directory)
    found = recover(directory)
    assert found.messages == whole
    assert found.report.bytes_kept_aside == 0
    assert found.report.holes == ()
    again = recover(directory)
    assert again.messages == whole
    assert again.report.queue_entries_put == again.report.keys_put == 0


def test_good_ext_units_are_kept(directory: Path) -> None:
    before = {path: path.read_bytes() for path in (directory / "consumequeue").rglob("*0")
              if path.is_file()}  # fmt: skip
    shown = LAST_QUEUE_FILE.with_name(f"{2000:020d}")
    flip(directory / shown, 6)
    found = recover(directory)
    assert found.report.queue_entries_put == 1
    differing = [path for path, content in before.items() if path.read_bytes() != content]
    assert differing in ([], [directory / shown])


@pytest.mark.parametrize("number", [0, 80, 300, 599])
@pytest.mark.parametrize("fault", ["body", "size", "magic", "zeros", "torn"])
def test_the_log_is_cut_at_the_first_bad_record_as_rocketmq_cuts_it(
    directory: Path, whole: list[StoredMessage], fault: str, number: int
) -> None:
    if number < 300:  # RocketMQ would not look at the first files
        (directory / "checkpoint").unlink()
    path, position = segment_of(directory, whole[number])
    if fault == "zeros":
        overwrite(path, position // 512 * 512, bytes(512))
    elif fault == "torn":
        overwrite(path, position + 40, bytes(SEGMENT - position - 40))
    else:
        flip(path, position + {"size": 3, "magic": 5, "body": 90}[fault])
    found = recover(directory)
    bad = len(found.messages)
    assert found.messages == whole[:bad]
    assert bad <= number if fault == "zeros" else bad == number
    assert found.report.end_offset == whole[bad].physical_offset
    assert found.report.bytes_kept_aside > 0
    kept = b"".join(one.read_bytes() for one in sorted((directory / "commitlog/broken").iterdir()))
    for lost in whole[number + 1 :]:
        if fault in ("body", "size", "magic"):
            assert lost.body in kept
    assert recover(directory).messages == whole[:bad]


def test_after_a_clean_stop_damage_before_the_last_file_costs_one_record(
    directory: Path, whole: list[StoredMessage]
) -> None:
    (directory / "abort").unlink()
    path, position = segment_of(directory, whole[100])
    flip(path, position + 90)
    config = read_foreign_settings(directory, index_hash_slots=100).config
    with MessageStore(directory, config, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        assert list(store.reads.scan()) == whole[:100] + whole[101:]
        assert store.recovery is not None
        (hole,) = store.recovery.holes
        assert hole.start == whole[100].physical_offset
        assert hole.end == whole[101].physical_offset
        lost = whole[100]
        read = read_all(store, lost.topic, lost.queue_id)
        assert [one.queue_offset for one in read] == [
            one.queue_offset
            for one in whole
            if (one.topic, one.queue_id) == (lost.topic, lost.queue_id) and one is not lost
        ]


def test_a_short_last_file_costs_its_end(directory: Path, whole: list[StoredMessage]) -> None:
    truncate(directory / "commitlog" / f"{7 * SEGMENT:020d}", 20_000)
    found = recover(directory)
    assert found.messages == [
        one for one in whole if one.physical_offset + one.size <= 7 * SEGMENT + 20_000
    ]
    assert found.report.files_repaired == 1


def test_without_the_number_of_slots_the_index_is_left_alone(directory: Path) -> None:
    for path in (directory / "index").iterdir():
        overwrite(path, 0, noise(8440))
    before = {path.name: path.read_bytes() for path in (directory / "index").iterdir()}
    settings = read_foreign_settings(directory)
    assert settings.slots_from == "unknown"
    MessageStore(
        directory, settings.config, salvage=Salvage.ALL_BUT_INDEX, clock_ms=FakeClock()
    ).close()
    assert {path.name: path.read_bytes() for path in (directory / "index").iterdir()} == before
