"""A message is accepted as its rules say, and encoded as the mapping of its properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketray import Message
from rocketray.base.property_string import encode_properties
from rocketray.errors import InvalidMessageError, StreamError
from rocketray.message import JAVA_BLANKS
from rocketray.topology.values.wire import check_encoding

texts = st.text(st.sampled_from("a9-|* \0\1\2\n\u00e9\u3042"), max_size=4)
names = texts | st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "region"])


def _is_clean(text: str) -> bool:
    return not {"\0", "\1", "\2"} & {*text}


def _is_tag(tag: str) -> bool:
    is_whole = tag not in ("", "*") and "||" not in tag and tag == tag.strip(JAVA_BLANKS)
    return is_whole and _is_clean(tag)


def _is_property(name: str, value: str) -> bool:
    is_own = name not in ("TAGS", "KEYS", "UNIQ_KEY")
    return bool(name and value) and is_own and _is_clean(name + value)


@settings(max_examples=400, deadline=None)
@given(st.none() | texts, st.lists(texts, max_size=2), st.dictionaries(names, texts, max_size=2))
def test_a_message_is_refused_by_its_rules_alone(
    tag: str | None, keys: Sequence[str], properties: dict[str, str]
) -> None:
    is_valid = (
        (tag is None or _is_tag(tag))
        and all(key and _is_clean(key) for key in keys)
        and all(_is_property(name, value) for name, value in properties.items())
    )
    for _ in range(2):  # the second time the topic and the tag may be known
        if not is_valid:
            with pytest.raises(InvalidMessageError):
                Message("orders", b"", tag, keys, properties)
            continue
        stored = {"KEYS": " ".join(key.replace(" ", "\u00a0") for key in keys)} if keys else {}
        stored |= {} if tag is None else {"TAGS": tag}
        message = Message("orders", b"", tag, keys, properties, unique_key="u")
        whole = {"UNIQ_KEY": "u", **stored, **properties}
        assert message.encoded_properties() == encode_properties(whole).encode()


def _outcome(check: Callable[[], object]) -> tuple[type, str] | None:
    try:
        check()
    except StreamError as error:
        return type(error), str(error)
    return None


long_texts = st.builds(
    lambda text, times: text * times,
    st.sampled_from(["a", "é", "日本", "\ud800", "k", "ab", "a-b"]),
    st.sampled_from([1, 2, 4000, 8000, 16_000, 16_350, 16_400, 32_700, 32_760, 40_000]),
)


@settings(max_examples=300, deadline=None)
@given(
    st.none() | long_texts,
    st.lists(long_texts, max_size=2),
    st.dictionaries(long_texts, long_texts, max_size=2),
    st.none() | long_texts,
)
def test_the_check_of_the_encoding_refuses_what_cannot_be_encoded(
    tag: str | None, keys: list[str], properties: dict[str, str], unique_key: str | None
) -> None:
    message = Message("orders", b"", tag, keys, properties, unique_key=unique_key)
    assert _outcome(partial(check_encoding, message)) == _outcome(message.encoded_properties)


def test_the_check_knows_the_most_separators_that_a_text_can_have() -> None:
    for count in range(16_300, 16_400, 7):
        keys = ["k"] * count
        message = Message("orders", b"", "t", keys, {"a": "b"}, unique_key="u")
        assert _outcome(partial(check_encoding, message)) == _outcome(message.encoded_properties)
