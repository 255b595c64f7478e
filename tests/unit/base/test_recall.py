from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.base.recall import RecallHandle
from rocketray.errors import InvalidMessageError

HANDLE = RecallHandle("SCHEDULE_TOPIC_XXXX", 3, 12, "C0A8010200002A9F")


@given(st.integers(0, 9999), st.integers(0, 10**18 - 1), st.text(min_size=1))
def test_a_handle_comes_back_as_it_was(queue_id: int, offset: int, key: str) -> None:
    handle = RecallHandle("rmq_sys_wheel_timer", queue_id, offset, key)
    try:
        text = str(handle)
    except UnicodeEncodeError:  # a lone surrogate, which no key has
        return
    assert RecallHandle.parse(text) == handle


def fields(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        str(HANDLE)[:-1],
        str(HANDLE) + "A",
        str(HANDLE) + "\n",
        "\u0661",
        fields("v2 SCHEDULE_TOPIC_XXXX 3 12 key"),
        fields("v1 trade 3 12 key"),
        fields("v1 SCHEDULE_TOPIC_XXXX -3 12 key"),
        fields("v1 SCHEDULE_TOPIC_XXXX 03 12 key"),
        fields("v1 SCHEDULE_TOPIC_XXXX 3 12"),
        fields("v1 SCHEDULE_TOPIC_XXXX 3 12 " + "k" * 70_000),
    ],
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessageError, match="is not a recall handle"):
        RecallHandle.parse(text)
