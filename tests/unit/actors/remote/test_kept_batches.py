from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rocketray.actors.remote import kept_batches
from rocketray.actors.remote.kept_batches import KeptBatches


@dataclass(frozen=True)
class Batch:
    """What counts of a batch here."""

    queue_id: int
    number: int
    size_bytes: int = 0


def make(*parts: tuple[int, int]) -> Any:
    return [Batch(*part) for part in parts]


def test_what_waits_goes_before_what_comes_later() -> None:
    kept = KeptBatches()
    assert kept.sort(make((0, 1), (1, 1), (0, 2)), {0}) == make((1, 1))
    assert kept.take({0}) == []
    assert kept.sort(make((0, 3), (1, 2)), ()) == make((1, 2))
    assert [kept.take(()) for _ in range(4)] == [
        make((0, 1)), make((0, 2)), make((0, 3)), []
    ]  # fmt: skip
    assert kept.sort(make((0, 4)), ()) == make((0, 4))


def test_a_queue_with_much_here_is_left_alone_until_nothing_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_batches, "_MUCH_BYTES", 100)
    monkeypatch.setattr(kept_batches, "_MANY", 3)
    kept = KeptBatches()
    large: Any = [Batch(0, 1, 60), Batch(1, 1), Batch(0, 2, 60), Batch(1, 2)]
    kept.sort(large, {0, 1})
    assert kept.left_alone() == {0}
    kept.sort(make((1, 3)), {0, 1})
    assert kept.left_alone() == {0, 1}
    kept.take(())
    assert kept.left_alone() == {0, 1}
    kept.take({1})
    assert kept.left_alone() == {1}
    kept.drop([1])
    assert kept.left_alone() == set()
    assert kept.take(()) == []
