"""A copied store, damaged as a power failure may damage it, and opened again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.stores import SMALL, FakeClock, check_whole, kill, message, read_all

from rocketray.errors import CorruptRecordError
from rocketray.message import Message, StoredMessage
from rocketray.store.formats.record import parse_record
from rocketray.store.message_store import MessageStore

pytestmark = [
    pytest.mark.proves(
        "durability",
        "A torn end of the log costs no record before it, and no part of a record is delivered",
    ),
    pytest.mark.proves(
        "durability",
        "A lost, truncated, lengthened or exchanged log file: opening is refused, recovery "
        "keeps the rest",
    ),
    pytest.mark.proves(
        "durability",
        "Damage and a lost checkpoint after a crash: the rest is cut and kept aside",
    ),
]

MESSAGES = 40


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was killed: 40 messages in 2 queues, one a batch, a second apart."""
    directory = tmp_path_factory.mktemp("written") / "store"
    clock = FakeClock()
    store = MessageStore(directory, SMALL, clock_ms=clock)
    for number in range(MESSAGES):
        store.put([message(number, "Trade", 50)], number % 2)
        clock.now_ms += 1000
        if number == MESSAGES // 2:
            store.flush()
    kill(store)
    return directory


@pytest.fixture
def damaged(written: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    shutil.copytree(written, directory)
    return directory


def reopen(directory: Path) -> MessageStore:
    return MessageStore(directory, SMALL, clock_ms=FakeClock(1_800_000_000_000))


def messages_of(directory: Path) -> list[StoredMessage]:
    with reopen(directory) as store:
        return list(store.reads.scan())


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def last_segment(directory: Path) -> Path:
    return max((directory / "commitlog").glob("0*"))


def field_edges() -> dict[str, Callable[[StoredMessage, Path], int]]:
    """Where each field of a record begins, from the record's own first byte."""

    def fixed(position: int) -> Callable[[StoredMessage, Path], int]:
        return lambda _message, _path: position

    def spanned(field: str) -> Callable[[StoredMessage, Path], int]:
        def find(stored: StoredMessage, path: Path) -> int:
            start = stored.physical_offset % SMALL.commit_log_segment_bytes
            content = path.read_bytes()
            fields = parse_record(content, start, len(content))
            assert not isinstance(fields, str)
            return int(getattr(fields, field)) - start

        return find

    edges = {
        "size": fixed(0), "magic": fixed(4), "crc": fixed(8), "queue id": fixed(12),
        "flag": fixed(16), "queue offset": fixed(20), "physical offset": fixed(28),
        "sys flag": fixed(36), "born time": fixed(40), "born host": fixed(48),
        "store time": fixed(56), "store host": fixed(64), "reconsume times": fixed(72),
        "transaction": fixed(76), "body length": fixed(84), "body": fixed(88),
        "topic": spanned("topic_start"), "topic's end": spanned("topic_end"),
        "properties": spanned("properties_start"),
    }  # fmt: skip
    return {**edges, "last byte": lambda stored, _path: stored.size - 1}


@pytest.mark.parametrize("tail", ["zeros", "ones", "old bytes"])
@pytest.mark.parametrize("edge", field_edges())
def test_a_record_torn_at_a_field_is_cut_and_nothing_else(
    damaged: Path, edge: str, tail: str
) -> None:
    with reopen(damaged) as store:
        before = list(store.reads.scan())
    (damaged / "abort").touch()
    path = last_segment(damaged)
    last = before[-1]
    start = last.physical_offset % SMALL.commit_log_segment_bytes
    at = start + field_edges()[edge](last, path)
    size = SMALL.commit_log_segment_bytes - at
    filling = {"zeros": b"\0", "ones": b"\xff", "old bytes": b"daa320a7"}[tail]
    overwrite(path, at, (filling * size)[:size])

    with reopen(damaged) as store:
        assert list(store.reads.scan()) == before[:-1]
        assert check_whole(store) == MESSAGES - 1
        assert store.recovery is not None
        assert not store.recovery.was_clean
        assert store.recovery.end_offset == last.physical_offset
        kept = store.recovery.bytes_kept_aside
        assert (kept > 0) is (tail != "zeros" or at > start)
        if kept:
            (beside,) = (path.parent / "broken").iterdir()
            assert beside.name == f"{path.name}.broken-{last.physical_offset}"
            assert beside.stat().st_size == kept
        again = store.put([message(99)], last.queue_id)[0]
        assert again.queue_offset > last.queue_offset
        assert again.physical_offset == last.physical_offset
    with reopen(damaged) as store:
        assert check_whole(store) == MESSAGES


def test_opening_twice_recovers_once(damaged: Path) -> None:
    with reopen(damaged) as store:
        assert store.recovery is not None
        assert store.recovery.records_read > 0
        assert check_whole(store) == MESSAGES
    with reopen(damaged) as store:
        assert store.recovery is not None
        assert store.recovery.was_clean
        assert store.recovery.records_read == 0
        assert check_whole(store) == MESSAGES


def test_what_the_checkpoint_vouches_for_is_not_read_again(damaged: Path) -> None:
    with reopen(damaged) as store:
        assert store.recovery is not None
        assert store.recovery.start_offset > 0
        assert 0 < store.recovery.records_read < MESSAGES


FAULTS: dict[str, Callable[[Path], object]] = {
    "no checkpoint": lambda d: d,
    "short checkpoint": lambda d: (d / "checkpoint").write_bytes(b"\1" * 10),
    "no queues": lambda d: shutil.rmtree(d / "consumequeue"),
    "one queue missing": lambda d: shutil.rmtree(d / "consumequeue" / "Trade" / "0"),
    "no index": lambda d: shutil.rmtree(d / "index"),
    "index half made": lambda d: (d / "index" / "20200101000000000.tmp").touch(),
    "segment half made": lambda d: (d / "commitlog" / "00000000000000999999.tmp").touch(),
    "last index file is zeros": lambda d: zero(max((d / "index").iterdir()), 0),
    "all index files are noise": lambda d: noise(*(d / "index").iterdir()),
    "last queue file is zeros": lambda d: zero(last_queue_file(d), 0),
    "last queue file is noise": lambda d: noise(last_queue_file(d)),
    "half of the last queue file is zeros": lambda d: zero(last_queue_file(d), 30),
    "an empty segment follows": lambda d: following(d).write_bytes(bytes(4096)),
    "noise follows": lambda d: following(d).write_bytes(b"\xda\xa3" * 2048),
}


def zero(path: Path, position: int) -> None:
    overwrite(path, position, bytes(path.stat().st_size - position))


def noise(*paths: Path) -> None:
    for path in paths:
        overwrite(path, 0, bytes(i * 37 % 251 for i in range(path.stat().st_size)))


def last_queue_file(directory: Path) -> Path:
    return max((directory / "consumequeue" / "Trade" / "1").iterdir())


def following(directory: Path) -> Path:
    last = last_segment(directory)
    return last.with_name(f"{int(last.name) + 4096:020d}")


@pytest.mark.parametrize("fault", FAULTS)
def test_queues_and_index_are_made_again_from_the_log(damaged: Path, fault: str) -> None:
    (damaged / "checkpoint").unlink()  # else the half that was flushed is rightly trusted
    FAULTS[fault](damaged)
    with reopen(damaged) as store:
        assert check_whole(store) == MESSAGES
        assert [one.queue_offset for one in read_all(store, "Trade", 0)] == list(range(20))
        store.put([message(77)], 0)
    with reopen(damaged) as store:
        assert check_whole(store) == MESSAGES + 1


def test_lost_queues_are_noticed_after_a_clean_stop_too(damaged: Path) -> None:
    with reopen(damaged):
        pass
    shutil.rmtree(damaged / "consumequeue")
    with reopen(damaged) as store:
        assert check_whole(store) == MESSAGES


def flip(path: Path, position: int, bit: int = 4) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ bit]))


