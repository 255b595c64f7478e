"""Who answers for a key: told by the names of members."""

from __future__ import annotations

from types import SimpleNamespace

from rocketray.filters.counters import NO_COUNTERS
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.groups.member_options import new_client_id
from rocketray.topology.routes import member_name, owned_queues, owners


def entry(group: str, members: dict[str, list[int]]) -> GroupDescription:
    return GroupDescription(group, "Trade", Subscription.tags("*"), {}, {}, members, NO_COUNTERS, 0)


def test_the_address_of_an_instance_follows_its_host_and_process() -> None:
    served = member_name(SimpleNamespace(canonical_url="http://web1:6066"))
    entries = [
        entry("g", {served: [0, 2], new_client_id(): [1], "left@screens": [3]}),
        entry("other", {served: [3]}),
    ]
    assert list(owned_queues(entries, {"g"})) == [
        ("http://web1:6066", "Trade", 0),
        ("http://web1:6066", "Trade", 2),
    ]
    assert owners(entries, {"g"}) == {"Trade": {0: "http://web1:6066", 2: "http://web1:6066"}}
