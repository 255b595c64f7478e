"""Numbers by time as drawings: with axes, the values at their ends, and the zone of the times.

``plot`` is for a row of a table, ``large_plot`` for a page of its own subject: it has the middle of
both axes, too, and a band where the numbers are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from rocketray.console.facts.samples import Series

_STEPS = (1.0, 2.0, 5.0, 10.0)
_MIDDLE_FROM_MS = 180_000  # of a shorter time, the minute in the middle is that of an end


@dataclass(frozen=True, slots=True)
class _Sheet:
    """The sizes of a drawing in units of its viewBox, which are pixels where there is room.

    ``left`` and ``bottom`` are room for the texts of the axes.
    """

    kind: str
    width: int
    height: int
    left: int
    bottom: int
    right: int = 6
    top: int = 8

    @property
    def is_large(self) -> bool:
        """Whether it has room for the middle of its axes."""
        return self.height > 100


_SMALL = _Sheet("plot", 320, 84, 44, 18)
_LARGE = _Sheet("plot large", 460, 180, 50, 22, top=12)


def plot(series: Series, label: str, top: float | None = None) -> Markup:
    """Return a drawing of *series*; "" without two known numbers.

    *top* is the end of the axis where several drawings have one scale. There is no line where a
    number is unknown. The axis begins at 0.
    """
    return _drawn(series, label, top, _SMALL)


def large_plot(series: Series, label: str, top: float | None = None) -> Markup:
    """Return a larger drawing; as :func:`plot`."""
    return _drawn(series, label, top, _LARGE)


def greatest(plots: Sequence[Series]) -> float:
    """Return the greatest number of several series: the end of their common scale; 0 for none."""
    return max((value for series in plots for _, value in series if value is not None), default=0.0)


def axis_end(most: float) -> float:
    """Return the end of an axis: 1, 2 or 5 times a power of ten, and at least 1."""
    if most <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in _STEPS if step * power >= most)


def short(value: float) -> str:
    """Return a number in few characters: ``878 k``, ``1.2 M``, ``0.5``."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            amount = value / size
            return f"{amount:.0f}{unit}" if amount >= 100 else f"{amount:.3g}{unit}"
    return f"{value:.3g}"


def _drawn(series: Series, label: str, top: float | None, sheet: _Sheet) -> Markup:
    known = [value for _, value in series if value is not None]
    if len(series) < 2 or len(known) < 2:
        return Markup("")
    end = axis_end(max(*known, top or 0.0))
    (first, _), (last, newest) = series[0], series[-1]
    low, right = sheet.height - sheet.bottom, sheet.width - sheet.right

    def across(time_ms: int) -> float:
        return sheet.left + (time_ms - first) * (right - sheet.left) / max(last - first, 1)

    def place(time_ms: int, value: float) -> str:
        return f"{across(time_ms):.1f},{low - value * (low - sheet.top) / end:.1f}"

    lines = Markup("").join(
        # A line of one point is drawn as a dot, by its round ends, if it has the point twice.
        Markup('<polyline points="{}"/>').format(
            " ".join(place(*one) for one in (line if len(line) > 1 else line * 2))
        )
        for line in _without_gaps(series)
    )
    bands = Markup("").join(
        Markup('<rect class="gap" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
            across(begin), sheet.top, across(until) - across(begin), low - sheet.top
        )
        for begin, until in (_gaps(series) if sheet.is_large else ())
    )
    zone = datetime.fromtimestamp(last / 1000, UTC).astimezone().tzname() or ""
    value = "–" if newest is None else short(newest)
    said = f"{label}: {value}, {_clock(first)} – {_clock(last)} {zone}"
    middle = sheet.top + (low - sheet.top) / 2
    texts = [
        (sheet.left - 6, sheet.top + 8, "end", short(end)),
        (sheet.left - 6, low + 2, "end", "0"),
        (sheet.left, sheet.height - 4, "start", _clock(first)),
        (right, sheet.height - 4, "end", f"{_clock(last)} {zone}"),
    ]
    grid = Markup("")
    if sheet.is_large:
        texts.append((sheet.left - 6, round(middle) + 4, "end", short(end / 2)))
        if last - first >= _MIDDLE_FROM_MS:
            centre = (sheet.left + right) // 2
            texts.append((centre, sheet.height - 4, "middle", _clock((first + last) // 2)))
        grid = Markup('<path class="grid" d="M{0},{1:.1f}H{2}M{0},{3}H{2}"/>').format(
            sheet.left, middle, right, sheet.top
        )
    axes = Markup('<path class="axes" d="M{0},{1}V{2}H{3}M{0},{1}H{3}"/>').format(
        sheet.left, sheet.top, low, right
    )
    return Markup(
        '<svg class="{}" role="img" viewBox="0 0 {} {}" aria-label="{}"><title>{}</title>'
        "{}{}{}{}{}</svg>"
    ).format(
        *(sheet.kind, sheet.width, sheet.height, said, said),
        *(bands, grid, axes, lines, _texts(texts)),
    )


def _texts(texts: Sequence[tuple[int, int, str, str]]) -> Markup:
    return Markup("").join(
        Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(*each) for each in texts
    )


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


def _gaps(series: Series) -> Iterator[tuple[int, int]]:
    """Yield the times between which numbers are unknown: those of the known ones around them."""
    before, is_unknown = series[0][0], False
    for time_ms, value in series:
        if value is None:
            is_unknown = True
            continue
        if is_unknown:
            yield before, time_ms
        before, is_unknown = time_ms, False
    if is_unknown:
        yield before, series[-1][0]


def _clock(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC).astimezone():%H:%M}"
