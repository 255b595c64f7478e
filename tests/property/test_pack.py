"""The kernel that packs messages does what its oracle does."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.find import oracle_of
from support.models.records import u8

from rocketray.kernels.pack import (
    COLUMN_COUNT,
    FIELD_COLUMNS,
    OF_KEYS,
    join_texts,
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


value = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=12)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 5), st.binary(max_size=20), st.integers(0, 60))
def test_texts_are_joined_alike(
    data: st.DataObject, count: int, room: bytes, tail_max: int
) -> None:
    texts, names, fields = b"", b"", []
    for role in data.draw(st.lists(st.integers(0, OF_KEYS), max_size=4)):
        is_alike = data.draw(st.booleans())
        values = data.draw(st.lists(value, min_size=count, max_size=count))[
            : 1 if is_alike else count
        ]
        names += data.draw(st.binary(max_size=9))
        fields.append((len(names), len(texts), is_alike, role))
        texts += "".join(one + "\x02" for one in values).encode()
    size = count * (len(names) + len(texts) + len(room))
    arguments = u8(texts), u8(names), np.array(fields, np.int64).reshape(-1, FIELD_COLUMNS)
    found = []
    for function in (join_texts, oracle_of(join_texts)):
        tails, keys = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        columns = np.full((count, COLUMN_COUNT), 7, np.int64)
        end = function(*arguments, u8(room), tail_max, tails, keys, columns)
        assert end <= size
        found.append((end, tails, keys, columns) if end >= 0 else (end,))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=44), st.integers(0, 40), st.integers(0, 16**12 - 1))
def test_ids_are_numbered_alike(prefix: bytes, count: int, first: int) -> None:
    ours = np.zeros(count * (len(prefix) + 12), np.uint8)
    theirs = ours.copy()
    number_ids(ours, u8(prefix), first)
    oracle_of(number_ids)(theirs, u8(prefix), first)
    np.testing.assert_array_equal(ours, theirs)
