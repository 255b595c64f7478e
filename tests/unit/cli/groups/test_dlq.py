"""The commands for dead letters, over a node in this process."""

from __future__ import annotations

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.broker.retries.retry_records import dead_lettered
from rocketray.message import Message

LETTERS = "%DLQ%g"


@pytest.fixture
def node(node: LocalNode) -> LocalNode:
    """Group g has one dead letter, a message from Mars."""
    node.topics.ensure("Trade", 1)
    node.topics.ensure(LETTERS, 1)
    with node.producer() as producer:
        mars = Message("Trade", b"x", "pay", properties={"region": "mars"})
        stored = node.messages.view(producer.send_many("Trade", [mars])[0].offset_message_id)
        assert stored is not None
        letter = dead_lettered(stored, "g", LETTERS, 16, reason="ValueError: no")
        producer.forward(LETTERS, 0, [letter.message])
    return node


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("command", [("show",), ("redrive", "--dry-run"), ("redrive",)])
@pytest.mark.parametrize(
    ("slip", "says"),
    [
        (("--sql", "regoin = 'mars'"), "regoin is in none of 1 recent message; did you mean"),
        (("--tags", "pay, ship"), "pay || ship"),
    ],
)
def test_a_filter_that_looks_like_a_slip_is_told(
    command: tuple[str, ...], slip: tuple[str, str], says: str
) -> None:
    verb, *options = command
    done = run_here("dlq", verb, "g", *options, *slip)
    assert done.code == 0
    assert f"warning: topic {LETTERS}, " in done.err
    assert says in done.err
    assert "mars" not in done.out


@pytest.mark.usefixtures("node")
def test_a_sound_filter_finds_the_letter_and_says_no_more() -> None:
    done = run_here("dlq", "redrive", "g", "--sql", "region = 'mars'", "--json")
    assert done.lines() == [{"group": "g", "count": 1, "dryRun": False}]
    assert done.err == ""
