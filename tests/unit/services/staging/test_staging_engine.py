"""Staged batches on a node that is stepped: decided once, stored once, whatever fails between."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.nodes.staging import bodies_of, decide, rows_of, settle, stage, step

from rocketray.errors import (
    CorruptRecordError,
    InvalidNameError,
    ShardUnavailableError,
    StoreError,
)
from rocketray.runtime.files.fragment_file import BatchName, Fragment
from rocketray.runtime.files.paths import staged_directory, writers_directory
from rocketray.services.staging.staging_api import StagedBatch
from rocketray.testing import Broker, Clock

FIRST, SECOND = BatchName("job", 0), BatchName("job", 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        broker.topics.create("Out", queues=3)
        yield broker


def fragments_in(broker: Broker) -> list[str]:
    directory = staged_directory(broker.data)
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


@pytest.mark.proves(
    "spark",
    "Nothing of a batch is visible before its decision, and all of it afterwards",
)
def test_messages_are_there_after_the_decision_and_not_before(broker: Broker) -> None:
    fragments = [
        stage(broker, FIRST, rows_of([f"{task}-{row}" for row in range(5)])) for task in "ab"
    ]
    settle(broker)
    assert not bodies_of(broker)
    [work] = broker.node.staging.overview(9).work
    assert (work.batch, work.is_decided, work.fragments) == (FIRST, False, 2)
    assert decide(broker, FIRST, *fragments) == "decided"
    settle(broker)
    assert bodies_of(broker) == {f"{task}-{row}": 1 for task in "ab" for row in range(5)}
    assert broker.node.staging.is_applied(FIRST)
    assert not fragments_in(broker)
    assert broker.node.staging.overview(9).counts.messages == 10


@pytest.mark.proves(
    "spark",
    "The first decision about a batch counts, however a repetition divides its rows",
)
def test_the_first_decision_counts_however_a_repetition_divides_the_messages(
    broker: Broker,
) -> None:
    decide(broker, FIRST, stage(broker, FIRST, rows_of(["a", "b", "c"])))
    again = [stage(broker, FIRST, rows_of([body]), first_queue=2) for body in "cab"]
    assert decide(broker, FIRST, *again) == "repeated"
    settle(broker)
    assert bodies_of(broker) == {"a": 1, "b": 1, "c": 1}
    assert not fragments_in(broker)
    assert broker.node.staging.overview(9).counts.dropped == 3


def test_a_repeated_call_of_the_decision_drops_nothing(broker: Broker) -> None:
    fragment = stage(broker, FIRST, rows_of(["a"]))
    assert decide(broker, FIRST, fragment) == "decided"
    assert decide(broker, FIRST, fragment) == "repeated"
    settle(broker)
    assert bodies_of(broker) == {"a": 1}


@pytest.mark.proves("spark", "Of two queries on one checkpoint the later one takes over")
def test_of_two_runs_the_later_one_takes_over(broker: Broker) -> None:
    decide(broker, FIRST, stage(broker, FIRST, rows_of(["a"])), run="old")
    replay = stage(broker, FIRST, rows_of(["a"]))
    assert decide(broker, FIRST, replay, run="new") == "repeated"
    late = stage(broker, SECOND, rows_of(["late"]))
    with pytest.raises(StoreError, match=r"run old was replaced by run new.*stop the other one"):
        decide(broker, SECOND, late, run="old")
    decide(broker, SECOND, stage(broker, SECOND, rows_of(["b"])), run="new")
    with pytest.raises(StoreError, match="run old was replaced"):
        decide(broker, SECOND, late, run="old")
    settle(broker)
    assert bodies_of(broker) == {"a": 1, "b": 1}


@pytest.mark.proves("spark", "Of two queries on one checkpoint the later one takes over")
def test_the_fence_survives_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        decide(broker, FIRST, run="old")
        decide(broker, SECOND, run="new")
    with Broker(tmp_path) as broker, pytest.raises(StoreError, match="was replaced"):
        decide(broker, BatchName("job", 2), run="old")


@pytest.mark.proves("spark", "What is decided is stored after a restart, and once")
def test_what_was_decided_is_stored_after_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.topics.create("Out", queues=2)
        decide(broker, FIRST, stage(broker, FIRST, rows_of(["a", "b"])))
        staged = stage(broker, SECOND, rows_of(["c"]))
    with Broker(tmp_path) as broker:
        settle(broker)
        assert bodies_of(broker) == {"a": 1, "b": 1}
        assert fragments_in(broker) == [staged.name], "the batch that is not decided may still be"
        assert decide(broker, FIRST) == "repeated"


@pytest.mark.proves("spark", "What is decided is stored after a restart, and once")
@pytest.mark.parametrize("faults", ["losing_acks", "failing"])
def test_a_shard_that_fails_while_it_stores_stores_once(broker: Broker, faults: str) -> None:
    setattr(broker._stepped.faults["Out", 0], faults, 2)
    decide(broker, FIRST, stage(broker, FIRST, *(rows_of([f"m{row}"]) for row in range(9))))
    settle(broker)
    assert bodies_of(broker) == {f"m{row}": 1 for row in range(9)}


@pytest.mark.proves("spark", "What is decided is stored after a restart, and once")
def test_a_restart_after_a_lost_answer_stores_once(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.topics.create("Out", queues=1)
        broker._stepped.faults["Out", 0].losing_acks = 1
        decide(broker, FIRST, stage(broker, FIRST, rows_of(["a", "b"])))
        step(broker)
        assert not broker.node.staging.is_applied(FIRST)
    with Broker(tmp_path) as broker:
        settle(broker)
        assert bodies_of(broker) == {"a": 1, "b": 1}


@pytest.mark.proves("spark", "The batches of a writer keep their order in a queue")
def test_the_batches_of_a_writer_keep_their_order_in_a_queue(broker: Broker) -> None:
    broker.topics.create("One", queues=1)
    broker._stepped.faults["One", 0].is_down = True
    for number in range(4):
        name = BatchName("job", number)
        rows = [rows_of([f"{number}{row}" for row in "ab"]), rows_of([f"{number}c"])]
        decide(broker, name, stage(broker, name, *rows, topic="One"))
        step(broker)
        broker._stepped.faults["One", 0].is_down = number % 2 == 0
    broker._stepped.faults["One", 0].is_down = False
    settle(broker)
    found = [message.body.decode() for message in broker.stored("One")]
    assert found == [f"{number}{row}" for number in range(4) for row in "abc"]


def test_a_queue_that_is_down_keeps_no_other_waiting(broker: Broker) -> None:
    broker._stepped.faults["Out", 1].is_down = True
    decide(broker, FIRST, stage(broker, FIRST, *(rows_of([row]) for row in "abc")))
    for _ in range(3):
        step(broker)
    assert bodies_of(broker) == {"a": 1, "c": 1}
    [work] = broker.node.staging.overview(9).work
    assert (work.is_decided, "it is down" in work.problem) == (True, True)
    broker._stepped.faults["Out", 1].is_down = False
    settle(broker)
    assert bodies_of(broker) == {"a": 1, "b": 1, "c": 1}


def test_messages_wait_for_a_topic_that_was_deleted_and_the_writer_for_them(
    broker: Broker,
) -> None:
    names = [BatchName("job", number) for number in range(17)]
    fragments = [stage(broker, name, rows_of([str(name.number)])) for name in names]
    broker.topics.delete("Out")
    for name, fragment in zip(names[:16], fragments, strict=False):
        decide(broker, name, fragment)
        step(broker)
    with pytest.raises(ShardUnavailableError, match=r"16 decided batches .*'Out' does not exist"):
        decide(broker, names[16], fragments[16])
    broker.topics.create("Out", queues=2)
    settle(broker)
    decide(broker, names[16], fragments[16])
    settle(broker)
    assert bodies_of(broker) == {str(number): 1 for number in range(17)}


@pytest.mark.proves("spark", "An abort undoes no decision")
def test_giving_up_drops_what_is_staged_and_undoes_no_decision(broker: Broker) -> None:
    decided, staged = stage(broker, FIRST, rows_of(["a"])), stage(broker, SECOND, rows_of(["b"]))
    decide(broker, FIRST, decided)
    broker.node.staging.drop(FIRST, [decided.name])
    broker.node.staging.drop(SECOND, [staged.name])
    with pytest.raises(StoreError, match=r"is not there any more.*run it again"):
        decide(broker, SECOND, staged)
    settle(broker)
    assert bodies_of(broker) == {"a": 1}


@pytest.mark.proves(
    "spark",
    "A damaged fragment is not stored, and a damaged file closes its writer only",
)
def test_a_fragment_that_is_not_whole_is_not_decided(broker: Broker) -> None:
    fragment = stage(broker, FIRST, rows_of(["a"]))
    path = staged_directory(broker.data) / fragment.name
    content = path.read_bytes()
    for damaged in (content[:-1], content[:-20] + b"x" + content[-19:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptRecordError):
            decide(broker, FIRST, fragment)
    path.write_bytes(content)
    assert decide(broker, FIRST, fragment) == "decided"


@pytest.mark.proves(
    "spark",
    "A damaged fragment is not stored, and a damaged file closes its writer only",
)
def test_a_damaged_frame_stores_nothing_and_its_file_can_be_given_up(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fragment = stage(broker, FIRST, rows_of(["a", "b"]))
    path = staged_directory(broker.data) / fragment.name
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)
    decide(broker, FIRST, fragment)
    step(broker)
    [work] = broker.node.staging.overview(9).work
    assert "remove the file to lose its messages" in work.problem
    [problem] = broker.node.staging.problems()
    assert problem.startswith("batch 0 of Spark's writer job is decided and not stored yet: ")
    assert "remove the file to lose its messages" in problem
    path.unlink()
    settle(broker)
    assert not bodies_of(broker)
    assert broker.node.staging.overview(9).counts.lost == 2
    assert "lost 2 messages: fragment" in caplog.text
    assert "2 messages of decided batches are lost" in broker.node.staging.problems()[0]


@pytest.mark.proves("spark", "Fragments that nothing decides are removed after 24 hours")
def test_fragments_that_nothing_decides_are_removed_after_a_day(tmp_path: Path) -> None:
    with Broker(tmp_path, clock=Clock()) as broker:
        broker.topics.create("Out", queues=1)
        orphan = stage(broker, FIRST, rows_of(["a"]))
        part = (staged_directory(tmp_path) / orphan.name).with_suffix(".half.part")
        part.write_bytes(b"of a task that was killed")
        os.utime(part, ns=(broker.clock() * 1_000_000,) * 2)
        step(broker)
        broker.clock.advance(hours=23)
        step(broker)
        assert len(fragments_in(broker)) == 2
        broker.clock.advance(hours=1, minutes=1)
        step(broker)
        assert not fragments_in(broker)
        assert broker.node.staging.overview(9).counts.orphans == 2


def test_a_writer_of_one_batch_is_forgotten_after_an_hour(broker: Broker) -> None:
    fragment = stage(broker, FIRST, rows_of(["a"]))
    broker.node.staging.decide(StagedBatch(FIRST, "run", (fragment,), is_single=True))
    other = BatchName("stream", 0)
    decide(broker, other)
    settle(broker)
    broker.clock.advance(minutes=59)
    step(broker)
    files = writers_directory(broker.data).glob("*.json")
    assert sorted(path.stem for path in files) == ["job", "stream"]
    broker.clock.advance(minutes=3)
    step(broker)
    files = writers_directory(broker.data).glob("*.json")
    assert [path.stem for path in files] == ["stream"]


@pytest.mark.proves(
    "spark",
    "A damaged fragment is not stored, and a damaged file closes its writer only",
)
def test_a_damaged_file_closes_its_writer_and_no_other(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.topics.create("Out", queues=1)
        decide(broker, FIRST)
    for path in writers_directory(tmp_path).glob("job.json*"):
        path.write_bytes(b"{")
    with Broker(tmp_path) as broker:
        with pytest.raises(StoreError, match=r"job\.json"):
            decide(broker, SECOND)
        assert "job.json" in broker.node.staging.overview(9).problems[0]
        assert "job.json" in broker.node.staging.problems()[0]
        decide(broker, BatchName("other", 0))


def test_messages_are_published_without_a_decision(broker: Broker) -> None:
    fragment = stage(broker, FIRST, rows_of(["a"]))
    broker.node.staging.publish(FIRST, [fragment])
    broker.node.staging.publish(FIRST, [fragment])  # as after an answer that was lost
    settle(broker)
    broker.node.staging.publish(FIRST, [fragment])
    settle(broker)
    assert broker.node.staging.is_applied(FIRST)
    assert bodies_of(broker) == {"a": 1}
    assert not fragments_in(broker)
    assert not [*writers_directory(broker.data).glob("*")]
    with pytest.raises(StoreError, match="is not decided"):
        broker.node.staging.is_applied(SECOND)


@pytest.mark.parametrize("writer", ["", "a/b", "..", "a.b", "x" * 101, "é"])
def test_a_writer_whose_name_cannot_be_that_of_a_file_is_refused(
    broker: Broker, writer: str
) -> None:
    with pytest.raises(InvalidNameError, match="letter"):
        decide(broker, BatchName(writer, 0))


@pytest.mark.parametrize(
    "names", [["../config/topics.json"], ["job.0.half"], ["job.1." + "0" * 32 + ".half"]]
)
def test_a_file_that_is_no_fragment_of_the_batch_is_refused(
    broker: Broker, names: Sequence[str]
) -> None:
    with pytest.raises((InvalidNameError, StoreError)):
        decide(broker, FIRST, *(Fragment(name, 10, 1) for name in names))
