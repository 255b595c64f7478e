"""The tests that docs/how-to/testing.md shows are run as they stand there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.harness.source_tree import ROOT

from rocketray.testing import Broker, Clock
from rocketray.testing.faults import Faults

pytestmark = pytest.mark.proves(
    "documentation",
    "The tests of the page about testing pass, and its faults exist",
)

PAGE = (ROOT / "docs/how-to/testing.md").read_text()


def snippets() -> dict[str, Any]:
    """All names that the page's Python defines."""
    names: dict[str, Any] = {"__name__": "how_to_testing"}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/how-to/testing.md", "exec"), names)
    return names


SHOWN = snippets()


def test_all_of_them_are_here() -> None:
    assert {name for name in SHOWN if name.startswith("test_")} == {
        "test_large_orders_are_charged_once_the_bank_is_back",
        "test_a_group_survives_a_night",
        "test_a_filter",
        "test_what_always_fails_ends_as_a_dead_letter",
    }


def test_an_agent(broker: Broker, clock: Clock) -> None:
    SHOWN["test_large_orders_are_charged_once_the_bank_is_back"](broker, clock)


def test_the_clock(broker: Broker, clock: Clock) -> None:
    SHOWN["test_a_group_survives_a_night"](broker, clock)


def test_the_ladder(broker: Broker, clock: Clock) -> None:
    SHOWN["test_what_always_fails_ends_as_a_dead_letter"](broker, clock)


def test_a_filter(broker: Broker) -> None:
    SHOWN["test_a_filter"](broker)


def test_every_fault_of_the_table_exists() -> None:
    named = set(re.findall(r"`(?:with )?broker\.faults\.(\w+)\(", PAGE))
    assert named == {name for name in vars(Faults) if not name.startswith("_")}
