"""Consumed batches from a list of messages, for tests of what happens after a poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.base.property_string import decode_properties, encode_properties
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.message import Message, PhysicalOffset, QueueOffset, StoredMessage


def stored(message: Message, queue_id: int, queue_offset: int) -> StoredMessage:
    """*message* as a store would hand it out."""
    return StoredMessage(
        topic=message.topic,
        queue_id=queue_id,
        queue_offset=QueueOffset(queue_offset),
        physical_offset=PhysicalOffset(queue_offset * 100),
        size=100,
        body=message.body,
        properties=decode_properties(message.encoded_properties()),
        offset_message_id=f"{queue_offset:032X}",
        flag=0,
        sys_flag=0,
        body_crc=0,
        born_timestamp_ms=1,
        born_host=("127.0.0.1", 0),
        store_timestamp_ms=2000,
        store_host=("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


@dataclass(frozen=True)
class ListBatch:
    """The messages of *stored_messages*, all of one queue."""

    topic: str
    queue_id: int
    next_queue_offset: int
    stored_messages: Sequence[StoredMessage]

    @property
    def queue_offsets(self) -> npt.NDArray[np.int64]:
        return np.array([one.queue_offset for one in self.stored_messages], np.int64)

    def __len__(self) -> int:
        return len(self.stored_messages)

    @property
    def size_bytes(self) -> int:
        return sum(one.size for one in self.stored_messages)

    def pieces(self, max_bytes: int) -> list[ListBatch]:
        parts: list[list[StoredMessage]] = [[]]
        for one in self.stored_messages:
            if parts[-1] and sum(each.size for each in parts[-1]) + one.size > max_bytes:
                parts.append([])
            parts[-1].append(one)
        ends = [part[0].queue_offset for part in parts[1:]]
        return [
            ListBatch(self.topic, self.queue_id, end, part)
            for part, end in zip(parts, [*ends, self.next_queue_offset], strict=True)
        ]

    def bodies(self) -> list[bytes]:
        return [one.body for one in self.stored_messages]

    def messages(self) -> list[StoredMessage]:
        return list(self.stored_messages)

    def property_strings(self) -> list[bytes]:
        return [encode_properties(one.properties).encode() for one in self.stored_messages]

    def property_texts(self, names: Sequence[str]) -> list[list[str | None]]:
        return [[one.properties.get(name) for one in self.stored_messages] for name in names]

    def to_arrow(self, columns: Sequence[str]) -> pa.RecordBatch:
        offsets = self.queue_offsets
        made = {"body": pa.array(self.bodies()), "queueOffset": pa.array(offsets)}
        return pa.RecordBatch.from_pydict({name: made[name] for name in columns})


def list_batch(
    queue_offsets: Sequence[int], next_queue_offset: int | None = None, queue_id: int = 0
) -> ConsumedBatch:
    """A batch whose bodies are the queue offsets as text."""
    messages = [
        stored(Message("T", str(offset).encode()), queue_id, offset) for offset in queue_offsets
    ]
    end = queue_offsets[-1] + 1 if next_queue_offset is None else next_queue_offset
    return cast("ConsumedBatch", ListBatch("T", queue_id, end, messages))
