"""The command that changes a running group, over a node in this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support.harness.command_server import run_here
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import retry_topic, sent_back
from rocketray.cli.groups import group_changes
from rocketray.cli.nodes import apps
from rocketray.filters.subscription import Subscription
from rocketray.hosting.host_plan import HostPlan
from rocketray.hosting.host_status import Host, HostStatus

OLD = Subscription.tags("a")
PLAN = HostPlan("shop:app", "default")
HOSTS = [Host("shop", 3, "running", 0, HostStatus(PLAN, "web1", 4711, True, ()))]
"""What Ray, which does not run here, would say."""


@pytest.fixture
def node(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> LocalNode:
    there = SimpleNamespace(hosts=lambda _: HOSTS)
    monkeypatch.setattr(group_changes, "apps_of", lambda _: there)
    node.topics.ensure("T", 1)
    return node


def test_what_is_still_to_come_is_said(node: LocalNode) -> None:
    node.consumer("g", "T", OLD).close()
    arguments = ("groups", "migrate", "g", "T", "--tags", "b", "--timeout", "3600")
    assert run_here(*arguments, "--json").lines() == [
        {
            "complete": False,
            "switches": {},
            "withoutSwitch": [0],
            "beforeSwitch": [],
            "outdated": [],
        }
    ]
    done = run_here(*arguments)  # nobody is there for whom it could wait
    assert "queues 0 have no consumer; they switch when one joins" in done.out
    with node.consumer("g", "T", Subscription.tags("b")) as member:
        while node.groups.all()[0].subscription == OLD:
            member.poll(0.1)
            member.commit("T", 0, 0)


def test_members_to_be_replaced_are_named_in_order(node: LocalNode) -> None:
    with (
        node.consumer("g", "T", OLD, client_id="web1@4711#1f0c") as first,
        node.consumer("g", "T", OLD, client_id="web2@4712") as second,
        ThreadPoolExecutor(1) as executor,
    ):
        migrating = executor.submit(run_here, "groups", "migrate", "g", "T", "--tags", "b")
        while not migrating.done():
            for member in (first, second):
                member.poll(0.02)
                member.beat()
        assert apps._outdated(node, HOSTS) == {3}, "rocketray up --replace takes it down"
    done = migrating.result()
    assert done.code == 0, done.err
    switched, replaced, command, others = done.out.splitlines()
    assert switched == "queue 0 switches at offset 0"
    assert replaced == (
        "members to be replaced, as they ask for the old one: shop host 3 (web1@4711#1f0c), "
        "web2@4712"
    )
    assert command == (
        "change the agent's filter in its code, then: rocketray up shop:app --replace"
    )
    assert others.startswith("members that are no hosts of rocketray up: start their programs")


def test_a_change_is_taken_back_while_nobody_was_there_to_switch(node: LocalNode) -> None:
    put(node, "T", numbers(3))
    node.consumer("g", "T", OLD).close()
    assert run_here("groups", "migrate", "g", "T", "--tags", "b || c").code == 0
    assert run_here("groups", "migrate", "g", "T", "--abort").out == "the change was dropped\n"
    forgotten = run_here("groups", "migrate", "g", "T")
    assert forgotten.code == 2
    assert "give the new filter with --tags, --sql, --where or --filter" in forgotten.err
    with node.consumer("g", "T", OLD) as member:
        while not member.assignment():
            member.poll(0.1)
    assert node.groups.all()[0].subscription == OLD


def test_a_slip_in_the_new_filter_is_told(node: LocalNode) -> None:
    put(node, "T", numbers(3))
    node.consumer("g", "T", OLD).close()
    done = run_here("groups", "migrate", "g", "T", "--tags", "pay, ship")
    assert "warning: topic T" in done.err
    assert "pay || ship" in done.err


@pytest.mark.proves("groups", "`groups migrate --dry-run` counts the failed messages that wait")
def test_a_dry_run_counts_the_failed_messages_that_no_filter_decides(node: LocalNode) -> None:
    put(node, "T", numbers(2), tags="a")
    node.consumer("g", "T", OLD).close()
    arguments = ("groups", "migrate", "g", "T", "--tags", "b", "--dry-run")
    nothing = run_here(*arguments).out
    assert "only the old filter delivers" in nothing
    assert "redelivered" not in nothing
    node.topics.ensure(SCHEDULE_TOPIC, len(DELAY_LEVELS_MS), internal=True)
    node.topics.ensure(retry_topic("g"), 1, internal=True)
    first = node.messages.at("T", 0, 0)
    assert first is not None
    waiting = sent_back(first, "g", 16, "%DLQ%g")
    with node.producer() as producer:
        producer.forward(waiting.message.topic, waiting.queue_id, [waiting.message])
        producer.send(retry_topic("g"), b"by hand")
    said = "to be redelivered whatever the filter is: 2 failed messages of the group\n"
    assert said in run_here(*arguments).out
    [record] = run_here(*arguments, "--json").lines()
    assert record["waitingRetries"] == {"count": 2, "exact": True}


def test_a_change_is_dropped_before_it_switches(node: LocalNode) -> None:
    with node.consumer("g", "T", OLD):
        done = run_here("groups", "migrate", "g", "T", "--tags", "b", "--timeout", "0")
        assert done.code == 1
        assert "have not received the change after 0 s" in done.err
        assert run_here("groups", "migrate", "g", "T", "--abort").code == 0
        assert run_here("groups", "migrate", "g", "T", "--abort").code == 1
