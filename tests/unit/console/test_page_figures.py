"""Figures of the pages: those of the records, and those that counting each message gives."""

from __future__ import annotations

import html
import http.client
import json
import re
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience, wait_until
from support.nodes.console_client import ConsoleClient
from support.nodes.console_node import COUNT, LETTERS_OF, SECRET
from support.nodes.local_node import LocalNode

from rocketray.base.json_fields import json_fields
from rocketray.console.console_server import STREAMS_MAX
from rocketray.console.facts.samples import LagSample, Samples, TopicSample
from rocketray.console.pages.page_texts import LANGUAGES, TEXTS, text_in
from rocketray.console.pages.page_views import PAGES
from rocketray.errors import ActorError, NodeNotRunningError, ShardUnavailableError
from rocketray.message import Message
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.files.home import Home
from rocketray.services.health.node_readings import read_node
from rocketray.store.retention import RetentionPolicy
from rocketray.views.message_links import send_again
from rocketray.views.node_records import (
    described_topic,
    group_record,
    progress_record,
    progress_rows,
    topic_record,
)

ROOT = Path(__file__).parents[3] / "rocketray" / "console"
WITH_NAMES = "?topic=Trade&group=audit&by=key&value=k7"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", PAGES)
def test_each_page_is_there_in_each_language_and_as_json(
    console: ConsoleClient, page: str, language: str
) -> None:
    answer = console.get(f"/{page}{WITH_NAMES}", Cookie=f"rocketray_language={language}")
    assert answer.status == 200, answer.text
    assert text_in(language, "page.tail") in answer.text
    assert SECRET not in answer.text
    assert isinstance(console.get(f"/{page}.json{WITH_NAMES}").record, dict)


@pytest.mark.parametrize("page", PAGES)
def test_each_page_sends_its_live_part(console: ConsoleClient, page: str) -> None:
    link = http.client.HTTPConnection("127.0.0.1", console.access.port, timeout=patience(20))
    headers = {"Authorization": f"Bearer {console.access.token}", "Accept": "text/event-stream"}
    link.request("GET", f"/{page}{WITH_NAMES}", headers=headers)
    answer = link.getresponse()
    assert answer.readline() == b"event: live\n"
    html = json.loads(answer.readline()[len(b"data: ") :])["html"]
    link.close()
    assert html.strip()
    whole = console.get(f"/{page}{WITH_NAMES}").text
    assert re.sub(r"\d", "", html.strip()) in re.sub(r"\d", "", whole)


def test_topics(console: ConsoleClient, node: LocalNode) -> None:
    rows = {row["topic"]: row for row in console.get("/topics.json").record["topics"]}
    assert rows["Trade"]["messages"] == len(node.stored("Trade")) == COUNT
    assert rows["Trade"]["groups"] == ["audit", "large"]
    assert rows["Trade"].items() >= topic_record(node.topics.get("Trade")).items()
    shown = {row[0].split()[0]: row for row in console.figures("/topics")[1:]}
    assert shown.keys() == rows.keys() == {"Odd", "Trade"}
    assert shown["Trade"][1] == str(COUNT)
    every = console.get("/topics.json?all=1").record["topics"]
    assert f"%DLQ%{LETTERS_OF}" in {row["topic"] for row in every}


