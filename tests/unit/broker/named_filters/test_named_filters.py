"""Named filters of a node: who gets which version, and what survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.broker.named_filters.joining import join_by_filter
from rocketray.broker.named_filters.named_filters_api import FilterUse
from rocketray.errors import (
    ConfigError,
    FilterSyntaxError,
    InvalidNameError,
    PredicateError,
    StoreError,
    SubscriptionConflictError,
    TopicNotFoundError,
)
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.testing import Broker

LARGE = FilterName("large")
OLD, NEW = Subscription.sql("amount > 10"), Subscription.sql("amount > 20")


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(tmp_path)
    broker.topics.create("Trade", 2)
    broker.named_filters.save("Trade", "large", OLD, "first", "ann on host")
    return broker


def migrate_to(broker: Broker, subscription: Subscription) -> None:
    broker.groups.prepare_change("Shop", "Trade", subscription)
    broker.clock.advance(seconds=3)
    broker.groups.switch_change("Shop", "Trade")
    broker.clock.advance(seconds=3)


def test_members_of_a_group_take_its_version_while_one_lives(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with broker:
        first = broker.consumer("Shop", "Trade", LARGE)
        broker.named_filters.save("Trade", "large", NEW)
        second = broker.consumer("Shop", "Trade", LARGE)
        assert first.subscription.named == second.subscription.named == "large@1"
        assert "with filter large@1, and large@2 is the latest; to switch the group" in caplog.text
        assert broker.groups.all()[0].subscription.named == "large@1"
        assert broker.consumer("Other", "Trade", LARGE).subscription.named == "large@2"
        with pytest.raises(SubscriptionConflictError, match=r"large@1.*large@2"):
            broker.consumer("Shop", "Trade", FilterName("large", 2))
        first.close()
        second.close()
        assert broker.consumer("Shop", "Trade", LARGE).subscription.named == "large@2"
        assert "with filter large@2 from now on; it read with large@1 before" in caplog.text


def test_members_of_a_broadcast_group_take_its_version_too(broker: Broker) -> None:
    with broker:
        broker.consumer("Shop", "Trade", LARGE, broadcast=True, client_id="One")
        broker.named_filters.save("Trade", "large", NEW)
        other = broker.consumer("Shop", "Trade", LARGE, broadcast=True, client_id="Two")
        assert other.subscription.named == "large@1"


def test_a_predicate_is_saved_with_its_policy(tmp_path: Path) -> None:
    with Broker(tmp_path, predicates=["support.predicates"]) as broker:
        broker.topics.create("Trade", 1)
        short = Subscription.where("support.predicates:body_is_short", "skip")
        broker.named_filters.save("Trade", "short", short)
        member = broker.consumer("Shop", "Trade", FilterName("short"))
        assert (member.subscription, member.subscription.on_error) == (short, "skip")


def test_a_member_that_joins_after_the_switch_takes_the_new_version(broker: Broker) -> None:
    with broker:
        first = broker.consumer("Shop", "Trade", LARGE)
        broker.named_filters.save("Trade", "large", NEW)
        broker.groups.prepare_change("Shop", "Trade", Subscription.sql("amount > 20"))
        assert broker.consumer("Shop", "Trade", LARGE).subscription.named == "large@1"
        broker.groups.abort_change("Shop", "Trade")
        migrate_to(broker, broker.named_filters.get("Trade", LARGE).subscription)
        late = broker.consumer("Shop", "Trade", LARGE)
        assert late.subscription.named == "large@2"
        assert FilterUse("Shop", "large", 2, 3, is_coming=True) in broker.named_filters.uses(
            "Trade"
        )
        first.close()


def test_each_message_is_delivered_once_around_a_switch(broker: Broker) -> None:
    with broker, broker.producer() as producer:
        first = broker.consumer("Shop", "Trade", LARGE)
        send_amounts(producer, (5, 15, 25))
        broker.named_filters.save("Trade", "large", NEW)
        migrate_to(broker, broker.named_filters.get("Trade", LARGE).subscription)
        got = bodies(first)  # which proposes where each queue switches
        broker.clock.advance(seconds=3)
        send_amounts(producer, (6, 16, 26))
        got += bodies(first)
        first.close()
        second = broker.consumer("Shop", "Trade", LARGE)
        send_amounts(producer, (7, 17, 27))
        broker.clock.advance(seconds=3)
        got += bodies(second)
        broker.clock.advance(seconds=3)
        assert sorted(got) == [b"15", b"25", b"26", b"27"]
        [group] = broker.groups.all()
        assert (group.plan, group.subscription.named) == (None, "large@2")
        explained = broker.explain("K16", "Shop", "Trade").to_json()
        assert "large@2" in str(explained)


def send_amounts(producer: object, amounts: tuple[int, ...]) -> None:
    for amount in amounts:
        producer.send(  # type: ignore[attr-defined]
            "Trade",
            b"%d" % amount,
            queue_id=amount % 2,
            keys=f"K{amount}",
            properties={"amount": str(amount)},
        )


def bodies(member: object) -> list[bytes]:
    found = []
    for batch in member.poll():  # type: ignore[attr-defined]
        found += [each.body for each in batch.messages()]
        member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)  # type: ignore[attr-defined]
    return found


def test_a_name_is_no_part_of_the_filter(broker: Broker) -> None:
    with broker:
        plain = broker.consumer("Shop", "Trade", OLD)
        since_ms = broker.groups.all()[0].since_ms
        broker.consumer("Shop", "Trade", LARGE)
        [group] = broker.groups.all()
        assert (group.subscription.named, group.since_ms) == ("large@1", since_ms)
        plain.beat()
        assert broker.groups.all()[0].subscription.named == "large@1"


def test_a_filter_that_a_group_uses_is_removed_by_force_alone(broker: Broker) -> None:
    with broker:
        member = broker.consumer("Shop", "Trade", LARGE)
        member.close()
        with pytest.raises(ConfigError, match=r"used by groups Shop \(large@1\)"):
            broker.named_filters.remove("Trade", "large")
        uses = broker.named_filters.remove("Trade", "large", force=True)
        assert [each.group for each in uses] == ["Shop"]
        with pytest.raises(ConfigError, match="it was removed"):
            broker.consumer("Shop", "Trade", LARGE)
        assert broker.named_filters.save("Trade", "large", NEW).filter.version == 2


def test_filters_survive_a_restart_and_end_with_their_topic(broker: Broker, tmp_path: Path) -> None:
    with broker:
        before = broker.named_filters.all("Trade")
    with Broker(tmp_path) as again:
        assert again.named_filters.all("Trade") == before
        assert [each.note for each in again.named_filters.versions("Trade", "large")] == ["first"]
        again.topics.delete("Trade")
        assert "large" not in (tmp_path / "config" / "namedFilters.json").read_text()
        with pytest.raises(TopicNotFoundError):
            again.named_filters.all("Trade")
        again.topics.create("Trade", 2)
        assert again.named_filters.all("Trade") == []


def test_a_topic_is_deleted_though_its_filters_cannot_be(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with broker:
        documents = broker.node.state.documents
        whole = documents.save

        def save(name: str, *rest: object, **options: object) -> None:
            if name == "namedFilters":
                raise OSError(28, "No space left on device")
            whole(name, *rest, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(documents, "save", save)
        with pytest.raises(OSError, match="No space"):
            broker.named_filters.save("Trade", "large", NEW)
        assert broker.named_filters.get("Trade", LARGE).version == 1
        broker.topics.delete("Trade")
        assert "removed by the next save" in caplog.text
        broker.topics.create("Trade", 2)
        assert broker.named_filters.all("Trade") == []


def test_damaged_filters_close_no_group(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "config" / "namedFilters.json"
    with broker:
        broker.consumer("Shop", "Trade", LARGE)
    for each in (path, path.with_name("namedFilters.json.bak")):
        each.write_text('{"version": 1}')
    with Broker(tmp_path) as again:
        assert any("named filters are closed: " in line for line in again.node.problems())
        with pytest.raises(StoreError, match=r"named filters are closed: .*namedFilters\.json"):
            again.named_filters.save("Trade", "large", NEW)
        subscription = again.groups.all()[0].subscription
        assert subscription.named == "large@1"
        again.consumer("Shop", "Trade", subscription)
    assert path.read_text() == '{"version": 1}'


def test_what_the_node_would_not_filter_by_is_not_saved(broker: Broker) -> None:
    with broker:
        with pytest.raises(FilterSyntaxError, match="before the end"):
            broker.named_filters.save("Trade", "bad", Subscription.sql("amount >"))
        with pytest.raises(PredicateError, match="is not allowed on this node"):
            broker.named_filters.save("Trade", "bad", Subscription.where("os:system"))
        for wrong in ("amount > 1", LARGE, None):
            with pytest.raises(ConfigError, match=r"make one with rr\.Subscription\.tags"):
                broker.named_filters.save("Trade", "bad", wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"the filter is 'large'; name it as rr.FilterName"):
            broker.named_filters.get("Trade", "large")  # type: ignore[arg-type]
        for name in ("", None, "a b", 5):
            with pytest.raises(InvalidNameError, match="filter"):
                broker.named_filters.save("Trade", name, OLD)  # type: ignore[arg-type]
        assert [each.name for each in broker.named_filters.all("Trade")] == ["large"]


def test_a_member_that_lost_the_race_takes_the_version_of_the_first(broker: Broker) -> None:
    with broker:
        asked: list[str] = []

        def join(found: Subscription) -> object:
            asked.append(found.named)
            if len(asked) == 1:  # meanwhile another version is saved, and its reader is the first
                broker.named_filters.save("Trade", "large", NEW)
                broker.consumer("Shop", "Trade", LARGE)
            return broker.consumer("Shop", "Trade", found)

        join_by_filter(broker.named_filters, "Shop", "Trade", LARGE, join)
        assert asked == ["large@1", "large@2"]
