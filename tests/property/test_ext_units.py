"""The kernel that looks at filter bitmaps does what its twin does, and what one look after the other."""

from __future__ import annotations

import random
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketray.kernels.ext_units import match_bits, match_bits_plain

SEGMENT = 256
AFTER_MS = 1000


def random_units(rng: random.Random) -> tuple[bytes, list[int]]:
    """A file of units, some of them damaged, and where each begins."""
    data = b""
    places: list[int] = []
    while True:
        size = rng.choice((0, 2, 2, 2, 3))
        said = size if rng.random() < 0.9 else rng.choice((-1, 2, 500))
        unit = struct.pack(">hqqh", 20 + said, 7, AFTER_MS + rng.choice((-1, 0, 1, 9)), said)
        unit += rng.randbytes(size)
        if len(data) + len(unit) > SEGMENT:
            return data.ljust(SEGMENT, b"\xff"), places
        places.append(len(data))
        data += unit


def looked_at(field: int, units: bytes, start: int, bits: list[int]) -> bool | None:
    """Whether an entry passes; None when its unit is in another file."""
    if field > -2147483649:
        return True
    place = field + (1 << 63) - start
    if not 0 <= place < SEGMENT:
        return None
    unit = units[place : place + 22]
    if len(unit) < 22:
        return True
    size, _, time, bitmap_bytes = struct.unpack(">hqqh", unit[:20])
    if (size, bitmap_bytes) != (22, 2) or time <= AFTER_MS:
        return True
    return all(unit[20 + bit // 8] >> bit % 8 & 1 for bit in bits)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60), st.integers(0, 3))
def test_an_entry_is_left_out_only_where_its_bitmap_says_so(
    rng: random.Random, count: int, first: int
) -> None:
    units, places = random_units(rng)
    start = rng.choice((0, SEGMENT, 5 * SEGMENT))
    units = units if rng.random() < 0.9 else b""  # the file is gone
    fields = [0, -5, 1 << 40, *(start + place - (1 << 63) for place in places)]
    fields += [start - (1 << 63) + rng.randrange(SEGMENT), start + SEGMENT - (1 << 63)][
        : rng.choice((1, 1, 2))
    ]
    chosen = [rng.choice(fields) for _ in range(first + count)]
    raw = b"".join(struct.pack(">qiq", 9, 9, field) for field in chosen)
    bits = [rng.randrange(16) for _ in range(rng.choice((1, 3)))]
    verdicts = [looked_at(field, units, start, bits) for field in chosen[first:]]
    stop = verdicts.index(None) if None in verdicts else count
    wanted = [first + number for number in range(stop) if verdicts[number]]
    room = rng.randint(0, len(wanted) + 1)
    if room <= len(wanted):  # then it ends behind the last one that there is room for
        stop = wanted[room - 1] - first + 1 if room else 0
    for function in (match_bits, match_bits_plain):
        out = np.full(2 + room, -1, np.int64)
        found, at = function(
            np.frombuffer(raw, np.uint8),
            first,
            count,
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
