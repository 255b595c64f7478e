"""The kernel that packs messages does what its oracle does."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.find import oracle_of
from support.records import u8

from rocketray.kernels.pack import (
    COLUMN_COUNT,
    number_ids,
    pack_messages,
)

int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
rows = st.tuples(
    st.binary(max_size=80),
    st.binary(max_size=80),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=9)),
    st.tuples(int64, int32, int32, int64),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(rows, min_size=1, max_size=6),
    st.binary(min_size=52, max_size=70),
    st.binary(min_size=1, max_size=30),
    st.binary(max_size=30),
    st.tuples(int32, int32, st.integers(0, 2**48 - 7)),
)
def test_messages_are_packed_alike(
    messages: list[tuple[bytes, bytes, list[str], tuple[int, int, int, int], bool]],
    header: bytes,
    topic_field: bytes,
    id_field: bytes,
    numbers: tuple[int, int, int],
) -> None:
    key_seed, id_seed, first_id = numbers
    keys = ["".join(key + "\x02" for key in message[2]).encode() for message in messages]
    columns = np.zeros((len(messages), COLUMN_COUNT), np.int64)
    for row, joined, (body, tail, _, fields, is_numbered) in zip(
        columns, keys, messages, strict=True
    ):
        row[:] = (len(body), len(tail), len(joined), *fields, is_numbered)
    bodies, tails, all_keys = (
        u8(b"".join(parts))
        for parts in ([one[0] for one in messages], [one[1] for one in messages], keys)
    )
    numbered = int(columns[:, -1].sum())
    size = 24 + len(messages) * (12 + len(header) + len(topic_field) + 2)
    size += 8 * (numbered + int((all_keys == 2).sum())) + len(bodies) + len(tails)
    size += numbered * (len(id_field) + 13)
    ours, theirs = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    arguments = (
        *(u8(header), u8(topic_field), key_seed, u8(id_field), id_seed, first_id),
        *(bodies, tails, all_keys, columns),
    )
    assert pack_messages(ours, *arguments) == oracle_of(pack_messages)(theirs, *arguments) == size
    np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=44), st.integers(0, 40), st.integers(0, 16**12 - 1))
def test_ids_are_numbered_alike(prefix: bytes, count: int, first: int) -> None:
    ours = np.zeros(count * (len(prefix) + 12), np.uint8)
    theirs = ours.copy()
    number_ids(ours, u8(prefix), first)
    oracle_of(number_ids)(theirs, u8(prefix), first)
    np.testing.assert_array_equal(ours, theirs)
