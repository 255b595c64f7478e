"""A query's lag has the names that users of Spark's Kafka source know."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rocketray as rr

pytestmark = pytest.mark.proves("spark", "`rr.spark.lag_metrics`")


def source(end: object, latest: object) -> dict[str, Any]:
    return {"endOffset": end and json.dumps(end), "latestOffset": latest and json.dumps(latest)}


def test_the_lag_is_that_of_each_queue() -> None:
    end = {"T": {"0": 10, "1": 7}, "@": {"topics": {}}}
    latest = {"T": {"0": 10, "1": 10, "2": 5}}

    assert rr.spark.lag_metrics({"sources": [source(end, latest)]}) == [
        {
            "avgOffsetsBehindLatest": str(8 / 3),
            "maxOffsetsBehindLatest": "5",
            "minOffsetsBehindLatest": "0",
        }
    ]


def test_other_sources_and_those_that_read_nothing_yet_have_none() -> None:
    others = [source({"T": {"0": 1}}, {"T": {"0": 2}}), source(None, None), source(17, 17)]

    assert rr.spark.lag_metrics({"sources": others}) == [{}, {}, {}]
