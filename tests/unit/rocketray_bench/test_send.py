"""What the benchmark of sending sends is what users send, over a node in this process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.nodes.local_node import LocalNode

from rocketray.message import Message
from rocketray.messaging.producers.batch import SendResults
from rocketray.messaging.producers.producer import NodeProducer
from rocketray_bench import send
from rocketray_bench.ceilings import Ceilings
from rocketray_bench.report import BenchOptions

COUNT = 2048


class Few(BenchOptions):
    """Two lists of the larger kind, and few of what is sent one by one, each twice."""

    @property
    def runs(self) -> int:
        return 2

    @cached_property
    def ceilings(self) -> Ceilings:
        return Ceilings(1e9, 1e9, 1e-5, 1e-3)  # those of no machine

    def amount(self, full: int) -> int:
        return COUNT if full > 20_000 else 20


def test_no_message_is_made_before_the_clock_or_sent_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists: list[list[Message]] = []
    columns: list[int] = []
    send_many = NodeProducer.send_many

    def note(
        producer: NodeProducer,
        topic: str,
        messages: Sequence[Message] | pa.Table | None = None,
        **options: Any,
    ) -> SendResults:
        if messages is None:
            columns.append(len(options["bodies"]))
        elif not isinstance(messages, pa.Table):
            lists.append([*messages])
        results: SendResults = send_many(producer, topic, messages, **options)
        return results

    monkeypatch.setattr(NodeProducer, "send_many", note)
    with LocalNode(tmp_path) as node:
        monkeypatch.setattr(send, "bench_node", lambda: nullcontext(node))
        rows = send.run(Few(quick=True))
        assert all(row.value > 0 for row in rows)
        assert {len(batch) for batch in lists} >= {32, 1024}
        assert {*columns} >= {32, 1024}
        assert len({id(one) for batch in lists for one in batch}) == sum(map(len, lists))
        for batch in lists:
            assert len({one.keys[0] for one in batch}) == len(batch)
            assert {(one.tags, len(one.properties), len(one.body)) for one in batch} == {
                ("pay", 2, 100)
            }
        for topic, queues in (("Bench1", 1), ("Bench4", 4)):
            assert {one.queue_id for one in node.stored(topic)} == {*range(queues)}
        assert all(" queue" in row.question for row in rows), "each figure says of how many"
