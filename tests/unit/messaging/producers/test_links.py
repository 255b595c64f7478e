"""Where a producer's messages wait: on the disk of their queue, or on one that is there."""

from __future__ import annotations

from typing import Any

import pytest

from rocketray.base.delay import Delay
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.placement import Placement
from rocketray.message import Message
from rocketray.messaging.producers.delayed_messages import place_delayed
from rocketray.messaging.producers.links import Nearby, QueueLinks

pytestmark = pytest.mark.proves(
    "durability",
    "Delayed messages, transactions and retries are on the disk of their queue, also "
    "while the machine of the first disk is down, and on another disk while that of the "
    "queue is",
)

FAR, FURTHER = (f"00000000-0000-0000-0000-00000000000{n}" for n in (2, 3))


class Disks:
    """A node of some disks, those of which that are ``there`` answer."""

    def __init__(self, *disks: str) -> None:
        self.there = {*disks}
        self.made: list[str] = []
        self.topics = self.disks = self
        placement = Placement(
            disks=lambda: disks, spread=lambda _, queues: (*disks,) * (queues // len(disks))
        )
        self.catalog = TopicCatalog().with_topic("Trade", 2 * len(disks), placement)
        self.catalog = self.catalog.with_topic(SCHEDULE_TOPIC, 1, placement)

    def get(self, name: str) -> TopicConfig:
        return self.catalog.get(name)

    def ensure(self, name: str, _: int) -> None:
        self.made.append(name)

    def reports(self) -> dict[str, object]:
        return dict.fromkeys(self.there)

    def at(self, _: str) -> Any:
        return self

    def is_local(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The links that were opened, each to a disk that answers."""
    opened: list[tuple[str, int]] = []

    def open_link(links: QueueLinks, topic: str, queue_id: int) -> None:
        links._check_answers(links.topic(topic), queue_id)
        opened.append((topic, queue_id))

    monkeypatch.setattr(QueueLinks, "_open", open_link)
    return opened


def links_to(disks: Any) -> QueueLinks:
    form: Any = None
    return QueueLinks(disks, lambda _: form)


def test_where_there_is_one_disk_nothing_is_opened_to_find_it(
    opened: list[tuple[str, int]],
) -> None:
    disks = Disks("")
    assert links_to(disks).near("", SCHEDULE_TOPIC, 3) == Nearby(3, "")
    assert (disks.made, opened) == ([SCHEDULE_TOPIC], [])


def test_another_disk_is_used_while_one_is_away_and_no_longer() -> None:
    disks = Disks("", FAR, FURTHER)
    links = links_to(disks)
    assert links.near(FAR, SCHEDULE_TOPIC, 3) == Nearby(21, FAR)
    disks.there -= {FAR, ""}
    for _ in range(2):
        assert links.near(FAR, SCHEDULE_TOPIC, 3) == Nearby(39, FURTHER)
    disks.there.add(FAR)
    assert links.turns.is_avoided(FAR)
    assert links.near(FAR, SCHEDULE_TOPIC, 3) == Nearby(21, FAR), "its service knows the outcome"


def test_a_message_waits_on_the_disk_of_its_queue() -> None:
    disks = Disks("", FAR)
    links = links_to(disks)
    message, delay = Message("Trade", b"1"), Delay(level=2)
    places = [place_delayed(links, message, delay, queue, None, now_ms=0) for queue in range(4)]
    assert [place.queue_id for place in places] == [1, 19, 1, 19]
    assert [place.message.properties["REAL_QID"] for place in places] == ["0", "1", "2", "3"]
    disks.there.remove(FAR)
    assert place_delayed(links, message, delay, 1, None, now_ms=0).queue_id == 1
    assert place_delayed(links, message, Delay(delay_ms=0), 1, None, now_ms=0) == (message, 1)
