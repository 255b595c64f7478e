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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

__all__ = ["table_lines"]

_GAP = "  "
_TEXT_FLOOR = 16  # a column of texts is not made narrower than that


@dataclass(frozen=True, slots=True)
class _Column:
    """A column's header and cells, and how narrow it may become."""

    header: str
    cells: tuple[str, ...]
    is_number: bool

    @property
    def wish(self) -> int:
        """Return the width at which nothing is broken."""
        return max(map(cell_len, (self.header, *self.cells)))

    def floor(self, text_floor: int | None = None) -> int:
        """Return the width with a broken header; texts may be broken down to *text_floor*."""
        widest = max(map(cell_len, self.cells), default=0)
        if text_floor is not None and not self.is_number:
            widest = min(widest, text_floor)
        return max(widest, *map(cell_len, self.header.split()))


def table_lines(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    width: int | None = None,
) -> Iterator[str]:
    """Return the lines of a table, no wider than *width*; the columns in *right* are numbers."""
    columns = [
        _Column(header, tuple(row[index] for row in rows), header in right)
        for index, header in enumerate(headers)
    ]
    widths = _widths(columns, width)
    if widths is None:
        yield from _blocks(headers, rows)
        return
    yield from _row(columns, widths, [column.header for column in columns])
    yield _GAP.join("─" * each for each in widths)
    for row in rows:
        yield from _row(columns, widths, row)


def _widths(columns: Sequence[_Column], width: int | None) -> list[int] | None:
    """Return the width of each column; None if they do not fit side by side."""
    widths = [column.wish for column in columns]
    if width is None:
        return widths
    room = width - len(_GAP) * (len(columns) - 1)
    for text_floor in (None, _TEXT_FLOOR):
        floors = [column.floor(text_floor) for column in columns]
        while sum(widths) > room and widths != floors:  # the widest of those that may gives way
            spare = [
                (have, index)
                for index, (have, least) in enumerate(zip(widths, floors, strict=True))
                if have > least
            ]
            widths[max(spare)[1]] -= 1
    return widths if sum(widths) <= room else None


def _row(columns: Sequence[_Column], widths: Sequence[int], cells: Sequence[str]) -> Iterator[str]:
    """Return the lines of one row: as many as its longest cell has."""
    broken = [_broken(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, broken))):
        texts = [lines[number] if number < len(lines) else "" for lines in broken]
        aligned = [
            " " * (width - cell_len(text)) + text
            if column.is_number
            else text + " " * (width - cell_len(text))
            for column, width, text in zip(columns, widths, texts, strict=True)
        ]
        yield _GAP.join(aligned).rstrip()


def _broken(text: str, width: int) -> list[str]:
    """Break *text* into lines of at most *width*."""
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
                yield f"{header}{' ' * (widest - cell_len(header))}{_GAP}{cell}"
