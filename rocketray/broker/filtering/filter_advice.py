"""Warnings about a filter before it is used: from its text, and from recent messages of a topic.

``filter check`` shows all of them. Commands that consume, read or redrive with a filter show only
those about messages that the filter most likely leaves out against its author's intention: without
them, a typo looks like a topic without messages. The module only reads files, so no node has to
run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from rocketray.errors import StoreError
from rocketray.filters.sql92.advice import Advice, advise
from rocketray.filters.sql92.nodes import property_names
from rocketray.filters.subscription import Subscription
from rocketray.filters.tag_advice import advise_tags
from rocketray.message import TAGS

SAMPLE_COUNT = 1000  # of whose records only the properties are read
_ALL_TAGS = ("", "*")

logger = logging.getLogger(__name__)


def advise_filter(
    subscription: Subscription,
    directory: Path | None = None,
    topic: str | None = None,
    count: int = SAMPLE_COUNT,
) -> list[Advice]:
    """Return all warnings about *subscription*, with a topic also from its newest *count* messages.

    There are none about a predicate.

    Raises:
        FilterSyntaxError: the expression does not parse.
        StoreError: there is no such topic, or its files are damaged.
    """
    is_tags = subscription.expression_type == "TAG"
    if subscription.expression_type == "CLASS" or (
        is_tags and subscription.expression in _ALL_TAGS
    ):
        return []
    tree = None if is_tags else subscription.compiled().tree
    sample = None
    if directory is not None and topic is not None:
        from .preview import sample_recent  # noqa: PLC0415 - imports Numba

        names = [TAGS] if tree is None else property_names(tree)
        sample = sample_recent(directory, topic, names, count)
    return advise_tags(subscription.expression, sample) if tree is None else advise(tree, sample)


def doubts(directory: Path, topics: Iterable[str], subscription: Subscription) -> list[str]:
    """Return a line for each reason why *subscription* may leave out messages that are wanted.

    If a topic cannot be read, its messages are not sampled; the topic's reader reports the error.

    Raises:
        FilterSyntaxError: the expression does not parse.
    """
    lines: dict[str, None] = {}
    for topic in topics:
        try:
            advices = advise_filter(subscription, directory, topic)
        except StoreError as error:
            logger.debug("topic %s was not compared with its filter: %s", topic, error)
            advices = advise_filter(subscription)
        for advice in advices:
            if advice.code.leaves_out:
                lines[f"topic {topic}, {subscription}: {advice}"] = None
    return list(lines)
