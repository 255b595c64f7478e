from __future__ import annotations

import pytest

from rocketray.topology.delivery.retry import FIRST_DELAY_S, MAX_DELAY_S, backoff_s


def test_the_pause_doubles_up_to_a_limit() -> None:
    pauses = [backoff_s(attempts) for attempts in range(1, 20)]
    assert pauses[:3] == pytest.approx([FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S])
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_DELAY_S


def test_any_number_of_attempts_has_a_pause() -> None:
    assert backoff_s(0) == FIRST_DELAY_S
    assert backoff_s(10**9) == MAX_DELAY_S
