"""The console of a real node shows what the commands print with ``--json``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.harness.command_server import run_here
from support.nodes.console_client import ConsoleClient

from rocketray.actors.client.connection import Connection
from rocketray.actors.client.node_connections import open_node
from rocketray.actors.cluster.node import Node
from rocketray.filters.subscription import Subscription

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
TOPIC, COUNT = "Shown", 40
SQL = "amount > 25"


def test_pages_and_commands_agree(node: Node, connection: Connection) -> None:
    def lines(*arguments: str) -> list[dict[str, Any]]:
        return run_here(*arguments, "--json", "--data", node.data).lines()

    connection.topics.ensure(TOPIC, 2)
    with connection.producer() as producer:
        for number in range(COUNT):
            body, properties = b"%d" % number, {"amount": str(number)}
            producer.send(
                TOPIC,
                body,
                tags="pay",
                keys=[f"s{number}"],
                queue_id=number % 2,
                properties=properties,
            )
    with connection.consumer("watch", TOPIC, Subscription.sql(SQL)) as member:
        got = 0
        while got < 5:
            for batch in member.poll(30.0):
                got += len(batch)
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    with ConsoleClient(node.data, lambda: open_node(node.data)) as console:

        def record(path: str) -> Any:
            return console.get(path).record

        [described] = lines("topics", "describe", TOPIC)
        assert record(f"/topic.json?topic={TOPIC}").items() >= described.items()
        listed = {one["topic"]: one for one in lines("topics", "list")}
        shown = {one["topic"]: one for one in record("/topics.json")["topics"]}
        assert shown.keys() == listed.keys()
        assert all(shown[name].items() >= listed[name].items() for name in listed)
        assert shown[TOPIC]["messages"] == COUNT
        [group] = record("/group.json?group=watch")["topics"]
        assert group["queues"] == lines("groups", "progress", "watch")
        assert group["lag"] == sum(one["lag"] for one in lines("groups", "lag", "watch"))
        assert group["lag"] == COUNT - 26 - got
        seek = record(f"/group.json?group=watch&topic={TOPIC}&dry=move&goal=offset&at=3")
        assert seek["moves"] == lines(
            "groups", "seek", "watch", TOPIC, "--offset", "3", "--dry-run"
        )
        change = f"group=watch&topic={TOPIC}&dry=filter&kind=TAG&filter=ship"
        [compared] = lines("groups", "migrate", "watch", TOPIC, "--tags", "ship", "--dry-run")
        assert record(f"/group.json?{change}")["compared"] == {
            **compared,
            "newName": None,
        }
        [found] = lines("query", TOPIC, "--key", "s7")
        message = record(f"/message.json?topic={TOPIC}&by=key&value=s7")
        assert message["messages"] == [found]
        [why] = message["explanations"]
        [told] = lines("explain", "s7", "--group", "watch", "--topic", TOPIC)
        assert why.items() >= told.items()
        query = f"topic={TOPIC}&kind=SQL92&filter=amount+%3E+25"
        tailed = lines(
            "tail", TOPIC, "--sql", SQL, "--from", "earliest", "--rejected", "--max", "40"
        )
        page = record(f"/tail.json?{query}&rejected=1")
        key = "commitLogOffset", "queueId"
        assert sorted(page["messages"], key=lambda one: [one[name] for name in key]) == sorted(
            tailed, key=lambda one: [one[name] for name in key]
        )
        assert page["counters"]["delivered"] == COUNT - 26
        assert record("/letters.json")["boxes"] == lines("dlq", "list")
        assert record("/waiting.json")["transactions"] == lines("transactions")
        state = record("/node.json")
        assert state["problems"] == []
        assert state["unflushed"] is not None
        assert record("/apps.json")["hosts"] == []
        assert json.loads(console.get("/groups.json").text)["groups"]
