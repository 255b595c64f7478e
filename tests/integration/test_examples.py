"""The examples run on their own and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_trade_gives_each_system_what_it_subscribed_to() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "trade.py"], capture_output=True, text=True, check=True
    )
    orders = ["order 17: two books", "order 18: a lamp"]
    paid, shipped = "order 17: paid 120", "order 17: on its way"
    tags = ["a tag", "another tag with the same hash"]
    rows = [line.split("  ", 1)[0] for line in done.stdout.splitlines()]
    texts = [line[28:].split(" | ") for line in done.stdout.splitlines()]
    assert dict(zip(rows, texts, strict=True)) == {
        "logistics": [shipped],
        "payment": [paid],
        "success-rate": [orders[0], paid, orders[1]],
        "real-time": [orders[0], paid, shipped, orders[1], *tags],
        "collision": ["a tag"],
    }
