"""A report is good only when everything is as brute force says, and its JSON is the promised one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.cli.terminal.output import emit
from rocketray_demo.queries import Lookup
from rocketray_demo.report import ConsumerResult, DemoReport, SparkResult
from rocketray_demo.tally import Delays

GOOD = DemoReport(
    directory=Path("/runs/1"),
    rows=20,
    produced=20,
    consumers=(
        ConsumerResult("destinations", "tags 'UA || DL'", 7, 7, 2000.0),
        ConsumerResult("red_eyes", "where 'm:f'", 3, 3, 1000.04),
    ),
    delays={"ATL": Delays(2, 2, 3)},
    expected_delays={"ATL": Delays(2, 2, 3)},
    spark=SparkResult(Path("/runs/1/late.parquet"), "sql 'a > 1'", 4, 4),
    lookups=(Lookup("id", "0A", 1, 1, is_right=True, ms=0.5004),),
    produce_per_s=3000.0,
)


def test_the_json_is_the_promised_one() -> None:
    assert GOOD.to_json() == {
        "ok": True,
        "rows": 20,
        "produced": 20,
        "consumers": [
            {"name": "destinations", "filter": "tags 'UA || DL'", "matched": 7, "expected": 7},
            {"name": "red_eyes", "filter": "where 'm:f'", "matched": 3, "expected": 3},
        ],
        "spark": {"path": "/runs/1/late.parquet", "rows": 4, "expected": 4},
        "queries": [{"by": "id", "arg": "0A", "found": 1, "ms": 0.5}],
        "produce_per_s": 3000.0,
        "consume_per_s": 1000.0,
    }


@pytest.mark.parametrize(
    "report",
    [
        replace(GOOD, produced=19),
        replace(GOOD, consumers=(replace(GOOD.consumers[0], matched=8), GOOD.consumers[1])),
        replace(GOOD, delays={"ATL": Delays(2, 2, 4)}),
        replace(GOOD, spark=replace(GOOD.spark, rows=3)),
        replace(GOOD, lookups=(replace(GOOD.lookups[0], is_right=False),)),
    ],
    ids=["produced", "matched", "delays", "spark", "lookups"],
)
def test_one_difference_is_enough(report: DemoReport, capsys: pytest.CaptureFixture[str]) -> None:
    assert GOOD.ok
    assert not report.ok
    assert report.to_json()["ok"] is False
    emit((), report.shown(), as_json=False)
    assert "COUNTS DIFFER" in capsys.readouterr().out


def test_the_table_shows_every_count(capsys: pytest.CaptureFixture[str]) -> None:
    emit((), GOOD.shown(), as_json=False)
    out = capsys.readouterr().out
    for text in ("destinations", "tags 'UA || DL'", "0A", "/runs/1/late.parquet", "3,000 msg/s"):
        assert text in out
    assert "WRONG" not in out
