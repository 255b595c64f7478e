from __future__ import annotations

import inspect
import pickle
import re
from typing import Any

import pytest

from rocketray import errors
from rocketray.errors import ConfigError, FilterSyntaxError, StreamError

ARGUMENTS: dict[str, object] = {
    "path": "log/000",
    "physical_offset": 7,
    "reason": "a bad size",
    "where": "queue Trade/0",
    "offset": 9,
    "minimum": 0,
    "maximum": 5,
    "message": "'x' is not a number",
    "kind": errors.EvaluationErrorKind.NOT_DOUBLE,
    "what": "a body",
    "size": 10,
    "limit": 5,
    "near": "Trades",
    "expression": "a =",
    "start": 2,
    "end": 3,
    "topic": "Trade",
    "shard": "Trade/0",
    "thing": "producer",
    "maker": 12,
    "process": 34,
    "retry_after_ms": 50,
    "index": 3,
    "unique_key": "0A0B",
    "wanted": "commit",
    "outcome": "rollback",
    "decided_ms": 1_700_000_000_000,
    "decider": "check",
    "group": "g",
    "existing": "tags 'a'",
    "offered": "tags 'b'",
    "difference": "added: b",
    "address": "s3://bucket/cluster",
    "document": "topics",
    "taker": "/srv/second of machine2",
}


def all_classes(base: type[StreamError] = StreamError) -> list[type[StreamError]]:
    return [base, *(each for child in base.__subclasses__() for each in all_classes(child))]


CLASSES = [each for each in all_classes() if each.__module__ == errors.__name__]
LEAVES = [each for each in CLASSES if not each.__subclasses__()]


def instance(leaf: type[StreamError]) -> StreamError:
    if not inspect.isfunction(leaf.__init__):  # it is Exception's own, which takes a message
        return leaf("what, where and what to do")
    return leaf(*[ARGUMENTS[name] for name in inspect.signature(leaf).parameters])


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_a_leaf_survives_pickle(leaf: type[StreamError]) -> None:
    error = instance(leaf)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is leaf
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert all(str(value) in str(error) for value in error.args if isinstance(value, str))


def test_every_error_is_exported_and_drawn_in_the_tree() -> None:
    names = {each.__name__ for each in CLASSES}
    assert set(errors.__all__) == names | {"EvaluationErrorKind"}
    assert errors.__doc__ is not None
    assert set(re.findall(r"\w+Error", errors.__doc__)) == names


def test_wrong_values_are_value_errors_too() -> None:
    for leaf in (ConfigError, errors.InvalidNameError, errors.InvalidMessageError):
        assert issubclass(leaf, ValueError)
    assert issubclass(FilterSyntaxError, ValueError)


@pytest.mark.parametrize(
    ("arguments", "drawn"),
    [
        (("a = ", 4, 4), ["  a = ", "      ^"]),
        (("a == 5", 3, 4), ["  a == 5", "     ^"]),
        (("a > 'abc' ", 4, 9), ["  a > 'abc' ", "      ^^^^^"]),
        (("a\n\t AND b c\nd", 10, 11), ["  \t AND b c", "  \t       ^"]),
        (("a = 'x\ny'", 4, 9), ["  a = 'x", "      ^^"]),
        (("", 0, 0), ["  ", "  ^"]),
        (("a\r\x1b\ud800=", 4, 5), ["  a   =", "      ^"]),
    ],
    ids=repr,
)
def test_a_syntax_error_draws_a_caret(arguments: tuple[Any, ...], drawn: list[str]) -> None:
    assert str(FilterSyntaxError("reason", *arguments)).split("\n") == ["reason", *drawn]
