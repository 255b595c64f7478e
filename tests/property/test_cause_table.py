"""The table of causes of a range is the sum of what is explained of each message alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.models.explain_model import STEPS, Group, History

from rocketray.broker.filtering.preview import PreviewRange
from rocketray.message import StoredMessage
from rocketray.services.explaining.cause import Cause
from rocketray.services.explaining.cause_table import CauseTable, explain_range

_ALL = 1_000_000


class Compared(History):
    """A history whose questions are asked about ranges as well."""

    def check(self, count: int) -> None:
        super().check(min(count, 1))
        for group in self.groups:
            self.compare(group)

    def compare(self, group: Group) -> None:
        stored = self.broker.stored("T")
        times = sorted(message.store_timestamp_ms for message in stored)
        begin_ms, end_ms = sorted(self.random.choices(times, k=2)) if times else (0, 0)
        offset = self.random.randint(0, 10)
        for within in (
            PreviewRange(limit=_ALL),
            PreviewRange(begin_ms=begin_ms, end_ms=end_ms, limit=_ALL),
            PreviewRange(begin_offset=offset, end_offset=offset + 5, queue_id=1, limit=_ALL),
        ):
            self.compare_in(group, [one for one in stored if is_in(one, within)], within)

    def compare_in(self, group: Group, stored: list[StoredMessage], within: PreviewRange) -> None:
        alone = {
            one.offset_message_id: self.broker.explain(one.offset_message_id, group.name).cause
            for one in stored
        }
        table = explain_range(self.broker.node, group.name, "T", within)
        found = {row.cause: row.count for row in table.rows}
        story = f"group {group.name} of history {self.seed}, {within}: {self.log}"
        assert found == Counter(alone.values()), story
        assert table.explained == table.held == len(stored), story
        if within == PreviewRange(limit=_ALL) and not self.has_expired:
            self.compare_absent(table, story)
        for row in table.rows:
            assert alone[row.example.offset_message_id] is row.cause, story
            self.causes[row.cause] += row.count

    def compare_absent(self, table: CauseTable, story: str) -> None:
        keys = [key for key, sent in self.sent.items() if sent.place is None]
        alone = Counter(self.broker.explain(key).cause for key in keys)
        assert table.absent == len(keys), story
        assert {row.cause: row.count for row in table.absent_rows} == alone, story
        self.causes += alone


def is_in(one: StoredMessage, within: PreviewRange) -> bool:
    return (
        within.queue_id in (None, one.queue_id)
        and within.begin_offset <= one.queue_offset < (within.end_offset or _ALL)
        and (within.begin_ms or 0) <= one.store_timestamp_ms <= (within.end_ms or 1 << 62)
    )


@pytest.mark.proves("groups", "A range has the causes of its messages, each explained alone")
def test_a_range_has_the_causes_of_its_messages(seed: int, tmp_path: Path) -> None:
    Compared(tmp_path, seed).run(STEPS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ranges_have_the_causes_of_their_messages_in_many_histories(
    seed: int, tmp_path: Path
) -> None:
    causes = Counter[Cause]()
    for number in range(100):
        history = Compared(tmp_path / str(number), seed + number)
        history.run(STEPS)
        causes += history.causes
    assert causes.keys() >= {
        Cause.DELIVERED, Cause.ON_ITS_WAY, Cause.SKIPPED, Cause.BEFORE_START, Cause.NO_CONSUMER,
        Cause.TAG_MISMATCH, Cause.SQL_NULL, Cause.SQL_FALSE, Cause.WAITS_FOR_RETRY,
        Cause.DEAD_LETTER,
    }  # fmt: skip
