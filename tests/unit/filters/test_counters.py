from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketray.filters.counters import NO_COUNTERS, FilterCounters

NUMBERS = st.integers(0, 2**40)
COUNTERS = st.builds(FilterCounters, *[NUMBERS] * 9, delivered_on_error=NUMBERS, collisions=NUMBERS)


@given(COUNTERS, COUNTERS)
def test_counters_add_up_number_by_number(one: FilterCounters, other: FilterCounters) -> None:
    assert one + other - other == one
    assert one + NO_COUNTERS == one
    assert (one + other).errors == one.errors + other.errors
    assert (one + other).rejected == one.rejected + other.rejected
