"""Who answers for a key: told by the names of members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from rocketray.actors.groups.member_options import new_client_id
from rocketray.topology.routes import member_name, owned_queues, owners


@dataclass
class Entry:
    group: str
    topic: str
    members: Mapping[str, Sequence[int]]


def test_the_address_of_an_instance_follows_its_host_and_process() -> None:
    served = member_name(SimpleNamespace(canonical_url="http://web1:6066"))
    entries = [
        Entry("g", "Trade", {served: [0, 2], new_client_id(): [1], "left@screens": [3]}),
        Entry("other", "Trade", {served: [3]}),
    ]
    assert list(owned_queues(entries, {"g"})) == [
        ("http://web1:6066", "Trade", 0),
        ("http://web1:6066", "Trade", 2),
    ]
    assert owners(entries, {"g"}) == {"Trade": {0: "http://web1:6066", 2: "http://web1:6066"}}
