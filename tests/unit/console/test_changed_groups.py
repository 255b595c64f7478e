"""Changes of groups through the console: first their counts, then the write, and its audit line."""

from __future__ import annotations

import html
import http.client
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import pytest
from support.harness.no_threads import no_threads
from support.harness.patience import patience, wait_until
from support.nodes.console_client import ConsoleClient
from support.nodes.console_node import serve_all
from support.nodes.local_node import LocalNode

from rocketray.console.changes.audit_log import AUDIT_FILE, AuditLog
from rocketray.console.changes.group_forms import MoveForm
from rocketray.console.changes.group_jobs import GroupJobs
from rocketray.console.changes.redrive import Redrives
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.message import Message
from rocketray.services.admin.seeking import plan_moves
from rocketray.views.node_records import move_record

COUNT = 40
DONE = 5


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    """A node with the group ``g``, which has finished the first messages of queue 0."""
    with LocalNode(tmp_path / "data") as node:
        serve_all(node)
        node.topics.ensure("Trade", 2)
        with node.producer() as producer:
            for queue in range(2):
                numbers = range(queue, COUNT, 2)
                sent = [Message("Trade", b"%d" % n, "pay", (), {"amount": str(n)}) for n in numbers]
                producer.send_many("Trade", sent, queue_id=queue)
        with node.consumer("g", "Trade", Subscription.sql("amount < 30")) as member:
            while not any(batch.queue_id == 0 for batch in member.poll(1.0, DONE)):
                pass
            member.commit("Trade", 0, DONE)
        yield node


@pytest.fixture
def console(node: LocalNode) -> Iterator[ConsoleClient]:
    with ConsoleClient(node.data, lambda: node) as console:
        yield console


def group_of(node: LocalNode) -> GroupDescription:
    [found] = [one for one in node.groups.all() if one.group == "g"]
    return found


def page(console: ConsoleClient, **query: str) -> dict[str, Any]:
    return console.get(f"/group.json?{urlencode({'group': 'g', **query})}").record


def changed(console: ConsoleClient) -> dict[str, Any]:
    """Return the record of the group's change when it has ended."""

    def over() -> dict[str, Any] | None:
        change: dict[str, Any] = page(console)["change"]
        return change if change["isOver"] else None

    return wait_until(over)


def audited(console: ConsoleClient) -> dict[str, Any]:
    line: dict[str, Any] = json.loads((console.data / AUDIT_FILE).read_text().splitlines()[-1])
    return line


@pytest.mark.parametrize(
    ("goal", "offsets"),
    [
        ({"goal": "latest"}, {0: 20, 1: 20}),
        ({"goal": "earliest", "queue": "0"}, {0: 0}),
        ({"goal": "offset", "at": "7"}, {0: 7, 1: 7}),
        ({"goal": "time", "at": "0", "queue": "1"}, {1: 0}),
        ({"goal": "time", "at": "2999-01-01T00:00"}, {0: 20, 1: 20}),
    ],
)
def test_offsets_are_moved_after_a_dry_run(
    console: ConsoleClient, node: LocalNode, goal: dict[str, str], offsets: dict[int, int]
) -> None:
    before = group_of(node)
    form = {"topic": "Trade", **goal}
    found = page(console, **form, dry="move")["moves"]
    assert {one["queueId"]: one["to"] for one in found} == offsets
    for one in found:
        done = before.offsets.get(one["queueId"], -1)
        assert one["from"] == done
        assert one["skipped"] == (len(range(done, one["to"])) if done >= 0 else 0)
        assert one["repeated"] == len(range(one["to"], done))
    assert group_of(node) == before, "a dry run changes nothing"
    if goal["goal"] == "latest":
        plan = plan_moves(node, [before], to="latest")
        assert found == [move_record(one, moved=False) for one in plan]
        shown = console.get(f"/group?{urlencode({'group': 'g', **form, 'dry': 'move'})}").text
        assert "nothing is changed" in shown
        assert 'action="/group/move"' in shown
    assert console.post("/group/move", group="g", **form).status == 303
    change = changed(console)
    assert (change["error"], {one["queueId"]: one["to"] for one in change["moves"]}) == (
        None,
        offsets,
    )
    assert {**before.offsets, **offsets} == group_of(node).offsets
    line = audited(console)
    assert (line["what"], line["topic"]) == ("move a group", "Trade")
    assert line["offsets"] == {str(queue): offset for queue, offset in offsets.items()}


