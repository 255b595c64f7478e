"""An offset is taken up by its own topics and its own filter, and by no other in silence."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from rocketray.broker.fetching.read_plan import Bounds
from rocketray.errors import ConfigError, StoreError
from rocketray.filters.subscription import Subscription
from rocketray.queries.ranges.topic_choice import matching, named
from rocketray.queries.spark.positions import Admission, Position, from_json, to_json
from rocketray.runtime.files.restorations import Restoration

TOPICS = named("T,U")
IDS = {"T": "1" * 32, "U": "2" * 32}
OFFSETS = {("T", 0): 7, ("T", 1): 3, ("U", 0): 5}
PAY = Subscription.tags("pay")
POSITION = Position(OFFSETS, IDS, PAY)
HELD = {key: Bounds(0, 10) for key in OFFSETS}


def admission(
    subscription: Subscription = PAY, *, fail: bool = True, allow: bool = False
) -> Admission:
    return Admission(subscription, fail_on_data_loss=fail, allow_filter_change=allow)


@pytest.mark.parametrize(
    "subscription", [PAY, Subscription.sql("a > 1"), Subscription.sql("a > 1", "rocketray")]
)
def test_an_offset_survives_the_checkpoint(subscription: Subscription) -> None:
    position = Position(OFFSETS, IDS, subscription)
    assert from_json(to_json(position), TOPICS) == position
    assert "restorations" not in str(to_json(position)), "so that earlier releases can read it"
    restored = replace(position, restorations=frozenset({"r1", "r2"}))
    assert from_json(to_json(restored), TOPICS) == restored
    assert to_json(position)["T"] == {"0": 7, "1": 3}


@pytest.mark.proves("spark", "A checkpoint without `@` is accepted, with one line in the log")
def test_an_offset_of_an_earlier_release_is_taken_and_said_to_be_unchecked_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old = from_json({"T": {"0": 7}}, named("T"))
    assert old == Position({("T", 0): 7})

    admitting = admission(Subscription.sql("a > 1"))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert admitting.admit(old, IDS, HELD) == {("T", 0): 7}

    (record,) = caplog.records
    assert "cannot be detected" in record.getMessage()


def test_an_offset_of_a_later_release_is_refused() -> None:
    """Its other keys would be dropped with the next micro-batch."""
    later: dict[str, object] = {"T": {"0": 7}, "@": {"topics": {}, "epochs": {"T": [1]}}}
    with pytest.raises(ConfigError, match=r"'epochs' in '@', which this release .* or a newer one"):
        from_json(later, named("T"))


def test_a_topic_that_was_made_again_is_an_error_that_names_it() -> None:
    now = IDS | {"T": "3" * 32}
    with pytest.raises(
        StoreError, match=f"'T'.*id {'1' * 32}, now {'3' * 32}.*failOnDataLoss=false"
    ):
        admission().admit(POSITION, now, HELD)


@pytest.mark.proves(
    "spark",
    "A checkpoint of a topic that was recreated is refused, or read from its first message with a "
    "warning",
)
def test_a_topic_that_was_made_again_begins_anew_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    admitting = admission(fail=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert admitting.admit(POSITION, IDS | {"T": "3" * 32}, HELD) == {("U", 0): 5}

    (record,) = caplog.records
    assert "read the existing topic from its first message" in record.getMessage()


def test_a_topic_that_the_query_has_lately_is_no_other() -> None:
    position = Position({("T", 0): 7}, {"T": IDS["T"]}, PAY)
    assert admission().admit(position, IDS, HELD) == {("T", 0): 7}


@pytest.mark.proves("spark", "The option `allowFilterChange`, and another filter on a checkpoint")
@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (PAY, Subscription.tags("order"), "tags 'pay', .*tags 'order' .added: order; removed: pay"),
        (PAY, Subscription.sql("a > 1"), "TAG before, SQL92 now"),
        (
            Subscription.sql("a > 1", "rocketmq"),
            Subscription.sql("a > 1", "rocketray"),
            "dialect rocketmq before, rocketray now",
        ),
    ],
)
def test_another_filter_is_an_error_that_names_both_and_the_ways_out(
    before: Subscription, after: Subscription, says: str
) -> None:
    position = Position(OFFSETS, IDS, before)
    with pytest.raises(ConfigError, match=rf"{says}.*new checkpoint.*allowFilterChange=true"):
        admission(after).admit(position, IDS, HELD)


def test_another_filter_is_taken_where_it_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    admitting = admission(Subscription.tags("order"), allow=True)
    with caplog.at_level(logging.WARNING):
        assert admitting.admit(POSITION, IDS, HELD) == OFFSETS
        assert admitting.admit(POSITION, IDS, HELD) == OFFSETS

    (record,) = caplog.records
    assert "because allowFilterChange=true" in record.getMessage()


@pytest.mark.parametrize(
    "origin", [3, {"topics": 3}, {"topics": {"T": 3}}, {"filter": 3}, {"restorations": 3}, []]
)
def test_a_damaged_origin_is_refused(origin: object) -> None:
    with pytest.raises(ConfigError):
        from_json({"T": {"0": 1}, "@": origin}, named("T"))


@pytest.mark.proves(
    "spark",
    "A topic of the checkpoint that does not exist any more is an error, or left out with a "
    "warning",
)
def test_a_topic_that_does_not_exist_any_more_is_an_error_or_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(StoreError, match="'U', which the checkpoint has, does not exist any more"):
        admission().admit(POSITION, {"T": IDS["T"]}, HELD)

    with caplog.at_level(logging.WARNING):
        left = admission(fail=False).admit(POSITION, {"T": IDS["T"]}, HELD)
    assert left == {("T", 0): 7, ("T", 1): 3}
    assert "will continue without it" in caplog.text


def test_a_query_that_matched_no_topic_yet_is_not_of_an_earlier_release(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nothing = from_json(to_json(Position({}, {}, PAY)), matching("T.*"))
    with caplog.at_level(logging.WARNING):
        assert admission().admit(nothing, IDS, HELD) == {}
    assert not caplog.records


def held(visible: int, *ends: int) -> dict[tuple[str, int], Bounds]:
    """The queue T/0, restored at the *ends*: r0, r1 and so on."""
    restorations = tuple(Restoration(f"r{number}", end) for number, end in enumerate(ends))
    return {("T", 0): Bounds(0, visible, restorations=restorations)}


def at(offset: int, *known: str) -> Position:
    return Position({("T", 0): offset}, {"T": IDS["T"]}, PAY, frozenset(known))


@pytest.mark.proves(
    "spark",
    "A checkpoint that is ahead of an older backup is refused, or continues where the log ends "
    "that both have, also when it has grown since",
)
@pytest.mark.parametrize(
    ("position", "bounds", "end", "cause"),
    [
        (at(7), held(5), 5, "most likely replaced by an older backup or copy"),
        (at(7), held(5, 5), 5, "restored from a backup that ends at message 5"),
        (at(7), held(100, 5), 5, "restored from a backup that ends at message 5"),  # grown since
        (at(7), held(100, 5, 50), 5, "ends at message 5"),
        (at(70, "r0"), held(100, 5, 50), 50, "ends at message 50"),
        (at(70, "r0", "r1"), held(60, 5, 50), 60, "most likely replaced by an older backup"),
    ],
)
def test_an_offset_ahead_of_the_log_that_it_was_of_is_an_error_or_goes_on_at_its_end(
    position: Position,
    bounds: dict[tuple[str, int], Bounds],
    end: int,
    cause: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(StoreError, match=rf"'T' queue 0: .*{cause}.*failOnDataLoss=false") as error:
        admission().admit(position, IDS, bounds)
    assert f"to continue with message {end}" in str(error.value)

    admitting = admission(fail=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert admitting.admit(position, IDS, bounds) == {("T", 0): end}
    (record,) = caplog.records
    assert cause in record.getMessage()


@pytest.mark.parametrize(
    ("position", "bounds"),
    [
        (at(5), held(100, 5)),
        (at(70, "r0"), held(100, 5)),
        (at(70, "r0", "r1"), held(100, 5, 50)),
        (at(50, "r0"), held(100, 5, 50)),
    ],
)
def test_an_offset_that_a_restored_queue_has_is_taken(
    position: Position, bounds: dict[tuple[str, int], Bounds]
) -> None:
    assert admission().admit(position, IDS, bounds) == position.offsets


def test_a_checkpoint_of_a_restored_copy_is_not_taken_for_the_original(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(StoreError, match=r"this is the original, or another copy.*failOnDataLoss"):
        admission().admit(at(7, "r9"), IDS, held(100))
    with caplog.at_level(logging.WARNING):
        assert admission(fail=False).admit(at(7, "r9"), IDS, held(100)) == {("T", 0): 7}
    assert "will continue at its offsets" in caplog.text
