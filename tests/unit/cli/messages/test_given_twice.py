"""A property that is given twice is refused: one of the two values would be lost."""

from __future__ import annotations

import pytest
from support.harness.command_server import run_here

from rocketray.cli.arguments.line_format import LineFormat


def test_an_option_given_twice_is_an_error() -> None:
    done = run_here("send", "T", "body", "--property", "t=1", "--property", "t=2")
    assert (done.code, "property t is given twice" in done.err) == (2, True)


def test_a_property_twice_in_a_line_is_an_error() -> None:
    with pytest.raises(ValueError, match="property t stands there twice"):
        LineFormat("%h %s").fields(b"t=1,t=2 body")
