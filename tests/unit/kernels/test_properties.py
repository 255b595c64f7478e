from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.models.records import back_to_back, u8

from rocketray.kernels.properties import find_properties, list_pairs, match_values

GOLDEN = Path(__file__).parents[2] / "data" / "rocketmq" / "properties.jsonl"


def find(strings: list[bytes], names: list[bytes]) -> list[list[bytes | None]]:
    """The values, name by name, of each property string."""
    segment, starts, sizes = back_to_back(strings)
    joined, bounds = u8(b"".join(names)), np.cumsum([0, *map(len, names)])
    shape = (len(names), len(strings))
    at, length = np.empty(shape, np.int64), np.empty(shape, np.int64)
    find_properties(segment, starts, sizes, joined, bounds, at, length)
    return [
        [
            None if size < 0 else segment[start : start + size].tobytes()
            for start, size in zip(at[k].tolist(), length[k].tolist(), strict=True)
        ]
        for k in range(len(names))
    ]


def pairs_of(strings: list[bytes], room: int = 100) -> list[dict[bytes, bytes]] | int:
    segment, starts, sizes = back_to_back(strings)
    bounds, pairs = np.empty(len(strings) + 1, np.int32), np.empty((4, room), np.int64)
    count = list_pairs(segment, starts, sizes, bounds, pairs)
    if count < 0:
        return count
    raw = segment.tobytes()
    listed = [(raw[a : a + n], raw[b : b + m]) for a, n, b, m in pairs[:, :count].T.tolist()]
    found = [listed[a:b] for a, b in pairwise(bounds)]
    assert all(len(dict(one)) == len(one) for one in found)
    return [dict(one) for one in found]


@pytest.mark.parametrize("line", GOLDEN.read_text("utf-8").splitlines())
def test_properties_are_read_as_rocketmq_reads_them(line: str) -> None:
    golden = json.loads(line)
    expected = {k.encode(): v.encode() for k, v in golden["map"].items()}
    string = golden["s"].encode()
    assert pairs_of([string]) == [expected]
    names = [b"a", b"TAGS", b"x", b"last", *expected]
    names = list(dict.fromkeys(names))
    assert find([string], names) == [[expected.get(name)] for name in names]


def test_the_facts_example_is_read_as_rocketmq_reads_it() -> None:
    string = b"a\x01b\x02c\x01\x02dd\x01ee\x02noSep\x02x\x01y\x01z\x02last\x01v"
    assert pairs_of([string]) == [{b"a": b"b", b"dd": b"ee", b"x": b"y\x01z", b"last": b"v"}]


def test_the_last_duplicate_wins_in_the_place_of_the_first() -> None:
    string = b"TAGS\x01A\x02b\x011\x02TAGS\x01B\x02TAGS\x01\x02"
    assert pairs_of([string]) == [{b"TAGS": b"B", b"b": b"1"}]
    assert find([string], [b"TAGS"]) == [[b"B"]]


@pytest.mark.parametrize("before", range(0, 200, 7))
def test_a_pair_is_found_wherever_it_lies(before: int) -> None:
    padding = b"p\x01" + b"x" * before + b"\x02" if before else b""
    value = b"v" * 70
    strings = [
        padding + b"name\x01" + value + b"\x02",
        padding,
        padding + b"nam\x011\x02name2\x012",
    ]
    assert find(strings, [b"name", b"nam"]) == [[value, None, None], [None, None, b"1"]]


def test_names_differ_also_behind_the_eighth_byte() -> None:
    string = b"longname1\x01a\x02longname2\x01b\x02longname22\x01c\x02"
    names = [b"longname2", b"longname1", b"longname22", b"longname", b"longname3"]
    assert find([string], names) == [[b"b"], [b"a"], [b"c"], [None], [None]]


def test_pairs_beyond_the_room_are_reported() -> None:
    assert pairs_of([b"a\x011\x02", b"b\x012\x02c\x013\x02"], room=2) == -1
    assert pairs_of([b"a\x011\x02", b"b\x012\x02c\x013\x02"], room=3) == [
        {b"a": b"1"},
        {b"b": b"2", b"c": b"3"},
    ]


def test_values_match_whole_and_absent_ones_never() -> None:
    segment, starts, sizes = back_to_back(
        [b"TagA", b"Tag", b"", None, b"TagB", b"x" * 20, b"x" * 19 + b"y"]
    )
    wanted = [b"TagA", b"x" * 20, b"TagC"]
    joined, bounds = u8(b"".join(wanted)), np.cumsum([0, *map(len, wanted)])
    out = np.ones(7, np.bool_)
    match_values(segment, starts, sizes, joined, bounds, out)
    assert out.tolist() == [True, False, False, False, False, True, False]
    match_values(segment, starts, sizes, u8(b""), np.array([0, 0]), out)
    assert out.tolist() == [False, False, True, False, False, False, False]
