"""Planted bugs, each of which the simulator has to find by its own checks.

Some are bugs that the product had once, put back; the others are what a mistake at that place would
be. Each is a function that changes the product in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from rocketray.actors.cluster.groups_file import GroupsFile
from rocketray.base import whole_file
from rocketray.broker.filtering import filter_stream
from rocketray.broker.retries.deliveries import Attempt
from rocketray.broker.shards import compaction, shard_writer
from rocketray.broker.shards.ownership_fence import OwnershipFence
from rocketray.broker.shards.repeated_batches import RepeatedBatches
from rocketray.broker.shards.shard_appends import ShardAppends
from rocketray.broker.topics import topic_registry
from rocketray.broker.topics.topic_registry import TopicRegistry
from rocketray.groups import membership
from rocketray.groups.group_offsets import GroupOffsets
from rocketray.groups.lease import Lease
from rocketray.groups.ownership_epochs import OwnershipEpochs
from rocketray.groups.roster import Roster
from rocketray.messaging.consumers.member_queues import MemberQueues
from rocketray.messaging.consumers.member_session import MemberSession
from rocketray.messaging.consumers.queue_stream import QueueStream
from rocketray.runtime.files import state_files
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.services.delays import schedule
from rocketray.services.system.system_log import SystemLog
from rocketray.services.transactions.transaction_engine import TransactionEngine
from rocketray.services.transactions.transaction_service import TransactionService
from rocketray.store import message_store, store_files
from rocketray.store.age_clock import AgeClock
from rocketray.store.files import failed_disk
from rocketray.store.files.file_system import OpenFile
from rocketray.store.log import log_blocks
from rocketray.store.queues.queue_gaps import QueueGaps
from rocketray.store.recovery import recovery
from rocketray.store.store_files import StoreFiles
from rocketray.topology.delivery.returns import Returns


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug."""

    name: str
    what: str
    """What is wrong, for the table in the docs."""
    plant: Callable[[], None]


MUTANTS: list[Mutant] = []


