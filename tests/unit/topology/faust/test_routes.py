"""Who answers for a key: told by the names of members."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from yarl import URL

from rocketray.filters.counters import NO_COUNTERS
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.groups.member_options import new_client_id
from rocketray.hashing import java_hash_code
from rocketray.topology.faust.routes import KeyRouter, member_name, owned_queues, owners
from rocketray.topology.values.wire import message_of


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


@pytest.mark.parametrize(
    "key", [b"k", b"", b"\xff\x00", "\u043a\u043b\u044e\u0447".encode(), b"a\x01b"]
)
def test_the_owner_of_a_key_is_that_of_the_queue_to_which_producers_send_it(key: bytes) -> None:
    """Also of one that is no text, which is stored in base64."""
    router: Any = KeyRouter.__new__(KeyRouter)
    router.app = SimpleNamespace(declarations=SimpleNamespace(queue_count=lambda _: 8))
    router._owners = {"Trade": {queue_id: f"http://web{queue_id}" for queue_id in range(8)}}
    topic = SimpleNamespace(get_topic_name=lambda: "Trade", prepare_key=lambda key, _: (key, None))
    stored = message_of("Trade", key, b"", None, None).properties["__SHARDINGKEY"]
    queue_id = java_hash_code(stored) % 8
    assert router.external_topic_key_store(topic, key) == URL(f"http://web{queue_id}")
