"""JSON in lines is the same JSON: nothing of it is written in another way."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.views.json_text import json_lines

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_each_value_has_a_line() -> None:
    text = '{"id":17,"items":[1,{"a":"x, y"}],"none":[],"empty":{}}'
    assert json_lines(text) == (
        '{\n  "id": 17,\n  "items": [\n    1,\n    {\n      "a": "x, y"\n    }\n  ],\n'
        '  "none": [],\n  "empty": {}\n}'
    )


def test_numbers_escapes_and_doubles_stay_as_they_are_written() -> None:
    text = r'{"a": 1.50, "a": 1e400, "b": 12345678901234567890123, "c": "é\" \n [{,:"}'
    shown = json_lines(text)
    assert shown is not None
    for part in ("1.50", "1e400", "12345678901234567890123", r'"é\" \n [{,:"'):
        assert part in shown
    assert shown.count('"a"') == 2


@given(st.lists(VALUES) | st.dictionaries(st.text(), VALUES), st.sampled_from([None, 1, 3]))
def test_it_is_the_same_json(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    shown = json_lines(text)
    assert shown == (json.dumps(value, indent=2) if shown is not None else None)
    if shown is not None:
        assert json.loads(shown) == value
    else:
        assert re.search(r"[\[{]{30}", re.sub(r"[^\[{]", "", text)), "only what is deep is refused"


@pytest.mark.parametrize(
    "text",
    ["", "17", '"text"', "paid", "{", "[1,]", "{'a': 1}", "[NaN]", "[" * 3000, "[1] [2]",
     "[" * 33 + "]" * 33, "[" * 100_000 + "]" * 100_000],
)  # fmt: skip
def test_what_is_no_object_or_array_or_too_deep_is_not_laid_out(text: str) -> None:
    assert json_lines(text) is None
    assert json_lines("[" * 32 + "]" * 32) is not None
