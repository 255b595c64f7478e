"""The kernels that look at ConsumeQueueExt units do what their oracles do, and what is meant."""

from __future__ import annotations

import random
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.find import oracle_of

from rocketray.kernels.consume_queue import match_bits, read_codes

SEGMENT = 256
AFTER_MS = 1000


def random_units(rng: random.Random) -> tuple[bytes, list[int]]:
    """A file of units, some of them damaged, and where each begins; or none, where it is gone."""
    data = b""
    places: list[int] = []
    while True:
        size = rng.choice((0, 2, 2, 2, 3))
        said = size if rng.random() < 0.9 else rng.choice((-1, 2, 500))
        time_ms = AFTER_MS + rng.choice((-1, 0, 1, 9))
        unit = struct.pack(">hqqh", 20 + said, rng.randrange(-9, 9), time_ms, said)
        unit += rng.randbytes(size)
        if len(data) + len(unit) > SEGMENT:
            return data.ljust(SEGMENT, b"\xff") if rng.random() < 0.9 else b"", places
        places.append(len(data))
        data += unit


def random_fields(rng: random.Random, places: list[int], start: int) -> list[int]:
    """Third fields of entries: tags codes, addresses of units, of nothing, and of another file."""
    fields = [0, -5, 1 << 40, *(start + place - (1 << 63) for place in places)]
    fields.append(start - (1 << 63) + rng.randrange(SEGMENT))
    if rng.random() < 0.3:
        fields.append(start + SEGMENT - (1 << 63))
    return [rng.choice(fields) for _ in range(rng.randrange(60))]


def unit_at(field: int, units: bytes, start: int) -> bytes | None:
    """What stands where an address leads; None in another file."""
    place = field + (1 << 63) - start
    return units[place:] if 0 <= place < SEGMENT else None


def passes(field: int, units: bytes, start: int, bits: list[int]) -> bool | None:
    """Whether an entry may match; None when its unit is in another file."""
    if field > -2147483649:
        return True
    unit = unit_at(field, units, start)
    if unit is None:
        return None
    if len(unit) < 22:
        return True
    size, _, time_ms, bitmap_bytes = struct.unpack(">hqqh", unit[:20])
    if (size, bitmap_bytes) != (22, 2) or time_ms <= AFTER_MS:
        return True
    return all(unit[20 + bit // 8] >> bit % 8 & 1 for bit in bits)


def code(field: int, units: bytes, start: int) -> int | None:
    """The tags code that a field stands for, itself where there is none; None as above."""
    if field > -2147483649:
        return field
    unit = unit_at(field, units, start)
    if unit is None or len(unit) < 20:
        return None if unit is None else field
    size, found, _, bitmap_bytes = struct.unpack(">hqqh", unit[:20])
    return int(found) if bitmap_bytes >= 0 and size == 20 + bitmap_bytes else field


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_an_entry_is_left_out_only_where_its_bitmap_says_so(rng: random.Random) -> None:
    units, places = random_units(rng)
    start = rng.choice((0, SEGMENT, 5 * SEGMENT))
    fields = random_fields(rng, places, start)
    raw = b"".join(struct.pack(">qiq", 9, 9, field) for field in fields)
    bits = [rng.randrange(16) for _ in range(rng.choice((1, 3)))]
    first = rng.randint(0, len(fields))
    verdicts = [passes(field, units, start, bits) for field in fields[first:]]
    stop = verdicts.index(None) if None in verdicts else len(verdicts)
    wanted = [first + number for number in range(stop) if verdicts[number]]
    room = rng.randint(0, len(wanted) + 1)
    if room <= len(wanted):  # then it ends behind the last one that there is room for
        stop = wanted[room - 1] - first + 1 if room else 0
    for function in (match_bits, oracle_of(match_bits)):
        out = np.full(2 + room, -1, np.int64)
        found, at = function(
            np.frombuffer(raw, np.uint8),
            first,
            len(fields) - first,
            np.frombuffer(units, np.uint8),
            start,
            SEGMENT,
            np.array(bits, np.int64),
            2,
            AFTER_MS,
            out,
            2,
        )
        assert (out[2:found].tolist(), at) == (wanted[:room], first + stop)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_tags_codes_take_the_place_of_addresses(rng: random.Random) -> None:
    units, places = random_units(rng)
    start = rng.choice((0, SEGMENT, 5 * SEGMENT))
    fields = random_fields(rng, places, start)
    first = rng.randint(0, len(fields))
    codes = [code(field, units, start) for field in fields[first:]]
    stop = codes.index(None) if None in codes else len(codes)
    wanted = (
        fields[:first] + [one for one in codes[:stop] if one is not None] + fields[first + stop :]
    )
    for function in (read_codes, oracle_of(read_codes)):
        column = np.array(fields, np.int64)
        at = function(column, first, np.frombuffer(units, np.uint8), start, SEGMENT)
        assert (column.tolist(), at) == (wanted, first + stop)
