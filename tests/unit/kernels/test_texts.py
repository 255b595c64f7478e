from __future__ import annotations

import numpy as np
import pytest
from support.models.records import back_to_back

from rocketray.errors import InvalidMessageError
from rocketray.hashing import index_key_hash, java_hash_code
from rocketray.kernels.texts import (
    ANY_TEXT,
    KEY_TEXT,
    TAG_TEXT,
    first_bad_text,
    hash_record_keys,
)
from rocketray.message import Message

TEXTS = [
    "", "*", "a", "a*", "||", "a||b", "a|b", "|", "a|", "|a", " a", "a ", "a b", "\ta", "a\n",
    "a\x01b", "\x02", "\x03", "long enough to be looked at in words", "12345678|", "1234567||",
    "12345678||90", "12345678901234567\x02", "no\u00a0blank\u3000", "ä||ö", "tag ", "x" * 16 + "*",
    "12345678 1234567", "1234567|\x7c2345678",
]  # fmt: skip


def is_refused(**message: object) -> bool:
    try:
        Message("T", b"", **message)  # type: ignore[arg-type]
    except InvalidMessageError:
        return True
    return False


@pytest.mark.parametrize("text", TEXTS)
def test_a_column_refuses_what_a_message_refuses(text: str) -> None:
    spans = back_to_back([None, text.encode()])
    assert (first_bad_text(*spans, TAG_TEXT) == 1) is is_refused(tags=text)
    assert (first_bad_text(*spans, KEY_TEXT) == 1) is is_refused(keys=text)
    assert (first_bad_text(*spans, ANY_TEXT) == 1) is is_refused(properties={"p": text})


def test_the_first_bad_text_is_named_and_nulls_are_good() -> None:
    assert first_bad_text(*back_to_back([b"a", None, b"", b""]), ANY_TEXT) == 2
    assert first_bad_text(*back_to_back([None, None]), TAG_TEXT) == -1
    assert first_bad_text(*back_to_back([]), TAG_TEXT) == -1


def test_a_records_unique_key_comes_before_its_keys() -> None:
    unique = back_to_back([b"u0", None, b"u2"])
    keys = back_to_back([b"a b", b"  c  d ", None])
    hashes, records = np.empty(6, np.int32), np.empty(6, np.int32)
    count = hash_record_keys(*unique, *keys, java_hash_code("T#"), hashes, records)
    assert count == 6
    expected = ["T#u0", "T#a", "T#b", "T#c", "T#d", "T#u2"]
    assert hashes.tolist() == [index_key_hash(key) for key in expected]
    assert records.tolist() == [0, 0, 0, 1, 1, 2]
