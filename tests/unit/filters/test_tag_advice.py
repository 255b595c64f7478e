"""A tag that lists several, or is nearly one that is there, is told; a rare one is left alone."""

from __future__ import annotations

import pytest

from rocketray.filters.sql92.advice import Sample
from rocketray.filters.tag_advice import advise_tags

RECENT = Sample(4, frozenset({"TAGS"}), {"TAGS": ["pay", "ship", None, "new order"]})


@pytest.mark.parametrize("tags", ["*", "", "pay", "pay || ship", "refund || pay", "new order"])
def test_what_is_plain_or_merely_rare_is_left_alone(tags: str) -> None:
    assert advise_tags(tags, RECENT) == []


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ("pay|ship", "one-tag: 'pay|ship' is one tag, since only || separates tags; write pay || "),
        ("pay, ship", "one-tag: 'pay, ship' is one tag, since only || separates tags; write pay |"),
        ("pay ship || x", "one-tag: 'pay ship' is one tag, since only || separates tags; write pa"),
        (" * ", "one-tag: '*' with spaces around it is the tag *; for all messages write * alone"),
        (" || ", "never-true: ' || ' names no tag, so it matches no message"),
    ],
)
def test_the_form_tells_what_was_meant_without_any_message(tags: str, says: str) -> None:
    (advice,) = advise_tags(tags)
    assert str(advice).startswith(says)
    assert advice.code.leaves_out


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ("Pay || ship", "Pay is the tag of none of 4 recent messages; did you mean pay?"),
        ("shp", "shp is the tag of none of 4 recent messages; did you mean ship?"),
        ("zz", "zz is the tag of none of 4 recent messages"),
    ],
)
def test_recent_messages_tell_of_a_slip(tags: str, says: str) -> None:
    (advice,) = advise_tags(tags, RECENT)
    assert str(advice) == f"never-seen: {says}"
    assert advise_tags(tags) == []


def test_no_message_shows_nothing() -> None:
    assert advise_tags("zz", Sample(0)) == []
