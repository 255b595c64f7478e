"""The gaps of a queue: every question against a set of offsets, and the file."""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from rocketray.errors import CorruptRecordError, StoreVersionError
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.queues.gap_ranks import ranks_of
from rocketray.store.queues.gaps_file import GAPS_FILE, gaps_of, read_gaps, write_gaps
from rocketray.store.queues.queue_gaps import QueueGaps

END = 60


def test_every_question_has_the_answer_of_a_set(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        pairs = [
            (start, start + chance.randrange(12))
            for start in chance.choices(range(END), k=chance.randrange(5))
        ]
        gaps, missing = QueueGaps(pairs), set(chain.from_iterable(range(*each) for each in pairs))
        assert gaps == QueueGaps(reversed(pairs))
        assert bool(gaps) == bool(missing)
        there = [offset for offset in range(3 * END) if offset not in missing]
        start, stop = sorted(chance.choices(range(2 * END), k=2))
        inside = [offset for offset in there if start <= offset < stop]
        assert gaps.after(start) == next(offset for offset in there if offset >= start)
        before = max((offset + 1 for offset in there if offset < stop), default=0)
        assert gaps.before(stop) == before
        assert gaps.count(start, stop) == len(inside)
        assert (
            list(chain.from_iterable(range(*each) for each in gaps.outside(start, stop))) == inside
        )
        between = set(chain.from_iterable(range(*each) for each in gaps.between(start, stop)))
        assert between == missing & set(range(start, stop))
        assert ranks_of(np.array(there), gaps).tolist() == list(range(len(there)))
        count = chance.randrange(1, 20)
        assert gaps.ahead(start, count) == [one for one in there if one >= start][count - 1] + 1
        older = [offset for offset in there if offset < stop]
        assert gaps.back(stop, count) == (older[-count] if count <= len(older) else 0)
        wanted = chance.randrange(2 * END)
        found = gaps.find(lambda at, wanted=wanted: at >= wanted, start, stop)  # type: ignore[misc]
        assert found == next((one for one in inside if one >= wanted), stop)
        kept = {one for pair in gaps.from_offset(start).pairs for one in range(*pair)}
        assert {one for one in kept if one >= start} == {one for one in missing if one >= start}
        added = gaps.with_gap(start, stop)
        assert added.count(0, 3 * END) == len(there) - len(inside)


def test_the_file_has_the_gaps_of_each_queue(tmp_path: Path) -> None:
    assert read_gaps(tmp_path) == {}
    gaps = {("Trade", 0): QueueGaps([(3, 9), (20, 21)]), ("%RETRY%g", 7): QueueGaps([(0, 5)])}
    write_gaps(tmp_path, gaps, SYSTEM_FILES)
    assert read_gaps(tmp_path) == gaps
    assert gaps_of(tmp_path, "%RETRY%g", 7).pairs == ((0, 5),)
    assert not gaps_of(tmp_path, "Trade", 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":1}',
        b'{"version":1,"queues":{"T":[[1,2]]}}',
        b'{"version":1,"queues":{"T/0":[[1]]}}',
        b'{"version":1,"queues":{"T/0":[[-1,2]]}}',
        b'{"version":1,"queues":{"T/0":[[1,1e9]]}}',
        b'{"version":1,"queues":{"T/0":[[1,9223372036854775807]]}}',
    ],
)
def test_a_damaged_file_is_refused_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / GAPS_FILE).write_bytes(content)
    with pytest.raises(CorruptRecordError, match=f"{GAPS_FILE}.*rocketray store recover"):
        read_gaps(tmp_path)


def test_a_file_of_a_later_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / GAPS_FILE).write_bytes(b'{"version":2,"queues":{}}')
    with pytest.raises(StoreVersionError, match=f"{GAPS_FILE}: its version is 2"):
        read_gaps(tmp_path)
