"""The topics and queues that a query reads: by name, by a pattern, or queue by queue.

A pattern is matched again at each look, so a topic that is created later joins the query. The
node's own topics, such as those of retries, are never matched; they have to be named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rocketray.base.meant import meant
from rocketray.base.names import check_topic
from rocketray.broker.fetching.read_plan import QueueKey
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ConfigError, TopicNotFoundError

_TOPICS_MAX = 1000  # each look reads the ends of all their queues
_PATTERN_MAX_CHARS = 1000  # it is matched with each topic of the catalog, whenever that changes
_ASSIGNED_MAX_CHARS = 1 << 20  # more than a hundred thousand queue ids
_NEAR = 0.75  # as the catalog suggests topics
_QUEUE_ID_MAX = (1 << 31) - 1  # a record has 32 bits for it


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """What is read: *names*, or what matches *pattern*; only *queues* of a topic that is in it.

    ``text`` is the option as it was given, for errors.
    """

    text: str
    names: tuple[str, ...] = ()
    pattern: str | None = None
    queues: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def among(self, known: Mapping[str, TopicConfig], where: str) -> list[TopicConfig]:
        """Return the chosen topics of a catalog, which is that of *where*.

        Raises:
            TopicNotFoundError: a named topic is not in it.
            ConfigError: an assigned queue is not in it, or too many topics match.
        """
        if self.pattern is not None:
            found = [topic for name, topic in sorted(known.items()) if self._matches(topic, name)]
            if len(found) > _TOPICS_MAX:
                raise ConfigError(
                    f"{self.text} matches {len(found)} topics of {where}; one query reads at most "
                    f"{_TOPICS_MAX}"
                )
            return found
        for name in self.names:
            if name not in known:
                open_names = [each.name for each in known.values() if not each.internal]
                near = meant(name, open_names, cutoff=_NEAR)
                raise TopicNotFoundError(name, where, "".join(near))
            for queue_id in self.queues.get(name, ()):
                known[name].check_queue(queue_id)
        return [known[name] for name in self.names]

    def keys(self, topics: Iterable[TopicConfig]) -> list[QueueKey]:
        return [
            (topic.name, queue_id)
            for topic in topics
            for queue_id in self.queues.get(topic.name, range(topic.queues))
        ]

    def strangers(self, keys: Iterable[QueueKey]) -> list[str]:
        """Return the names of topics or queues among *keys* that are not chosen, for an error."""
        found: dict[str, None] = {}
        for topic, queue_id in sorted(keys):
            if not self._has_name(topic):
                found[topic] = None
            elif queue_id not in self.queues.get(topic, (queue_id,)):
                found[f"queue {queue_id} of {topic}"] = None
        return [*found]

    def _has_name(self, name: str) -> bool:
        return (
            name in self.names if self.pattern is None else bool(re.fullmatch(self.pattern, name))
        )

    def _matches(self, topic: TopicConfig, name: str) -> bool:
        return not topic.internal and self._has_name(name)


def named(text: str, option: str = "topic") -> TopicChoice:
    """Return the topics of a list with commas.

    Raises:
        ConfigError: it is too long, or names a topic twice. InvalidNameError: a name is not valid.
    """
    names = tuple(check_topic(name.strip()) for name in text.split(","))
    if len(set(names)) != len(names):
        raise ConfigError(f"{option}={text!r} names a topic twice")
    return TopicChoice(f"{option} = {','.join(names)}", _limited(names, option))


def matching(pattern: str, option: str = "topicPattern") -> TopicChoice:
    """Return the topics whose whole name matches a regular expression.

    Raises:
        ConfigError: it is none.
    """
    if len(pattern) > _PATTERN_MAX_CHARS:
        raise ConfigError(f"{option} has {len(pattern)} characters; at most {_PATTERN_MAX_CHARS}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{option}={pattern!r} is not a regular expression: {error}; write one like 'Trade.*'"
        ) from None
    return TopicChoice(f"{option} = {pattern}", pattern=pattern)


def assigned(text: str, option: str = "assign") -> TopicChoice:
    """Return the queues of a JSON object such as ``{"Trade": [0, 1]}``.

    Raises:
        ConfigError: it is none. InvalidNameError: a name is not a topic's.
    """
    if len(text) > _ASSIGNED_MAX_CHARS:
        raise ConfigError(f"{option} has {len(text)} characters; at most {_ASSIGNED_MAX_CHARS}")
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value:
        raise ConfigError(f'{option}={text[:80]!r}: write JSON like {{"Trade":[0,1]}}')
    queues = {check_topic(topic): _queue_ids(topic, ids, option) for topic, ids in value.items()}
    return TopicChoice(f"{option} = {text}", _limited(tuple(queues), option), queues=queues)


def _queue_ids(topic: str, ids: object, option: str) -> tuple[int, ...]:
    is_list = isinstance(ids, list) and all(
        type(each) is int and 0 <= each <= _QUEUE_ID_MAX for each in ids
    )
    if not is_list or not ids:
        raise ConfigError(
            f"{option}: topic {topic!r} has {ids!r:.80}; write the ids of its queues, like [0,1]"
        )
    assert isinstance(ids, list)
    return tuple(sorted(set(ids)))


def _limited(names: Sequence[str], option: str) -> tuple[str, ...]:
    if len(names) > _TOPICS_MAX:
        raise ConfigError(
            f"{option} names {len(names)} topics; one query reads at most {_TOPICS_MAX}"
        )
    return tuple(names)
