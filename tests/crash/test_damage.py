"""Files of a store that were damaged, lost or exchanged while nobody had it open.

What is derived from the log is noticed and made again. In the log itself, only what was damaged is
lost, it is reported, and nobody is handed it; whole files are never given up silently.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.nodes.stores import SMALL, FakeClock, check_whole, kill, message, read_all

from rocketray.errors import CorruptRecordError
from rocketray.message import StoredMessage
from rocketray.store import store_files
from rocketray.store.files.store_settings import Salvage
from rocketray.store.message_store import MessageStore
from rocketray.store.queues.consume_queue import QueueEntry
from rocketray.store.recovery.recovery import read_past_recovery

pytestmark = [
    pytest.mark.proves(
        "durability",
        "A flipped bit in a record without a CRC costs one record, in a queue id two",
    ),
    pytest.mark.proves(
        "durability",
        "A queue or ConsumeQueueExt file that changed after a clean stop is rebuilt from the log",
    ),
    pytest.mark.proves(
        "durability",
        "Queues, ConsumeQueueExt, index and checkpoint are rebuilt from the log",
    ),
    pytest.mark.proves(
        "durability",
        "A lost, truncated, lengthened or exchanged log file: opening is refused, recovery "
        "keeps the rest",
    ),
]

MESSAGES = 40


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[StoredMessage]]:
    """A store of two queues that was closed, and its messages."""
    directory = tmp_path_factory.mktemp("written") / "store"
    clock = FakeClock()
    with MessageStore(directory, SMALL, clock_ms=clock) as store:
        for number in range(MESSAGES):
            store.put([message(number, size=50)], number % 2)
            clock.now_ms += 1000
        messages = list(store.reads.scan())
    return directory, messages


@pytest.fixture(params=["closed", "killed"])
def directory(
    request: pytest.FixtureRequest, written: tuple[Path, list[StoredMessage]], tmp_path: Path
) -> Path:
    """A copy; *killed* after everything was flushed."""
    copied = tmp_path / "store"
    shutil.copytree(written[0], copied)
    if request.param == "killed":
        (copied / "abort").write_text("1")
    return copied


def reopen(directory: Path) -> MessageStore:
    return MessageStore(directory, SMALL, clock_ms=FakeClock(1_800_000_000_000))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def newest(directory: Path) -> Path:
    return max(directory.iterdir())


NOTICED: dict[str, Callable[[Path], object]] = {
    "flipped bit in the last queue file": lambda d: flip(newest(d / "consumequeue/Trade/1"), 7),
    "flipped tags code in the first queue file": lambda d: flip(
        d / "consumequeue/Trade/1" / f"{0:020d}", 39
    ),
    "queue files exchanged": lambda d: swap(
        *(d / "consumequeue/Trade/1" / f"{start:020d}" for start in (0, 140))
    ),
    "no queue": lambda d: shutil.rmtree(d / "consumequeue" / "Trade" / "1"),
    "no last queue file": lambda d: newest(d / "consumequeue/Trade/1").unlink(),
    "no middle queue file": lambda d: (d / "consumequeue/Trade/1" / f"{140:020d}").unlink(),
    "short queue file": lambda d: truncate(newest(d / "consumequeue/Trade/1"), 60),
    "no index": lambda d: shutil.rmtree(d / "index"),
    "no last index file": lambda d: newest(d / "index").unlink(),
    "short index file": lambda d: truncate(newest(d / "index"), 100),
    "flipped bit in an index header": lambda d: flip(newest(d / "index"), 39),
    "no checkpoint": lambda d: (d / "checkpoint").unlink(),
    "flipped bit in the checkpoint": lambda d: flip(d / "checkpoint", 6),
    "no stopped.json": lambda d: (d / "stopped.json").unlink(),
    "noise in stopped.json": lambda d: (d / "stopped.json").write_bytes(b"\0{"),
}


@pytest.mark.parametrize("fault", NOTICED)
def test_what_the_log_can_tell_is_noticed_and_made_again(directory: Path, fault: str) -> None:
    NOTICED[fault](directory)
    with reopen(directory) as store:
        assert store.recovery is not None
        assert not store.recovery.was_clean
        assert check_whole(store) == MESSAGES
        assert store.verify().problems == ()
    with reopen(directory) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean


def test_a_queue_file_that_is_too_long_is_cut_to_its_size(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = directory / "consumequeue/Trade/1" / f"{140:020d}"
    file.write_bytes(file.read_bytes() + b"foreign")
    with reopen(directory) as store:
        assert check_whole(store) == MESSAGES
        assert store.verify().problems == ()
    assert file.stat().st_size == 140
    assert "147 bytes where 140 are expected; it is cut" in caplog.text


HIDDEN: dict[str, Callable[[Path], object]] = {
    "flipped bit in the first index file": lambda d: flip(min((d / "index").iterdir()), 83),
    "index files exchanged": lambda d: swap(*sorted((d / "index").iterdir())[:2]),
}


@pytest.mark.parametrize("fault", HIDDEN)
def test_what_opening_does_not_look_at_is_found_and_repaired_on_request(
    directory: Path, fault: str
) -> None:
    HIDDEN[fault](directory)
    with MessageStore(directory, read_only=True, clock_ms=FakeClock()) as store:
        assert store.verify().problems
    with MessageStore(directory, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        assert check_whole(store) == MESSAGES
        assert store.verify().problems == ()


def test_a_changed_queue_file_is_named_in_the_log_and_in_the_report(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = f"consumequeue/Trade/1/{0:020d}"
    flip(directory / file, 39)
    reopen(directory).close()
    cause = f"it changed since it was closed: the content of {file}"
    assert cause in caplog.text
    past = read_past_recovery(directory)
    assert past is not None
    assert past.report.cause == cause
    assert past.report.queue_entries_put == 1


def test_a_changed_queue_file_is_repaired_also_by_the_opening_after_one_that_was_killed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(directory / "consumequeue/Trade/1" / f"{0:020d}", 39)

    def is_killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store_files, "recover", is_killed)
        with pytest.raises(KeyboardInterrupt):
            reopen(directory)
    assert (directory / "abort").exists()
    with reopen(directory) as store:
        assert store.verify().problems == ()


@pytest.mark.parametrize("salvage", Salvage)
@pytest.mark.parametrize("position", [9, 30], ids=["tags code", "bitmap"])
def test_units_in_a_changed_file_are_not_used_any_more(
    tmp_path: Path, position: int, salvage: Salvage
) -> None:
    """A wrong bitmap would make a filter reject its message, and the log does not tell of it."""
    config = replace(SMALL, consume_queue_ext=True, consume_queue_ext_segment_bytes=1024)
    with MessageStore(tmp_path, config, clock_ms=FakeClock(), bitmap_source=Bitmaps()) as store:
        for number in range(MESSAGES):
            store.put([message(number)], 0)
    files = sorted((tmp_path / "consumequeue_ext/Trade/0").iterdir())
    assert len(files) > 1
    with MessageStore(tmp_path, clock_ms=FakeClock(), adds_units=False) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean
        assert all(entry.unit for entry in entries(store))
    flip(files[0], position)
    with MessageStore(tmp_path, salvage=salvage, clock_ms=FakeClock(), adds_units=False) as store:
        assert check_whole(store) == MESSAGES
        assert not any(entry.unit for entry in entries(store))
        assert store.verify().problems == ()


def entries(store: MessageStore) -> list[QueueEntry]:
    queue = store._files.queues.get("Trade", 0)
    return [queue.entry(at) for at in range(MESSAGES)]


class Bitmaps:
    """The same for every message."""

    def bitmaps(
        self,
        topic: str,
        data: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8]:
        del topic, data, starts
        return np.full((len(sizes), 14), 255, np.uint8)


@pytest.mark.parametrize("field", ["size", "magic", "crc", "queue offset", "offset", "body"])
@pytest.mark.parametrize("number", [0, 7, 20])
def test_a_flipped_bit_in_the_log_costs_that_record_and_is_reported(
    directory: Path,
    written: tuple[Path, list[StoredMessage]],
    field: str,
    number: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    messages = written[1]
    victim = messages[number]
    position = {
        "size": 3, "magic": 5, "crc": 9, "queue offset": 27, "offset": 35, "body": 90,
    }[field]  # fmt: skip
    start = victim.physical_offset // 4096 * 4096
    flip(directory / "commitlog" / f"{start:020d}", victim.physical_offset - start + position)
    others = messages[:number] + messages[number + 1 :]
    with MessageStore(directory, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        assert store.recovery is not None
        assert store.recovery.bytes_kept_aside == 0
        assert any(hole.start == victim.physical_offset for hole in store.recovery.holes)
        for queue_id in (0, 1):
            assert [one for one in read_all(store, "Trade", queue_id) if one != victim] == [
                one for one in others if one.queue_id == queue_id
            ]
            assert victim not in read_all(store, "Trade", queue_id)
        next_one = store.put([message(99)], victim.queue_id)[0]
        assert next_one.queue_offset == MESSAGES // 2
    assert f"offsets {victim.physical_offset} to" in caplog.text


@pytest.mark.parametrize("number", [0, 7, 20])
def test_a_flipped_bit_in_a_queue_id_costs_two_messages_at_most_and_is_reported(
    directory: Path, written: tuple[Path, list[StoredMessage]], number: int
) -> None:
    """Nothing in the format tells which of two records with one queue offset is the right one."""
    victim = written[1][number]
    start = victim.physical_offset // 4096 * 4096
    flip(directory / "commitlog" / f"{start:020d}", victim.physical_offset - start + 15)
    with MessageStore(directory, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        assert store.recovery is not None
        assert store.recovery.holes
        read = [one for queue_id in (0, 1) for one in read_all(store, "Trade", queue_id)]
    assert len({one.body for one in read} & {one.body for one in written[1]}) >= MESSAGES - 2


def test_files_of_the_log_that_are_gone_are_refused_until_salvage_is_asked_for(
    directory: Path, written: tuple[Path, list[StoredMessage]]
) -> None:
    second = sorted((directory / "commitlog").glob("0*"))[1]
    second.unlink()
    with pytest.raises(CorruptRecordError, match="rocketray store recover"):
        reopen(directory)
    with MessageStore(directory, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        start = int(second.name)
        kept = [one for one in written[1] if not start <= one.physical_offset < start + 4096]
        assert list(store.reads.scan()) == kept
        assert store.recovery is not None
        assert store.recovery.files_repaired == 1
        (hole,) = store.recovery.holes
        assert (hole.start, hole.end) == (start, start + 4096)


def test_files_of_the_log_that_were_exchanged_are_refused_until_salvage_is_asked_for(
    directory: Path, written: tuple[Path, list[StoredMessage]]
) -> None:
    first, second, *_ = sorted((directory / "commitlog").glob("0*"))
    swap(first, second)
    with pytest.raises(CorruptRecordError, match=f"{first.name}.*begins with .* {second.name}"):
        reopen(directory)
    with MessageStore(directory, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        assert list(store.reads.scan()) == [
            one for one in written[1] if one.physical_offset >= 8192
        ]
        assert store.recovery is not None
        assert store.recovery.holes


@pytest.mark.parametrize("size", [0, 1000, 4095, 4097, 8192, 8193])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_log_file_of_another_size_is_refused_after_a_clean_stop_until_salvage_is_asked_for(
    written: tuple[Path, list[StoredMessage]], tmp_path: Path, place: str, size: int
) -> None:
    copied = tmp_path / "store"
    shutil.copytree(written[0], copied)
    files = sorted((copied / "commitlog").glob("0*"))
    assert len(files) > 2
    victim = {"first": files[0], "middle": files[1], "last": files[-1]}[place]
    content = victim.read_bytes()
    victim.write_bytes((content + b"foreign" * 1000)[:size])
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    remedy = "store recover" if size <= 8192 else "truncate --size=4096"
    with pytest.raises(CorruptRecordError, match=f"{victim.name}.* {size} bytes .*{remedy}"):
        reopen(copied)
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
    if size > 8192:
        truncate(victim, 4096)
    with MessageStore(copied, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
        start = int(victim.name)
        kept = [
            one
            for one in written[1]
            if not start + min(size, 4096) < one.physical_offset + one.size <= start + 4096
        ]
        assert list(store.reads.scan()) == kept
    if 4096 < size <= 8192:
        (beside,) = (victim.parent / "broken").iterdir()
        assert beside.read_bytes() == (content + b"foreign" * 1000)[4096:size]
    with reopen(copied) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean
        assert list(store.reads.scan()) == kept


def test_a_missing_last_file_of_a_closed_store_is_refused(
    written: tuple[Path, list[StoredMessage]], tmp_path: Path
) -> None:
    copied = tmp_path / "store"
    shutil.copytree(written[0], copied)
    max((copied / "commitlog").glob("0*")).unlink()
    with pytest.raises(CorruptRecordError, match="when it was closed"):
        reopen(copied)


def test_a_kill_before_a_flush_loses_nothing_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = MessageStore(tmp_path, SMALL, clock_ms=FakeClock())
    store.put([message(number) for number in range(5)], 0)
    kill(store)
    with reopen(tmp_path) as store:
        assert check_whole(store) == 5
    assert "records_read=5" in caplog.text


@pytest.mark.proves(
    "durability",
    "A changed byte costs one record, and is not delivered, after `store recover` either",
)
def test_no_damaged_byte_of_a_record_is_handed_out_after_recover(
    written: tuple[Path, list[StoredMessage]], tmp_path: Path
) -> None:
    """Every second record is damaged, each at another byte, until each byte was."""
    source, messages = written
    victims = messages[1:-1:2]
    for number in range(-(-max(one.size for one in victims) // len(victims))):
        copied = tmp_path / str(number)
        shutil.copytree(source, copied)
        for row, one in enumerate(victims):
            place = one.physical_offset % SMALL.commit_log_segment_bytes
            file = copied / "commitlog" / f"{one.physical_offset - place:020d}"
            flip(file, place + (number * len(victims) + row) % one.size)
        with MessageStore(copied, salvage=Salvage.ALL, clock_ms=FakeClock()) as store:
            found = [one for queue_id in (0, 1) for one in read_all(store, "Trade", queue_id)]
        found.sort(key=lambda one: one.physical_offset)
        assert found == [one for one in messages if one not in victims]
