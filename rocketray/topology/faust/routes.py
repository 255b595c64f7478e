"""Routing of web requests by key, for ``@app.table_route`` and ``topic_route``.

The producer's hash gives the key's queue, the coordinator gives the queue's owner, and the owner's
name in the group ends with the address of its web server. A request for a key whose queue has no
owner now, or an owner that the instances do not agree on, gets status 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from faust.app.router import Router
from faust.exceptions import SameNode
from faust.web.exceptions import ServiceUnavailable
from yarl import URL

from rocketray.groups.group_descriptions import GroupDescription
from rocketray.groups.member_options import new_client_id
from rocketray.topology.values.wire import key_hash

LOOK_INTERVAL_S = 2.0  # for so long after a rebalance the owners may be those of before
_HTTP_PORT = 80
_PASSED_ON = "X-Passed-On-By"
"""The header of a request that an instance passes on: its own address."""
Owners = Mapping[str, Mapping[int, str]]
"""The address of the instance that owns a queue, by topic and queue id."""


def member_name(conf: Any) -> str:
    """Return a new member name, which ends with the address of its instance's web server."""
    return new_client_id(str(conf.canonical_url))


def owned_queues(
    groups: Iterable[GroupDescription], names: Container[str]
) -> Iterator[tuple[str, str, int]]:
    """Yield (address, topic, queue id) for each queue of a member of the groups *names*.

    The address is taken from the member's name.
    """
    for entry in groups:
        for name, queues in entry.members.items() if entry.group in names else ():
            # After the "#": the first "@" is between the host and the process id.
            address = name.partition("#")[2].partition("@")[2]  # HOST@PID#…@ADDRESS
            if address:
                yield from ((address, entry.topic, queue) for queue in queues)


def owners(groups: Iterable[GroupDescription], names: Container[str]) -> Owners:
    """Return the owner of each queue of the topics that the groups *names* read."""
    found: dict[str, dict[int, str]] = {}
    for address, topic, queue in owned_queues(groups, names):
        found.setdefault(topic, {})[queue] = address
    return found


class KeyRouter(Router):  # type: ignore[misc]  # Faust's types are not followed
    """Routes to the instance that owns a key's queue."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._owners: Owners = {}

    async def refresh_owners(self) -> None:
        connection = await self.app.connect()
        mine = {agent.membership.group for agent in self.app.agents.values() if agent.membership}
        self._owners = owners(await asyncio.to_thread(connection.groups.all), mine)

    def key_store(self, table_name: str, key: Any) -> URL:
        """Return the address of the instance that owns *key*; raise KeyError when none does."""
        table = self._get_table(table_name)
        owned, queues = self.app.tables.owned_queues(), table.changelog_queues
        if table.is_global or key in table or len(owned) == queues:
            return self._own
        if queues is None:
            raise KeyError(key)
        # A table encodes its keys as JSON; producers send texts unchanged.
        is_text = isinstance(key, str | bytes)
        serializer = "raw" if is_text else table.key_serializer
        encoded = self.app.serializers.dumps_key(None, key, serializer=serializer)
        queue = key_hash(encoded) % queues
        if queue in owned:
            return self._own
        everywhere = {number: at for held in self._owners.values() for number, at in held.items()}
        return URL(everywhere[queue])  # an instance has the same queue numbers in all topics

    def external_topic_key_store(self, topic: Any, key: Any) -> URL:
        """Return the address of the instance that reads *key* of *topic*; KeyError if none."""
        name = topic.get_topic_name()
        queues = self.app.declarations.queue_count(name)
        if queues is None:
            raise KeyError(key)
        return URL(self._owners[name][key_hash(topic.prepare_key(key, None)[0]) % queues])

    async def _route_req(self, dest_url: URL, web: Any, request: Any) -> Any:
        """Pass a request on to the instance at *dest_url*, once.

        During a rebalance two instances may take each other for the owner: requests would go to and
        fro until they have used up all connections of both.

        Raises:
            SameNode: that is this instance. ServiceUnavailable: another instance passed it on.
        """
        if self._urlident(dest_url) == self._urlident(self._own):
            raise SameNode
        if _PASSED_ON in request.headers:
            raise ServiceUnavailable
        url = request.url.with_host(dest_url.host).with_port(dest_url.port or _HTTP_PORT)
        headers = {**request.headers, _PASSED_ON: str(self._own)}
        async with self.app.http_client.request(request.method, url, headers=headers) as response:
            return web.text(
                await response.text(), content_type=response.content_type, status=response.status
            )

    @property
    def _own(self) -> URL:
        address: URL = self.app.conf.canonical_url
        return address
