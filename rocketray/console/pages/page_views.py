"""What each page shows: one record, as its ``.json`` address returns it.

A page asks the node and returns plain values, in the forms that the commands print with ``--json``.
What does not answer has the key ``unknown`` with the reason, and None for its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rocketray.messaging.api.node_client import NodeClient

from .message_pages import letters, message
from .node_pages import apps, node_page, waiting
from .overview_page import overview
from .page_context import PageContext, Query
from .topic_pages import group, groups, topic, topics

PAGES: Mapping[str, Callable[[NodeClient, Query, PageContext], dict[str, Any]]] = {
    "overview": overview,
    "topics": topics,
    "topic": topic,
    "groups": groups,
    "group": group,
    "message": message,
    "letters": letters,
    "waiting": waiting,
    "apps": apps,
    "node": node_page,
}
"""The pages by the path of their address."""
