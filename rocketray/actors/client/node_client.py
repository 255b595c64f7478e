"""The calls of a node that clients share, whatever the transport.

They are grouped by subject. Calls that need no work of the client are those of the interface that
the node's process implements.
"""

from __future__ import annotations

from pathlib import Path

from rocketray.actors.calls.endpoint import CallTransport, client_of
from rocketray.actors.filtering.filter_api import FILTERS, FilterApi
from rocketray.actors.groups.groups_api import GROUPS, SESSIONS, GroupsApi, SessionsApi
from rocketray.actors.topics.topics import Topics
from rocketray.actors.topics.topics_api import TOPICS

__all__ = ["NodeClient"]


class NodeClient:
    """The calls of the node on one data directory."""

    def __init__(self, data: Path, transport: CallTransport) -> None:
        self.data = data
        self.topics = Topics(client_of(transport, TOPICS))
        """The calls about topics."""
        self.groups: GroupsApi = client_of(transport, GROUPS)
        """The calls about consumer groups."""
        self.sessions: SessionsApi = client_of(transport, SESSIONS)
        """The calls of group members."""
        self.filters: FilterApi = client_of(transport, FILTERS)
        """The calls of the filter actor."""
