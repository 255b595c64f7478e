"""A schedule without a node: stores for what waits, lists for what arrives, faults on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from support.nodes.stores import FakeClock

from rocketray.base.config import StoreConfig
from rocketray.base.delay import DELAY_LEVELS_MS, after, at_level, at_time
from rocketray.base.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.broker.retries.deliveries import Place, Submit, at_once
from rocketray.message import ForwardedMessage, Message, StoredMessage
from rocketray.services.delays.schedule import Schedule
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import DiskUse, RetentionPolicy

CONFIG = StoreConfig(
    commit_log_segment_bytes=16_384,
    consume_queue_segment_entries=50,
    index_hash_slots=5,
    index_entries=100,
)


class CrashError(Exception):
    """The process ended here."""


class WaitingStore:
    """The shard of one place where messages wait."""

    def __init__(
        self, directory: Path, place: Place, clock: FakeClock, before: Callable[[str], None]
    ) -> None:
        self.before = before
        self.directory = directory
        self.store = MessageStore(directory, CONFIG, clock_ms=clock)
        self._place = place

    def minimum(self) -> int:
        return self.store.reads.min_queue_offset(*self._place)

    def visible(self) -> int:
        return self.store.reads.max_queue_offset(*self._place)

    def bring_to_disk(self, physical_end: int) -> None:
        assert self.store.flush() >= physical_end

    @property
    def segment_bytes(self) -> int:
        return CONFIG.commit_log_segment_bytes

    def append(self, messages: Sequence[ForwardedMessage]) -> bool:
        self.before("roll")
        self.store.append(*self._place, encode_forwarded(messages))
        self.store.flush()
        self.before("rolled")
        return True

    def expire(self, needed_from: int) -> None:
        self.store.expire(
            RetentionPolicy(only_unneeded=True),
            DiskUse(0, 1 << 40),
            needed={self._place: needed_from},
            guard=nullcontext(),
            announce=lambda: None,
        )

    def key_at(self, queue_offset: int) -> str:
        entry = self.store.reads.queue_entry(*self._place, queue_offset)
        return self.store.reads.view(entry.physical_offset).unique_key or ""

    def query(self, unique_key: str) -> Sequence[StoredMessage]:
        return self.store.reads.query(self._place[0], unique_key)


class Sent:
    """One delayed message as the test remembers it."""

    def __init__(
        self,
        message: Message,
        place: Place,
        offset: int,
        *,
        now_ms: int,
        delay_ms: int,
    ) -> None:
        self.key = message.unique_key or ""
        self.is_span = "TIMER_DELAY_MS" in message.properties or "DELAY" in message.properties
        """Whether it waits for a time span, and not for a point of time."""
        self.place = place
        self.offset = offset
        self.due_ms = now_ms + delay_ms
        self.delay_ms = delay_ms
        self.lowest_ms = now_ms
        """The lowest that the clock has been since."""


class Waiting:
    """What a schedule needs, in one directory; it outlives the schedule."""

    def __init__(self, directory: Path, submit: Submit = at_once, *, body: bytes = b"body") -> None:
        self._body = body
        self._submit = submit
        self.clock = FakeClock()
        self.places: dict[Place, WaitingStore] = {}
        self.arrived: dict[Place, list[str]] = {}
        self.forwarded: list[ForwardedMessage] = []
        self.under_way: Mapping[Place, Sequence[int]] = {}
        self.before: Callable[[str], None] = lambda _what: None
        """Called with what happens next; it may raise."""
        self._directory = directory
        self._count = 0
        self.schedule = self.start()

    def _tell(self, what: str) -> None:
        self.before(what)

    def start(self) -> Schedule:
        """A new process: all that the old one knew is gone but what it noted."""
        self.schedule = Schedule(
            self, under_way=self.under_way, note=self.note, submit=self._submit
        )
        return self.schedule

    def note(self, offsets: Mapping[Place, Sequence[int]]) -> None:
        self.before("note")
        self.under_way = {place: list(one) for place, one in offsets.items()}

    def waiting(self) -> Iterable[Place]:
        return self.places

    def find(self, topic: str, queue_id: int) -> WaitingStore | None:
        return self.places.get((topic, queue_id))

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        self.before(f"forward {topic}/{queue_id}")
        self.forwarded += messages
        keys = [message.properties.get("UNIQ_KEY", "") for message in messages]
        self.arrived.setdefault((topic, queue_id), []).extend(keys)
        self.before("forwarded")

    def sync(self, topic: str, queue_id: int) -> None:
        self.before(f"sync {topic}/{queue_id}")

    def is_stored(self, message: ForwardedMessage, queue_id: int) -> bool:
        arrived = self.arrived.get((message.topic, queue_id), [])
        return message.properties.get("UNIQ_KEY", "") in arrived

    def send_level(self, level: int, topic: str = "trade", queue_id: int = 0) -> Sent:
        message, waits_in = at_level(self._message(topic), level, queue_id)
        return self._put(message, (SCHEDULE_TOPIC, waits_in), DELAY_LEVELS_MS[level - 1])

    def send_after(self, delay_ms: int, topic: str = "trade", queue_id: int = 0) -> Sent:
        message, _ = after(self._message(topic), delay_ms, queue_id, self.clock.now_ms)
        return self._put(message, (TIMER_TOPIC, 0), delay_ms)

    def send_at(self, deliver_at_ms: int, topic: str = "trade", queue_id: int = 0) -> Sent:
        now_ms = self.clock.now_ms
        message, _ = at_time(self._message(topic), deliver_at_ms, queue_id, now_ms)
        return self._put(message, (TIMER_TOPIC, 0), deliver_at_ms - now_ms)

    def keys(self, topic: str = "trade", queue_id: int = 0) -> list[str]:
        return self.arrived.get((topic, queue_id), [])

    def all_keys(self) -> list[str]:
        return [key for keys in self.arrived.values() for key in keys]

    def keys_under_way(self) -> set[str]:
        """What was noted, by the keys that stand there: a message that was rolled has moved."""
        found = set()
        for place, offsets in self.under_way.items():
            for offset in offsets:
                if offset >= self.places[place].minimum():
                    found.add(self.places[place].key_at(offset))
        return found

    def expire(self) -> None:
        """Let files go whose messages are all done, as the host does."""
        first_open = self.schedule.first_open()
        self.schedule.let_go()
        for place, log in self.places.items():
            if place in first_open:
                log.expire(first_open[place])

    def step(self) -> int:
        return self.schedule.step(self.clock.now_ms)

    def put(self, message: Message, place: Place) -> int:
        """Store any message where delayed ones wait; its offset."""
        log = self.places.get(place)
        if log is None:
            directory = self._directory / place[0] / str(place[1])
            log = self.places[place] = WaitingStore(directory, place, self.clock, self._tell)
        return log.store.put([message], place[1])[0].queue_offset

    def close(self) -> None:
        self.schedule.close()
        for log in self.places.values():
            log.store.close()

    def _message(self, topic: str) -> Message:
        self._count += 1
        return Message(topic, self._body, "pay", unique_key=f"K{self._count}")

    def _put(self, message: Message, place: Place, delay_ms: int) -> Sent:
        offset = self.put(message, place)
        return Sent(message, place, offset, now_ms=self.clock.now_ms, delay_ms=delay_ms)