def test_what_is_done_is_what_was_logged_though_more_came_meanwhile(
    console: ConsoleClient, node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.named_filters.save("Trade", "large", Subscription.sql("amount > 20"))
    note, amounts = AuditLog.note, itertools.count(30)

    def note_and_go_on(log: AuditLog, *what: Any, **details: Any) -> None:
        note(log, *what, **details)
        with node.producer() as producer:
            producer.send("Trade", b"later", queue_id=0)
        node.named_filters.save("Trade", "large", Subscription.sql(f"amount > {next(amounts)}"))

    monkeypatch.setattr(AuditLog, "note", note_and_go_on)
    console.post("/group/move", group="g", topic="Trade", goal="latest", queue="0")
    moved = {str(one["queueId"]): one["to"] for one in changed(console)["moves"]}
    assert moved == audited(console)["offsets"] == {"0": COUNT // 2}
    assert group_of(node).offsets[0] == COUNT // 2
    console.post("/group/filter", group="g", topic="Trade", kind="NAME", filter="large")
    assert changed(console)["error"] is None
    plan, line = group_of(node).plan, audited(console)
    assert plan is not None
    assert (line["filter"], line["expression"]) == ("large@2", "amount > 30")
    assert plan.new.expression == "amount > 30"


def test_a_filter_is_changed_after_a_dry_run(console: ConsoleClient, node: LocalNode) -> None:
    before = group_of(node)
    form = {"topic": "Trade", "kind": "SQL92", "filter": "amount >= 20 AND amount <> 'x'"}
    found = page(console, **form, dry="filter")["compared"]
    unread = [
        int(one.properties["amount"])
        for one in node.stored("Trade")
        if one.queue_offset >= before.offsets.get(one.queue_id, 0)
    ]
    assert found["scanned"] == found["held"] == len(unread)
    assert found["both"] == sum(20 <= n < 30 for n in unread)
    assert found["onlyOld"] == sum(n < 20 for n in unread)
    assert found["onlyNew"] == sum(n >= 30 for n in unread)
    assert (len(found["lost"]), found["changed"], found["queuesElsewhere"]) == (5, False, [])
    assert found["waitingRetries"] == {"count": 0, "exact": True}
    assert group_of(node) == before, "a dry run changes nothing"
    node.topics.ensure("%RETRY%g", 1, internal=True)
    with node.producer() as producer:
        producer.send("%RETRY%g", b"failed")
    shown = console.get(f"/group?{urlencode({'group': 'g', **form, 'dry': 'filter'})}").text
    assert 'action="/group/filter"' in shown
    assert "Failed messages to be redelivered whatever the filter is: 1." in shown
    assert form["filter"] in html.unescape(shown)
    assert console.post("/group/filter", group="g", **form).status == 303
    change = changed(console)
    assert (change["error"], change["plan"]["withoutSwitch"]) == (None, [0, 1])
    assert audited(console)["filter"] == form["filter"]
    [row] = page(console)["topics"]
    assert row["plan"] == change["plan"]
    assert "Queues without a consumer" in console.get("/group?group=g").text
    shown = console.get("/group?group=g").text
    assert "is changing to" in shown
    assert "Drop the change" in shown, "no queue has switched"
    aborted = console.post("/group/filter", group="g", topic="Trade", action="abort")
    assert (aborted.status, audited(console)["what"]) == (303, "drop a change of a filter")
    assert group_of(node).plan is None
    assert console.post("/group/filter", group="g", topic="Trade", action="abort").status == 400


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"dry": "move", "topic": "Trade", "goal": "offset"}, "give the offset to move to"),
        ({"dry": "move", "topic": "Trade", "goal": "offset", "at": "x"}, "offset is 'x'"),
        ({"dry": "move", "topic": "Trade", "goal": "offset", "at": "99"}, "99"),
        ({"dry": "move", "topic": "Trade", "goal": "time", "at": "noon"}, "'noon' is not a time"),
        ({"dry": "move", "topic": "Trade", "goal": "back"}, "the goal is one of latest"),
        ({"dry": "move", "topic": "Trade", "goal": "latest", "queue": "9"}, "no queue 9"),
        ({"dry": "move", "topic": "Odd", "goal": "latest"}, "does not read topic 'Odd'"),
        ({"dry": "filter", "topic": "Trade", "kind": "SQL92"}, "give the new filter"),
        ({"dry": "filter", "topic": "Trade", "kind": "SQL92", "filter": "a >> 1"}, "^"),
        (
            {"dry": "filter", "topic": "Trade", "kind": "CLASS", "filter": "os:system"},
            "TAG, SQL92 or NAME",
        ),
        ({"dry": "filter", "topic": "Trade", "kind": "NAME", "filter": "no"}, "no filter 'no'"),
        ({"dry": "filter", "topic": "Odd", "filter": "a"}, "does not read topic 'Odd'"),
    ],
)
def test_a_wrong_form_is_told_and_changes_nothing(
    console: ConsoleClient, node: LocalNode, query: dict[str, str], said: str
) -> None:
    before = group_of(node)
    answer = console.get(f"/group?{urlencode({'group': 'g', **query})}")
    assert answer.status == 400
    assert said in html.unescape(answer.text)
    path = "/group/move" if query["dry"] == "move" else "/group/filter"
    posted = console.post(path, group="g", **query)
    change = page(console)["change"]
    assert posted.status == 400 or changed(console)["error"], change
    assert group_of(node) == before


