"""A view says what the decoded message says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes.stores import NO_CRC, SMALL, FakeClock, message

from rocketray.broker.filtering.record_views import RecordViews
from rocketray.errors import CorruptRecordError
from rocketray.message import Message
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader


def test_a_view_says_what_the_decoded_message_says(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        for number in range(20):
            store.put([message(number)], 0)
        store.put([Message("Trade", b"plain")], 0)
    with QueueReader(tmp_path, "Trade", 0) as reader:
        entries = reader.entries(0, 21)
        views = RecordViews(reader, entries)
        whole = reader.messages(entries)
    assert len(views) == 21
    for index, one in enumerate(whole):
        view = views[index]
        assert (view.topic, view.tags, view.body) == (one.topic, one.tags, one.body)
        assert view.properties == one.properties
        assert view.keys == one.keys
        assert view.queue_offset == one.queue_offset
        assert view.store_timestamp_ms == one.store_timestamp_ms
        with pytest.raises(AttributeError):
            view.no_such_attribute  # noqa: B018 - looking is the test


def test_a_damaged_body_spoils_no_other(tmp_path: Path) -> None:
    """In records without a CRC of the whole: one with it is not read in part."""
    with MessageStore(tmp_path, NO_CRC, clock_ms=FakeClock()) as store:
        store.put([Message("Trade", b"first body"), Message("Trade", b"other body")], 0)
    (log,) = (tmp_path / "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(b"other body", b"OTHER body"))
    with QueueReader(tmp_path, "Trade", 0) as reader:
        views = RecordViews(reader, reader.entries(0, 2))
    assert views[0].body == b"first body"
    with pytest.raises(CorruptRecordError):
        _ = views[1].body
