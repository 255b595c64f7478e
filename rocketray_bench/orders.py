"""The messages that benchmarks send and store: orders as tables, and as encoded batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import pyarrow as pa

from rocketray.runtime.clock import system_clock_ms
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.encoded_table import MeasuredTable

TOPIC = "Bench"
BODY_BYTES = 100
_FILLING = bytes(BODY_BYTES - 12)
_REGIONS = ("eu", "us", "ap", "cn")


class _Options(TypedDict):
    tags: str
    keys: list[str]
    properties: dict[str, str]


def order_body(number: int) -> bytes:
    """Return the body of one message."""
    return b"%012d" % number + _FILLING


def order_options(number: int) -> _Options:
    """Return the options of one message: its key and a property are its own."""
    properties = {"region": "eu", "amount": str(number % 1000)}
    return {"tags": "pay", "keys": [f"order-{number}"], "properties": properties}


def order_table(rows: int, *, body_bytes: int = BODY_BYTES, a_range: int = 100) -> pa.Table:
    """Return messages of which one in 100 has tag ``rare``; a is below *a_range*; a region."""
    generator = np.random.default_rng(7)
    data = generator.integers(0, 256, rows * body_bytes, np.uint8)
    starts = np.arange(rows + 1, dtype=np.int32) * body_bytes
    body = pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(starts), pa.py_buffer(data)]
    )
    rare = generator.random(rows) < 0.01
    regions = pa.array(_REGIONS).take(pa.array(generator.integers(0, len(_REGIONS), rows)))
    return pa.table(
        {
            "body": body,
            "tags": pa.array(np.where(rare, "rare", "common")),
            "a": pa.array(generator.integers(0, a_range, rows)).cast(pa.string()),
            "region": regions,
        }
    )


def encoded(
    table: pa.Table,
    unique_ids: bytes | None = None,
    property_columns: Sequence[str] = ("a", "region"),
) -> EncodedBatch:
    """Return *table* as a batch of records."""
    return MeasuredTable(
        TOPIC,
        table,
        born_host=("127.0.0.1", 1),
        born_timestamp_ms=system_clock_ms(),
        unique_ids=unique_ids,
        property_columns=property_columns,
    ).encode()
