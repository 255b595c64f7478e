"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from rocketray.errors import ConfigError


def meant(wanted: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names of *known* most like *wanted*, ignoring case, the most similar first.

    *cutoff* is the least similarity, from 0 to 1; 0.6 is difflib's (``get_close_matches``).
    """
    folded: dict[str, str] = {}
    for name in known:
        # Of names that differ only in case the first is suggested.
        folded.setdefault(name.casefold(), name)
    found = get_close_matches(wanted.strip().casefold(), folded, most, cutoff)
    return [folded[name] for name in found]


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str], otherwise: str) -> None:
    """Raise :class:`ConfigError` for a given argument name that is not in *known*.

    *what* begins the sentence ("a member has no option"); *otherwise* ends it if no known name is
    similar.
    """
    names = dict.fromkeys(known)
    for name in given:
        if name not in names:
            near = meant(name, names)
            end = f"did you mean {near[0]}=?" if near else otherwise
            raise ConfigError(f"{what} {name}=; {end}")
