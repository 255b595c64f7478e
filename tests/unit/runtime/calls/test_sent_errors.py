"""Errors between a fetch service and its clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketray import errors
from rocketray.errors import EvaluationErrorKind, FilterEvaluationError, StreamError
from rocketray.runtime.calls.sent_errors import (
    error_from_json,
    error_to_json,
    read_error,
    write_error,
)


@pytest.mark.parametrize(
    "error",
    [
        StreamError("what, where, and what to do"),
        errors.FilterSyntaxError("a value is missing", "a =", 2, 3),
        errors.ShardUnavailableError("shard Trade/0", "it starts", 50),
        errors.ShardMovedError("shard Trade/0", "it moves", 0),
        errors.CorruptRecordError("log/000", 7, "a bad size"),
        errors.PredicateError("no module 'x'"),
    ],
)
def test_an_error_is_the_same_one_at_the_client(error: StreamError) -> None:
    again = read_error(write_error(error))
    assert type(again) is type(error)
    assert (again.args, str(again)) == (error.args, str(error))


def test_an_error_of_the_system_keeps_its_number_and_its_file() -> None:
    again = read_error(write_error(FileNotFoundError(2, "No such file", "log/000")))
    assert isinstance(again, FileNotFoundError)
    assert (again.errno, again.filename) == (2, "log/000")


class _OfAnAppError(StreamError):
    pass


@pytest.mark.parametrize(
    "error", [_OfAnAppError("why"), FilterEvaluationError("why", EvaluationErrorKind.NOT_INT32)]
)
def test_what_is_not_plain_is_told_in_its_words(error: StreamError) -> None:
    again = read_error(write_error(error))
    assert type(again) is StreamError
    assert str(again) == "why"
    json.dumps(error_to_json(error))


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        {},
        ["Exception", "x"],
        ["json", "x"],
        ["ShardUnavailableError"],
        ["StreamError", ["x"]],
        ["StreamError", *map(str, range(20))],
        [7, "x"],
    ],
)
def test_another_value_makes_an_error_of_the_root_class_only(value: Any) -> None:
    again = error_from_json(value)
    assert type(again) is StreamError
    assert "the node failed" in str(again)


def test_a_text_that_is_no_json_is_no_error_of_the_service() -> None:
    assert read_error(b"{") is None
    assert read_error(b"\xff") is None
