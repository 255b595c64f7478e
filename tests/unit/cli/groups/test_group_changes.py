"""The commands that show and move a group's place, over a node in this process."""

from __future__ import annotations

from typing import Any

import pytest
from support.harness.command_server import run_here
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.filters.subscription import Subscription


@pytest.fixture
def node(node: LocalNode) -> LocalNode:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(6), tags="even")
    put(node, "T", numbers(2), tags="odd")
    with node.consumer("g", "T", Subscription.tags("even"), client_id="me") as member:
        while not (found := member.poll(0.1)):
            pass
        member.commit("T", 0, int(found[0].queue_offsets[1]) + 1)
    return node


def run(*arguments: str) -> list[dict[str, Any]]:
    return run_here("groups", *arguments, "--json").lines()


@pytest.mark.proves("groups", "`groups progress` has the columns of mqadmin")
def test_progress_has_the_columns_of_mqadmin_and_the_filtered_lag(node: LocalNode) -> None:
    (idle,) = run("progress", "g")
    assert (idle["clientId"], idle["inflight"]) == (None, None)
    with node.consumer("g", "T", Subscription.tags("even"), client_id="me") as member:
        member.beat()
        (row,) = run("progress", "g")
        assert row["inflight"] == 0, "nothing was taken yet"
        while not (found := member.poll(0.1)):
            pass
        member.beat()
        (row,) = run("progress", "g")
        assert row.pop("inflight") == found[-1].next_queue_offset - 2 > 0
    before = node.messages.at("T", 0, 1)
    assert before is not None
    assert row == {
        "group": "g",
        "topic": "T",
        "queueId": 0,
        "brokerOffset": 8,
        "consumerOffset": 2,
        "clientId": "me",
        "diff": 6,
        "lag": 4,
        "exactness": "exact",
        "lastTime": before.store_timestamp_ms,
        "held": None,
        "filterErrors": 0,
    }
    table = run_here("groups", "progress").out
    assert "consumer offset" in table
    assert "diff total: 6" in table
    assert "inflight total: 0" in table


def test_progress_counts_the_messages_on_which_a_filter_failed(node: LocalNode) -> None:
    with node.producer() as producer:
        for amount in ("200", "abc", "12a", "50"):
            producer.send("T", b"x", properties={"amount": amount})
    with node.consumer("audit", "T", Subscription.sql("amount > 100")) as member:
        while run("progress", "audit")[0]["filterErrors"] < 2:
            member.poll(0.1)
            member.beat()
        assert "the filter failed on 2 messages\n" in run_here("groups", "progress", "audit").out
    assert "the filter failed" not in run_here("groups", "progress", "g").out


def test_progress_of_a_broadcast_group_tells_its_members_and_no_offsets(node: LocalNode) -> None:
    everything = Subscription.tags("*")
    with (
        node.consumer("b", "T", everything, client_id="one", broadcast=True),
        node.consumer("b", "T", everything, client_id="two", broadcast=True),
    ):
        (row,) = run("progress", "b")
        alone = run_here("groups", "progress", "b").out.splitlines()
        beside = run_here("groups", "progress").out.splitlines()
    assert alone[-2:] == ["diff total: unknown", "inflight total: unknown"]
    assert beside[-2] == "diff total: 6, without broadcast groups"
    unknown = ("consumerOffset", "diff", "inflight", "lag", "exactness", "lastTime", "held")
    assert [row.pop(name) for name in unknown] == [None] * len(unknown)
    assert row == {
        "group": "b", "topic": "T", "queueId": 0, "brokerOffset": 8, "clientId": "one, two",
        "filterErrors": 0,
    }  # fmt: skip


@pytest.mark.proves("groups", "`--dry-run` changes nothing")
def test_a_dry_run_shows_the_move_and_leaves_the_group_where_it_is(node: LocalNode) -> None:
    expected = {"group": "g", "topic": "T", "queueId": 0, "from": 2, "to": 0}
    expected |= {"skipped": 0, "repeated": 2, "moved": False}
    assert run("reset", "g", "--to", "earliest", "--dry-run") == [expected]
    assert node.groups.all()[0].offsets == {0: 2}
    table = run_here("groups", "skip", "g", "--dry-run").out
    assert "nothing was changed" in table


