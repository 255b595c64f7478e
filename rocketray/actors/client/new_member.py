"""A new member of a group, for a client of a node, whatever the transport of its calls."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from rocketray.broker.fetching.flight_link import FlightLink
from rocketray.broker.named_filters.joining import join_by_filter
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import EVERYTHING, Subscription
from rocketray.groups.member_options import FetchCompression, MemberOptions, check_member
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.remote.disk_streams import DiskStreams
from rocketray.messaging.remote.fetch_api import FETCHES, FetchApi
from rocketray.runtime.calls.endpoint import client_of


def new_member(
    node: NodeClient,
    group: str,
    topic: str,
    subscription: Subscription | FilterName,
    **options: Unpack[MemberOptions],
) -> GroupConsumer:
    """Return a new member of *group*; see :class:`MemberOptions`.

    The name of a filter is looked up once: see :meth:`NamedFiltersApi.for_group`.

    It maps the queues of disks on its own machine, and fetches those of others from the gateways of
    their disks.
    """
    known = EVERYTHING if isinstance(subscription, FilterName) else subscription
    check_member(group, topic, known, options)
    gateway = partial(_gateway, node, options.get("fetch_compression"))

    def join(found: Subscription) -> GroupConsumer:
        streams = DiskStreams(node, group, node.topics.get(topic), gateway)
        return GroupConsumer(node, group, topic, found, streams=streams, **options)

    return join_by_filter(node.named_filters, group, topic, subscription, join)


def _gateway(node: NodeClient, compression: FetchCompression | None, disk: str) -> FetchApi:
    return client_of(FlightLink(node.at(disk).service, compression), FETCHES)
