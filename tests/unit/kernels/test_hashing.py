from __future__ import annotations

import base64
import json
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.find import oracle_of
from support.models.records import back_to_back, i32, u8

from rocketray.hashing import java_hash_code
from rocketray.kernels._compile import Bytes, InBytes, Int64s, kernel
from rocketray.kernels.hashing import (
    _crc32_by_tables,
    crc32_spans,
    hash_spans,
    separated_key_hashes,
)

GOLDEN = Path(__file__).parents[2] / "data" / "rocketmq"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text("utf-8").splitlines()]


def spans_of(texts: list[str]) -> tuple[Bytes, Int64s, Int64s]:
    return back_to_back([text.encode() for text in texts])


def storable(texts: list[str]) -> list[bool]:
    """Which of them can be stored: a lone surrogate has no UTF-8, so Java stores a "?"."""
    return [not any("\ud800" <= letter <= "\udfff" for letter in text) for text in texts]


def test_hashes_are_javas_for_every_golden_text() -> None:
    golden = rows("tagcode.jsonl")
    golden = [*compress(golden, storable([row["s"] for row in golden]))]
    out = np.empty(len(golden), np.int32)
    hash_spans(*spans_of([row["s"] for row in golden]), 0, out)
    assert out.tolist() == [row["hashCode"] for row in golden]


def test_index_hashes_are_rocketmqs_for_every_golden_key() -> None:
    golden = rows("index.jsonl")
    golden = [*compress(golden, storable([row["key"] for row in golden]))]
    out = np.empty(len(golden), np.int32)
    joined = "".join(f"{row['key']}\x02" for row in golden).encode()
    assert separated_key_hashes(np.frombuffer(joined, np.uint8), 0, out) == len(golden)
    assert out.tolist() == [row["keyHash"] for row in golden]


def test_crcs_are_rocketmqs_for_every_golden_body() -> None:
    golden = rows("crc32.jsonl")
    out = np.empty(len(golden), np.int32)
    crc32_spans(*back_to_back([base64.b64decode(row["body"]) for row in golden]), out)
    assert out.tolist() == [row["crc32"] for row in golden]


def test_the_table_driven_crc_replaces_isals_where_that_is_missing() -> None:
    @kernel
    def by_tables(data: InBytes, middle: int) -> int:
        before = _crc32_by_tables(0, data, 0, middle)
        crc: int = _crc32_by_tables(before, data, middle, len(data) - middle) & 0x7FFFFFFF
        return crc

    for row in rows("crc32.jsonl"):
        body = base64.b64decode(row["body"])
        assert by_tables(u8(body), len(body) // 3) == row["crc32"]


def test_a_seed_stands_for_the_text_before() -> None:
    out = np.empty(2, np.int32)
    hash_spans(*spans_of(["KEY1", "😀"]), java_hash_code("TopicTest#"), out)
    assert out.tolist() == [-1656969516, java_hash_code("TopicTest#😀")]


def test_a_null_hashes_to_the_seed_so_no_tag_has_the_code_zero() -> None:
    out = np.full(2, 9, np.int32)
    hash_spans(*back_to_back([None, b""]), 0, out)
    assert out.tolist() == [0, 0]


def test_separated_keys_hash_as_spans_do_and_are_counted() -> None:
    out = np.empty(3, np.int32)
    found = separated_key_hashes(u8("KEY1\2中文\2polygenelubricants\2".encode()), 0, out)
    assert found == 3
    assert out.tolist() == [java_hash_code("KEY1"), 646394, 0]
    assert separated_key_hashes(u8(b"a\2b\2c\2d\2"), 0, out) == 4


@pytest.mark.parametrize("function", [hash_spans, oracle_of(hash_spans)])
@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (b"a\xff", "a\ufffd"),
        (b"a\xffbcdefghijk", "a\ufffdbcdefghijk"),
        (b"\xed\xa0\x80", "\ufffd"),  # a surrogate in three bytes
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0a", "\ufffda"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf0\x9fa", "\ufffda"),
        (b"\x80a", "\ufffda"),
    ],
)
def test_bytes_that_are_no_utf8_hash_as_what_java_reads(
    function: Any, stored: bytes, read: str
) -> None:
    out = np.empty(1, np.int32)
    function(u8(stored), np.zeros(1, np.int64), np.full(1, len(stored), np.int64), 0, out)
    assert out.tolist() == [java_hash_code(read)]


@pytest.mark.parametrize("cut", [b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc3", b"\xff\xff"])
def test_bytes_that_are_no_utf8_are_not_read_beyond_their_end(cut: bytes) -> None:
    one, other = np.empty(1, np.int32), np.empty(1, np.int32)
    starts, sizes = np.zeros(1, np.int64), np.full(1, len(cut), np.int64)
    hash_spans(u8(cut + b"abc"), starts, sizes, 0, one)
    hash_spans(u8(cut + b"xyz"), starts, sizes, 0, other)
    assert one.tolist() == other.tolist()


def test_a_span_outside_the_buffer_is_refused() -> None:
    with pytest.raises(AssertionError):
        crc32_spans(u8(b"abc"), np.zeros(1, np.int64), np.full(1, 4, np.int64), i32([0]))