@pytest.mark.parametrize(
    ("arguments", "offset"),
    [
        (("reset", "g", "--to", "earliest"), 0),
        (("reset", "g", "--to", "latest", "--topic", "T"), 8),
        (("reset", "g", "--to", "2001-01-01"), 0),
        (("skip", "g"), 8),
        (("seek", "g", "T", "--offset", "5", "--queue", "0"), 5),
        (("seek", "g", "T", "--time", "9999-01-01"), 8),
    ],
)
def test_a_group_is_moved(node: LocalNode, arguments: tuple[str, ...], offset: int) -> None:
    (row,) = run(*arguments)
    assert (row["from"], row["to"], row["moved"]) == (2, offset, True)
    assert node.groups.all()[0].offsets == {0: offset}


def test_a_group_gets_the_offsets_of_another(node: LocalNode) -> None:
    shown = {"group": "new", "topic": "T", "queueId": 0, "from": -1, "to": 2}
    shown |= {"skipped": 0, "repeated": 0, "moved": False}
    assert run("clone", "g", "new", "--dry-run") == [shown]
    assert [each.group for each in node.groups.all()] == ["g"]
    assert run("clone", "g", "new", "--topic", "T") == [shown | {"moved": True}]
    (_, new) = sorted(node.groups.all(), key=lambda each: each.group)
    assert (new.offsets, str(new.subscription)) == ({0: 2}, "tags 'even'")
    # The first member of a group without members brings its own filter, and reads on from there.
    with node.consumer("new", "T", Subscription.tags("odd"), client_id="other") as member:
        while not (found := member.poll(0.1)):
            pass
        assert found[0].queue_offsets[0] == 6
    node.groups.move_offsets("g", "T", {0: 7})
    assert "nothing was changed" in run_here("groups", "clone", "g", "new", "--dry-run").out
    (again,) = run("clone", "g", "new")
    assert (again["from"], again["to"], again["skipped"]) == (2, 7, 5)
    assert "rocketray groups clone by" in node.groups.journal("new")[-1].who


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("clone", "h", "new"), 1, "there is no group 'h'"),
        (("clone", "g", "g"), 1, "group 'g' cannot be cloned to itself"),
        (("clone", "g", "new", "--topic", "U"), 1, "group 'g' has no offset in topic 'U'"),
        (("clone", "g", "not valid"), 2, "not valid"),
        (("reset", "h", "--to", "latest"), 1, "there is no group 'h'"),
        (("reset", "g", "--to", "soon"), 2, "is not earliest, latest or a time"),
        (("reset", "g", "--to", "latest", "--topic", "U"), 1, "does not read topic 'U'"),
        (("seek", "g", "T"), 2, "give one of --offset and --time"),
        (("seek", "g", "T", "--offset", "9"), 1, "offset 9 is out of range"),
    ],
)
@pytest.mark.usefixtures("node")
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], code: int, reason: str) -> None:
    result = run_here("groups", *arguments)
    assert result.code == code
    assert reason in " ".join(result.err.replace("│", " ").split())


@pytest.mark.proves("groups", "A mistyped group is answered with the one that was meant")
@pytest.mark.parametrize("command", [("skip",), ("reset", "--to", "latest"), ("progress",)])
def test_a_mistyped_group_is_told_which_one_was_meant(
    node: LocalNode, command: tuple[str, ...]
) -> None:
    with node.consumer("audit", "T", Subscription.tags("*")):
        done = run_here("groups", command[0], "audti", *command[1:])
    assert (done.code, done.out) == (1, "")
    assert "there is no group 'audti'; did you mean 'audit'?" in done.err
    done = run_here("groups", command[0], "zzz", *command[1:])
    assert "there is no group 'zzz'; see: rocketray groups list" in done.err
