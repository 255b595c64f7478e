"""Tables as text, for users: columns that fit the terminal, or a block for each row.

A table without a width has one line for each row, whatever its length, so that ``grep`` and
``less -S`` work on it. With a width, it is fitted in this order, and no text is left out:

  1. headers are broken between their words;
  2. texts that are longer than 16 characters are broken: between words, else wherever the column
     ends. A number stays whole;
  3. where that is not enough, each row becomes a block of lines, ``column  value``.

Widths are those of a terminal's cells, of which a Chinese character takes two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

_GAP = "  "
_TEXT_FLOOR = 16  # a column of texts is not made narrower than that


def table_lines(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    width: int | None = None,
) -> Iterator[str]:
    """Return the lines of a table, no wider than *width*; the columns in *right* are numbers."""
    widths = _widths(headers, rows, right, width)
    if widths is None:
        yield from _blocks(headers, rows)
        return
    are_numbers = [header in right for header in headers]
    yield from _row(headers, widths, are_numbers)
    yield _GAP.join("─" * each for each in widths)
    for row in rows:
        yield from _row(row, widths, are_numbers)


def _widths(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], width: int | None
) -> list[int] | None:
    """Return the width of each column; None if they do not fit side by side."""
    widest = [max((cell_len(row[at]) for row in rows), default=0) for at in range(len(headers))]
    widths = list(map(max, widest, map(cell_len, headers)))
    if width is None:
        return widths
    room = width - len(_GAP) * (len(headers) - 1)
    for text_floor in (math.inf, _TEXT_FLOOR):
        floors = [
            max(cells if header in right else min(cells, text_floor), *map(cell_len, words))
            for header, words, cells in zip(headers, map(str.split, headers), widest, strict=True)
        ]
        while sum(widths) > room and widths != floors:  # the widest of those that may gives way
            spare = [
                (have, index)
                for index, (have, least) in enumerate(zip(widths, floors, strict=True))
                if have > least
            ]
            widths[max(spare)[1]] -= 1
    return widths if sum(widths) <= room else None


def _row(cells: Sequence[str], widths: Sequence[int], are_numbers: Sequence[bool]) -> Iterator[str]:
    """Return the lines of one row: as many as its longest cell has."""
    for texts in zip_longest(*map(_broken, cells, widths), fillvalue=""):
        yield _GAP.join(map(_aligned, texts, widths, are_numbers)).rstrip()


def _aligned(text: str, width: int, is_number: bool) -> str:  # noqa: FBT001 - mapped over columns
    blank = " " * (width - cell_len(text))
    return blank + text if is_number else text + blank


def _broken(text: str, width: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        *full, lines[-1] = chop_cells(word, width)
        lines[-1:-1] = full
    return lines


def _blocks(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return a line for each cell that is not empty, and a blank one between rows."""
    widest = max(map(cell_len, headers))
    for number, row in enumerate(rows):
        if number:
            yield ""
        for header, cell in zip(headers, row, strict=True):
            if cell:
                yield f"{_aligned(header, widest, is_number=False)}{_GAP}{cell}"
