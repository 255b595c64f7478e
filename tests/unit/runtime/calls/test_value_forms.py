"""Values of calls as JSON: each comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.base.limits import Limit, SentTopic
from rocketray.errors import ConfigError, InvalidNameError, TopicNotFoundError
from rocketray.runtime.calls.call_text import read_text, write_text
from rocketray.runtime.calls.value_forms import CallForm, form_of

pytestmark = pytest.mark.proves(
    "durability",
    "Commands ask the node of their machine over its socket: each answer is that of a "
    "direct call, errors are the same, and frames of another form, other users, another "
    "release and too large answers are refused",
)

Offset = NewType("Offset", int)


class Mode(Enum):
    FAST = "fast"
    SAFE = "safe"


class Place(NamedTuple):
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    body: bytes
    offset: Offset
    share: float
    mode: Mode
    kind: Literal["auto", "on", 3]
    places: tuple[Place, ...]
    host: tuple[str, int]
    offsets: dict[int, list[int]]
    tags: frozenset[str]
    is_new: bool = False
    queues: int | Literal["shared"] | None = None
    parent: Place | Mode | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


NUMBERS = st.integers(-(2**63), 2**63 - 1)
PLACES = st.builds(Place, st.text(), NUMBERS)
VALUES = st.builds(
    Value,
    name=st.text(),
    body=st.binary(),
    offset=NUMBERS.map(Offset),
    share=st.floats(allow_nan=False, allow_infinity=False),
    mode=st.sampled_from(Mode),
    kind=st.sampled_from(["auto", "on", 3]),
    places=st.lists(PLACES).map(tuple),
    host=st.tuples(st.text(), NUMBERS),
    offsets=st.dictionaries(NUMBERS, st.lists(NUMBERS)),
    tags=st.frozensets(st.text()),
    is_new=st.booleans(),
    queues=st.none() | NUMBERS | st.just("shared"),
    parent=st.none() | PLACES | st.sampled_from(Mode),
    properties=st.dictionaries(st.text(), st.text()),
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=14) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


def sent(value: Any) -> Any:
    return read_text(write_text(value))


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Value) -> None:
    form = form_of(Value)
    assert form.read(sent(form.write(value))) == value
    beside: list[bytes] = []
    text = write_text(form.write(value), beside)
    assert beside == [value.body]
    assert form.read(read_text(text, [memoryview(value.body)])) == value


@given(JSON)
def test_what_is_no_value_raises_one_error(found: Any) -> None:
    for kind in (Value, Place, Mode, bytes, range, set[int], dict[int, str], Value | None):
        try:
            form_of(kind).read(found)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (int, True),
        (int, 1.0),
        (bool, 1),
        (float, 10**400),
        (str, None),
        (bytes, "no base64"),
        (memoryview, b"x"),
        (Annotated[int, Limit(3)], 4),
        (Annotated[int, Limit(3)], True),
        (Annotated[float, Limit(3, least=1)], 0.5),
        (Annotated[float, Limit(3)], float("nan")),
        (Annotated[float, Limit(3)], "1"),
        (Annotated[str, Limit(3)], "abcd"),
        (Annotated[str, Limit(3)], 3),
        (Annotated[list[int], Limit(2)], ["none", "is", "read"]),
        (SentTopic, "../up"),
        (SentTopic, 7),
        (Literal["on"], "off"),
        (Mode, "slow"),
        (Mode, []),
        (tuple[str, int], ["a"]),
        (int | None, [2, 1]),
        (int | None, [True, 1]),
        (Place, ["a", 1, 2]),
        (dict[str, int], [["a", 1, 2]]),
        (set[str], "abc"),
        (range, [1]),
    ],
)
def test_another_value_is_refused(kind: Any, found: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        form_of(kind).read(found)


@pytest.mark.parametrize("kind", [object, dict, Any, CallForm, list[Any], complex])
def test_a_type_that_says_too_little_has_no_form(kind: Any) -> None:
    with pytest.raises(TypeError, match="no form"):
        form_of(kind)


def test_a_limit_of_another_kind_is_refused_before_a_value_is_read() -> None:
    with pytest.raises(TypeError, match=r"range\(0, 9\) is no limit"):
        form_of(Annotated[int, range(9)])


def test_limits_hold_for_what_is_read() -> None:
    assert form_of(Annotated[int, Limit(3)]).read(3) == 3
    assert form_of(Annotated[float, Limit(3)]).read(3) == 3.0
    assert form_of(Annotated[list[int], Limit(2)]).read([9, 9]) == [9, 9]
    topics = form_of(dict[SentTopic, Annotated[int, Limit(1)] | None])
    assert topics.read(sent(topics.write({"Trade": None, "Pay": 1}))) == {"Trade": None, "Pay": 1}
    with pytest.raises(InvalidNameError, match="a/b"):
        topics.read([["a/b", 1]])


def test_errors_and_paths_are_values() -> None:
    form = form_of(dict[str, ConfigError | TopicNotFoundError])
    [(name, error)] = form.read(sent(form.write({"a": TopicNotFoundError("Trade")}))).items()
    assert (name, type(error), error.args) == (
        "a",
        TopicNotFoundError,
        TopicNotFoundError("Trade").args,
    )
    assert form_of(Path).read(form_of(Path).write(Path("a/b"))) == Path("a/b")
    assert form_of(range).read(form_of(range).write(range(2, 5))) == range(2, 5)


class Options(TypedDict, total=False):
    ack: Literal["memory", "disk"] | None
    size: int


class TradeApi(Protocol):
    def send(
        self,
        topic: str,
        places: Sequence[Place] = (),
        *,
        once: bool = False,
        **more: Unpack[Options],
    ) -> int: ...


def test_the_arguments_of_a_call_arrive_as_they_were_given() -> None:
    form = CallForm(TradeApi.send)
    asked = sent(form.write(["Trade"], {"once": True, "ack": None}))
    assert form.read(asked) == (["Trade", []], {"once": True, "ack": None})
    asked = sent(form.write(["Trade", [Place("a", 1)]], {"size": 3}))
    assert form.read(asked) == (["Trade", [Place("a", 1)]], {"once": False, "size": 3})
    with pytest.raises(TypeError):
        form.write(["Trade", [], "more"], {})


class PiecesApi(Protocol):
    def store(self, name: str, *pieces: bytes, size: int = 0) -> int: ...


@pytest.mark.parametrize("pieces", [[], [b"a"], [b"a", b"\0", b""]])
def test_any_number_of_arguments_of_one_type_arrive(pieces: list[bytes]) -> None:
    form = CallForm(PiecesApi.store)
    asked = sent(form.write(["T", *pieces], {"size": 3}))
    assert form.read(asked) == (["T", *pieces], {"size": 3})
    with pytest.raises(ValueError, match="4 is no"):
        form.write(["T", *pieces, 4], {})
    for wrong in ([], [4], ["T", *pieces, 4]):
        with pytest.raises(ConfigError, match="store"):
            form.read([wrong, {"size": 3}])


@pytest.mark.parametrize(
    "asked", [None, [], [["Trade"], {}], [["Trade", []], {"speed": 1}], [[1, []], {}], [[], {}, 1]]
)
def test_other_arguments_are_refused(asked: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        CallForm(TradeApi.send).read(asked)
