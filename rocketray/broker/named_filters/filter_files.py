"""Reading named filters from a node's data directory, also beside a running node."""

from __future__ import annotations

from pathlib import Path

from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import read_state

from .filter_book import FilterBook, TopicFilters, parse_book


def filters_in(data: Path, topic: str) -> TopicFilters:
    """Return the named filters of a topic, as they were saved last.

    Raises:
        TopicNotFoundError: no node with that topic has run on the directory.
        StoreError: a file is damaged, or of another version.
    """
    config = TopicCatalog.load(data).get(topic)
    book = read_state(config_directory(data) / "namedFilters.json", parse_book) or FilterBook()
    return book.of(topic, config.topic_id)
