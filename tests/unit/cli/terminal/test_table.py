"""Tables that people read: whole where they fit, and never with a part left out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from rocketray.cli.terminal.table import table_lines

HEADERS = ("app", "agent", "received", "dead letters", "queues")
NUMBERS = ("received", "dead letters")
ROWS = [
    ("shop", "shop.note_the_orders_of_today", "1200", "1", "Orders 0,2,4,6 Payments 3"),
    ("", "other", "7", "0", ""),
]


def test_a_table_that_is_not_cut_has_a_line_for_each_row() -> None:
    assert list(table_lines(HEADERS, ROWS, NUMBERS)) == [
        "app   agent                          received  dead letters  queues",
        "────  ─────────────────────────────  ────────  ────────────  ─────────────────────────",
        "shop  shop.note_the_orders_of_today      1200             1  Orders 0,2,4,6 Payments 3",
        "      other                                 7             0",
    ]


def test_headers_and_long_texts_give_way_to_the_width_and_numbers_stay_whole() -> None:
    assert list(table_lines(HEADERS, ROWS, NUMBERS, 62)) == [
        "app   agent               received     dead  queues",
        "                                    letters",
        "────  ──────────────────  ────────  ───────  ─────────────────",
        "shop  shop.note_the_orde      1200        1  Orders 0,2,4,6",
        "      rs_of_today                            Payments 3",
        "      other                      7        0",
    ]


def test_what_cannot_stand_side_by_side_becomes_a_block_for_each_row() -> None:
    assert list(table_lines(HEADERS, ROWS, NUMBERS, 40)) == [
        "app           shop",
        "agent         shop.note_the_orders_of_today",
        "received      1200",
        "dead letters  1",
        "queues        Orders 0,2,4,6 Payments 3",
        "",
        "agent         other",
        "received      7",
        "dead letters  0",
    ]


def test_a_table_without_rows_is_its_headers() -> None:
    assert list(table_lines(("topic", "queues"), [], ("queues",), 80)) == [
        "topic  queues",
        "─────  ──────",
    ]


_TEXTS = st.text(st.sampled_from("xy_ 0漢"), max_size=40)  # no letter of the headers


@settings(max_examples=100)
@given(
    st.lists(st.tuples(_TEXTS, _TEXTS, st.integers(0, 2**63).map(str)), max_size=8),
    st.integers(20, 90),
)
def test_every_width_is_kept_and_every_letter_shown_once(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    lines = list(table_lines(("name", "sent to", "count"), rows, ("count",), width))
    if any("─" in line for line in lines):  # no blocks
        assert max(map(cell_len, lines)) <= width
    for letter in "xy_0漢":
        wanted = sum(cell.count(letter) for row in rows for cell in row)
        assert sum(line.count(letter) for line in lines) == wanted
