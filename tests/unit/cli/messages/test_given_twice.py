"""A property that is given twice is refused: one of the two values would be lost."""

from __future__ import annotations

import pytest
import typer

from rocketray.cli.arguments.line_format import LineFormat
from rocketray.cli.messages.send import send


def test_an_option_given_twice_is_an_error() -> None:
    with pytest.raises(typer.BadParameter, match="property t is given twice"):
        send("T", "body", properties=["t=1", "t=2"])


def test_a_property_twice_in_a_line_is_an_error() -> None:
    with pytest.raises(ValueError, match="property t stands there twice"):
        LineFormat("%h %s").fields(b"t=1,t=2 body")
