"""Fields of forms and addresses: numbers, filters, and the limit of their texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rocketray.broker.named_filters.filter_book import NamedFilter
from rocketray.errors import ConfigError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.messaging.api.node_client import NodeClient

AskFilter = Callable[[Callable[[NodeClient], NamedFilter]], NamedFilter]
"""Asks the node for a filter."""

EXPRESSION_MAX = 4096
"""The characters of a filter, or of another field of a form, at most."""
_DIGITS_MAX = 18  # every such number fits the 64 bits of offsets and times
_NAME = "NAME"
_NumberT = TypeVar("_NumberT", int, None)


def checked_texts(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields; raises ConfigError for one that is too long, or a file."""
    for name, value in fields.items():
        if not isinstance(value, str):
            raise ConfigError(f"{name[:40]} is a file; send a text")
        if len(value) > EXPRESSION_MAX:
            raise ConfigError(f"{name[:40]} is longer than {EXPRESSION_MAX} characters")
    return dict(fields)


def number_of(fields: Mapping[str, Any], name: str, default: _NumberT) -> int | _NumberT:
    """Return a number, or *default* for an empty field; raises ConfigError for another text."""
    text = str(fields.get(name, "")).strip()
    if not text:
        return default
    if not is_number(text):
        raise ConfigError(f"{name} is {text[:40]!r}; give a number")
    return int(text)


def is_number(text: str) -> bool:
    """Return whether a text is a number of offsets, queues or times, from 0 on."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def filter_or_name(kind: str, expression: str) -> Subscription | FilterName:
    """Return a filter of tags or SQL92, of which no text is all messages; or a filter's name.

    Raises:
        ConfigError: it is of another kind, or no name.
    """
    if kind == _NAME:
        return FilterName.parse(expression)
    if kind not in ("TAG", "SQL92"):
        raise ConfigError("kind is TAG, SQL92 or NAME; predicates run in commands, with --where")
    if kind == "SQL92" and expression:
        return Subscription.sql(expression)
    return Subscription.tags(expression or "*")


def looked_up(ask: AskFilter, topic: str, name: FilterName) -> NamedFilter:
    """Return a named filter of a topic; *ask* asks the node.

    Raises:
        ConfigError: there is no such filter, or it is a predicate.
    """
    found = ask(lambda node: node.named_filters.get(topic, name))
    if found.subscription.expression_type == "CLASS":
        raise ConfigError(
            f"filter {name} is a predicate, which the console does not run; see: rocketray tail "
            f"{topic} --filter {name}"
        )
    return found


def letters_filter(text: str) -> Subscription:
    """Return the filter of letters; all of them for an empty text.

    Raises:
        FilterSyntaxError: it does not parse.
    """
    subscription = Subscription.sql(text) if text.strip() else Subscription.tags("*")
    subscription.check_text()
    return subscription
