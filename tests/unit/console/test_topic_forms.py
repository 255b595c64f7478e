"""The forms of a topic's page: a message is sent, and settings are changed, after a look at both."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from support.nodes.console_client import Answer, ConsoleClient
from support.nodes.console_node import serve_all
from support.nodes.local_node import SEGMENT, LocalNode

from rocketray.base.ack_mode import Durability
from rocketray.console.changes.audit_log import AUDIT_FILE
from rocketray.console.changes.send_form import BODY_MAX_BYTES, SendForm, SentMessages
from rocketray.console.pages.page_texts import TEXTS, text_in
from rocketray.errors import NodeNotRunningError, ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.api.node_client import NodeClient
from rocketray.services.admin.removals import plan_removals
from rocketray.store.retention import RetentionPolicy

GOOD = {
    "body": '{"id": 17}\r\nand <b>more</b>',
    "tags": "pay",
    "keys": "order-17 eu-3",
    "properties": "amount=9\r\n\r\nnote=a=b",
    "queue": "1",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        serve_all(node)
        node.topics.ensure("Trade", 2)
        yield node


@pytest.fixture
def console(node: LocalNode) -> Iterator[ConsoleClient]:
    with ConsoleClient(node.data, lambda: node) as console:
        yield console


def audited(console: ConsoleClient) -> list[dict[str, Any]]:
    path = console.data / AUDIT_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def send(console: ConsoleClient, step: str = "send", topic: str = "Trade", **fields: str) -> Answer:
    return console.post(f"/topic?topic={topic}", step=step, **fields)


def settings(console: ConsoleClient, **fields: str) -> dict[str, Any]:
    query = urlencode({"topic": "Trade", "dry": "settings", **fields})
    found: dict[str, Any] = console.get(f"/topic.json?{query}").record["settings"]
    return found


def test_a_message_is_checked_then_sent(console: ConsoleClient, node: LocalNode) -> None:
    with node.consumer("watch", "Trade", Subscription.tags("*")):
        pass
    checked = send(console, "check", **GOOD)
    assert checked.status == 200
    assert text_in("en", "send.now") in checked.text
    assert "/group?group=watch" in checked.text, "the groups that would get it"
    assert (node.stored("Trade"), audited(console)) == ([], []), "a check sends nothing"
    sent = send(console, **GOOD)
    assert sent.status == 303
    [stored] = node.stored("Trade")
    assert (stored.queue_id, stored.tags, stored.keys) == (1, "pay", ["order-17", "eu-3"])
    assert stored.body == b'{"id": 17}\nand <b>more</b>', "a browser's ends of lines are its own"
    assert stored.user_properties == {"amount": "9", "note": "a=b"}
    place = sent.headers["Location"]
    record = console.get(place.replace("/topic?", "/topic.json?")).record["sent"]
    assert record == {
        "topic": "Trade",
        "msgId": stored.unique_key,
        "offsetMsgId": stored.offset_message_id,
        "queueId": 1,
        "queueOffset": 0,
        "ack": "memory",
        "recallHandle": None,
        "dueMs": None,
    }
    page = console.get(place).text
    assert stored.offset_message_id in page
    assert text_in("en", "promise.memory") in page
    assert "value=1%400" in page, "a link to the message"
    [line] = audited(console)
    assert (line["what"], line["topic"], line["tags"]) == ("send a message", "Trade", "pay")
    assert line["bodySha256"] == hashlib.sha256(stored.body).hexdigest()
    assert "<b>" not in json.dumps(line), "the body itself is not in the log"
    assert console.get("/topic.json?topic=Trade&sent=0").record["sent"] is None


def test_what_is_checked_is_what_comes_again(console: ConsoleClient) -> None:
    """The end of line at the begin of a text area, which a parser drops, stays in the message."""
    page = send(console, "check", body="\n\n<b>", properties="a=1").text
    assert 'name="body" value="\n\n&lt;b&gt;"' in page
    assert 'maxlength="32768" spellcheck="false">\n\n\n&lt;b&gt;</textarea>' in page


def test_a_delayed_message_waits_and_can_be_recalled(
    console: ConsoleClient, node: LocalNode
) -> None:
    place = send(console, body="later", delay="7d").headers["Location"]
    record = console.get(place.replace("/topic?", "/topic.json?")).record["sent"]
    assert 0 < record["dueMs"] - node.clock_ms() <= 7 * 86_400_000
    assert record["recallHandle"] in console.get(place).text
    assert node.stored("Trade") == []
    assert node.delays.recall(record["recallHandle"])


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("tags", "a||b", "can never be matched exactly"),
        ("keys", "a\x01", "U+0001"),
        ("properties", "amount", "has no '='; write NAME=VALUE"),
        ("properties", "TAGS=a", "give the tag in its own field"),
        ("properties", "a=1\na=2", "is given twice"),
        ("properties", "a=", "'a'"),
        ("properties", "RETRY_TOPIC=Trade", "the node's own"),
        ("properties", "a=" + "x" * 4096, "longer than 4096 characters"),
        ("queue", "2", "has the queues 0 to 1"),
        ("queue", "one", "give a number"),
        ("delay", "soon", "'soon' is not a time like 90s"),
        ("delay", "41d", "40 days at most"),
        ("delay", "none", "give a time"),
        ("body", "x" * (BODY_MAX_BYTES + 1), f"a form {BODY_MAX_BYTES} at most"),
    ],
)
def test_a_wrong_field_is_named_with_its_reason_and_the_others_stay(
    console: ConsoleClient, node: LocalNode, field: str, text: str, said: str
) -> None:
    for step in ("check", "send"):
        answer = send(console, step, **GOOD | {field: text})
        page = html.unescape(answer.text)
        assert answer.status == 400
        why = page.partition(f'id="why-{field}">')[2].partition("</span>")[0]
        assert said in why
        assert page.count("why-not") == 1
        assert f'aria-describedby="why-{field}"' in page
        assert text_in("en", "send.now") not in page
        if field != "tags":
            assert 'name="tags" value="pay"' in page, "nothing has to be typed again"
    assert (node.stored("Trade"), audited(console)) == ([], [])


def test_all_wrong_fields_are_named_at_once(console: ConsoleClient, node: LocalNode) -> None:
    long = "€" * 4000
    together = {"tags": long, "keys": long, "properties": f"a={long}"}
    refused = SendForm.of(node.topics.get("Trade"), together).refused
    assert "over the limit of 32767 bytes" in refused["properties"]
    page = send(console, tags="*", queue="9", delay="x").text
    assert page.count('class="why-not"') == 3


def test_a_topic_that_takes_no_messages_refuses_them(
    console: ConsoleClient, node: LocalNode
) -> None:
    node.topics.set_permission("Trade", 4)
    answer = send(console, **GOOD)
    assert (answer.status, "does not allow sending" in answer.text) == (400, True)
    node.topics.ensure("%RETRY%g", 1, internal=True)
    answer = send(console, topic="%25RETRY%25g", body="x")
    assert answer.status == 400
    assert node.stored("%RETRY%g") == []
    assert 'id="send"' not in console.get("/topic?topic=%25RETRY%25g").text
    assert send(console, topic="Nothing", body="x").status == 404
    assert console.post("/topic", step="send", body="x").status == 400
    assert audited(console) == []


@pytest.mark.parametrize("path", ["/topic?topic=Trade", "/topic/settings"])
def test_a_form_without_its_token_or_of_another_site_does_nothing(
    console: ConsoleClient, node: LocalNode, path: str
) -> None:
    token = {"Authorization": f"Bearer {console.access.token}"}
    form = {**GOOD, "topic": "Trade", "step": "send", "permission": "4", "age": "1d"}
    for csrf in ({}, {"csrf": "wrong"}, {"csrf": console.access.token}):
        assert console.ask(path, token, method="POST", form={**form, **csrf}).status == 403
    right = {**form, "csrf": console.access.csrf}
    assert console.ask(path, {}, method="POST", form=right).status == 401
    foreign = {**token, "Origin": "http://evil.example"}
    assert console.ask(path, foreign, method="POST", form=right).status == 403
    assert (node.stored("Trade"), audited(console)) == ([], [])
    assert node.topics.get("Trade").perm == 6


def test_what_cannot_be_logged_is_not_done(
    console: ConsoleClient, node: LocalNode, tmp_path: Path
) -> None:
    (console.data / AUDIT_FILE).symlink_to(tmp_path / "elsewhere")
    assert send(console, **GOOD).status == 503
    assert console.post("/topic/settings", topic="Trade", age="1d").status == 503
    assert node.stored("Trade") == []
    assert node.topics.get("Trade").retention.max_age_ms is None


def test_a_send_without_an_answer_says_so(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise ShardUnavailableError("shard Trade/1", "it may still store what was sent")

    monkeypatch.setattr("rocketray.console.changes.send_form.NodeProducer.send", silent)
    answer = send(console, **GOOD)
    assert (answer.status, "may still store" in answer.text) == (503, True)
    assert [line["what"] for line in audited(console)] == ["send a message"]
    assert text_in("en", "form.unknown") in answer.text, "it may be stored"
    assert_kept(answer, {**GOOD, "step": "check"})


def assert_kept(answer: Answer, fields: dict[str, str]) -> None:
    """Check that the page has a form with what was typed."""
    shown = html.unescape(answer.text)
    for name, typed in fields.items():
        text = typed.replace("\r", "")
        is_area = name == "body" or "\n" in text
        kept = f'name="{name}" rows="5" spellcheck="false">\n{text}</textarea>'
        assert (kept if is_area else f'name="{name}" value="{text}"') in shown.replace("\r", ""), (
            name
        )


def test_a_form_is_kept_while_the_node_is_away(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise NodeNotRunningError("no node runs there")

    monkeypatch.setattr("rocketray.console.facts.console_link.ConsoleLink.answer", away)
    for step in ("send", "check"):
        answer = send(console, step, **GOOD)
        assert answer.status == 503
        assert text_in("en", "form.undone") in answer.text
        assert_kept(answer, {**GOOD, "step": "check"})
    answer = console.post("/topic/settings", topic="Trade", age="1d", size="")
    assert text_in("en", "form.undone") in answer.text
    assert_kept(answer, {"topic": "Trade", "age": "1d", "size": ""})
    assert audited(console) == []


def test_a_form_of_another_site_is_not_shown_again(console: ConsoleClient) -> None:
    answer = console.post("/topic/settings", csrf="wrong", topic="Trade", age="17d")
    assert (answer.status, "17d" in answer.text) == (403, False)


def test_a_change_that_is_refused_keeps_its_form(console: ConsoleClient) -> None:
    answer = console.post("/topic/settings", topic="Trade", age="1x")
    assert answer.status == 400
    assert text_in("en", "form.undone") in answer.text
    assert_kept(answer, {"topic": "Trade", "age": "1x"})


def test_a_result_is_one_of_the_last() -> None:
    results = SentMessages()
    numbers = [results.keep({"n": number}) for number in range(100)]
    assert results.of(numbers[99]) == {"n": 99}
    assert results.of(numbers[0]) is None
    assert len(set(numbers)) == 100


def test_each_ack_mode_has_its_promise() -> None:
    assert {f"promise.{mode.text}" for mode in Durability} == {
        key for key in TEXTS if key.startswith("promise.")
    }


def test_settings_are_changed_after_a_dry_run(console: ConsoleClient, node: LocalNode) -> None:
    assert settings(console)["form"] == {"age": "none", "size": "none", "permission": "6"}
    wanted = {"age": "72h", "size": "10GiB", "permission": "4"}
    would = settings(console, **wanted)["would"]
    assert would["changes"] == {
        "age": {"before": "none", "after": "3d"},
        "size": {"before": "none", "after": "10GiB"},
        "permission": {"before": 6, "after": 4},
    }
    assert (would["removals"], would["unknownQueues"]) == ([], [])
    page = console.get(f"/topic?topic=Trade&dry=settings&{urlencode(wanted)}").text
    assert text_in("en", "removal.none") in page
    assert 'action="/topic/settings"' in page
    assert node.topics.get("Trade").retention.keeps_all, "a dry run changes nothing"
    done = console.post("/topic/settings", topic="Trade", **wanted)
    assert (done.status, done.headers["Location"]) == (303, "/topic?topic=Trade&outcome=changed")
    config = node.topics.get("Trade")
    assert config.retention == RetentionPolicy(259_200_000, 10 << 30)
    assert config.perm == 4
    [line] = audited(console)
    assert (line["what"], line["changes"]) == ("change a topic", would["changes"])
    again = console.post("/topic/settings", topic="Trade", **wanted)
    assert (again.status, "nothing would change" in again.text) == (400, True)
    assert text_in("en", "settings.same") in console.get("/topic?topic=Trade&dry=settings").text
    assert console.post("/topic/settings", topic="Trade", age="none").status == 303
    assert node.topics.get("Trade").retention == RetentionPolicy(None, 10 << 30)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"age": "soon"}, "age: 'soon' is not a time"),
        ({"age": "0d"}, "age: '0d' is not a time"),
        ({"size": "10"}, "size: '10' is not a size"),
        ({"size": f"{'9' * 18}TiB"}, "max_bytes"),
        ({"permission": "7"}, "permission is 7; give 2 (send), 4 (consume) or 6 (both)"),
        ({"permission": "all"}, "permission is 'all'; give a number"),
        ({"age": "9" * 5000}, "age is longer than 4096 characters"),
        ({"topic": "%RETRY%g", "age": "1d"}, "the node's own, or an app's"),
        ({"topic": "a/b", "age": "1d"}, "a/b"),
    ],
)
def test_a_wrong_setting_is_told_and_changes_nothing(
    console: ConsoleClient, node: LocalNode, fields: dict[str, str], said: str
) -> None:
    node.topics.ensure("%RETRY%g", 1, internal=True)
    before = node.topics.all()
    form = {"topic": "Trade", **fields}
    for answer in (
        console.post("/topic/settings", **form),
        console.get(f"/topic?{urlencode({**form, 'dry': 'settings'})}"),
    ):
        assert answer.status == 400
        assert said in html.unescape(answer.text)
    assert (node.topics.all(), audited(console)) == (before, [])


def test_a_table_s_changelog_stays_one(console: ConsoleClient, node: LocalNode) -> None:
    node.topics.set_retention("Trade", RetentionPolicy(compacts=True))
    assert console.post("/topic/settings", topic="Trade", size="1GiB").status == 303
    assert node.topics.get("Trade").retention == RetentionPolicy(None, 1 << 30, compacts=True)


def fill(node: LocalNode, files: int) -> None:
    """Store messages in queue 0 until its log has that many whole files behind it."""
    with node.producer() as producer:
        while node.shard_statistics("Trade")[0].max_physical_offset < files * SEGMENT:
            bodies = [Message("Trade", b"x" * 100_000)] * 5
            producer.send_many("Trade", bodies, queue_id=0)


def test_what_would_be_removed_is_what_a_round_removes(
    console: ConsoleClient, node: LocalNode
) -> None:
    """The dry run, with and without a group that has not finished, against the shard itself."""
    fill(node, 4)
    policy = RetentionPolicy(max_bytes=SEGMENT)
    [found] = plan_removals(node, node.topics.get("Trade"), policy).queues
    would = settings(console, size="1MiB")["would"]
    assert [(one["queueId"], one["messages"]) for one in would["removals"]] == [(0, found.messages)]
    assert not found.is_held
    page = console.get("/topic?topic=Trade&dry=settings&size=1MiB").text
    assert "the topic is too large" in page
    with node.consumer("slow", "Trade", Subscription.tags("*")):
        pass
    held = plan_removals(node, node.topics.get("Trade"), policy).queues
    assert [(one.files, one.is_held) for one in held] == [(found.files - 1, True)], (
        "what a group needs stays until there is twice as much behind it"
    )
    node.groups.delete("slow")
    node.topics.set_retention("Trade", policy)
    node.expire()
    stats = node.shard_statistics("Trade")[0]
    assert (stats.min_queue_offset, stats.min_physical_offset) == (found.messages, found.size)
    assert plan_removals(node, node.topics.get("Trade"), policy).queues == []


def test_messages_that_are_too_old_are_counted_and_far_queues_are_not_looked_at(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, 2)
    config, now_ms = node.topics.get("Trade"), node.clock_ms()
    policy = RetentionPolicy(max_age_ms=3_600_000)
    assert plan_removals(node, config, policy).queues == []
    monkeypatch.setattr(node, "clock_ms", lambda: now_ms + 7_200_000)
    [found] = plan_removals(node, config, policy).queues
    assert (found.queue_id, found.reasons) == (0, ("too old",))
    one = node.shard_statistics("Trade")[1:]
    monkeypatch.setattr(NodeClient, "shard_statistics", lambda *_: one)
    assert plan_removals(node, config, policy).unknown == [0]