def test_a_flipped_bit_that_nothing_vouches_for_cuts_there_and_keeps_what_follows_aside(
    damaged: Path,
) -> None:
    before = messages_of(damaged)
    victim = before[30]
    path = damaged / "commitlog" / f"{victim.physical_offset // 4096 * 4096:020d}"
    flip(path, victim.physical_offset % 4096 + 90)
    (damaged / "abort").touch()
    (damaged / "checkpoint").unlink()
    with reopen(damaged) as store:
        assert list(store.reads.scan()) == before[:30]
        assert check_whole(store) == 30
    kept = b"".join(p.read_bytes() for p in sorted((damaged / "commitlog" / "broken").iterdir()))
    for lost in before[31:]:
        assert lost.body in kept


def test_a_missing_segment_and_a_wrong_size_are_refused(damaged: Path) -> None:
    first, second, *_ = sorted((damaged / "commitlog").glob("0*"))
    moved = second.rename(damaged / "aside")
    with pytest.raises(CorruptRecordError, match=f"the file {second.name} is missing"):
        reopen(damaged)
    moved.rename(second)
    messages_of(damaged)
    with first.open("r+b") as file:
        file.truncate(4000)
    with pytest.raises(CorruptRecordError, match="has 4000 bytes where 4096 are expected"):
        messages_of(damaged)


def test_a_sector_that_was_not_written_is_found_wherever_it_lies(tmp_path: Path) -> None:
    """A record of ten sectors, most of them in one property."""
    config = replace(SMALL, commit_log_segment_bytes=16_384)
    written, note = tmp_path / "written", "".join(map(str, range(1_000)))
    store = MessageStore(written, config, clock_ms=FakeClock())
    store.put([message(0)], 0)
    store.flush(everything=True)
    torn = Message("Trade", b"body", properties={"note": note, "other": note})
    (placed,) = store.put([torn], 0)
    end = int(store.reads.max_physical_offset)
    kill(store)
    for sector in range(placed.physical_offset // 512, -(-end // 512)):
        copied = tmp_path / str(sector)
        shutil.copytree(written, copied)
        start = max(sector * 512, placed.physical_offset)
        overwrite(last_segment(copied), start, bytes(min((sector + 1) * 512, end) - start))
        with MessageStore(copied, clock_ms=FakeClock()) as again:
            assert [one.body for one in again.reads.scan()] == [message(0).body], sector
