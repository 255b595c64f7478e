"""Numbers by time as drawings: with axes, the values at their ends, and the zone of the times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from markupsafe import Markup

Series = Sequence[tuple[int, float | None]]
"""Times in ms and numbers, oldest first; None where one is unknown."""
_WIDTH, _HEIGHT = 320, 84  # in the units of the viewBox, which are pixels where there is room
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 6, 8, 18  # room for the texts of the axes
_STEPS = (1.0, 2.0, 5.0, 10.0)


def plot(series: Series, label: str, top: float | None = None) -> Markup:
    """Return a drawing of *series*; "" without two known numbers.

    *top* is the end of the axis where several drawings have one scale. There is no line where a
    number is unknown. The axis begins at 0.
    """
    known = [value for _, value in series if value is not None]
    if len(series) < 2 or len(known) < 2:
        return Markup("")
    end = axis_end(max(*known, top or 0.0))
    first, last = series[0][0], series[-1][0]

    def place(time_ms: int, value: float) -> str:
        x = _LEFT + (time_ms - first) * (_WIDTH - _LEFT - _RIGHT) / max(last - first, 1)
        y = _HEIGHT - _BOTTOM - value * (_HEIGHT - _TOP - _BOTTOM) / end
        return f"{x:.1f},{y:.1f}"

    lines = Markup("").join(
        Markup('<polyline points="{}"/>').format(" ".join(place(*one) for one in line))
        for line in _without_gaps(series)
    )
    zone = datetime.fromtimestamp(last / 1000, UTC).astimezone().tzname() or ""
    said = f"{label}: {short(known[-1])}, {_clock(first)} – {_clock(last)} {zone}"
    texts = Markup("").join(
        Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(x, y, anchor, text)
        for x, y, anchor, text in (
            (_LEFT - 6, _TOP + 8, "end", short(end)),
            (_LEFT - 6, _HEIGHT - _BOTTOM + 2, "end", "0"),
            (_LEFT, _HEIGHT - 4, "start", _clock(first)),
            (_WIDTH - _RIGHT, _HEIGHT - 4, "end", f"{_clock(last)} {zone}"),
        )
    )
    axes = Markup('<path class="axes" d="M{0},{1}V{2}H{3}M{0},{1}H{3}"/>').format(
        _LEFT, _TOP, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    )
    return Markup(
        '<svg class="plot" role="img" viewBox="0 0 {} {}" aria-label="{}"><title>{}</title>{}{}{}</svg>'
    ).format(_WIDTH, _HEIGHT, said, said, axes, lines, texts)


def greatest(drawings: Iterable[Series]) -> float:
    """Return the greatest known number of several drawings, which are to have one scale; or 0."""
    return max((value for one in drawings for _, value in one if value is not None), default=0.0)


def axis_end(greatest: float) -> float:
    """Return the end of an axis: 1, 2 or 5 times a power of ten, and at least 1."""
    if greatest <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(greatest))
    return next(step * power for step in _STEPS if step * power >= greatest)


def short(value: float) -> str:
    """Return a number in few characters: ``878 k``, ``1.2 M``, ``0.5``."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            amount = value / size
            return f"{amount:.0f}{unit}" if amount >= 100 else f"{amount:.3g}{unit}"
    return f"{value:.3g}"


def _without_gaps(series: Series) -> Iterator[list[tuple[int, float]]]:
    line: list[tuple[int, float]] = []
    for time_ms, value in series:
        if value is not None:
            line.append((time_ms, value))
        elif line:
            yield line
            line = []
    if line:
        yield line


def _clock(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC).astimezone():%H:%M}"
