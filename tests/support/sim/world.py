"""A simulated node with its clients, and the lives of the node.

The node starts, works for some steps, and ends by a stop, a kill or a power failure, at any call
that changes the disk, also of the recovery; then it starts again. A seed chooses which kinds of
steps its run has at all: rare combinations become likely that way.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.errors import StreamError
from rocketray.message import StoredMessage
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.files.failed_disk import has_failed_disk
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.files.store_settings import Salvage
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import KEEP_ALL, RetentionPolicy
from rocketray.testing import Clock

from .clients import PositionReader, Reader
from .disk import read_all
from .history import FILTERS, TAGS, History, Sent, WrongError
from .machine import KilledError, Machine, PowerLostError
from .parts import COORDINATOR, OPERATOR, Network, SimNode, process_part
from .tables import CHANGELOG, INSTANCES, Copy

STEPS = 220
ORDERS, BULK, PRICES, SHORT = "orders", "bulk", "prices", "short"
QUEUES = 2  # of the first; the others have one
_BULK_AGE_MS = 3_600_000
USER_TOPICS = {
    ORDERS: KEEP_ALL,
    SHORT: KEEP_ALL,
    BULK: RetentionPolicy(max_age_ms=_BULK_AGE_MS),
    PRICES: RetentionPolicy(compacts=True),
}
_KEYS = 5
_PADDING = {BULK: 3000, PRICES: 1500}
"""By how much bodies of a topic are longer, so that its log has several files."""
EXPECTED = (StreamError, OSError)
"""What a step may fail with, where something else was made to fail."""


class NodeKilledError(BaseException):
    """All processes of the node were killed."""


class Step(NamedTuple):
    """A kind of step."""

    act: Callable[[World], object]
    weight: int
    """How often it is taken, beside others."""
    likelihood: float
    """How likely a run has such steps."""


class World:
    """One run."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        data = directory / "node"
        data.mkdir(parents=True)
        self.machine = Machine(data, self.chance, self.clock)
        self.history = History()
        self.history.elapsed_ms = self.clock.elapsed
        self.history.expires = {BULK: _BULK_AGE_MS, PRICES: 0}
        self.history.compacted = PRICES
        self.network = Network()
        self.node: SimNode  # of this life
        self.readers: list[Reader] = []
        self.queries = [PositionReader(data, self.history, ORDERS, FILTERS[2])]
        self.copies: dict[str, dict[int, Copy]] = {name: {} for name in INSTANCES}
        """What the instances of the app with a table have of it."""
        self.log: list[str] = []
        """What happened, a line each."""
        self.names = 0
        """How many members there were."""
        self._producer: NodeProducer | None = None
        self.open_transactions: list[tuple[Any, Sent]] = []
        """Those that the producer has not decided."""
        self.may_go_back = True
        """Whether the coordinator died, and with it offsets that it had not saved."""
        self.broken: set[str] = set()
        """Parts of paths whose syncs fail."""
        self.deleting: str | None = None
        """The id of the topic whose deletion was begun, and may not be carried out."""
        self.machine.fails_sync = lambda path: any(part in path for part in self.broken)

    # The run

    def run(self, steps: Sequence[Step], heal: Callable[[World], None]) -> None:
        """Do everything; raises the first broken promise."""
        chosen = [step for step in steps if self.chance.random() < step.likelihood]
        weights = [step.weight * self.chance.choice((1, 1, 1, 3)) for step in chosen]
        if self.chance.random() < 0.2:  # while it makes its first files
            self.machine.light(self.chance.randrange(1, 200), KilledError)
        self.start()
        for _ in range(STEPS):
            self._step(chosen, weights)
        heal(self)

    def _step(self, steps: Sequence[Step], weights: Sequence[int]) -> None:
        if self.node.down and self.chance.random() < 0.2:
            self.act(World.revive)
            self.check()
        (step,) = self.chance.choices(steps, weights)
        self.act(step.act)
        self.check()

    def act(self, step: Callable[[World], object]) -> None:
        """Do one step, and start the node again if it ends."""
        self.log.append(step.__name__)
        try:
            with contextlib.suppress(*EXPECTED):
                step(self)
            if self.machine.down is not None:
                raise self.machine.down
        except PowerLostError:
            self._lose()
            self.start()
        except (KilledError, NodeKilledError) as error:
            self._kill(in_a_call=isinstance(error, KilledError))
            self.start()

    # Lives

    def start(self) -> None:
        """Start the node, as often as it takes."""
        while not self._starts():
            pass

    def _starts(self) -> bool:
        try:
            self.node = SimNode(self.machine, self.network, self._died)
            self.node.say = self.log.append
            self.repair()
            self.create_topics()
            self.scan()
        except PowerLostError:
            self._lose()
        except (KilledError, NodeKilledError):
            self._kill(in_a_call=True)
        except EXPECTED as error:
            if not self.machine.is_full:
                raise
            self.log.append(f"the node cannot start, and room is made for it: {error}")
            self.machine.is_full = False
            self.machine.release_locks()
            self.forget()
        else:
            self.history.tells_ages = not self.history.clock_jumped
            return True
        return False

    def create_topics(self) -> None:
        """Create the topics that are missing."""
        node = self.node
        with node.acting("client"):
            for topic, retention in USER_TOPICS.items():
                queues = QUEUES if topic == ORDERS else 1
                with contextlib.suppress(*EXPECTED):
                    node.topics.ensure(topic, queues, retention=retention)
            with contextlib.suppress(*EXPECTED):
                node.topics.ensure(CHANGELOG, QUEUES, retention=RetentionPolicy(compacts=True))
        self._see_topics()

    def _see_topics(self) -> None:
        """See which topics are new, and whether one is deleted by now."""
        topics = self.node.topic_service.all()
        self.history.ids = {name: topic.topic_id for name, topic in topics.items()}
        if self.deleting not in (None, self.history.ids.get(SHORT)):  # it was carried out
            self.history.deleted(SHORT)
            self.deleting = None

    def repair(self) -> None:
        """Repair stores whose disk failed, as an operator does once it works again."""
        node = self.node
        for topic in node.topic_service.all().values():
            for queue_id in range(topic.queues):
                directory = shard_directory(node.data, topic.name, queue_id)
                is_down = process_part(topic.process_of(queue_id)) in node.down
                if not self.broken and not is_down and has_failed_disk(SYSTEM_FILES, directory):
                    self.flush_process(topic.process_of(queue_id))  # which closes what failed
                    self.log.append(f"recover {topic.name}/{queue_id}")
                    with node.acting(OPERATOR):
                        store = MessageStore(directory, salvage=Salvage.ALL, clock_ms=node.clock_ms)
                        store.close()
                    node._process(topic.process_of(queue_id)).open([(topic, [queue_id])])

    def _lose(self) -> None:
        self.log.append("power lost")
        self.forget()
        self.history.losses += 1
        for copies in self.copies.values():
            for copy in copies.values():
                copy.lose_power(self.chance)
        self.broken.clear()
        self.machine.is_full = False
        self.machine.reboot()
        self.clock.set(self.clock() + 5_000)
        if self.chance.random() < 0.3:
            self.machine.light(self.chance.randrange(1, 200), PowerLostError)

    def _kill(self, *, in_a_call: bool) -> None:
        self.log.append("node killed")
        self.machine.undo_clean_up()
        self.machine.release_locks()
        self.forget(may_repeat=in_a_call)
        self.clock.set(self.clock() + 1_000)

    def forget(self, *, may_repeat: bool = True) -> None:
        """Take note that all processes are gone, perhaps in the middle of something."""
        self.readers.clear()
        self._producer = None
        self.open_transactions.clear()
        self.network.waiting.clear()
        self.machine.snuff()
        if may_repeat:
            self.history.may_repeat()
        self.may_go_back = True

    def _died(self, part: str) -> None:
        """A part of the node died, and is started again some steps later."""
        self.log.append(f"killed {part}")
        self.history.may_repeat()
        self.may_go_back |= part == COORDINATOR

    def scan(self, *, must_be_open: bool = False) -> None:
        """Compare what is stored with what has to be."""
        node = self.node
        for name in USER_TOPICS:
            config = node.topic_service.all().get(name)
            if config is None:
                if must_be_open:
                    raise WrongError(f"topic {name} cannot be created: {node.problems()}")
                continue
            for queue_id in range(config.queues):
                process = config.process_of(queue_id)
                if process_part(process) in node.down:  # it was killed while the node started
                    continue
                shard = node._process(process).find(name, queue_id)
                if shard is None and must_be_open:
                    raise WrongError(f"{name}/{queue_id} stays closed: {node.problems()}")
                if shard is not None:
                    reads = shard.writer.store.reads
                    begin = reads.min_queue_offset(name, queue_id)
                    self.history.scan(name, queue_id, reads.scan(), begin)
        self.history.check_copies()

    def check(self) -> None:
        """Check that a queue has one owner, and that no offset is past what is not finished."""
        node = self.node
        if COORDINATOR in node.down:
            return
        held: dict[tuple[str, str, int], str] = {}
        for reader in self.readers:
            for topic, queue_id in reader.held():
                other = held.setdefault((reader.group.name, topic, queue_id), reader.name)
                if other != reader.name:
                    raise WrongError(f"{reader.name} and {other} have {topic}/{queue_id}")
        offsets = node.state.registry.offsets
        for group in self.history.groups.values():
            for queue_id in range(QUEUES):
                committed = offsets.get(group.name, group.topic, queue_id)
                self.history.check_committed(
                    group, group.topic, queue_id, committed, may_go_back=self.may_go_back
                )
        self.may_go_back = False

    def revive(self) -> None:
        """Start dead parts again."""
        node = self.node
        for part in sorted(node.down):
            node.revive(part)
            self.log.append(f"revived {part}")
        self._see_topics()
        self.scan()

    def flush_process(self, name: str) -> None:
        """Let a shard process flush; a shard that fails is closed."""
        process = self.node._process(name)
        with self.acting(process_part(name)):
            for disk in process._disks.values():
                disk.keep_house(OwnedShard.flush)

    @contextlib.contextmanager
    def acting(self, part: str) -> Iterator[None]:
        """Let a part of the node, or a client of it, run the block."""
        with self.node.acting(part):
            yield

    def with_reader(self, act: Callable[[Reader], object]) -> None:
        """Let one of the members act."""
        reader = self.any_reader()
        if reader is None or reader.is_stopped:
            return
        with self.acting(reader.part):
            act(reader)

    def any_reader(self) -> Reader | None:
        """Return one of the members, if there are any."""
        return self.chance.choice(self.readers) if self.readers else None

    def any_process(self) -> str | None:
        """Return the name of one of the shard processes."""
        processes = self.node.processes
        return self.chance.choice(sorted(processes)) if processes else None

    def producer(self) -> NodeProducer:
        """Return the producer of this life."""
        if self._producer is None:
            self._producer = NodeProducer(
                self.node, clock_ms=self.clock, ack="disk", group="payments", check=self._check_half
            )
        return self._producer

    def new(self, topic: str | None = None) -> Sent:
        """Return a new message."""
        chance = self.chance
        name = topic or chance.choice((ORDERS, ORDERS, ORDERS, BULK, PRICES, SHORT))
        key = f"key-{chance.randrange(_KEYS)}"
        tag, amount = chance.choice(TAGS), chance.randrange(11)
        padding = _PADDING.get(name, 0)
        return self.history.new(name, tag, amount, key, padding=padding)

    def _check_half(self, half: StoredMessage) -> Any:
        number = int(bytes(half.body).partition(b" ")[0])
        sent = self.history.sent[number]
        if sent.is_decided:
            raise WrongError(f"the node has forgotten the decision about message {number}")
        return sent.decision

    def digest(self) -> str:
        """Return a digest of all that happened, and of what is on disk."""
        log = "\n".join(self.log).replace(str(self.machine.data), "")
        found = hashlib.sha256(log.encode())
        for path, content in sorted(read_all(self.machine.data).items()):
            found.update(f"{path.relative_to(self.machine.data)}\0".encode())
            found.update(content)
        return found.hexdigest()

    def figures(self) -> dict[str, int]:
        """Return how much happened."""
        return {
            "calls": self.machine.calls,
            "messages": len(self.history.sent),
            "losses": self.history.losses,
        }
