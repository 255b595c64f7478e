"""Predicates in the filter actor: what fails, dawdles or hangs is counted and does what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import predicates
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import ConfigError, FilterError, PredicateError
from rocketray.filters.subscription import ErrorPolicy, Subscription
from rocketray.message import Message
from rocketray.messaging.consumers.member import GroupConsumer

BODIES = [b"%d" % n for n in range(300)]


@pytest.fixture(params=[False, True], ids=["near", "far"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data", FilterRules(("support",), 60_000)) as node:
        node.topics.ensure("Trade", 1)
        node.has_far_members = request.param
        yield node


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[LocalNode]:
    """A node that gives a predicate little time."""
    predicates.RELEASE.clear()
    with LocalNode(tmp_path / "data", FilterRules(("support",), 300)) as node:
        node.topics.ensure("Trade", 1)
        yield node
        predicates.RELEASE.set()


def send(node: LocalNode, bodies: list[bytes], tags: str | None = None) -> None:
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", body, tags) for body in bodies])


def where(name: str, policy: ErrorPolicy = "stop") -> Subscription:
    return Subscription.where(f"support.predicates:{name}", policy)


def bodies_until(member: GroupConsumer, stop: int) -> list[bytes]:
    """What comes until the queue was filtered up to *stop*; the offsets must be right."""
    found: list[bytes] = []
    reached = 0

    def is_there() -> bool:
        nonlocal reached
        for batch in member.poll(0.2):
            found.extend(batch.bodies())
            reached = batch.next_queue_offset
        return reached >= stop

    wait_until(is_there, lambda: f"at {reached} of {stop}")
    assert reached == stop
    return found


@pytest.mark.parametrize("name", ["is_even", "are_even"])
def test_both_forms_give_the_same(node: LocalNode, name: str) -> None:
    send(node, BODIES)
    with node.consumer("g", "Trade", where(name)) as member:
        assert bodies_until(member, 300) == BODIES[::2]
        assert member.counters().class_rejected == 150


def test_a_batch_predicate_gets_its_columns_and_null_is_no(node: LocalNode) -> None:
    send(node, [b"1", b"2"], "a")
    send(node, [b"3"])
    with node.consumer("g", "Trade", where("are_tagged")) as member:
        assert bodies_until(member, 3) == [b"1", b"2"]


@pytest.mark.parametrize("name", ["is_even", "are_even"])
@pytest.mark.parametrize("policy", ["skip", "deliver"])
def test_a_message_that_fails_is_left_out_or_delivered(
    node: LocalNode, name: str, policy: ErrorPolicy
) -> None:
    bad = {40: b"x", 41: b"y", 299: b"z"}
    send(node, [bad.get(number, body) for number, body in enumerate(BODIES)])
    with node.consumer("g", "Trade", where(name, policy)) as member:
        found = bodies_until(member, 300)
        counters = member.counters()
    even = [body for number, body in enumerate(BODIES) if number % 2 == 0 and number not in bad]
    assert [body for body in found if body.isdigit()] == even
    kept = list(bad.values()) if policy == "deliver" else []
    assert [body for body in found if not body.isdigit()] == kept
    assert counters.predicate_errors == 3
    assert counters.delivered_on_error == len(kept)
    delivered = counters.delivered - counters.delivered_on_error
    assert counters.scanned == counters.rejected + counters.errors + delivered == 300


@pytest.mark.parametrize("name", ["is_even", "are_even"])
def test_a_group_that_stops_gets_all_before_the_failure_and_nothing_behind(
    node: LocalNode, name: str
) -> None:
    send(node, [*BODIES[:50], b"x", *BODIES[50:]])
    with node.consumer("g", "Trade", where(name)) as member:
        assert bodies_until(member, 50) == BODIES[:50:2]
        with pytest.raises(FilterError, match=r"Trade/0 for group g.*ValueError"):
            bodies_until(member, 301)
        assert member.counters().predicate_errors == 1


@pytest.mark.parametrize(
    ("name", "policy", "wanted"),
    [
        ("hangs_on_stop", "skip", [b"0", b"1"]),
        ("hangs_on_stop", "deliver", [b"0", b"stop", b"1"]),
        ("hang_on_stop", "deliver", [b"0", b"stop", b"1"]),
        ("hang_on_stop", "skip", []),  # nobody knows which message of the batch it was
    ],
)
def test_a_call_that_hangs_does_not_hold_up_the_stream(
    hasty: LocalNode, name: str, policy: ErrorPolicy, wanted: list[bytes]
) -> None:
    send(hasty, [b"0", b"stop", b"1"])
    with hasty.consumer("g", "Trade", where(name, policy)) as member:
        assert bodies_until(member, 3) == wanted
        assert member.counters().predicate_timeouts == (1 if name == "hangs_on_stop" else 3)
        assert hasty.filter.statistics().stuck_calls == 1
        send(hasty, [b"2"])
        assert bodies_until(member, 4) == [b"2"]
        predicates.RELEASE.set()
        wait_until(lambda: hasty.filter.statistics().stuck_calls == 0)


def test_a_call_that_hangs_stops_its_group_and_no_other(hasty: LocalNode) -> None:
    send(hasty, [b"0", b"stop", *BODIES])
    with (
        hasty.consumer("stuck", "Trade", where("hangs_on_stop")) as stuck,
        hasty.consumer("free", "Trade", Subscription.tags("*")) as free,
        hasty.consumer("other", "Trade", where("body_is_short")) as other,
    ):
        assert bodies_until(stuck, 1) == [b"0"]
        with pytest.raises(FilterError, match=r"no answer within 0\.3 s .* queue offset 1;"):
            bodies_until(stuck, 302)
        assert len(bodies_until(free, 302)) == 302
        assert len(bodies_until(other, 302)) == 302


def test_a_stream_with_too_many_stuck_calls_stops_under_every_policy(hasty: LocalNode) -> None:
    send(hasty, [b"stop"] * 5)
    with (
        hasty.consumer("g", "Trade", where("hangs_on_stop", "skip")) as member,
        pytest.raises(FilterError, match="queue offset 2"),
    ):
        bodies_until(member, 5)


def test_a_predicate_that_is_not_allowed_is_refused_before_it_is_imported(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data", FilterRules(("shop",))) as node:
        node.topics.ensure("Trade", 1)
        with pytest.raises(PredicateError, match=r"start --allow-predicates support\.predicates"):
            node.consumer("g", "Trade", where("is_even"))
        node.rules = FilterRules(("support",))  # the filter actor has the last word
        with pytest.raises(PredicateError, match=r"start --allow-predicates support\.predicates"):
            node.consumer("g", "Trade", where("is_even"))
        membership = node.state.registry.memberships.get("g", "Trade")
        assert not membership.roster.members, "it left the group"


def test_a_batch_predicate_that_names_unknown_columns_is_refused(node: LocalNode) -> None:
    with pytest.raises(ConfigError, match="no column 'nonsense'"):
        node.consumer("g", "Trade", where("asks_for_nonsense"))
