"""The picture of a cluster: its disks by zone, with the queues that each has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from xml.sax.saxutils import escape

from rocketray.base.quantity import counted
from rocketray.base.units import format_size

_WIDTH, _GAP, _PAD, _LINE = 340, 20, 14, 20  # pixels: a card, between cards, inside, a line
_HEAD_LINES = 4  # of a card above its queues: machine, UUID, directory, state
_NAME_MAX, _PLACE_MAX = 34, 46  # characters; 46 of 12 pixels fill a card but for its padding
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e }
.title { font-weight: 600 }
.zone { fill: none; stroke: #8c959f; stroke-dasharray: 4 4 }
.disk { fill: #f6f8fa; stroke: #8c959f }
.away { stroke: #cf222e; stroke-width: 2 }
.drained { stroke: #9a6700; stroke-width: 2 }
.away-text { fill: #cf222e }
.drained-text { fill: #9a6700 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.small { fill: #9198a1 }
.disk { fill: #151b23 }
.away-text { fill: #ff7b72 }
.drained-text { fill: #d29922 }
}
"""


def topology_svg(
    disks: Sequence[Mapping[str, Any]], topics: Mapping[str, Mapping[str, Sequence[int]]]
) -> str:
    """Return the picture, as SVG.

    *disks* are those of ``rocketray topology --json``. *topics* are the queues of each topic by the
    UUID of their disk.
    """
    ordered = sorted(disks, key=lambda disk: (disk["zone"], disk["machine"], disk["disk"]))
    zones = [(zone, [*of_zone]) for zone, of_zone in groupby(ordered, lambda disk: disk["zone"])]
    parts: list[str] = []
    x, bottom = _GAP, 0
    for zone, of_zone in zones:
        y = _GAP + _LINE + _PAD
        for disk in of_zone:
            queues = {
                name: by_disk[disk["disk"]]
                for name, by_disk in topics.items()
                if by_disk.get(disk["disk"])
            }
            card, height = _card(disk, queues, x + _PAD, y)
            parts.append(card)
            y += height + _PAD
        parts.append(_zone(zone, x, y - _GAP))
        x += _WIDTH + 2 * _PAD + _GAP
        bottom = max(bottom, y)
    size = f'width="{x}" height="{bottom + _GAP}" viewBox="0 0 {x} {bottom + _GAP}"'
    label = f"{counted(len(disks), 'disk')} with the queues of {counted(len(topics), 'topic')}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


def numbers_text(numbers: Sequence[int]) -> str:
    """Return queue numbers, runs of them as one: "0, 2, 5-7"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _zone(zone: str, x: int, height: int) -> str:
    box = f'<rect class="zone" x="{x}" y="{_GAP}" rx="8" width="{_WIDTH + 2 * _PAD}" height="{height}"/>'
    name = f"zone {zone}" if zone else "no zone"
    return box + _text(x + _PAD, _GAP + _LINE, name, "small")


def _card(
    disk: Mapping[str, Any], queues: Mapping[str, Sequence[int]], x: int, y: int
) -> tuple[str, int]:
    is_away = disk["freeBytes"] is None
    kind = "away" if is_away else "drained" if disk["isDrained"] else ""
    rows = [row for name, numbers in sorted(queues.items()) for row in _rows(name, numbers)]
    height = (_HEAD_LINES + max(1, len(rows))) * _LINE + 2 * _PAD
    state = "does not answer" if is_away else f"{format_size(disk['freeBytes'])} free"
    if disk["isDrained"]:
        state += ", takes no queues"
    title = str(disk["machine"]) + (" (coordinator)" if disk["isCoordinator"] else "")
    lines = [
        (title, "title"),
        (str(disk["disk"]), "small"),
        (_cut(str(disk["directory"]), _PLACE_MAX), "small"),
        (state, f"small {kind}-text" if kind else "small"),
        *((row, "") for row in rows or ["no queues"]),
    ]
    box = f'<rect class="disk {kind}" x="{x}" y="{y}" rx="6" width="{_WIDTH}" height="{height}"/>'
    texts = [
        _text(x + _PAD, y + _PAD + _LINE * at - 5, text, kind)
        for at, (text, kind) in enumerate(lines, 1)
    ]
    return "".join([box, *texts]), height


def _rows(name: str, numbers: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one topic: its name, and as many numbers as fit on each."""
    line = f"{_cut(name, _NAME_MAX)}:"
    for part in numbers_text(numbers).split(", "):
        if len(line) + len(part) > _PLACE_MAX:
            yield line
            line = "   "
        line += f" {part}"
    yield line


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
