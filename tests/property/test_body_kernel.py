"""Bodies of records are copied by the kernel as by its oracle, and only those of ordinary ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.find import oracle_of
from support.models.records import RawRecord, i32, i64, u8

from rocketray.kernels.records import copy_bodies

records = st.builds(
    RawRecord,
    body=st.binary(max_size=80),
    topic=st.binary(min_size=1, max_size=127),
    properties=st.sampled_from([b"", b"a\x01b\x02"]),
    is_v2=st.booleans(),
    born_ipv6=st.booleans(),
    store_ipv6=st.booleans(),
)
CRC_NAME = b"__CRC32#"
OWN_CRC = CRC_NAME + b"\x010123456789\x02"
COMPRESSED_AT = 39  # the low byte of SYSFLAG


@settings(max_examples=200, deadline=None)
@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_bodies_are_copied_alike_and_of_ordinary_records_only(
    several: list[RawRecord], data: st.DataObject
) -> None:
    """The records say that they are of queue 0 and at queue offset 0, all of them."""
    raw = bytearray()
    offsets, sizes = [], []
    odd = data.draw(st.sampled_from(["", "", "own CRC", "compressed", "changed", "elsewhere"]))
    chosen = data.draw(st.integers(0, len(several) - 1))
    for number, one in enumerate(several):
        ending = OWN_CRC if odd == "own CRC" and number == chosen else b""
        changes = {"physical_offset": 1000 + len(raw), "properties": one.properties + ending}
        encoded = bytearray(RawRecord(**{**vars(one), **changes}).encode())
        encoded[COMPRESSED_AT] |= odd == "compressed" and number == chosen
        if encoded[-len(OWN_CRC) :].startswith(CRC_NAME):
            odd = "own CRC"  # so it seems: a body or topic may stand there
        offsets.append(1000 + len(raw))
        sizes.append(len(encoded))
        raw += encoded
    if odd == "changed":
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    queue_offsets = np.zeros(len(sizes), np.int64)
    queue_offsets[chosen] = odd == "elsewhere"
    bounds, copied = np.zeros(len(sizes) + 1, np.int32), np.zeros(len(raw), np.uint8)
    entries = i64(offsets), i32(sizes), queue_offsets
    outcomes = []
    for function in (copy_bodies, oracle_of(copy_bodies)):
        bounds[:], copied[:] = -1, 0
        outcomes.append(function(u8(bytes(raw)), 1000, *entries, 0, bounds, copied))
        if outcomes[-1]:
            bodies = [copied[start:end].tobytes() for start, end in pairwise(bounds.tolist())]
            assert bodies == [one.body for one in several]
    assert outcomes[0] is outcomes[1]
    if odd != "changed":
        assert outcomes[0] is (not odd)