def test_a_topic(console: ConsoleClient, node: LocalNode) -> None:
    record = console.get("/topic.json?topic=Trade").record
    described = described_topic(node.topics.get("Trade"), node.shard_statistics("Trade"))
    assert record.items() >= json.loads(json.dumps(described)).items()
    assert record["stored"]["today"] + record["stored"]["yesterday"] == COUNT
    assert text_in("en", "stored.today") in console.get("/topic?topic=Trade").text
    rows = console.figures("/topic?topic=Trade")
    assert ["0", "0", str(COUNT // 2), str(COUNT // 2)] in [row[:4] for row in rows]


def test_groups_and_their_lag(console: ConsoleClient, node: LocalNode) -> None:
    """``audit`` finished queue 0; ``large`` finished nothing, and wants amounts above 40."""
    records = {row["group"]: row for row in console.get("/groups.json").record["groups"]}
    stored = node.stored("Trade")
    large = sum(int(message.properties["amount"]) > 40 for message in stored)
    pay = sum(message.tags == "pay" and message.queue_id == 1 for message in stored)
    assert (records["large"]["lag"], records["audit"]["lag"]) == (large, pay)
    assert records["audit"]["diff"] == COUNT // 2
    groups = {one.group: one for one in node.groups.all()}
    for name, record in records.items():
        assert record.items() >= json.loads(json.dumps(group_record(groups[name]))).items()
    shown = {row[0]: row for row in console.figures("/groups")[1:]}
    assert {name: row[1].split()[0] for name, row in shown.items()} == {
        "audit": str(pay),
        "large": str(large),
    }


def test_a_group(console: ConsoleClient, node: LocalNode) -> None:
    [record] = console.get("/group.json?group=audit").record["topics"]
    one = next(one for one in node.groups.all() if one.group == "audit")
    rows = [progress_record(row, one.counters.errors) for row in progress_rows(node, one)]
    assert record["queues"] == json.loads(json.dumps(rows))
    assert console.get("/group?group=nobody").status == 400


def test_a_message_and_why_each_group_got_it(console: ConsoleClient) -> None:
    record = console.get("/message.json?topic=Trade&by=key&value=k7").record
    [message] = record["messages"]
    assert message["properties"]["n"] == "7"
    causes = {one["group"]: one["cause"] for one in record["explanations"]}
    assert causes == {"audit": "tag_mismatch", "large": "sql_false"}
    page = console.get("/message?topic=Trade&by=key&value=k7").text
    assert "order 7" in page
    assert "tag_mismatch" in page
    events = [event["detail"] for one in record["explanations"] for event in one["timeline"]]
    assert events
    assert all(detail in html.unescape(page) for detail in events)
    for by, value in (
        ("id", message["offsetMsgId"]),
        ("unique", message["properties"]["UNIQ_KEY"]),
        ("place", f"{message['queueId']}@{message['queueOffset']}"),
    ):
        same = console.get(f"/message.json?topic=Trade&by={by}&value={value}").record
        assert same["messages"] == [message]
    assert console.get("/message.json?topic=Trade&by=key&value=none").record["messages"] == []
    wrong = console.get("/message.json?topic=Trade&by=place&value=7")
    assert (wrong.status, "write it as 0@17" in wrong.text) == (400, True)


def test_a_message_can_be_copied_and_has_its_trace(console: ConsoleClient, node: LocalNode) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    context = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    messages = [Message("Odd", b"it's", None, ("traced",), context), Message("Odd", b"\xff")]
    with node.producer() as producer:
        producer.send_many("Odd", messages)
    address = "/message.json?topic=Odd&by=key&value=traced"
    record = console.get(address).record
    assert record["traces"] == [{"traceId": trace, "url": f"http://jaeger/{trace}?a"}]
    [copy] = record["copies"]
    stored = next(one for one in node.stored("Odd") if "traced" in one.keys)
    assert copy == json_fields(send_again(stored))
    page = console.get(address.replace(".json", "")).text
    assert f'href="http://jaeger/{trace}?a"' in page
    assert copy["command"] in html.unescape(page)
    assert console.get("/message.json?topic=Trade&by=key&value=k7").record["traces"] == [None]
    binary = next(one for one in node.stored("Odd") if one.body == b"\xff")
    page = console.get(f"/message?topic=Odd&by=place&value=0@{binary.queue_offset}").text
    assert text_in("en", "again.base64") in page


def test_a_tail_is_that_of_the_command(console: ConsoleClient) -> None:
    address = "/tail.json?topic=Trade&kind=SQL92&filter=amount%20%3E%2040&rejected=1"
    record = console.get(address).record
    matched = [one for one in record["messages"] if one["verdict"] == "matched"]
    rejected = [one for one in record["messages"] if one["verdict"] == "sql_false"]
    assert (len(matched), len(rejected)) == (COUNT - 41, 41)
    assert {one["why"] for one in rejected} >= {"amount > 40: no match  (amount = '40')"}
    assert record["counters"]["scanned"] == COUNT
    assert console.get("/tail.json?topic=Nothing").status == 404
    assert console.get("/topic?topic=Nothing").status == 404
    assert console.get("/tail.json?topic=Trade&kind=CLASS&filter=os:system").status == 400


def test_queues_on_other_disks_are_named(
    console: ConsoleClient, node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = node.topics.get("Trade")
    far = replace(config, disks=("", "far"))
    with monkeypatch.context() as away:
        away.setattr(node.topics, "all", lambda: {"Trade": far})
        homes = {"far": Home("/far", "uuid-of-far", "m2", is_joined=True), "": Home("/", "n", "m1")}
        away.setattr(node.disks, "homes", lambda: homes)
        away.setattr(node.disks, "reports", lambda: {"": None})
        found = console.get("/message.json?topic=Trade&by=key&value=k7").record
        assert found["unknownDisks"] == ["uuid-of-far"]
        assert "left out: uuid-of-far" in console.get("/message?topic=Trade&value=k7").text
        one = node.shard_statistics("Trade")[:1]
        away.setattr(NodeClient, "shard_statistics", lambda *_: one)
        assert console.get("/topic.json?topic=Trade").record["unknownQueues"] == [1]
        assert "its disk does not answer" in console.get("/topic?topic=Trade").text
    monkeypatch.setattr(node.topics, "get", lambda _: far)
    record = console.get("/tail.json?topic=Trade").record
    assert {one["queueId"] for one in record["messages"]} == {0}
    [unread] = record["unread"]
    assert (unread["queues"], unread["where"]) == ([1], "disk far")
    assert "has no such disk" in unread["reason"]
    compared = "group=audit&topic=Trade&dry=filter&filter=ship"
    assert console.get(f"/group.json?{compared}").record["compared"]["queuesElsewhere"] == [1]
    assert console.get("/tail.json?topic=Trade&after=0:29,1:").record["unread"] == record["unread"]


def test_a_tail_begins_where_it_is_told(console: ConsoleClient, node: LocalNode) -> None:
    def places(query: str) -> set[tuple[int, int]]:
        record = console.get(f"/tail.json?topic=Trade&{query}").record
        return {(one["queueId"], one["queueOffset"]) for one in record["messages"]}

    def since(time_ms: int) -> set[tuple[int, int]]:
        stored = node.stored("Trade")
        return {(x.queue_id, x.queue_offset) for x in stored if x.store_timestamp_ms >= time_ms}

    first = next(one for one in node.stored("Trade") if "k40" in one.keys).store_timestamp_ms
    assert places("from=offset&at=20") == {(q, n) for q in range(2) for n in range(20, COUNT // 2)}
    assert places("from=latest") == set()
    assert places(f"from=time&at={first}") == places("from=key&at=k40") == since(first)
    exactly = datetime.fromtimestamp(first / 1000, UTC).isoformat().replace("+", "%2B")
    assert places(f"from=time&at={exactly}") == since(first)
    assert places("after=0:29,1:28") == {(0, 29), (1, 28), (1, 29)}
    for query, said in (
        ("from=offset&at=x", "'x' is not an offset"),
        ("from=offset", "give the offset where the tail begins"),
        ("from=time&at=noon", "write a time as milliseconds"),
        ("from=key&at=none", "no message of topic Trade has the key 'none'"),
        ("from=17", "from is one of latest, earliest, offset, time, key, not '17'"),
        ("after=0:1,zz", "'zz' is not a position of a tail"),
        (f"from=key&at={'k' * 5000}", "at is longer than 4096 characters"),
    ):
        if not query.startswith("after") and len(query) < 100:
            page = html.unescape(console.get(f"/tail?topic=Trade&{query}").text)
            assert said in page
            assert "tail-form" in page, "the form stays, so that it can be corrected"
            assert 'id="tail"' not in page
        answer = console.get(f"/tail.json?topic=Trade&{query}")
        assert (answer.status, said in html.unescape(answer.text)) == (400, True), answer.text


def test_a_stream_sends_steps(console: ConsoleClient, node: LocalNode) -> None:
    link = http.client.HTTPConnection("127.0.0.1", console.access.port, timeout=patience(20))
    headers = {"Authorization": f"Bearer {console.access.token}"}
    link.request("GET", "/tail/stream?topic=Odd&from=latest", headers=headers)
    answer = link.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
    with node.producer() as producer:
        producer.send_many("Odd", [Message("Odd", SECRET.encode(), "tag")])
    rows: list[dict[str, str]] = []
    while not rows:
        line = answer.readline()
        if line.startswith(b"data: ") and b"rows" in line:
            rows = json.loads(line[6:])["rows"]
    assert (rows[0]["body"], rows[0]["verdict"]) == (SECRET, "matched")
    link.close()


def test_streams_are_many_and_have_a_limit(console: ConsoleClient) -> None:
    headers = {"Authorization": f"Bearer {console.access.token}", "Accept": "text/event-stream"}
    links = []
    for number in range(STREAMS_MAX):
        link = http.client.HTTPConnection("127.0.0.1", console.access.port, timeout=patience(20))
        path = "/tail/stream?topic=Trade&from=earliest" if number % 8 == 0 else "/groups"
        link.request("GET", path, headers=headers)
        links.append((link, link.getresponse()))
    for _, answer in links:
        assert answer.status == 200
        assert answer.readline().startswith(b"event: ")
    assert console.get("/topics").status == 200
    refused = console.get("/groups", Accept="text/event-stream")
    assert (refused.status, "close some" in refused.text) == (503, True)
    for link, _ in links:
        link.close()

    def is_let_in() -> bool:
        link = http.client.HTTPConnection("127.0.0.1", console.access.port, timeout=patience(20))
        link.request("GET", "/groups", headers=headers)
        status = link.getresponse().status
        link.close()
        return status == 200

    wait_until(is_let_in, "streams that ended still count")


@pytest.mark.parametrize(
    ("kind", "text", "valid", "said"),
    [
        ("SQL92", "amount >> 3", False, "^"),
        ("SQL92", "amount > 3", True, None),
        ("SQL92", "amont > 3", True, "never-seen"),
        ("TAG", "pay, ship", True, "one-tag"),
        ("TAG", "", True, None),
    ],
)
def test_a_filter_is_checked(
    console: ConsoleClient, kind: str, text: str, valid: bool, said: str | None
) -> None:
    query = f"topic=Trade&kind={kind}&filter={text.replace(' ', '%20')}"
    record = console.get(f"/filter/check.json?{query}").record
    assert record["valid"] is valid
    if said == "^":
        assert "^" in record["caret"]
    elif said is not None:
        assert said in {one["code"] for one in record["warnings"]}
    else:
        assert record["warnings"] == []


def test_delayed_messages_by_minute(console: ConsoleClient, node: LocalNode) -> None:
    begin = int(time.time()) // 60 * 60 + 3600
    offsets_s = [0, 59, 60, 61, 300, *(60 * n for n in range(10, 120))]
    with node.producer() as producer:
        for offset_s in offsets_s:
            at = datetime.fromtimestamp(begin + offset_s, UTC)
            producer.send_async("Trade", b"later", deliver_at=at)
    model = Counter((begin + one) // 60 * 60_000 for one in offsets_s)

    def delayed() -> dict[str, Any]:
        found: dict[str, Any] = console.get("/waiting.json").record["delayed"][0]
        return found

    wait_until(lambda: delayed()["waiting"] >= len(offsets_s))
    found = delayed()
    assert found["waiting"] == len(offsets_s)
    shown = {one["due"]: one["messages"] for one in found["minutes"]}
    assert list(shown.items()) == sorted(model.items())[: len(shown)]
    assert found["later"] == len(offsets_s) - sum(shown.values()) == 13
    rows = console.figures("/waiting")
    first = f"{datetime.fromtimestamp(begin, UTC).astimezone():%Y-%m-%d %H:%M}"
    assert [first, "2", ""] in rows
    assert "13 more are due later" in console.get("/waiting").text


def test_letters_are_counted_then_redriven_with_a_rate(console: ConsoleClient) -> None:
    record = console.get(f"/letters.json?group={LETTERS_OF}").record
    assert [box["letters"] for box in record["boxes"]] == [5]
    assert [letter["redriven"] for letter in record["letters"]] == [False] * 5
    dry = console.get(f"/letters.json?group={LETTERS_OF}&filter=n%20%3E%202&dry=1").record
    assert dry["would"] == 2
    chosen = record["letters"][0]["properties"]["UNIQ_KEY"]
    sent = console.post("/letters/redrive", group=LETTERS_OF, letter=[chosen], rate=1000)
    assert (sent.status, sent.headers["Location"]) == (303, f"/letters?group={LETTERS_OF}")
    assert _redriven(console, 1) == [True, False, False, False, False]
    console.post("/letters/redrive", group=LETTERS_OF, filter="n > 2", rate=1000)
    assert _redriven(console, 3) == [True, False, False, True, True]
    assert console.post("/letters/redrive", group=LETTERS_OF, rate=0).status == 400
    assert console.post("/letters/redrive", group=LETTERS_OF, rate="x").status == 400
    wrong = console.post("/letters/redrive", group=LETTERS_OF, filter="n >> 2")
    assert wrong.status == 400


def _redriven(console: ConsoleClient, count: int) -> list[bool]:
    def record() -> dict[str, Any]:
        found: dict[str, Any] = console.get(f"/letters.json?group={LETTERS_OF}").record
        return found

    def redriven() -> list[bool] | None:
        found = [letter["redriven"] for letter in record()["letters"]]
        is_over = record()["jobs"][LETTERS_OF]["isOver"]
        return found if sum(found) == count and is_over else None

    return wait_until(redriven, lambda: f"not redriven: {record()}")


def test_tables_by_their_changelogs(console: ConsoleClient, node: LocalNode) -> None:
    assert console.get("/apps.json").record["tables"] == []
    node.topics.ensure("shop-totals-changelog", 2, retention=RetentionPolicy(compacts=True))
    node.topics.ensure("other-changelog", 1)
    with node.producer() as producer:
        sent = [Message("shop-totals-changelog", b"%d" % n, None, ()) for n in range(7)]
        producer.send_many("shop-totals-changelog", sent, queue_id=1)
    [table] = console.get("/apps.json").record["tables"]
    stored = node.stored("shop-totals-changelog")
    assert table == {
        "table": "shop-totals",
        "topic": "shop-totals-changelog",
        "queues": 2,
        "changes": len(stored),
        "bytes": sum(one.size for one in stored),
        "unknown": None,
    }
    assert ["shop-totals", "2", "7", "1.2 KiB"] in console.figures("/apps")
    for name in ("shop-totals-changelog", "other-changelog"):
        node.topics.delete(name)


def test_the_doctor_is_asked_only_when_it_is_wanted(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    lines = [
        {"check": "disk", "level": "ok", "text": "much <room>", "advice": ""},
        {"check": "clock", "level": "warning", "text": "it is off", "advice": "install chrony"},
    ]

    def doctor() -> list[dict[str, Any]]:
        asked.append(1)
        return lines

    def silent() -> list[dict[str, Any]]:
        raise ActorError("rocketray doctor failed: it burns")

    monkeypatch.setattr(console, "doctor_records", doctor)
    assert (console.get("/node.json").record["doctor"], asked) == (None, [])
    assert console.get("/node.json?doctor=1").record["doctor"] == lines
    assert ["warning", "clock", "it is off install chrony"] in console.figures("/node?doctor=1")
    assert len(asked) == 2
    link = http.client.HTTPConnection("127.0.0.1", console.access.port, timeout=patience(20))
    headers = {"Authorization": f"Bearer {console.access.token}", "Accept": "text/event-stream"}
    link.request("GET", "/node?doctor=1", headers=headers)
    assert link.getresponse().readline() == b"event: live\n"
    link.close()
    assert len(asked) == 2, "the live part does not ask for it"
    monkeypatch.setattr(console, "doctor_records", silent)
    record = console.get("/node.json?doctor=1").record
    assert (record["doctor"], "it burns" in record["unknownDoctor"]) == (None, True)
    assert "unknown, because rocketray doctor failed" in console.get("/node?doctor=1").text


def test_unknown_is_said_and_is_not_zero(
    console: ConsoleClient, node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise ShardUnavailableError("shard Trade/0", "it <burns>")

    monkeypatch.setattr("rocketray.console.pages.topic_pages.lag_of", silent)
    monkeypatch.setattr(node, "shard_statistics", silent)
    for path in ("groups", "topics"):
        rows = console.get(f"/{path}.json").record[path]
        names = ["messages"] if path == "topics" else ["lag", "exactness"]
        assert {row[name] for row in rows for name in names} == {None}
        page = console.get(f"/{path}").text
        assert "unknown, because" in page
        assert "it &lt;burns&gt;" in page
    samples = Samples(lambda: 7)
    error = ShardUnavailableError("shard Trade/0", "it <burns>")
    lags = "rocketray.services.health.node_readings.lags_of"
    monkeypatch.setattr(lags, lambda _node, groups, _topics: [error] * len(groups))
    monkeypatch.setattr(node, "process_calls", silent)
    samples.note(node.topics.all(), read_node(node))
    assert samples.topics["Trade"][0] == TopicSample(7, None)
    assert samples.series("audit", "Trade") == [(7, None)]
    assert samples.lags["audit", "Trade"][0] == LagSample(7, None, None, str(error), COUNT // 2)
    overview = console.get("/overview").text
    assert "it &lt;burns&gt;" in overview
    assert text_in("en", "wrong.nothing") not in overview


def test_a_node_that_ended_is_said_on_every_page(tmp_path: Path) -> None:
    def ended() -> LocalNode:
        raise NodeNotRunningError("no node runs here")

    with ConsoleClient(tmp_path, ended) as console:
        for page in ("tail", *PAGES):
            answer = console.get(f"/{page}{WITH_NAMES}")
            assert answer.status == 503
            assert "no node runs here" in answer.text
        assert console.get("/groups.json").status == 503


def test_the_table_of_texts_is_what_the_pages_use() -> None:
    sources = [path.read_text() for path in (ROOT / "pages" / "templates").glob("*.html")]
    used = {key for text in sources for key in re.findall(r"\bt\('([a-z_.]+)'[,)]", text)}
    tables = [line for text in sources for line in re.findall(r"parts\.table\(.*\[(.*)\]", text)]
    used |= {key for line in tables for key in re.findall(r"'#?([a-z_.]+)'", line)}
    prefixes = {key for text in sources for key in re.findall(r"\bt\('([a-z_.]+)' ~", text)}
    stages = {"scanned", "code_hits", "collisions", "sql_rejected", "errors", "delivered"}
    made = {key for key in TEXTS if key.startswith(tuple(prefixes))}
    assert used - TEXTS.keys() == set()
    assert TEXTS.keys() - used - made - stages == set()
    assert list(TEXTS) == sorted(TEXTS)
    assert all(len(texts) == len(LANGUAGES) and all(texts) for texts in TEXTS.values())
