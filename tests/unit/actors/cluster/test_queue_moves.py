"""Moves of queues between two disks, with failures at each step: the catalog and the files agree."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import wait_until
from support.nodes.moving_disks import FAR, STEPS, MovingAgents

from rocketray.actors.cluster import queue_moves
from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.queue_moves import QueueMoves, _Move
from rocketray.actors.cluster.topic_service import TopicService
from rocketray.base.ack_mode import Durability
from rocketray.broker.disks.copy_rounds import RoundProgress
from rocketray.broker.disks.disks_api import MovedQueue
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.placement import Placement
from rocketray.broker.topics.topic_start import Started
from rocketray.errors import ShardMovedError, ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat
from rocketray.message import Message
from rocketray.runtime.files.paths import shard_directory
from rocketray.runtime.files.runtime_lock import remove_runtime
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch

SIZES = {
    "commit_log_segment_bytes": 64 * 1024,
    "consume_queue_segment_entries": 100,
    "index_hash_slots": 100,
    "index_entries": 1000,
}


class InterruptedMoveError(Exception):
    """The coordinator died here."""


class TwoDisks:
    """Two data directories with agents and shard processes, in this process; steps fail as told."""

    def __init__(self, path: Path) -> None:
        self.data = {"": path / "here", FAR: path / "there"}
        for data in self.data.values():
            (data / "config").mkdir(parents=True)
        self.agents = MovingAgents(self.data)
        self.processes: dict[str, ShardProcess] = {}
        self.begin()

    def begin(self) -> None:
        """The coordinator starts."""
        placement = Placement(
            1, spread=lambda present, queues: (*present, *[""] * (queues - len(present)))
        )
        self.state = ClusterState(
            self.data[""], FilterRules(), lambda: 1_000, lambda: 1_000, placement
        )
        self.topics = TopicService(self.state, self)  # type: ignore[arg-type]
        self.moves = QueueMoves(
            self.state.documents, self.state, self.agents, self, self.topics.locks
        )
        self.topics.start_all()

    def restart_processes(self) -> None:
        """The shard processes die, and come back with the catalogs of their disks."""
        names = [*self.processes]
        for process in self.processes.values():
            process.close()
        self.processes = {}
        for name in names:
            self._process(name)

    def close(self) -> None:
        for process in self.processes.values():
            process.close()
        for data in self.data.values():
            remove_runtime(data)

    def append(self, body: bytes) -> int | None:
        """Append where the catalog says; return the queue offset, or None if it is unavailable."""
        topic = self.state.topics.catalog.get("T")
        try:
            shard = self._process(topic.process_of(0)).shard("T", 0)
            batch = encode_messages(
                [Message("T", body)], born_host=("127.0.0.1", 1), clock_ms=lambda: 1
            )
            ack = shard.append(pack_batch(batch), Durability.MEMORY)
        except ShardUnavailableError:
            return None
        assert ack.status is AppendStatus.OK
        return ack.first_queue_offset

    def bodies(self) -> list[bytes]:
        topic = self.state.topics.catalog.get("T")
        shard = self._process(topic.process_of(0)).shard("T", 0)
        return [one.body for one in shard.writer.store.reads.scan()]

    def open_places(self) -> list[str]:
        """The disks on which the queue is open."""
        return [name for name, each in self.processes.items() if each.find("T", 0) is not None]

    def _process(self, name: str) -> ShardProcess:
        if name not in self.processes:
            data = self.data[name.partition("@")[2]]
            self.processes[name] = ShardProcess(data, name, SIZES, clock_ms=lambda: 1_000)
        return self.processes[name]

    # MovingShards and TopicShards

    def start(
        self,
        topics: list[TopicConfig],
        queues: range | None,
        wait_s: float | None,
    ) -> Started:
        self.agents.may_fail("start")
        self.state.topics.catalog.of_disk(FAR).save(self.data[FAR])
        closed: dict[str, StreamError] = {}
        for topic in topics:
            for name, queue_ids in topic.by_process(queues).items():
                closed |= self._process(name).open([(topic, queue_ids)]).closed
        return Started(closed)

    def start_process(self, topic: TopicConfig, queue_id: int) -> None:
        self.agents.may_fail("start_process")
        self._process(topic.process_of(queue_id))

    def hand_over(self, topic: TopicConfig, queue_id: int) -> None:
        self.agents.may_fail("hand_over")
        self._process(topic.process_of(queue_id)).hand_over(topic.name, queue_id)

    def take_back(self, topic: TopicConfig, queue_id: int) -> None:
        self._process(topic.process_of(queue_id)).take_back(topic, queue_id)

    def end_unused(self, before: TopicConfig, after: TopicConfig) -> None:
        for name in before.by_process().keys() - after.by_process().keys():
            self.processes.pop(name).close()

    def move(self, target: str) -> MovedQueue:
        moved: MovedQueue | RoundProgress = RoundProgress()
        while isinstance(moved, RoundProgress):
            moved = self.moves.move("T", 0, target, 1.0)
        return moved


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoDisks]:
    monkeypatch.setattr(queue_moves, "_GRACE_S", 0.0)
    made = TwoDisks(tmp_path)
    made.topics.create("T", 1)
    made.topics.start_all()
    yield made
    made.close()


def files(disks: TwoDisks) -> list[str]:
    """The disks that have a directory of the queue."""
    return [disk for disk, data in disks.data.items() if shard_directory(data, "T", 0).exists()]


def test_a_moved_queue_has_all_that_it_had_and_goes_on_there(disks: TwoDisks) -> None:
    assert [disks.append(b"%d" % number) for number in range(5)] == [*range(5)]
    epoch = disks._process("T:0").shard("T", 0).statistics().epoch
    moved = disks.move(FAR)
    assert moved.copied_bytes > 0
    topic = disks.state.topics.catalog.get("T")
    assert (topic.disks, topic.moves) == ((FAR,), 1)
    assert disks.append(b"5") == 5
    assert disks.bodies() == [b"%d" % number for number in range(6)]
    assert disks.open_places() == [f"T:0@{FAR}"]
    assert disks._process(f"T:0@{FAR}").shard("T", 0).statistics().epoch > epoch
    assert files(disks) == ["", FAR], "for a while, for those who do not know yet"
    disks.moves.tidy()
    assert files(disks) == [FAR]
    disks.move("")
    disks.moves.tidy()
    assert disks.append(b"6") == 6
    assert (disks.state.topics.catalog.get("T").disks, files(disks)) == ((), [""])


def test_a_move_changes_nothing_about_where_a_group_begins(disks: TwoDisks) -> None:
    """A queue that was added is read from its first message there, and is no new one there."""
    subscription = Subscription.tags("*")
    disks.state.heartbeat(Heartbeat("g", "T", subscription, "one", "instance", frozenset()))
    disks.topics.create("T", 2)
    disks.topics.start_all()
    begins = disks.state.registry.offsets
    assert [begins.get("g", "T", queue_id) for queue_id in range(2)] == [-1, 0]
    for target in (FAR, ""):
        disks.move(target)
        while isinstance(disks.moves.move("T", 1, target, 1.0), RoundProgress):
            pass
        disks.moves.tidy()
        assert [begins.get("g", "T", queue_id) for queue_id in range(2)] == [-1, 0]
    disks.begin()
    begins = disks.state.registry.offsets
    assert [begins.get("g", "T", queue_id) for queue_id in range(2)] == [-1, 0]


def test_a_process_that_lost_the_queue_says_so_also_after_it_started_again(disks: TwoDisks) -> None:
    disks.append(b"0")
    topic = disks.state.topics.catalog.get("T")
    process = disks._process("T:0")
    process.hand_over("T", 0)
    disks.restart_processes()
    for _ in range(2):
        with pytest.raises(ShardMovedError, match="it moves to another disk"):
            disks._process("T:0").shard("T", 0)
    assert disks._process("T:0").closed() == {}
    opened = disks._process("T:0").open([(topic, [0])])
    assert "it moves to another disk" in str(opened.closed["T/0"])
    disks._process("T:0").take_back(topic, 0)
    assert disks.append(b"1") == 1


@pytest.mark.proves(
    "durability",
    "A queue that is handed over to another disk is opened by its move alone: not by a disk that "
    "comes back meanwhile, which would store beside it",
)
def test_a_disk_that_comes_back_does_not_open_what_is_just_handed_over(
    disks: TwoDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two disks would store in it, and what the first acknowledged would be lost."""
    assert disks.append(b"0") == 0
    last_copy = disks.agents.copy_queue

    def copy_when_a_disk_came_back(*queue: Any, is_closed: bool) -> Any:
        if is_closed:
            disks.topics.start_again()
            assert disks.open_places() == []
            assert disks.append(b"refused") is None
        return last_copy(*queue, is_closed=is_closed)

    monkeypatch.setattr(disks.agents, "copy_queue", copy_when_a_disk_came_back)
    disks.move(FAR)
    assert disks.append(b"1") == 1
    assert disks.bodies() == [b"0", b"1"]


