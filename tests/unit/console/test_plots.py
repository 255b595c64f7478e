"""Drawings of numbers by time: their axes, gaps, and what they say to a reader of the screen."""

from __future__ import annotations

import re

import pytest

from rocketray.console.pages.plots import axis_end, greatest, large_plot, plot, short


def points(drawn: str) -> list[list[tuple[float, float]]]:
    """The points of each line."""
    lines = re.findall(r'points="([^"]*)"', drawn)
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", line)] for line in lines
    ]


def test_a_plot_has_the_scale_and_the_times_of_its_axes() -> None:
    drawn = plot([(0, 0), (1_800_000, 439_000), (3_600_000, 878_000)], "lag audit")
    assert ">1 M</text>" in drawn
    assert ">0</text>" in drawn
    assert re.search(r">\d\d:\d\d</text>", drawn)
    assert re.search(r">\d\d:\d\d \w+</text>", drawn), "with the zone"
    assert "<title>lag audit: 878 k, " in drawn
    [[first, middle, last]] = points(drawn)
    assert first[0] < middle[0] < last[0]
    assert first[1] > middle[1] > last[1], "a greater number is higher"
    [[_, one]] = points(plot([(0, 0), (1, 1)], "x", top=1_000_000))
    assert one[1] > last[1], "on a common scale a small number is low"


def test_nothing_is_drawn_where_a_number_is_unknown() -> None:
    drawn = plot([(0, 1), (1, 2), (2, None), (3, 2), (4, 1)], "x")
    assert [len(line) for line in points(drawn)] == [2, 2]
    for series in ([], [(0, 1)], [(0, None), (1, None)], [(0, 1), (1, None)]):
        assert plot(series, "x") == ""


def test_a_number_between_unknown_ones_is_a_dot_and_an_unknown_end_is_no_number() -> None:
    drawn = plot([(0, 1), (1, None), (2, 5), (3, None), (4, 2), (5, 3), (6, None)], "lag x")
    lines = points(drawn)
    assert [len(set(line)) for line in lines] == [1, 1, 2]
    assert len(lines[1]) == 2, "its round ends make a line of one place visible"
    assert "<title>lag x: –, " in drawn, "3 would say that it is known now"


def test_a_large_plot_marks_what_is_unknown_and_the_middle_of_its_axes() -> None:
    hour: list[tuple[int, float | None]] = [(n * 600_000, 400.0) for n in range(7)]
    assert 'class="gap"' not in large_plot(hour, "x")
    hour[0] = hour[3] = hour[4] = hour[6] = (0, None)
    hour = [(n * 600_000, value) for n, (_, value) in enumerate(hour)]
    drawn = large_plot(hour, "x")
    bands = re.findall(r'class="gap" x="([\d.]+)" y="\d+" width="([\d.]+)"', drawn)
    a_step = (460 - 50 - 6) / 6
    found = [(round((float(x) - 50) / a_step), round(float(w) / a_step)) for x, w in bands]
    assert found == [(0, 1), (2, 3), (5, 1)], "from the known number before to the one behind"
    assert ">250</text>" in drawn, "half of 500"
    assert len(set(re.findall(r">(\d\d:\d\d)<", drawn))) == 2, "its begin and its middle"
    assert large_plot([(0, 1), (1, None)], "x") == ""


def test_several_plots_have_the_scale_of_the_greatest_number() -> None:
    assert greatest([[(0, 3), (1, None)], [(0, 878_000)], []]) == 878_000
    assert greatest([[(0, None)], []]) == 0
    small = large_plot([(0, 1), (1, 1)], "x", greatest([[(0, 878_000.0)]]))
    assert ">1 M</text>" in small


def test_a_name_is_text() -> None:
    assert "<b>" not in plot([(0, 1), (1, 1)], "<b>")


@pytest.mark.parametrize(
    ("greatest", "end"), [(0, 1), (0.2, 1), (1, 1), (1.5, 2), (3, 5), (51, 100), (878_000, 1e6)]
)
def test_an_axis_ends_at_a_round_number(greatest: float, end: float) -> None:
    assert axis_end(greatest) == end


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (0.5, "0.5"), (999, "999"), (1200, "1.2 k"), (878_000, "878 k"), (2.5e9, "2.5 G")],
)
def test_numbers_are_short(value: float, said: str) -> None:
    assert short(value) == said
