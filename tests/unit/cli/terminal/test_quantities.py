from __future__ import annotations

import pytest
import typer

from rocketray.base.units import format_bytes, format_duration, format_size
from rocketray.cli.terminal.quantities import (
    parse_bytes,
    parse_duration,
    parse_mode,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "milliseconds", "back"),
    [
        ("90s", 90_000, "90s"),
        ("120s", 120_000, "2m"),
        ("72h", 259_200_000, "3d"),
        ("36h", 129_600_000, "36h"),
        ("7d", 604_800_000, "7d"),
        ("250ms", 250, "250ms"),
        ("30 m", 1_800_000, "30m"),
    ],
)
def test_times_are_read_and_written(text: str, milliseconds: int, back: str) -> None:
    assert parse_duration(text) == milliseconds
    assert format_duration(milliseconds) == back


@pytest.mark.parametrize(
    ("text", "size", "back"),
    [
        ("10GiB", 10 << 30, "10GiB"),
        ("1024MiB", 1 << 30, "1GiB"),
        ("500MB", 500_000_000, "500000000B"),
        ("1 kB", 1000, "1000B"),
    ],
)
def test_sizes_are_read_and_written(text: str, size: int, back: str) -> None:
    assert parse_bytes(text) == size
    assert format_bytes(size) == back


def test_none_is_no_limit() -> None:
    assert parse_duration("none") is parse_bytes("none") is None


@pytest.mark.parametrize("text", ["", "72", "h", "0h", "-1h", "1.5h", "1w", "1H", "9" * 30 + "h"])
def test_what_is_no_time_and_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time like"):
        parse_duration(text)
    with pytest.raises(typer.BadParameter, match="is not a size like"):
        parse_bytes(text)


def test_a_rate_is_a_size_or_0() -> None:
    assert (parse_rate("1MiB"), parse_rate("0")) == (1 << 20, 0)
    for text in ("none", "1", "-1MiB", "fast"):
        with pytest.raises(typer.BadParameter):
            parse_rate(text)


def test_modes_are_three_octal_digits() -> None:
    assert (parse_mode("700"), parse_mode("0750")) == (0o700, 0o750)
    for text in ("", "7", "rwx", "788", "4755", "-700", "7000"):
        with pytest.raises(typer.BadParameter, match="three octal digits"):
            parse_mode(text)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1 << 10, "1.0 KiB"),
        (56_415_784 << 10, "53.8 GiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_measured_sizes_are_rounded(size: int, shown: str) -> None:
    assert format_size(size) == shown
