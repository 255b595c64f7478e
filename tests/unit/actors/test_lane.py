"""How long a producer collects messages between two hand-overs."""

from __future__ import annotations

import pytest

from rocketray.actors.lane import collecting_s


def test_a_producer_collects_for_four_times_as_long_as_it_hands_over_within_bounds() -> None:
    assert collecting_s(0.00005) == pytest.approx(0.0002)
    assert collecting_s(0.0) == pytest.approx(0.0001)
    assert collecting_s(1.0) == pytest.approx(0.0005)