def test_a_named_filter_is_the_version_of_the_dry_run(
    console: ConsoleClient, node: LocalNode
) -> None:
    node.named_filters.save("Trade", "large", Subscription.sql("amount > 20"))
    form = {"topic": "Trade", "kind": "NAME", "filter": "large"}
    found = page(console, **form, dry="filter")["compared"]
    assert (found["newName"], found["new"]["expression"]) == ("large@1", "amount > 20")
    node.named_filters.save("Trade", "large", Subscription.sql("amount > 30"))
    shown = console.get(f"/group?{urlencode({'group': 'g', **form, 'dry': 'filter'})}").text
    assert 'name="filter" value="large@2"' in shown
    assert console.post("/group/filter", group="g", **{**form, "filter": "large@1"}).status == 303
    assert changed(console)["error"] is None
    plan = group_of(node).plan
    assert plan is not None
    assert plan.new == Subscription.sql("amount > 20")


def test_a_file_is_no_field_of_a_form(console: ConsoleClient, node: LocalNode) -> None:
    before = group_of(node)
    parts = {"csrf": console.access.csrf, "group": "g", "topic": "Trade", "goal": "latest"}
    lines = [f'--x\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{parts[k]}' for k in parts]
    lines.append('--x\r\nContent-Disposition: form-data; name="at"; filename="f"\r\n\r\nx')
    link = http.client.HTTPConnection("127.0.0.1", console.access.port, timeout=patience(20))
    headers = {"Authorization": f"Bearer {console.access.token}"}
    headers["Content-Type"] = "multipart/form-data; boundary=x"
    link.request("POST", "/group/move", "\r\n".join([*lines, "--x--", ""]), headers)
    answer = link.getresponse()
    assert (answer.status, "at is a file" in answer.read().decode()) == (400, True)
    link.close()
    assert group_of(node) == before


def test_one_change_of_a_group_runs_at_a_time(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rocketray.console.changes.group_jobs.carry_out", lambda *_, **__: time.sleep(0.5)
    )
    form = {"group": "g", "topic": "Trade", "goal": "latest"}
    assert console.post("/group/move", **form).status == 303
    second = console.post("/group/move", **form)
    assert (second.status, "wait for its end" in second.text) == (400, True)
    assert "waits for the members" in console.get("/group?group=g").text
    changed(console)


def test_a_change_that_no_thread_could_be_started_for_does_not_run(node: LocalNode) -> None:
    link = mock.Mock(ask=lambda question: question(node))
    changes, redrives = GroupJobs(link), Redrives(link)
    with no_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        changes.move(MoveForm("g", "Trade", None, "latest", ""), [])
    with no_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        redrives.begin("g", Subscription.tags("*"), 1, 1)
    changes.move(MoveForm("g", "Trade", None, "latest", ""), [])
    wait_until(lambda: (job := changes.of("g")) is not None and job.is_over)
    redrives.begin("g", Subscription.tags("*"), 1, 1).stop.set()


def test_a_change_that_fails_by_a_bug_is_shown_as_failed(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("rocketray.console.changes.group_jobs.carry_out", broken)
    assert console.post("/group/move", group="g", topic="Trade", goal="latest").status == 303
    assert changed(console)["error"] == "it failed: KeyError('a bug')"
    assert "it failed: KeyError" in console.get("/group?group=g").text
