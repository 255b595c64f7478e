"""The filter of a query, where it is given by its name."""

from __future__ import annotations

import logging
from pathlib import Path

from rocketray.actors.client.connected_client import open_client
from rocketray.base.cluster import Cluster
from rocketray.broker.disks.joined_cluster import read_joined
from rocketray.broker.named_filters.filter_book import NamedFilter
from rocketray.broker.named_filters.filter_files import filters_in
from rocketray.errors import StreamError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription

from .topic_queues import StoreDirectory

logger = logging.getLogger(__name__)


def find_filter(node: Path | Cluster | StoreDirectory, topic: str, name: FilterName) -> NamedFilter:
    """Return a version of a named filter of *topic*, the latest one if *name* has none.

    It is looked up in the files of the directory; of a cluster, or a disk that joined one, by a
    call to its coordinator.

    Raises:
        TopicNotFoundError, ConfigError: there is no such topic, filter or version.
        NodeNotRunningError: the cluster does not run. StoreError: a file is damaged.
    """
    if isinstance(node, StoreDirectory):
        return filters_in(node.path, topic).get(name)
    if isinstance(node, Path) and read_joined(node) is None:
        return filters_in(node, topic).get(name)
    with open_client(node) as client:
        return client.named_filters.get(topic, name)


def warn_of_later(
    node: Path | Cluster | StoreDirectory, topic: str, name: FilterName, kept: Subscription
) -> None:
    """Log that a query continues with *kept*, an earlier version of its filter than the latest."""
    try:
        latest = find_filter(node, topic, name).subscription
    except StreamError as error:
        logger.warning("the query continues with filter %s: %s", kept.named, error)
        # Only the advice is missing: the query continues with the filter that it has.
        return
    if latest != kept:
        logger.warning(
            "the query began with filter %s, and continues with it, though %s of topic %s is the "
            "latest; to change it, set filter=%s, and allowFilterChange=true to continue from "
            "the checkpoint, or begin a new one",
            *(kept.named, latest.named, topic, latest.named),
        )
