"""The badges of the menu: how many troubles each page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rocketray.services.health.troubles import Trouble, TroubleKind

_PAGES: Mapping[TroubleKind, str] = {
    TroubleKind.UNKNOWN: "node",
    TroubleKind.NODE: "node",
    TroubleKind.APP: "apps",
    TroubleKind.LETTERS: "letters",
}
_PAGE_OF_GROUPS = "groups"


class Badge(NamedTuple):
    """A number of troubles, and whether one of them is an error; None if it is not known."""

    troubles: int | None
    is_error: bool = False


def badges_of(troubles: Sequence[Trouble] | None) -> dict[str, Badge]:
    """Return the badges by page; if *troubles* is None, each of these pages has an unknown one."""
    if troubles is None:
        return dict.fromkeys((*_PAGES.values(), _PAGE_OF_GROUPS), Badge(None))
    found: dict[str, Badge] = {}
    for trouble in troubles:
        page = _PAGES.get(trouble.kind, _PAGE_OF_GROUPS)
        before = found.get(page, Badge(0))
        found[page] = Badge((before.troubles or 0) + 1, before.is_error or trouble.kind.is_error)
    return found
