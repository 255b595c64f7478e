"""Tables of the console: their order, their pages, and what is looked for in them."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import replace

import pytest
from support.models.heartbeats import beat
from support.nodes.console_client import ConsoleClient
from support.nodes.local_node import LocalNode

from rocketray import __version__
from rocketray.filters.subscription import Subscription


def test_a_groups_retry_topic_stands_below_it(console: ConsoleClient, node: LocalNode) -> None:
    retry = "%RETRY%audit"
    node.topics.ensure(retry, 1)
    with node.consumer("audit", retry, Subscription.tags("*")):
        pass
    try:
        rows = console.get("/groups.json").record["groups"]
        assert [(row["group"], row["topic"]) for row in rows] == [
            ("audit", "Trade"),
            ("audit", retry),
            ("large", "Trade"),
        ]
        assert console.get("/groups").text.count('<tr class="below">') == 1
    finally:
        node.topics.delete(retry)


def test_long_tables_have_pages_and_are_searched_by_name(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.console.pages.paged.ROWS_MAX", 1)
    found = [console.get(f"/topics.json?page={page}").record for page in (1, 2, 9)]
    assert [[row["topic"] for row in each["topics"]] for each in found] == [
        ["Odd"],
        ["Trade"],
        ["Trade"],
    ]
    assert [each["paged"]["after"] for each in found] == [2, None, None]
    assert "page=2" in console.get("/topics").text
    [row] = console.get("/topics.json?find=TRA").record["topics"]
    assert row["topic"] == "Trade"
    [row] = console.get("/groups.json?find=arg").record["groups"]
    assert row["group"] == "large"
    nothing = console.get("/groups?find=%3Cb%3E").text
    assert "Nothing here has the name &lt;b&gt;" in nothing
    assert console.get("/groups.json?page=x").status == 400


@pytest.mark.proves(
    "groups", "`groups members` lists the members with their releases, and marks different ones"
)
def test_a_groups_page_shows_the_release_of_each_member_and_since_when(
    console: ConsoleClient, node: LocalNode
) -> None:
    page = "/group?group=audit"
    assert "No members." in console.get(page).text
    with node.consumer("audit", "Trade", Subscription.tags("pay"), client_id="desk") as member:
        member.poll()
        [row] = [row for row in console.figures(page) if row[0] == "desk"]
        assert row[1:4] == [socket.gethostname(), str(os.getpid()), __version__]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row[4])
        assert row[6] == "0 1"
        assert "different releases" not in console.get(page).text
        older = replace(
            beat("older", subscription=Subscription.tags("pay")), group="audit", topic="Trade"
        )
        node.sessions.heartbeat(older)
        text = " ".join(console.get(page).text.split())
        assert f"of different releases: {__version__} (1), unknown (1)</p>" in text
        [row] = [row for row in console.figures(page) if row[0] == "older"]
        assert row[1:4] == ["unknown"] * 3
        node.sessions.leave(older)
