"""Commits of Spark's batches: what the driver is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.queries.spark import topic_writer
from rocketray.queries.spark.topic_writer import StagedTask, TopicBatchWriter, _Rows
from rocketray.runtime.files.fragment_file import BatchName, Fragment, new_fragment


@pytest.mark.parametrize("verdict", ["decided", "repeated"])
def test_a_batch_that_was_decided_before_is_told(
    verdict: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = SimpleNamespace(decide=lambda _wanted: verdict)
    client = SimpleNamespace(calls=calls, wait_applied=lambda *_: True)
    monkeypatch.setattr(topic_writer, "StagingClient", lambda _place: client)
    place: Any = None
    columns: Any = None
    batch = BatchName("app", 7)
    rows = _Rows(place, columns, "Out", is_exactly_once=True)
    writer = TopicBatchWriter(rows, batch, is_single=False)

    writer.commit([StagedTask(batch, "run", Fragment(new_fragment(batch), 100, 3))])

    assert ("batch 7 of app was decided before" in caplog.text) == (verdict == "repeated")
