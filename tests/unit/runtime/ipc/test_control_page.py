"""Shared numbers: publishing, waiting, and fencing."""

from __future__ import annotations

import errno
import os
import random
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.harness.patience import patience

from rocketray.errors import ShardFencedError, StoreError, StoreVersionError
from rocketray.kernels import futex
from rocketray.runtime.ipc import control_page
from rocketray.runtime.ipc.control_page import AdaptiveSpin, ControlPage, Doorbell


def test_a_waiter_wakes_on_the_publication(tmp_path: Path) -> None:
    page = ControlPage(tmp_path / "control", create=True)
    other = ControlPage(tmp_path / "control")
    seen: list[int] = []
    waiter = threading.Thread(target=lambda: seen.append(other.epoch.wait_above(0, 30.0)))
    waiter.start()
    page.epoch.publish(7)
    waiter.join(patience(20))
    assert seen == [7]


def test_a_waiter_gives_up_when_the_time_is_over(tmp_path: Path) -> None:
    page = ControlPage(tmp_path / "control", create=True)
    begun = time.monotonic()
    assert page.epoch.wait_above(0, 0.12) == 0
    assert time.monotonic() - begun >= 0.11


def test_a_waiter_takes_its_time_though_smaller_values_wake_it(tmp_path: Path) -> None:
    page = ControlPage(tmp_path / "control", create=True)
    is_over = threading.Event()

    def publish() -> None:
        for value in range(1, 100):
            page.epoch.publish(value)
            if is_over.wait(0.002):
                return

    publishing = threading.Thread(target=publish)
    begun = time.monotonic()
    publishing.start()
    assert page.epoch.wait_above(100, 0.2) < 100
    assert time.monotonic() - begun >= 0.19
    is_over.set()
    publishing.join()


def test_a_waiter_looks_before_it_sleeps_only_where_the_last_answer_came_soon() -> None:
    spin = AdaptiveSpin()
    cycles = spin.cycles
    spin.learn(0.001)
    assert spin.cycles == 0 < cycles
    spin.learn(0.00005)
    assert spin.cycles == cycles


def test_a_wait_with_patience_ends_with_the_publication_or_the_time(tmp_path: Path) -> None:
    page = ControlPage(tmp_path / "control", create=True)
    spin = AdaptiveSpin()
    assert page.epoch.wait_above(0, 0.01, spin) == 0
    assert spin.cycles == 0
    page.epoch.publish(7)
    assert page.epoch.wait_above(0, 30.0, spin) == 7


def test_rings_of_many_threads_are_all_counted(tmp_path: Path) -> None:
    bell = Doorbell(tmp_path / "bell")

    def ring_often() -> None:
        for _ in range(1000):
            bell.ring()

    ringers = [threading.Thread(target=ring_often) for _ in range(4)]
    for ringer in ringers:
        ringer.start()
    for ringer in ringers:
        ringer.join()
    assert bell.count() == 4000


def test_an_older_incarnation_is_fenced(tmp_path: Path) -> None:
    old = ControlPage(tmp_path / "control", create=True)
    epoch = old.take_epoch()
    old.check_epoch(epoch)
    newer = ControlPage(tmp_path / "control", create=True)
    assert newer.take_epoch() == epoch + 1
    with pytest.raises(ShardFencedError, match="nothing was appended"):
        old.check_epoch(epoch)


def test_a_page_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "control").write_bytes(b"x" * 4096)
    with pytest.raises(StoreVersionError):
        ControlPage(tmp_path / "control")
    with pytest.raises(FileNotFoundError):
        ControlPage(tmp_path / "missing")