@pytest.mark.proves(
    "durability",
    "A queue that is handed over to another disk is opened by its move alone: not by a disk that "
    "comes back meanwhile, which would store beside it",
)
def test_the_next_coordinator_opens_what_was_handed_over(disks: TwoDisks) -> None:
    disks.append(b"0")
    topic = disks.state.topics.catalog.get("T")
    disks.moves._note(_Move("T", topic.topic_id, 0, topic.store_hosts[0], "", FAR))
    disks._process("T:0").hand_over("T", 0)
    disks.topics.start_again()
    assert disks.append(b"not yet") is None
    disks.begin()
    disks.moves.tidy()
    assert disks.append(b"1") == 1


def test_moves_that_begin_at_once_are_both_noted(
    disks: TwoDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is in the document from then on, else its old files would stay."""
    first, second = (_Move("T", "id", number, ("127.0.0.1", 1), "", FAR) for number in range(2))
    save, others = disks.state.documents.save, list[threading.Thread]()

    def save_while_another_begins(*document: Any) -> None:
        if not others:
            others.append(threading.Thread(target=disks.moves._note, args=[second]))
            others[0].start()
            others[0].join(0.05)  # it waits, or has looked at the moves of before
        save(*document)

    monkeypatch.setattr(disks.state.documents, "save", save_while_another_begins)
    disks.moves._note(first)
    others[0].join()
    disks.begin()
    assert {*disks.moves._moves} == {first.name, second.name}


@pytest.mark.parametrize("step", [*STEPS, "remove"])
@pytest.mark.parametrize("then", ["goes on", "the coordinator restarts", "all restart"])
def test_a_failure_at_any_step_leaves_one_queue_that_works(
    disks: TwoDisks, step: str, then: str
) -> None:
    disks.append(b"0")
    if step == "remove":
        disks.move(FAR)
        disks.agents.fails[step] = OSError("on purpose")
        disks.moves.tidy()
        assert any("old files of queue T/0" in line for line in disks.state.problems.lines())
    else:
        disks.agents.fails[step] = ShardUnavailableError("shard T/0", "on purpose", 1)
        with pytest.raises(ShardUnavailableError, match="on purpose"):
            disks.move(FAR)
    if then != "goes on":
        disks.begin()
    if then == "all restart":
        disks.restart_processes()
        disks.begin()
    disks.topics.start_again()
    disks.moves.tidy()
    assert disks.append(b"1") == 1
    assert disks.bodies() == [b"0", b"1"]
    on = disks.state.topics.catalog.get("T").disk_of(0)
    assert files(disks) == [on]
    assert disks.open_places() == [f"T:0@{on}" if on else "T:0"]
    assert disks.state.problems.lines() == []
    disks.move("" if on else FAR)
    assert disks.bodies() == [b"0", b"1"]


def test_histories_of_moves_failures_and_restarts(disks: TwoDisks, seed: int) -> None:
    chance = random.Random(seed)
    stored: list[bytes] = []
    for number in range(60):
        match chance.choice(["append", "append", "move", "fail", "begin", "restart", "tidy"]):
            case "append":
                body = b"%d" % number
                offset = disks.append(body)
                assert offset == len(stored)
                stored.append(body)
            case "move" | "fail" as what:
                on = disks.state.topics.catalog.get("T").disk_of(0)
                if what == "fail":
                    error: Exception = chance.choice(
                        [OSError("on purpose"), InterruptedMoveError()]
                    )
                    disks.agents.fails[chance.choice(STEPS)] = error
                with suppress(OSError, InterruptedMoveError):
                    disks.move("" if on else FAR)
                if disks.agents.fails or what == "fail":
                    disks.agents.fails.clear()
                    disks.begin()
            case "begin":
                disks.begin()
            case "restart":
                disks.restart_processes()
            case "tidy":
                disks.moves.tidy()
        assert disks.bodies() == stored
        assert len(disks.open_places()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("T", 0, ""), "is on that disk already"),
        (("T", 1, FAR), "has the queues 0 to 0"),
        (("T", 0, "nowhere"), "no such disk"),
        (("%DLQ%g", 0, FAR), "is one of the node's own"),
        (("U", 0, FAR), "topic 'U' does not exist"),
    ],
)
def test_mistakes_change_nothing(
    disks: TwoDisks, arguments: tuple[str, int, str], said: str
) -> None:
    disks.topics.create("%DLQ%g", 1)
    with pytest.raises(StreamError, match=said):
        disks.moves.move(*arguments, 1.0)
    assert not (disks.data[""] / "config" / "moves.json").exists()


def test_old_files_go_though_nobody_asked_for_the_outcome(disks: TwoDisks) -> None:
    disks.append(b"0")
    disks.moves.move("T", 0, FAR, 0.0)

    def old_ones_are_gone() -> bool:
        disks.moves.tidy()
        return files(disks) == [FAR]

    wait_until(old_ones_are_gone)
    assert disks.move(FAR).copied_bytes > 0, "whoever asks again hears it"
    assert disks.bodies() == [b"0"]


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(disks: TwoDisks) -> None:
    disks.append(b"0")
    disks.agents.fails["start_process"] = ShardUnavailableError("shard T/0", "on purpose", 1)
    with pytest.raises(ShardUnavailableError):
        disks.move(FAR)
    for process in disks.processes.values():
        process.remove("T")
    disks.state.delete_topic("T")
    disks.moves.tidy()
    assert not (disks.data[FAR] / "copies" / "T.0").exists()


def test_a_move_that_is_under_way_tells_how_far_it_is(disks: TwoDisks) -> None:
    disks.append(bytes(5000))
    disks.agents.goes_on.clear()
    done = disks.moves.move("T", 0, FAR, 0.0)

    def begun() -> RoundProgress | None:
        found = disks.moves.move("T", 0, FAR, 0.01)
        return found if isinstance(found, RoundProgress) and found != RoundProgress() else None

    assert done == RoundProgress()
    done = wait_until(begun)
    assert 0 < done.fetched_bytes < done.differing_bytes
    disks.agents.fails["progress"] = ShardUnavailableError("the disk", "on purpose", 1)
    assert disks.moves.move("T", 0, FAR, 0.0) == RoundProgress(), "the move goes on"
    disks.agents.goes_on.set()
    assert disks.move(FAR).copied_bytes >= done.differing_bytes
    assert disks.bodies() == [bytes(5000)]
