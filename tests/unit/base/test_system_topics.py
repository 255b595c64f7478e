"""What follows from the row of a system topic."""

from __future__ import annotations

import pytest

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import (
    LEVELS_A_DISK,
    SYSTEM_TOPICS,
    WAITING_QUEUES,
    check_open_topic,
    is_closed_topic,
    is_emptied_by_service,
    is_internal_by_name,
    is_of_service,
    is_system_topic,
)
from rocketray.broker.topics.system_retention import default_retention
from rocketray.errors import InvalidMessageError
from rocketray.store.retention import KEEP_ALL

OF_SERVICES = [name for name, row in SYSTEM_TOPICS.items() if row.queues_a_disk]


def test_the_levels_of_a_disk_never_change() -> None:
    """With another number, messages that wait in directories of before would change their disk."""
    assert LEVELS_A_DISK == len(DELAY_LEVELS_MS) == 18


@pytest.mark.parametrize("name", SYSTEM_TOPICS)
def test_a_topic_is_what_its_row_says(name: str) -> None:
    row, is_of_node = SYSTEM_TOPICS[name], name in OF_SERVICES
    assert is_system_topic(name)
    assert is_internal_by_name(name) == is_of_service(name) == is_of_node
    assert is_closed_topic(name) == (is_of_node or row.is_closed)
    assert (name in WAITING_QUEUES) == row.waits
    assert is_emptied_by_service(name) == row.is_emptied
    keeps_all = row.max_age_days is None
    assert (default_retention(name) == KEEP_ALL) == keeps_all
    if is_closed_topic(name):
        with pytest.raises(InvalidMessageError, match="only the node stores messages there"):
            check_open_topic(name)


def test_what_ends_work_is_copied_before_the_work() -> None:
    assert OF_SERVICES.index("RMQ_SYS_TRANS_OP_HALF_TOPIC") < OF_SERVICES.index(
        "RMQ_SYS_TRANS_HALF_TOPIC"
    )


@pytest.mark.parametrize("name", ["Trade", "%RETRY%g", "%DLQ%g"])
def test_other_topics_are_open(name: str) -> None:
    check_open_topic(name)
    assert not is_closed_topic(name)
    assert not is_system_topic(name)
    assert is_internal_by_name(name) == name.startswith("%")