def test_a_sleeper_is_woken_by_each_line_that_it_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr(control_page, "_WAIT_SLICE_S", 100.0)  # a wake-up that is lost is seen
    bell = Doorbell(tmp_path / "bell")
    pages = [ControlPage(tmp_path / str(number), create=True) for number in range(5)]
    assert all(bell.watch(page.watermark) for page in pages)
    sent, awake = 400, threading.Semaphore(0)

    def publish() -> None:
        for number in range(1, sent + 1):
            if rng.random() < 0.2:
                bell.ring()
            else:
                page = rng.choice(pages)
                page.publish_visible(page.visible() + 1)
            if number % 7 == 0:
                assert awake.acquire(timeout=patience(30))  # the sleeper has seen it

    publisher = threading.Thread(target=publish)
    publisher.start()
    before = total = 0
    while total < sent:
        rung = bell.count()
        total = rung + sum(page.visible() for page in pages)
        if total > before:
            for _ in range(total // 7 - before // 7):
                awake.release()
            before = total
        else:
            bell.wait(rung, 30.0)
    publisher.join(patience(30))
    assert not publisher.is_alive()


def test_what_is_watched_no_more_wakes_nobody_and_a_wait_ends_with_its_time(
    tmp_path: Path,
) -> None:
    bell = Doorbell(tmp_path / "bell")
    one, other = (ControlPage(tmp_path / name, create=True) for name in ("one", "other"))
    bell.watch(one.watermark)
    bell.watch(other.watermark)
    bell.unwatch(one.watermark)
    bell.unwatch(one.watermark)
    rung = bell.count()
    one.publish_visible(1)
    begun = time.monotonic()
    bell.wait(rung, 0.12)
    assert time.monotonic() - begun >= 0.11
    other.publish_visible(1)
    bell.wait(rung, 30.0)


def test_a_line_that_changes_before_the_sleep_ends_it(tmp_path: Path) -> None:
    bell = Doorbell(tmp_path / "bell")
    page = ControlPage(tmp_path / "control", create=True)
    bell.watch(page.watermark)
    rung = bell.count()
    page.publish_visible(1)
    bell.wait(rung, 30.0)
    lines, seen = (np.array([value], np.int64) for value in (page.watermark.address, 0))
    futex.wait_any(lines, seen, 30 * 10**9)
    futex.wait_any_without_futex(lines, seen, 2**62, seen)
    now = np.zeros(1, np.int64)
    futex.load_all(lines, now)
    assert now.tolist() == [1]
    futex.load_all_without_futex(lines, seen)
    assert seen.tolist() == [1]


def test_functions_without_futex_agree_with_the_kernels(tmp_path: Path) -> None:
    bell = Doorbell(tmp_path / "bell")
    address = bell._line.address
    futex.publish_without_futex(address, 41)
    assert futex.load(address) == futex.load_without_futex(address) == 41
    futex.ring(address)
    assert futex.load_without_futex(address) == 42
    futex.ring_without_futex(address)
    assert futex.wait_above(address, 42, 10**9) == 43
    assert futex.wait_above(address, 43, 10**6) == 43
    count = bell._file.line(2).address
    futex.ring_for(count, address)
    futex.ring_for_without_futex(count, address)
    assert futex.load(count) == 2
    assert futex.wait_above(address, 44, 10**9) == 45


@pytest.mark.parametrize(
    ("number", "what"),
    [(errno.ENODEV, "not enough memory for it"), (errno.ENOMEM, r"vm\.max_map_count")],
)
def test_a_file_that_cannot_be_mapped_goes_only_where_nobody_else_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, what: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    bell = Doorbell(tmp_path / "bell")
    with monkeypatch.context() as patch:
        patch.setattr("rocketray.store.files.file_maps.mmap.mmap", fail)
        for name in ("bell", "new"):
            with pytest.raises(StoreError, match=what):
                Doorbell(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["bell"]
    Doorbell(tmp_path / "bell").ring()
    assert bell.count() == 1


def test_neither_a_link_nor_another_user_s_file_is_shared_memory(tmp_path: Path) -> None:
    Doorbell(tmp_path / "bell").ring()
    (tmp_path / "link").symlink_to(tmp_path / "bell")
    with pytest.raises(OSError, match="symbolic links"):
        Doorbell(tmp_path / "link")
    if os.getuid() == 0:
        os.chown(tmp_path / "bell", 65534, 65534)
        with pytest.raises(StoreError, match="another user created it"):
            Doorbell(tmp_path / "bell")


def test_directories_of_rings_are_for_this_user_alone(tmp_path: Path) -> None:
    Doorbell(tmp_path / "producers" / "T" / "bell")
    for path in (tmp_path / "producers", tmp_path / "producers" / "T"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
