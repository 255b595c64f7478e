from __future__ import annotations

import base64

import pytest
from support.rocketmq.golden import golden_rows

from rocketray.hashing import crc32, index_key_hash, java_hash_code, tags_code


def test_hash_codes_are_javas() -> None:
    for row in golden_rows("tagcode"):
        assert java_hash_code(row["s"]) == row["hashCode"], row
        assert tags_code(row["s"]) == row["tagsCode"], row


def test_index_hashes_are_never_negative() -> None:
    for row in golden_rows("index"):
        key_hash = index_key_hash(row["key"])
        assert key_hash == row["keyHash"], row
        assert key_hash % 100 == row["slot100"], row
        assert key_hash % 5_000_000 == row["slot5000000"], row


def test_checksums_have_no_sign() -> None:
    for row in golden_rows("crc32"):
        body = base64.b64decode(row["body"])
        for data in (body, bytearray(body), memoryview(body)):
            assert crc32(data) == row["crc32"], row


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("TagA", 2598919),
        ("TagHello", -720863880),
        ("Aa", 2112),
        ("BB", 2112),
        ("f5a5a608", 0),
        ("polygenelubricants", -(2**31)),
        ("中文", 646394),
        ("😀", 1772899),
        ("TopicTest#KEY1", -1656969516),
    ],
)
def test_known_hash_codes(text: str, code: int) -> None:
    assert java_hash_code(text) == code


def test_no_tag_is_zero_and_javas_smallest_number_has_no_absolute() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert index_key_hash("polygenelubricants") == 0
    assert index_key_hash("TopicTest#KEY1") == 1656969516
