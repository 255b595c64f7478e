"""Whatever stands in the files that processes share: our errors, and no step without an end."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.harness.faults import more_memory_at_most

from rocketray.base.ack_mode import Durability
from rocketray.errors import StoreVersionError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.runtime.ipc.match_ring import CAPACITY, MatchRing, StreamDescription, StreamState
from rocketray.runtime.ipc.ring import SLOT_COUNT, ProducerRing, ShardRing

EXAMPLES = 150
MEMORY_BYTES = 256 << 20
NUMBERS = (0, 1, -1, 31, 2**31, 2**62, -(2**63), 2**63 - 1)
# Where there is something: lines, description, error, slots, frames; the rest is zeros.
PLACES = (range(640), range(4096, 4400), range(36_864, 36_900), range(53_248, 53_700))


def damage(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.choice(rng.choice([place for place in PLACES if place[0] < len(content)]))
        if rng.random() < 0.4:
            at -= at % 8
            content[at : at + 8] = (rng.choice(NUMBERS) % 2**64).to_bytes(8, "little")
        else:
            noise = rng.randbytes(rng.choice((1, 4, 30)))
            content[at : at + len(noise)] = noise
    if rng.random() < 0.1:
        del content[rng.randrange(len(content)) :]
    path.write_bytes(content)


def try_often(tmp_path: Path, make: Callable[[Path], None], use: Callable[[Path], None]) -> None:
    made = tmp_path / "made"
    make(made)
    content = made.read_bytes()
    with more_memory_at_most(MEMORY_BYTES):
        for seed in range(EXAMPLES):
            path = tmp_path / f"{seed}"  # a new file: an old map must not see it change
            path.write_bytes(content)
            damage(path, random.Random(seed))
            try:
                with suppress(StreamError):
                    use(path)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            path.unlink()


def make_producer_ring(path: Path) -> None:
    ring = ProducerRing(path, capacity=4096)
    for number in range(7):
        ring.try_write(bytes([number]) * 200, [*Durability][number % len(Durability)])
    ring.publish()


def drain(path: Path) -> None:
    ring = ShardRing(path)
    ring.interrupted()
    ring.look()
    for _ in range(SLOT_COUNT):
        frame = ring.next_frame()
        if frame is None:
            break
        assert len(frame.payload) <= 4096
        ring.outcome(frame.sequence)
    else:
        pytest.fail("the ring had no end")
    ring.acknowledge()


def test_a_damaged_producers_ring_gives_frames_or_errors(tmp_path: Path) -> None:
    try_often(tmp_path, make_producer_ring, drain)


DESCRIPTION = StreamDescription("Trade", 0, "audit", Subscription.tags("pay || order"), 5, "/bell")


def make_match_ring(path: Path) -> None:
    ring = MatchRing(path, DESCRIPTION)
    ring.write(np.arange(30, dtype=np.int64).reshape(10, 3), 40)
    ring.fail("a reason")


def take(path: Path) -> None:
    ring = MatchRing(path)
    assert ring.state in StreamState
    assert len(ring.error) < 4096
    ring.counters()
    assert 0 <= ring.room() <= CAPACITY
    ring.resume_at()
    with suppress(StreamError):
        ring.description()
    taken, _ = ring.take(1000)
    assert len(taken) <= 1000


def test_a_damaged_match_ring_gives_entries_or_errors(tmp_path: Path) -> None:
    try_often(tmp_path, make_match_ring, take)


def make_page(path: Path) -> None:
    ControlPage(path, create=True).publish_visible(7)


def look(path: Path) -> None:
    page = ControlPage(path)
    page.visible()
    page.minimum()
    page.flushed()
    page.check_epoch(0)


def test_a_damaged_control_page_gives_numbers_or_errors(tmp_path: Path) -> None:
    try_often(tmp_path, make_page, look)


@pytest.mark.parametrize("size", [0, 1, 63, 4095])
@pytest.mark.parametrize("use", [drain, take, look])
def test_a_file_whose_maker_was_killed_is_refused(
    tmp_path: Path, size: int, use: Callable[[Path], None]
) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(size))
    with pytest.raises(StoreVersionError, match=f"has {size} bytes: it was never completed"):
        use(path)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"topic": 3}', b"null", b"[" * 999])
def test_a_description_that_nobody_wrote_is_refused(text: bytes) -> None:
    with pytest.raises(StreamError, match=r"invalid description|is not a name of a topic"):
        StreamDescription.from_json(text)
