from __future__ import annotations

import pytest
from support.harness.peer_rows import PeerResult, PeerTurn, row_without


def turn(rate: float, used_us: float, p50_us: float | None = None) -> PeerTurn:
    return PeerTurn(rate, used_us - 1, 1.0, load=2.5, others=0.3, p50_us=p50_us)


@pytest.mark.parametrize(
    ("rate", "used_us", "word"),
    [
        (2.0, 5.0, "ahead"),
        (2.0, 9.9, "mixed"),
        (0.5, 5.0, "mixed"),
        (2.0, 20.0, "mixed"),
        (1.05, 9.9, "level"),
        (0.95, 10.1, "level"),
        (1.05, 20.0, "behind"),
        (0.5, 20.0, "behind"),
    ],
)
def test_ahead_is_what_is_faster_and_uses_less(rate: float, used_us: float, word: str) -> None:
    assert PeerResult([turn(rate, used_us)], [turn(1.0, 10.0)]).word == word


def test_a_ratio_is_the_median_of_those_of_adjacent_turns() -> None:
    ours = [turn(2.0, 1.0), turn(30.0, 1.0), turn(8.0, 1.0)]
    found = PeerResult(ours, [turn(1.0, 4.0), turn(10.0, 2.0), turn(2.0, 3.0)])
    assert found.rate_ratio == pytest.approx(3.0)
    assert found.used_ratio == pytest.approx(3.0)


def test_a_row_has_medians_and_the_load() -> None:
    ours = [turn(9_000, 50.0, 80.0), turn(10_000, 40.0, 90.0), turn(20_000, 30.0, 70.0)]
    row = PeerResult(ours, [turn(1_000, 120.0, 400.0)] * 3).row("`send`", "a client, `flush`")
    assert row == (
        "| `send` | 10.0 k/s, 39.0 + 1.0 µs, p50 80 µs | a client, `flush` "
        "| 1.0 k/s, 119.0 + 1.0 µs, p50 400 µs | 10.00 | 3.00 | ahead | 2.5, 0.3 cores |"
    )


def test_a_peer_that_is_not_there_has_its_reason_in_the_row() -> None:
    row = row_without("values", [turn(9_000, 5.0)], "a client", "there is no java on the path")
    assert row == (
        "| values | 9.0 k/s, 4.0 + 1.0 µs | a client | skipped: there is no java on the path "
        "| | | | 2.5, 0.3 cores |"
    )
