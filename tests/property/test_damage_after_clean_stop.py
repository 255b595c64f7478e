"""One flipped bit, or one file cut, lengthened, lost or exchanged, in a store that was closed.

Whatever it was, a group with a tag gets every message of that tag, with its body, or an error says
which record or which file is damaged and what to do. The exception is documented: a flip in a part
of a record without a checksum may hide that one record.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.harness.amounts import tenth
from support.nodes.stores import SMALL, FakeClock, message

from rocketray.base.config import StoreConfig
from rocketray.errors import CorruptRecordError, StreamError
from rocketray.hashing import tags_code
from rocketray.kernels.layout import QUEUE_ID, QUEUE_OFFSET, SYS_FLAG
from rocketray.message import StoredMessage
from rocketray.store.formats.record import parse_record
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader

pytestmark = pytest.mark.proves(
    "durability",
    "A queue or ConsumeQueueExt file that changed after a clean stop is rebuilt from the log",
)

MESSAGES = 60
DAMAGES = 300
TAGS = ("pay", "order", "Aa")
REMEDIES = ("store recover", "restore", "truncate", "move it away", "store upgrade", "newer one")


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


@dataclass(frozen=True)
class Store:
    """A store that was closed, and its messages."""

    directory: Path
    messages: tuple[StoredMessage, ...]


@dataclass(frozen=True)
class Damage:
    """What was done to a store; ``record`` is the message it hit, if it was a flip in one.

    ``is_hidden`` says that it hit a part of the record that has no checksum.
    """

    what: str
    file: Path
    record: StoredMessage | None = None
    is_hidden: bool = False


@pytest.fixture(scope="module", params=["plain", "with units"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    config = replace(SMALL, consume_queue_ext_segment_bytes=1024)
    if request.param == "with units":
        config = replace(config, consume_queue_ext=True)
    return write(tmp_path_factory.mktemp("closed") / "store", config)


def write(directory: Path, config: StoreConfig) -> Store:
    clock = FakeClock()
    with MessageStore(directory, config, clock_ms=clock, bitmap_source=Bitmaps()) as store:
        for number in range(MESSAGES):
            store.put([message(number, size=50)], number % 2)
            clock.now_ms += 1000
        return Store(directory, tuple(store.reads.scan()))


def damage(copy: Path, store: Store, rng: random.Random) -> Damage:
    """Damage one file."""
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size)
    kinds = sorted({path.relative_to(copy).parts[0] for path in files} - {"lock", "recovered.json"})
    kind = rng.choice([*kinds, "commitlog", "consumequeue"])
    of_kind = [path for path in files if path.relative_to(copy).parts[0] == kind]
    file = rng.choice(of_kind)
    content = bytearray(file.read_bytes())
    way = rng.choice(["flip"] * 5 + ["cut", "lengthen", "lose", "exchange"])
    if way == "flip":
        used = len(bytes(content).rstrip(b"\0")) or 1
        position = rng.randrange(used)
        content[position] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        what = f"flip at {position} of {file.relative_to(copy)}"
        return hit(what, file, position, store) if kind == "commitlog" else Damage(what, file)
    if way == "lose":
        file.unlink()
    elif way == "exchange":
        other = rng.choice(of_kind)
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
    else:
        size = rng.randrange(len(content)) if way == "cut" else len(content) + rng.randrange(1, 99)
        file.write_bytes((content + b"x" * 99)[:size])
    return Damage(f"{way} {file.relative_to(copy)}", file)


def hit(what: str, file: Path, position: int, store: Store) -> Damage:
    """Return which record has the byte at *position* of a log file, and whether a CRC covers it."""
    at = int(file.name) + position
    for one in store.messages:
        start = at - one.physical_offset
        if 0 <= start < one.size:
            whole = (store.directory / "commitlog" / file.name).read_bytes()
            fields = parse_record(whole, position - start, len(whole))
            assert not isinstance(fields, str)
            is_checked = (
                start < QUEUE_ID  # size, magic code, CRC
                or QUEUE_OFFSET <= start < SYS_FLAG  # queue offset and physical offset
                or fields.body_start - 4 <= position < fields.body_end
            )
            return Damage(what, file, one, is_hidden=not is_checked)
    return Damage(what, file)


def refused(directory: Path, expected: list[StoredMessage]) -> set[int]:
    """Read as groups with a tag each; return the physical offsets of records with an error.

    All others have to come with their bodies. So have those that no group asks for.
    """
    wrong: set[int] = set()
    for queue_id in (0, 1):
        of_queue = [one for one in expected if one.queue_id == queue_id]
        with QueueReader(directory, "Trade", queue_id) as reader:
            for one in of_queue:
                codes = None if one.tags is None else np.array([tags_code(one.tags)], np.int32)
                try:
                    found = reader.match_tags(one.queue_offset, one.queue_offset + 1, codes)
                    got = [each for each in reader.messages(found) if each.tags == one.tags]
                except CorruptRecordError:
                    wrong.add(one.physical_offset)
                else:
                    assert [each.body for each in got] == [one.body], one
    return wrong


def check(copy: Path, opened: MessageStore, store: Store, done: Damage) -> None:
    """Nobody may miss a message in silence, or get a wrong body."""
    report = opened.recovery
    assert report is not None
    assert report.was_clean == (not report.cause)
    one = done.record
    assert refused(copy, [other for other in store.messages if other != one]) == set()
    if one is None or done.is_hidden:
        return
    is_reported = report.bytes_kept_aside > 0 or any(
        hole.start <= one.physical_offset < hole.end for hole in report.holes
    )
    assert is_reported or refused(copy, [one]) == {one.physical_offset}


def run(store: Store, copy: Path, rng: random.Random) -> str:
    """Damage a copy of *store*, and open it; return how it ended."""
    shutil.copytree(store.directory, copy)
    done = damage(copy, store, rng)
    try:
        return open_and_check(copy, store, done)
    except BaseException as error:
        error.add_note(done.what)
        raise
    finally:
        shutil.rmtree(copy)


def open_and_check(copy: Path, store: Store, done: Damage) -> str:
    """Open a damaged copy as a shard does, and read it; return how it ended."""
    try:
        opened = MessageStore(copy, clock_ms=FakeClock(1_800_000_000_000))
    except StreamError as error:
        reason = str(error)
    else:
        with opened:
            check(copy, opened, store, done)
            assert opened.recovery is not None
            if done.record is not None:
                return "a record"
            return "harmless" if opened.recovery.was_clean else "repaired"
    assert str(copy) in reason
    assert any(remedy in reason for remedy in REMEDIES), reason
    return "refused"


def test_nobody_misses_a_message_in_silence(
    store: Store, tmp_path: Path, rng: random.Random
) -> None:
    wanted, ends = {"harmless", "repaired", "refused", "a record"}, set[str]()
    tried = 0
    while tried < tenth(DAMAGES) or ends != wanted:
        assert tried < 10 * DAMAGES, ends
        ends.add(run(store, tmp_path / "copy", rng))
        tried += 1
