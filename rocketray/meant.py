"""What somebody may have meant who mistyped a name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from .errors import ConfigError

__all__ = ["meant", "refuse_unknown"]


def meant(wanted: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """The names of *known* that look like *wanted*, in capitals or not, the most alike first.

    *cutoff* is how much alike, from 0 to 1 (:func:`difflib.get_close_matches`).
    """
    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(name.casefold(), name)
    found = get_close_matches(wanted.strip().casefold(), folded, most, cutoff)
    return [folded[name] for name in found]


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str], otherwise: str) -> None:
    """Raise :class:`ConfigError` for a name of an argument that is none of *known*.

    *what* begins the sentence ("a member has no option"); *otherwise* ends it where no name is
    like the given one.
    """
    names = dict.fromkeys(known)
    for name in given:
        if name not in names:
            near = meant(name, names)
            end = f"did you mean {near[0]}=?" if near else otherwise
            raise ConfigError(f"{what} {name}=; {end}")
