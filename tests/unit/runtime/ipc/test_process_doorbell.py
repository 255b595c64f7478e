"""The doorbell of a process: which slots were rung, and that no ring is missed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rocketray.runtime.ipc.process_doorbell import SLOTS, ProcessDoorbell, RungSlots


def test_each_watched_slot_is_returned_once_after_it_was_rung(tmp_path: Path) -> None:
    doorbell = ProcessDoorbell(tmp_path / "bell")
    bells = [ProcessDoorbell(tmp_path / "bell").bell("T", queue_id) for queue_id in range(3)]
    slots = [ProcessDoorbell.slot("T", queue_id) for queue_id in range(3)]
    rung = RungSlots(doorbell)
    bells[0].ring()
    assert rung.take() == [], "none is watched yet"
    rung.watch(slots[:2])
    assert rung.take() == [slots[0]], "also if it was rung before it was watched"
    assert rung.take() == []
    for bell in (*bells, *bells):
        bell.ring()
    assert rung.take() == slots[:2]
    rung.watch(reversed(slots))
    assert rung.take() == [slots[2]]
    assert doorbell.count() == 7
    doorbell.ring()
    assert (doorbell.count(), rung.take()) == (8, [])


def test_threads_with_slots_of_their_own_see_each_ring(tmp_path: Path) -> None:
    doorbell = ProcessDoorbell(tmp_path / "bell")
    one, other = RungSlots(doorbell), RungSlots(doorbell)
    for rung in (one, other):
        rung.watch(range(SLOTS))
    doorbell.bell("T", 5).ring()
    slot = ProcessDoorbell.slot("T", 5)
    assert one.take() == other.take() == [slot]


def test_a_count_that_wraps_is_a_change(tmp_path: Path) -> None:
    doorbell = ProcessDoorbell(tmp_path / "bell")
    slot = ProcessDoorbell.slot("T", 0)
    doorbell.counts[slot] = np.int64(0xFFFFFFFF)  # only the low half counts
    rung = RungSlots(doorbell)
    rung.watch([slot])
    assert rung.take() == [slot]
    doorbell.bell("T", 0).ring()
    assert doorbell.counts[slot] == 0
    assert rung.take() == [slot]
