"""Warnings about tag expressions with surprising effects, as for SQL92.

RocketMQ separates tags by ``||`` alone, so ``"pay|ship"`` and ``"pay, ship"`` are one tag each,
which no message has. There is no warning about a tag that a recent message has.
"""

from __future__ import annotations

from rocketray.base.meant import meant
from rocketray.base.quantity import counted
from rocketray.message import TAGS

from .sql92.advice import Advice, AdviceCode, Sample, tags_meant
from .subscription import parse

_ALL = "*"


def advise_tags(expression: str, sample: Sample | None = None) -> list[Advice]:
    """Return the warnings about a valid tag expression; *sample* has the values of ``TAGS``.

    A rare tag is not a mistake. A tag that no recent message has gets a warning only if a recent
    message has a similar one, or if no recent message has any of the tags.
    """
    parsed = parse(expression)
    if parsed.sub_string == _ALL:
        return []
    if not parsed.tags_set:
        sentence = "names no tag, so it matches no message"
        return [Advice(AdviceCode.NEVER_TRUE, repr(expression), sentence)]
    seen = set() if sample is None else {tag for tag in sample.values.get(TAGS, ()) if tag}
    unseen = sorted(parsed.tags_set - seen)
    found = {tag: advice for tag in unseen if (advice := _about_form(tag))}
    if sample is not None and sample.count:
        is_none_there = len(unseen) == len(parsed.tags_set)
        for tag in unseen:
            close = next(iter(meant(tag, sorted(seen))), "")
            if tag not in found and (close or is_none_there):
                instead = f"; did you mean {close}?" if close else ""
                sentence = (
                    f"is the tag of none of {counted(sample.count, 'recent message')}{instead}"
                )
                found[tag] = Advice(AdviceCode.NEVER_SEEN, tag, sentence)
    return list(found.values())


def _about_form(tag: str) -> Advice | None:
    """Return a warning if *tag* looks like another form of expression."""
    if tag == _ALL:
        sentence = "with spaces around it is the tag *; for all messages write * alone"
        return Advice(AdviceCode.ONE_TAG, repr(tag), sentence)
    tags = tags_meant(tag)
    if not tags:
        return None
    sentence = f"is one tag, since only || separates tags; write {' || '.join(tags)}"
    return Advice(AdviceCode.ONE_TAG, repr(tag), sentence)
