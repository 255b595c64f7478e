"""Numbers with their nouns, as sentences have them: "1 queue is", "1,200 queues are"."""

from __future__ import annotations

_OF_ONE = {"are": "is", "were": "was", "have": "has", "do": "does"}


def counted(count: int, noun: str) -> str:
    """Return *count* with the noun, which is given for one: "1 entry", "2 entries"."""
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def agreed(count: int, verb: str) -> str:
    """Return the verb, which is given for many, as it follows *count*: "is" for "are"."""
    return verb if count != 1 else _OF_ONE.get(verb, f"{verb}s")


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
