"""Plots on the pages of topics and groups, and bodies of JSON in lines: what is shown is what is."""

from __future__ import annotations

import base64
import html
from contextlib import closing
from dataclasses import replace

import pytest
from support.nodes.console_client import ConsoleClient
from support.nodes.local_node import LocalNode

from rocketray.base.json_fields import json_fields
from rocketray.console.facts.samples import Samples
from rocketray.console.pages.page_texts import text_in
from rocketray.console.pages.tail_stream import LiveTail, TailRequest
from rocketray.filters.subscription import Subscription
from rocketray.groups.failing import FailingMessage
from rocketray.message import Message
from rocketray.messaging.remote.disks_tail import DisksTail
from rocketray.views.message_links import send_again


def test_plots_of_a_topic_and_of_a_group(
    console: ConsoleClient, node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown is what the samples have; what a filter passes is said to be offsets."""
    lags: dict[str, list[int | None]] = {"large": [5, 4, 0], "audit": [1000, None, 878_000]}
    monkeypatch.setattr(Samples, "series", lambda _, group, __: [*enumerate(lags[group])])
    monkeypatch.setattr(Samples, "growth_of", lambda *_: -2.0)
    record = console.get("/topic.json?topic=Trade").record
    assert {row["group"]: [lag for _, lag in row["hour"]] for row in record["groups"]} == lags
    page = console.get("/topic?topic=Trade").text
    drawn = page.partition(text_in("en", "plots.lags"))[2].partition("<table>")[0]
    assert drawn.count(">1 M</text>") == 2, "both have the scale of the greater lag"
    assert drawn.count('class="gap"') == 1
    [large] = console.get("/group.json?group=large").record["topics"]
    assert (large["countsMessages"], large["readInS"]) == (False, large["lag"] / 2)
    assert 0 <= large["oldestMs"] < 10 * 60_000
    page = console.get("/group?group=large").text
    for key in ("finished_offsets", "inflight.offsets", "caught_up", "oldest"):
        assert text_in("en", key) in page
    assert text_in("en", "finished_rate") not in page
    held = replace(
        next(one for one in node.groups.all() if one.group == "large"),
        subscription=Subscription.tags("*"),
        failing={0: FailingMessage(0, 3, None, "it burns")},
    )
    monkeypatch.setattr(node.groups, "all", lambda: [held])
    [all_of_it] = console.get("/group.json?group=large").record["topics"]
    assert (all_of_it["countsMessages"], all_of_it["readInS"]) == (True, None)
    page = console.get("/group?group=large").text
    assert text_in("en", "finished_rate") in page
    assert text_in("en", "caught_up") not in page, "a group that is held does not catch up"


def test_json_is_shown_in_lines_and_copied_as_it_is(
    console: ConsoleClient, node: LocalNode
) -> None:
    body = b'{"id": 1.50, "note": "<b>"}'
    bodies = [body, b"no json", b"[" + b"1," * 1500 + b"1]"]
    with node.producer() as producer:
        producer.send_many("Odd", [Message("Odd", each, "json") for each in bodies])
    stored = [one for one in node.stored("Odd") if one.tags == "json"]
    for asked in (False, True):
        wanted = TailRequest("Odd", "TAG", "json", "earliest").prepare(node)
        opened = DisksTail(lambda question: question(node), wanted)
        with closing(LiveTail(opened, in_lines=asked)) as tail:
            rows = tail.step()["rows"]
        assert [row["json"] for row in rows] == [
            '{\n  "id": 1.50,\n  "note": "<b>"\n}' if asked else None,
            None,
            None,
        ], "too large, or no JSON"
        assert rows[0]["body"] == body.decode()
    address = f"topic=Odd&by=place&value=0@{stored[0].queue_offset}"
    record = console.get(f"/message.json?{address}").record
    assert record["shown"] == ['{\n  "id": 1.50,\n  "note": "<b>"\n}']
    assert base64.b64decode(record["messages"][0]["body"]) == body
    assert record["copies"] == [json_fields(send_again(stored[0]))]
    page = html.unescape(console.get(f"/message?{address}").text)
    assert record["shown"][0] in page
    assert page.count(body.decode()) == 2, "as it is stored, and in the command that sends it again"
