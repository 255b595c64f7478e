"""Which failures are logged with their traceback."""

from __future__ import annotations

from itertools import pairwise

from rocketray.topology.delivery.trace_limit import TraceLimit


def raised(text: str) -> ValueError:
    try:
        float(f"no number: {text}")
    except ValueError as error:
        return error
    raise AssertionError


def raised_elsewhere(text: str) -> ValueError:
    try:
        float(f"no number: {text}")
    except ValueError as error:
        return error
    raise AssertionError


def test_a_kind_of_failure_is_traced_once_and_then_ever_more_seldom() -> None:
    limit = TraceLimit()
    traced = [now for now in range(5 * 3600) if limit.allows(raised(str(now)), now)]
    pauses = [after - before for before, after in pairwise(traced)]
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_another_type_and_another_line_are_another_kind() -> None:
    limit = TraceLimit()
    others = [raised("a"), raised_elsewhere("a"), KeyError("a"), KeyError("b")]
    assert [limit.allows(error, 0) for error in others] == [True, True, True, False]


def test_what_it_remembers_is_bounded() -> None:
    limit = TraceLimit()
    kinds = [type(f"Kind{number}", (Exception,), {}) for number in range(1000)]
    assert all(limit.allows(kind(), 0) for kind in kinds)
    assert len(limit._next) < 100
    assert not limit.allows(kinds[-1](), 0)
    assert limit.allows(kinds[0](), 0), "it was forgotten"
