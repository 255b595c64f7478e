from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.find import oracle_of
from support.models.records import u8

from rocketray.kernels.measure import list_records
from rocketray.store.formats.record import RecordValues, encode_record

START = 8192


def record(position: int, number: int, body: bytes = b"body", queue_id: int = 2) -> bytes:
    return encode_record(
        RecordValues(
            "Trade",
            body,
            b"",
            queue_id=queue_id,
            queue_offset=number,
            physical_offset=START + position,
            born_timestamp_ms=1,
            born_host=("1.2.3.4", 5),
            store_timestamp_ms=2,
            store_host=("5.6.7.8", 9),
        )
    )


def log(bodies: list[bytes]) -> bytes:
    content = b""
    for number, body in enumerate(bodies):
        content += record(len(content), number, body)
    return content


def listed(content: bytes, room: int = 10, position: int = 0) -> list[tuple[int, ...]]:
    """What the kernel lists; the oracle must list the same."""
    found: list[list[tuple[int, ...]]] = []
    for function in (list_records, oracle_of(list_records)):
        offsets, queue_offsets = np.zeros(room, np.int64), np.zeros(room, np.int64)
        sizes, queue_ids = np.zeros(room, np.int32), np.zeros(room, np.int32)
        crcs = np.zeros(room, np.int32)
        count = function(
            u8(content), START, position, offsets, sizes, queue_ids, queue_offsets, crcs
        )
        columns = np.stack((offsets, sizes, queue_ids, queue_offsets, crcs), axis=1)
        found.append([tuple(row) for row in columns[:count].tolist()])
    assert found[0] == found[1]
    return found[0]


def test_records_are_listed_up_to_the_first_place_without_one() -> None:
    content = log([b"one", b"two", b""]) + bytes(200)
    rows = listed(content)
    assert [row[3] for row in rows] == [0, 1, 2]
    assert [row[2] for row in rows] == [2, 2, 2]
    assert rows[0][0] == START
    assert rows[1][0] == START + rows[0][1]
    assert rows[2][4] == 0
    assert listed(content, room=2) == rows[:2]
    assert listed(content, position=rows[0][1]) == rows[1:]
    assert listed(content, position=1) == []
    assert listed(content, position=len(content)) == []
    assert listed(content, position=-1) == []


def test_a_record_that_stands_elsewhere_or_names_no_queue_does_not_count() -> None:
    first = record(0, 0)
    assert len(listed(first + record(0, 1))) == 1
    assert len(listed(first + record(len(first), 1, queue_id=-1))) == 1
    assert len(listed(first + record(len(first), 1))) == 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(max_size=20), max_size=5),
    st.integers(0, 700),
    st.binary(min_size=1, max_size=30),
)
def test_whatever_the_bytes_are_kernel_and_oracle_agree(
    bodies: list[bytes], at: int, noise: bytes
) -> None:
    content = bytearray(log(bodies) + bytes(100))
    content[at : at + len(noise)] = noise
    listed(bytes(content))
