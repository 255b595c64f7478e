"""A node for a benchmark, with a data directory of its own that is deleted afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node

__all__ = ["BODY_BYTES", "bench_node", "order_table"]

BODY_BYTES = 100
_REGIONS = ("eu", "us", "ap", "cn")


@contextmanager
def bench_node() -> Iterator[Connection]:
    """Connect to a fresh node on this machine's disk."""
    with (
        tempfile.TemporaryDirectory(prefix="rocketray-bench-") as directory,
        Node(Path(directory) / "data") as node,
        node.connection() as connection,
    ):
        yield connection


def order_table(rows: int, *, rare_share: float = 0.01) -> pa.Table:
    """Return messages with bodies of 100 bytes: a share has tag ``rare``; a in 0…99; a region."""
    generator = np.random.default_rng(7)
    data = generator.integers(0, 256, rows * BODY_BYTES, np.uint8)
    starts = np.arange(rows + 1, dtype=np.int32) * BODY_BYTES
    body = pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(starts), pa.py_buffer(data)]
    )
    rare = generator.random(rows) < rare_share
    regions = pa.array(_REGIONS).take(pa.array(generator.integers(0, len(_REGIONS), rows)))
    return pa.table(
        {
            "body": body,
            "tags": pa.array(np.where(rare, "rare", "common")),
            "a": pa.array(generator.integers(0, 100, rows)).cast(pa.string()),
            "region": regions,
        }
    )
