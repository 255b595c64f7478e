"""How a comparison of two filters is printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketray.cli.terminal.output import TextTable

from .messages import one_line

if TYPE_CHECKING:
    from rocketray.broker.filtering.filter_diff import FilterDiff


def diff_lines(found: FilterDiff) -> Iterator[str | TextTable]:
    row = (found.scanned, found.both, found.only_old, found.only_new)
    yield TextTable(("scanned", "both", "only the old", "only the new"), [row])
    for count, said, examples in (
        (found.only_old, "only the old filter delivers", found.lost),
        (found.only_new, "only the new filter delivers", found.gained),
    ):
        if examples:
            more = f", the first {len(examples)}" if count > len(examples) else ""
            yield f"{said}{more}:"
            for one in examples:
                reason = one.new if one.new.value != "matched" else one.old
                yield f"  {one_line(one.message)}  ({reason.value.replace('_', ' ')})"
    if found.old_failed or found.new_failed:
        yield (
            f"the old filter fails on {found.old_failed} of these messages, the new one on "
            f"{found.new_failed}: they are not delivered"
        )
    if not found.only_old and not found.only_new:
        yield "the filters deliver the same of these messages"
    if found.scanned < found.held:
        yield (
            f"only {found.scanned} of {found.held} messages were scanned: they are the first ones "
            "of the queues"
        )
