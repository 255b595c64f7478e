"""Named filters in the console: offered in the tail, shown with their topic, saved from the tail."""

from __future__ import annotations

import json

import pytest
from support.nodes.console_client import ConsoleClient
from support.nodes.console_node import SECRET
from support.nodes.local_node import LocalNode

from rocketray.console.changes.audit_log import AUDIT_FILE
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription

FORM = {"topic": "Trade", "kind": "SQL92", "filter": "amount > 40", "name": "over"}


def test_the_tail_offers_the_filters_of_its_topic_and_reads_with_them(
    console: ConsoleClient, node: LocalNode
) -> None:
    page = console.get("/tail?topic=Trade").text
    assert "kind=NAME&amp;filter=pays" in page
    assert "kind=NAME" not in console.get("/tail?topic=Odd").text
    found = console.get("/tail.json?topic=Trade&kind=NAME&filter=pays@1").record
    pays = sum(message.tags == "pay" for message in node.stored("Trade"))
    assert found["counters"]["delivered"] == pays
    checked = console.get("/filter/check.json?topic=Trade&kind=NAME&filter=nope").record
    assert (checked["valid"], "has no filter 'nope'" in checked["error"]) == (False, True)
    assert console.get("/filter/check.json?topic=Trade&kind=NAME&filter=pays").record["valid"]


def test_a_topic_shows_its_filters(console: ConsoleClient) -> None:
    [record] = console.get("/topic.json?topic=Trade").record["filters"]
    assert (record["name"], record["version"], record["groups"]) == ("pays", 1, [])
    page = console.get("/topic?topic=Trade").text
    assert "pays@1" in page
    assert SECRET not in page, "the note is escaped"


def test_a_filter_is_saved_from_the_tail(console: ConsoleClient, node: LocalNode) -> None:
    assert 'action="/filters/save"' in console.get("/tail?topic=Trade&kind=SQL92&filter=a").text
    assert console.post("/filters/save", **FORM, note="large ones").status == 303
    saved = node.named_filters.get("Trade", FilterName("over"))
    assert saved.subscription == Subscription.sql("amount > 40")
    assert (saved.note, saved.created_by) == ("large ones", "the console, for 127.0.0.1")
    last = json.loads((console.data / AUDIT_FILE).read_text().splitlines()[-1])
    assert (last["what"], last["name"], last["filter"]) == ("save a filter", "over", "amount > 40")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "a b"}, "characters that are not allowed"),
        ({"filter": "amount >"}, "before the end of the expression"),
        ({"topic": "Nope"}, "topic &#39;Nope&#39; does not exist"),
        ({"kind": "NAME", "filter": "pays"}, "a filter is saved by its expression"),
        ({"kind": "CLASS"}, "kind is TAG, SQL92 or NAME"),
    ],
)
def test_what_cannot_be_saved_is_said(
    console: ConsoleClient, changed: dict[str, str], said: str
) -> None:
    answer = console.post("/filters/save", **FORM | changed)
    assert answer.status in (400, 404)
    assert said in answer.text


def test_a_write_without_its_token_is_refused(console: ConsoleClient) -> None:
    token = {"Authorization": f"Bearer {console.access.token}"}
    refused = console.ask("/filters/save", token, method="POST", form={**FORM, "csrf": "wrong"})
    assert refused.status == 403
