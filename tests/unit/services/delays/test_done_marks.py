from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sim.sim_disk import Bound, SimDisk

from rocketray.services.delays.done_marks import DoneMarks

PER_FILE = 64 * 1024 * 8
DIRECTORY = Path("/done")


def test_nothing_is_asked_of_no_messages(tmp_path: Path) -> None:
    marks = DoneMarks(tmp_path, 0)
    assert marks.of(np.empty(0, np.int64)).tolist() == []
    marks.close()


def marked(marks: DoneMarks, end: int) -> list[int]:
    return np.flatnonzero(marks.are_done(0, end)).tolist()


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_was_marked_is_done_also_after_opening_anew(chance: random.Random) -> None:
    disk, model, end = SimDisk(), set[int](), 2 * PER_FILE + 100
    marks = DoneMarks(DIRECTORY, 0, file_system=disk)
    places = [*range(40), *range(PER_FILE - 20, PER_FILE + 20), *range(end - 30, end)]
    for _ in range(12):
        chosen = chance.sample(places, chance.randrange(8))
        marks.mark(np.array(chosen, np.int64))
        model |= set(chosen)
        if chance.random() < 0.3:
            marks.close()
            marks = DoneMarks(DIRECTORY, 0, file_system=disk)
        start = chance.choice(places)
        stop = min(end, start + chance.randrange(60))
        wanted = [number in model for number in range(start, stop)]
        assert marks.are_done(start, stop).tolist() == wanted
        several = np.array(chance.sample(places, 10))
        assert marks.of(several).tolist() == [place in model for place in several.tolist()]
        assert marks.first_open(end) == next(n for n in range(end + 1) if n not in model)
    assert marked(marks, end) == sorted(model)


def test_a_power_failure_takes_no_mark_that_was_made_and_makes_none(rng: random.Random) -> None:
    disk = SimDisk()
    marks = DoneMarks(DIRECTORY, 0, file_system=disk)
    marks.mark(np.array([1, 5, 4096 * 8, PER_FILE + 1]))
    sure = [1, 5, 4096 * 8, PER_FILE + 1]

    class PowerGoneError(Exception):
        pass

    def fail(name: str, _: Path) -> None:
        if name == "sync":
            raise PowerGoneError

    disk.before = fail
    late = [2, 4096 * 8 + 3, PER_FILE + 9]
    try:
        marks.mark(np.array(late))
    except PowerGoneError:
        disk.before = lambda _name, _path: None
    outcomes = 0
    for outcome in disk.outcomes(Bound(64, 20), rng):
        found = marked(DoneMarks(DIRECTORY, 0, file_system=outcome.disk()), PER_FILE + 100)
        assert set(sure) <= set(found) <= {*sure, *late}
        outcomes += 1
    assert outcomes > 1


def test_files_of_messages_that_are_done_go(tmp_path: Path) -> None:
    marks = DoneMarks(tmp_path, 0)
    marks.mark(np.arange(PER_FILE, dtype=np.int64))
    marks.mark(np.array([PER_FILE + 5]))
    assert len(list(tmp_path.iterdir())) == 2
    marks.forget_before(PER_FILE + 2)
    assert len(list(tmp_path.iterdir())) == 1
    marks.close()
    marks = DoneMarks(tmp_path, 0)
    assert marks.of(np.array([3])).all()
    assert marks.first_open(PER_FILE + 100) == PER_FILE
    marks.close()


def test_marks_begin_where_the_queue_does(tmp_path: Path) -> None:
    marks = DoneMarks(tmp_path, 5 * PER_FILE + 17)
    assert marks.of(np.array([5 * PER_FILE + 17, 4 * PER_FILE])).tolist() == [False, True]
    marks.mark(np.array([7 * PER_FILE + 1]))
    assert marks.are_done(7 * PER_FILE, 7 * PER_FILE + 3).tolist() == [False, True, False]
    marks.close()
