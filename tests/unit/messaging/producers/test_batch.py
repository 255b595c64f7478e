"""What became of the messages of a batch, asked one by one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketray.base.ack_mode import Durability
from rocketray.errors import ShardFencedError, StoreFullError
from rocketray.message import Message
from rocketray.messaging.producers.batch import Batch, SendResults
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.store.batches.encoded_batch import packed, unpack_batch
from rocketray.store.batches.message_columns import RecordForm

FORM = RecordForm("Trade", born_host=("127.0.0.1", 1), id_prefix="AB")


@dataclass
class Queue:
    name: str = "Trade/3"
    data: Path = Path("data")
    queue_id: int = 3
    id_prefix: str = "7F000001"
    is_here: bool = True


def stored(first_queue_offset: int, *messages: Message) -> tuple[Batch, list[int]]:
    """A batch that is stored from physical offset 1000 on, and the sizes of its records."""
    batch = Batch(Queue(), FORM, Durability.MEMORY)
    batch.columns.extend(messages, [one.encoded_properties() for one in messages])
    frame = packed(batch.pack(0xF0, 1))
    batch.ack = Ack(AppendStatus.OK, first_queue_offset, 1000, 1, len(messages))
    return batch, unpack_batch(frame).sizes.tolist()


@pytest.mark.proves(
    "producers",
    "A `SendResult` has the ids of the message and the place of its record",
)
def test_results_name_the_messages_and_where_their_records_are() -> None:
    batch, sizes = stored(
        7, Message("Trade", b"a"), Message("Trade", b"bcd", unique_key="own"), Message("Trade", b"")
    )
    results = [batch.result(index) for index in range(3)]
    assert [one.message_id for one in results] == ["AB0000000000F0", "own", "AB0000000000F2"]
    assert [one.queue_offset for one in results] == [7, 8, 9]
    assert {one.queue_id for one in results} == {3}
    starts = [1000, 1000 + sizes[0], 1000 + sizes[0] + sizes[1]]
    assert [one.offset_message_id for one in results] == [f"7F000001{at:016X}" for at in starts]


@pytest.mark.proves("producers", "`send_many` returns results in the order of the messages")
def test_results_are_in_the_order_of_the_messages_whatever_batch_they_went_with() -> None:
    even, _ = stored(10, *[Message("Trade", b"%d" % n) for n in (0, 2, 4)])
    odd, _ = stored(20, *[Message("Trade", b"%d" % n) for n in (1, 3)])
    results = SendResults([(even, [0, 2, 4]), (odd, [1, 3])])
    assert len(results) == 5
    assert [one.queue_offset for one in results] == [10, 20, 11, 21, 12]
    assert results[-1].queue_offset == 12
    assert [one.queue_offset for one in results[1:3]] == [20, 11]
    with pytest.raises(IndexError):
        results[5]


@pytest.mark.proves("producers", "A refused batch has no results")
@pytest.mark.parametrize(
    ("status", "kind"),
    [(AppendStatus.STORE_FULL, StoreFullError), (AppendStatus.FENCED, ShardFencedError)],
)
def test_a_refused_batch_has_no_results(status: AppendStatus, kind: type[Exception]) -> None:
    batch, _ = stored(0, Message("Trade", b""))
    batch.ack = Ack(status)
    with pytest.raises(kind, match="Trade/3"):
        batch.result(0)