def _mutant(what: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def note(plant: Callable[[], None]) -> Callable[[], None]:
        MUTANTS.append(Mutant(plant.__name__, what, plant))
        return plant

    return note


def _put(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more"
    setattr(owner, name, value)


def _nothing(*_: Any, **__: Any) -> None:
    return None


# Queue offsets after a power failure


@_mutant("after a power failure a queue continues at its end: offsets are given twice")
def no_gap() -> None:
    _put(StoreFiles, "_continue_queues", _nothing)
    _put(message_store.MessageStore, "skip_to", _nothing)


@_mutant("no bound is kept on how many messages are unflushed")
def no_unflushed_bound() -> None:
    _put(StoreFiles, "unflushed_room", lambda *_: 1 << 30)
    _put(StoreFiles, "make_unflushed_room", _nothing)


@_mutant("gaps are not saved")
def gaps_not_saved() -> None:
    _put(store_files, "write_gaps", _nothing)


@_mutant("a reboot is taken for a crash of the process")
def boot_ignored() -> None:
    proceed = StoreFiles._continue_queues

    def wrong(self: Any, report: Any, *, was_closed: bool) -> None:
        self._checkpointed = replace(self._checkpointed, boot=self._file_system.boot())
        proceed(self, report, was_closed=was_closed)

    _put(StoreFiles, "_continue_queues", wrong)
    _put(message_store.MessageStore, "skip_to", _nothing)


@_mutant("a gap at which an empty queue begins is not recorded")
def gap_at_begin_forgotten() -> None:
    _put(
        QueueGaps,
        "from_offset",
        lambda self, offset: QueueGaps(pair for pair in self.pairs if pair[1] > offset),
    )


# Syncs


@_mutant("the names of directories that a killed process made are not synced")
def directories_not_synced() -> None:
    _put(store_files, "sync_names", _nothing)


@_mutant("an acknowledgement for disk does not wait for the sync")
def ack_before_sync() -> None:
    publish = ShardAppends.publish_appended
    _put(ShardAppends, "publish_appended", lambda self, *, to_disk: publish(self, to_disk=False))


@_mutant("the log is never synced")
def log_not_synced() -> None:
    sync = OpenFile.sync
    _put(OpenFile, "sync", lambda self: None if "/commitlog/" in str(self._path) else sync(self))


@_mutant("recovery does not write again what a failed sync left in memory")
def cache_trusted() -> None:
    _put(recovery, "_rewrite", _nothing)
    _put(failed_disk, "replace_file", _nothing)


@_mutant("that a disk failed is forgotten at the next opening, and its cache is trusted")
def failed_disk_forgotten() -> None:
    _put(message_store, "note_failed_disk", _nothing)
    _put(recovery, "rewrite_files", _nothing)


@_mutant("a store is noted as at rest while messages are not on disk")
def restless_at_rest() -> None:
    _put(StoreFiles, "is_settled", lambda _self: True)


@_mutant("a new name in a directory is not synced")
def names_not_synced() -> None:
    _put(whole_file, "sync_directory", _nothing)
    _put(state_files, "sync_directory", _nothing)


@_mutant("a state file is renamed into its place before its content is on disk")
def state_not_synced() -> None:
    write = whole_file.write_beside
    _put(
        state_files,
        "write_beside",
        lambda path, content, *, sync=True: write(path, content, sync=False),
    )


# Recovery


@_mutant("a record is whole whatever its checksums, and lost sectors in its properties")
def torn_records() -> None:
    def none(_data: Any, spans: Any, *_: Any) -> Any:
        return np.zeros(spans.shape[-1], np.bool_)

    _put(log_blocks, "_have_lost_sectors", none)
    _put(log_blocks, "find_crc_mismatches", none)
    _put(log_blocks, "_bodies_match", lambda *given: ~none(*given))


# Topics


@_mutant("a deletion that a crash interrupted is not carried out at the next start")
def deletion_forgotten() -> None:
    _put(TopicRegistry, "deleted", lambda _self: [])
    _put(shard_writer, "check_store_host", _nothing)
    _put(topic_registry, "check_no_files", _nothing)


# Clocks


@_mutant("ages follow the wall clock: a step forward makes everything old")
def ages_by_wall_clock() -> None:
    _put(AgeClock, "age_ms", lambda self, stored_ms, _seen_ms, _now_ms: self._wall_ms() - stored_ms)


# Groups


@_mutant("a member commits what it took, not what its handlers finished")
def commits_what_it_took() -> None:
    commit = MemberQueues.commit

    def wrong(self: Any, queue_id: int, _next: int) -> None:
        commit(self, queue_id, self.streams[queue_id].next_queue_offset)

    _put(MemberQueues, "commit", wrong)


@_mutant("a member delivers after its lease has ended")
def lease_ignored() -> None:
    _put(Lease, "may_hand_out", lambda _self: True)
    _put(Lease, "is_running", property(lambda _self: True))


@_mutant("the coordinator gives queues away before the lease of a silent member ends")
def session_too_short() -> None:
    _put(membership, "SESSION_TIMEOUT_MS", 3_000)


@_mutant("a heartbeat that arrives late counts")
def late_reports_count() -> None:
    _put(Roster, "is_late", lambda _self, _beat: False)


@_mutant("commits from before a queue was assigned again are sent after it")
def old_commits_kept() -> None:
    _put(GroupOffsets, "commit", _raising_back(GroupOffsets.commit))


def _raising_back(commit: Any) -> Any:
    def wrong(self: Any, group: str, topic: str, queue: int, offset: int) -> None:
        commit(self, group, topic, queue, max(offset - 2, 0))

    return wrong


@_mutant("owners are told before the groups are saved, and offsets are lost")
def groups_not_saved() -> None:
    _put(GroupsFile, "write", _nothing)
    _put(GroupsFile, "is_written", lambda *_: True)


@_mutant("a member that leaves does not send its last commits, and keeps its queues")
def leave_forgotten() -> None:
    _put(MemberSession, "revoke", _nothing)


# Tables


@_mutant("a change of a former owner is stored")
def owner_not_checked() -> None:
    _put(ShardAppends, "admit", lambda _self, _epoch: AppendStatus.OK)


@_mutant("all owners of a queue have one epoch")
def epochs_not_counted() -> None:
    _put(OwnershipEpochs, "next", lambda _self: 1)


@_mutant("a shard that is opened again has forgotten the newest owner")
def owner_forgotten() -> None:
    _put(OwnershipFence, "newest", lambda self: self._newest or 0)


# Filters


@_mutant("the filter drops the last match of a block")
def last_match_dropped() -> None:
    scan = filter_stream.scan_block

    def wrong(*given: Any) -> Any:
        matches, counters = scan(*given)
        return (matches.select(slice(len(matches) - 1)) if len(matches) > 2 else matches), counters

    _put(filter_stream, "scan_block", wrong)


@_mutant("a member compares hash codes of tags only")
def tags_by_hash() -> None:
    read = QueueStream._read

    def wrong(self: Any, description: Any) -> None:
        read(self, description)
        self._tags = None

    _put(QueueStream, "_read", wrong)


# Sends, retries, delays, transactions


@_mutant("a batch that is sent again is stored again")
def repeats_stored() -> None:
    _put(RepeatedBatches, "once", lambda _self, _batch, append, *, is_repeat: append())


@_mutant("a failed message is sent back without waiting for the disk")
def returns_in_memory() -> None:
    store = Returns._store_in_thread

    def wrong(self: Any, connection: Any, batch: Any) -> None:
        store(self, cast("Any", _InMemory(connection)), batch)

    _put(Returns, "_store_in_thread", wrong)


class _InMemory:
    def __init__(self, connection: Any) -> None:
        self.topics = connection.topics
        self._connection = connection

    def producer(self, **_: Any) -> Any:
        return self._connection.producer(ack="memory")


@_mutant("a delayed message counts as delivered before its topic has it")
def marked_before_delivery() -> None:
    _put(schedule.Schedule, "_attempt", lambda _self, _target, rows: Attempt(list(rows), [], []))


@_mutant("the services' logs are not flushed before their progress is saved")
def progress_ahead() -> None:
    _put(SystemLog, "flush", _nothing)


@_mutant("a transaction is noted as carried out before its message is stored")
def op_before_message() -> None:
    _put(
        TransactionEngine,
        "_attempt",
        lambda _self, _place, offsets, _doubtful: Attempt(list(offsets), [], []),
    )


@_mutant("a decision is acknowledged before it is on disk")
def decision_in_memory() -> None:
    decide = TransactionService.decide
    _put(
        TransactionService,
        "decide",
        lambda self, wanted, *, to_disk: decide(self, wanted, to_disk=False),
    )


@_mutant("compaction removes files without storing their last messages again")
def compaction_forgets() -> None:
    _put(compaction.Compaction, "_copy", lambda *_: True)
