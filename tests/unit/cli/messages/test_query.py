from __future__ import annotations

import pytest
import typer
from support.harness.command_server import run_here

from rocketray.cli.arguments.lookup_options import parse_time_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
    ],
)
def test_milliseconds_and_iso_8601(text: str, ms: int) -> None:
    assert parse_time_ms(text) == ms


@pytest.mark.parametrize("text", ["", "-5", "yesterday", "2023-13-01", "٣"])
def test_what_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_time_ms(text)


@pytest.mark.parametrize("text", ["9" * 40, "1700000000", "1700000000123000"])
def test_a_time_in_another_unit_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="give milliseconds since 1970"):
        parse_time_ms(text)


@pytest.mark.parametrize(
    "command", [("query", "T"), ("filter", "preview", "T"), ("store", "query", ".")]
)
def test_times_between_which_nothing_can_lie_are_wrong_usage(command: tuple[str, ...]) -> None:
    done = run_here(*command, "--from", "5", "--to", "1")
    assert (done.code, "--from is later than --to" in done.err) == (2, True)
