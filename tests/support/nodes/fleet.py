"""Groups on one topic of a real node, and what may happen to the processes that use it.

``PLAIN``, ``EVENS`` and ``LARGE`` have members that are processes, and a filter each; ``ORDERED``
and ``CONCURRENT`` are the agents of an app on two hosts. Whoever is killed or stopped here leaves a
note of what its group had committed then, by which the history is judged (history.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import ray
from support.harness.patience import patience, wait_until, wait_until_answered
from support.harness.source_tree import ROOT
from support.models.history import GroupHistory, History, Sent, Told
from support.models.journal import Journals
from support.models.verdict import Death, Offsets, chronicle
from support.programs.noting_producer import send_all

from rocketray.actors.client.actor_names import find_actor
from rocketray.actors.client.connected_client import ConnectedClient
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.base.names import QueuesPerProcess
from rocketray.broker.retries.retry_records import retry_topic
from rocketray.broker.topics.log_reader import LogReader
from rocketray.errors import ShardUnavailableError
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.hosting.host_actors import find_hosts, take_down
from rocketray.hosting.host_placement import plan_here
from rocketray.hosting.host_status import HostStatus
from rocketray.hosting.hosting import bring_up
from rocketray.messaging.api.system_api import services_of
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, process_actor
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import read_json
from rocketray.services.explaining.cause import Cause

TESTS = ROOT / "tests"
TOPIC, QUEUES = "Chaos", 3
PLAIN, EVENS, LARGE = "witnesses", "evens", "large"
ORDERED, CONCURRENT = "chaos-ordered", "chaos-concurrent"
FILTERS = {PLAIN: "*", EVENS: "even", LARGE: "sql:amount >= 50"}
"""Of the groups whose members are processes, as witness_process.py takes them."""
WANTS: dict[str, Callable[[int], bool]] = {
    PLAIN: lambda _: True,
    EVENS: lambda number: number % 2 == 0,
    LARGE: lambda number: number % 100 >= 50,
    ORDERED: lambda _: True,
    CONCURRENT: lambda _: True,
}
"""The numbers that each group has to get."""
ACTORS = (
    COORDINATOR_NAME,
    "filter",
    services_of(""),
    *(process_actor(f"{TOPIC}:{q}") for q in range(QUEUES)),
)
_AT_ONCE = {PLAIN: 50, EVENS: 50, LARGE: 50}  # in hands between two looks at the lease; else 1
_NUMBERS = 1_000_000  # of each producer
_READ_MAX = 10_000


class Fleet:
    """The processes, the journals that they write, and notes of their ends."""

    def __init__(
        self,
        connection: ConnectedClient,
        random: Random,
        queues_per_process: QueuesPerProcess = None,
        directory: Path | None = None,
    ) -> None:
        """Create the topic; of one whose queues have processes of their own, ACTORS may be killed.

        The journals are in *directory*, by default beside the data, where an app finds its own.
        """
        connection.topics.create(TOPIC, QUEUES, queues_per_process=queues_per_process)
        self._connection, self._random = connection, random
        self._directory = directory or connection.data.parent
        (self._directory / "sent").mkdir(parents=True)
        self.journals = Journals(self._directory / "seen")
        self.groups: list[str] = []
        """Those that have members."""
        self._members: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._started = 0
        self._producers: list[tuple[int, int, subprocess.Popen[bytes] | None]] = []
        self._log: dict[int, list[tuple[int, int]]] = {queue: [] for queue in range(QUEUES)}
        self._deaths: dict[str, list[Death]] = {group: [] for group in WANTS}
        self._forgotten: dict[str, list[tuple[int, Offsets]]] = {group: [] for group in WANTS}
        self._seen: dict[str, list[tuple[int, Offsets]]] = {group: [] for group in WANTS}

    # Who reads, and who writes

    def start_member(self, group: str = PLAIN) -> None:
        """One more member of a group."""
        name = f"member-{self._started}"
        self._started += 1
        places = [self._connection.data, TOPIC, group, self._directory / "seen"]
        process = start("witness_process.py", *places, name, FILTERS[group], "shared")
        self._members[name] = group, process
        self._begin(group)

    def start_app(self) -> None:
        """The app with the other two groups, on two hosts."""
        bring_up(plan_here("support.programs.chaos_app:app", DEFAULT_CLUSTER, str(TESTS)), 2)
        self._begin(ORDERED)
        self._begin(CONCURRENT)

    def start_producer(self, count: int, pause_ms: int) -> subprocess.Popen[bytes]:
        """A producer of *count* numbers, with a pause after each thousand."""
        first = len(self._producers) * _NUMBERS
        arguments = self._directory / "sent" / str(first), first, count, pause_ms
        process = start("noting_producer.py", self._connection.data, TOPIC, *arguments)
        self._producers.append((first, count, process))
        return process

    def send_more(self, count: int) -> None:
        """Send *count* numbers from this process."""
        first = len(self._producers) * _NUMBERS
        self._producers.append((first, count, None))
        notes = self._directory / "sent" / str(first)
        send_all(self._connection, (TOPIC, str(notes)), range(first, first + count))

    def close(self) -> None:
        """End all of them."""
        for _, process in self._members.values():
            process.kill()
            process.wait(patience(60))
        for *_, producer in self._producers:
            if producer is not None:
                producer.kill()
                producer.wait(patience(60))
        if ORDERED in self.groups:
            take_down(find_hosts(DEFAULT_CLUSTER, "chaos"))

    def _begin(self, group: str) -> None:
        if group not in self.groups:
            self.groups.append(group)

    # What happens to them

    def kill_member(self) -> None:
        """End a member as if its machine had died, and start another."""
        name, owned, offsets = self._choose_member()
        group, process = self._members.pop(name)
        process.kill()
        process.wait(patience(60))
        self._note(group, f"{name}-{process.pid}", owned, offsets)
        self.start_member(group)

    def kill_producer(self, pause_ms: int) -> None:
        """End the producer in the middle of whatever it does, and start another for the rest."""
        first, count, process = self._producers[-1]
        assert process is not None
        process.kill()
        process.wait(patience(60))
        told = len(self._notes(first))
        self.start_producer(max(count - told, 1), pause_ms)

    def kill_host(self) -> None:
        """End one of the app's hosts; Ray starts it again."""
        status = self._choose_host()
        offsets = {group: self._ask(group)[0] for group in (ORDERED, CONCURRENT)}
        _kill(status.pid)
        self._note_host(status, offsets)

    def kill_actor(self, name: str) -> None:
        """End an actor's process; Ray starts it again. One that is away already is left alone."""
        with suppress(ShardUnavailableError, ray.exceptions.RayError):
            pid = pid_of(name)
            at_ns = time.monotonic_ns()
            _kill(pid)
            if name == COORDINATOR_NAME:
                self.note_forgotten(at_ns)

    def ask_all(self) -> Callable[[], None]:
        """Ask what all have, before their node ends: its users survive it, the app's hosts do not.

        The answer notes their ends.
        """
        all_groups, hosts = self._all_groups(), self.hosts()

        def note() -> None:
            for name, (group, process) in self._members.items():
                offsets, owners = _told(group, all_groups)
                owned = {(0, queue) for queue in owners.get(name, [])}
                self._note(group, f"{name}-{process.pid}", owned, offsets, is_stopped=True)
            for status in hosts:
                self._note_host(
                    status, {group: _told(group, all_groups)[0] for group in (ORDERED, CONCURRENT)}
                )

        return note

    def stop_some(self) -> Callable[[], None]:
        """Stop a member and a host of the app, in the middle of whatever they do.

        The answer lets them go on.
        """
        name, owned, known = self._choose_member()
        group, process = self._members[name]
        status = self._choose_host()
        offsets = {group: self._ask(group)[0] for group in (ORDERED, CONCURRENT)}
        pids = process.pid, status.pid
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self._note(group, f"{name}-{process.pid}", owned, known, is_stopped=True)
        self._note_host(status, offsets, is_stopped=True)

        def go_on() -> None:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

        return go_on

    def is_taken_over(self) -> bool:
        """Others read all queues that whoever was stopped last owned."""
        self.journals.read()
        return all(
            any(
                entry.at_ns > deaths[-1].at_ns and entry.queue == queue
                for entries in self.journals.entries[group].values()
                for entry in entries
            )
            for group, deaths in self._deaths.items()
            for queue in (deaths[-1].queues if deaths else ())
            if queue[0] == 0
        )

    def leave_member(self) -> int:
        """Have a plain member that joined leave in order; the code that it ended with."""
        joined = sorted(self._members.keys() & self.owners().keys())
        _, process = self._members.pop(self._random.choice(joined))
        process.terminate()
        return process.wait(patience(60))

    def leave_host(self) -> None:
        """Take one host of the app down in order."""
        take_down(find_hosts(DEFAULT_CLUSTER, "chaos")[:1])

    # What became of the messages

    def log(self) -> dict[int, list[tuple[int, int]]]:
        """The queue offsets and the numbers of each queue, as they are now."""
        reader = LogReader(self._connection.data)
        try:
            while found := reader.read(
                {
                    (TOPIC, queue): known[-1][0] + 1 if known else 0
                    for queue, known in self._log.items()
                },
                *(_READ_MAX, 0.0),
            ):
                for (_, queue), messages in found.items():
                    self._log[queue] += [(one.queue_offset, int(one.body)) for one in messages]
        finally:
            reader.close()
        return self._log

    def finish_producers(self, timeout_s: float) -> int:
        """Wait until the last producer ended; return its exit code."""
        process = self._producers[-1][2]
        assert process is not None
        return process.wait(timeout_s)

    def finished(self) -> int:
        """How many numbers the plain group finished."""
        self.journals.read()
        return len(self.journals.done.get(PLAIN, ()))

    def has_committed_all(self) -> bool:
        """Whether the members' groups are at the ends of the queues."""
        ends = {(0, queue): content[-1][0] for queue, content in self.log().items() if content}
        offsets = [self._ask(group)[0] for group in self.groups if group in FILTERS]
        return all(one.get(queue, 0) > end for one in offsets for queue, end in ends.items())

    def told(self) -> int:
        """How many numbers the producers were told of."""
        return sum(len(self._notes(first)) for first, *_ in self._producers)

    def missing(self) -> dict[str, int]:
        """How many numbers of the log each group wants and did not finish yet."""
        self.journals.read()
        stored = {number for content in self.log().values() for _, number in content}
        return {
            group: sum(map(WANTS[group], stored - self.journals.done.get(group, set())))
            for group in self.groups
        }

    def described(self) -> str:
        """Describe what each group misses, its offsets, and who owns its queues."""
        missing = self.missing()
        return "; ".join(f"{group} misses {missing[group]} {self._ask(group)}" for group in missing)

    def see_offsets(self) -> None:
        """Note the offsets of all groups, as the coordinator has them now; wait for it."""
        all_groups = self._all_groups()
        for group in self.groups:
            offsets, _ = _told(group, all_groups)
            self._seen[group].append((time.monotonic_ns(), offsets))

    def history(self, explained: Sequence[tuple[str, int, bool]] = ()) -> History:
        """All that happened."""
        self.journals.read()
        sent = []
        for first, count, _ in self._producers:
            notes = self._notes(first)
            sent += [
                notes.get(number, Sent(f"{first}", number))
                for number in range(first, first + count)
            ]
        groups = {
            group: GroupHistory(
                WANTS[group],
                group != CONCURRENT,
                *(self.journals.entries.get(group, {}), self._deaths[group]),
                *(self._forgotten[group], self._seen[group]),
            )
            for group in self.groups
        }
        return History(sent, self.log(), groups, explained)

    def explained(self, count: int) -> list[tuple[str, int, bool]]:
        """What the node says of *count* random messages, for each group that has no retries."""
        places = [(queue, *one) for queue, content in self.log().items() for one in content]
        found = []
        for queue, queue_offset, number in self._random.sample(places, min(count, len(places))):
            message = self._connection.messages.at(TOPIC, queue, queue_offset)
            assert message is not None
            for group in FILTERS.keys() & set(self.groups):
                cause = self._connection.explain(message.offset_message_id, group).cause
                assert cause in (Cause.DELIVERED, Cause.TAG_MISMATCH, Cause.SQL_FALSE), cause
                found.append((group, number, cause is Cause.DELIVERED))
        return found

    def _notes(self, first: int) -> dict[int, Sent]:
        path = self._directory / "sent" / str(first)
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return {
            int(number): Sent(f"{first}", int(number), Told(told), int(queue), int(offset))
            for number, told, queue, offset in lines
        }

    def chronicle(self, group: str) -> str:
        """What the group's members did, for who reads a verdict that blames."""
        entries, deaths = self.journals.entries[group], self._deaths[group]
        hosts = [
            f"    host {host.number}: {host.restarts} restarts, last for {host.last_error}"
            for host in find_hosts(DEFAULT_CLUSTER, "chaos")
        ]
        return "\n".join([chronicle(entries, deaths, self._forgotten[group]), *hosts])

    def owners(self, group: str = PLAIN) -> dict[str, list[int]]:
        """The members of a group, as the coordinator knows them."""
        return self._ask(group)[1]

    def hosts(self) -> list[HostStatus]:
        """The app's hosts that answer."""
        return [
            host.status for host in find_hosts(DEFAULT_CLUSTER, "chaos") if host.status is not None
        ]

    def _choose_member(self) -> tuple[str, set[tuple[int, int]], Offsets]:
        name = self._random.choice(sorted(self._members))
        offsets, owners = self._ask(self._members[name][0])
        return name, {(0, queue) for queue in owners.get(name, [])}, offsets

    def _choose_host(self) -> HostStatus:
        wait_until(lambda: bool(self.hosts()), lambda: "no host of the app answers")
        return self._random.choice(self.hosts())

    def _note_host(
        self, status: HostStatus, offsets: dict[str, Offsets], *, is_stopped: bool = False
    ) -> None:
        for group, known in offsets.items():
            topics = _topics(group)
            owned = {(topics[topic], queue) for topic, queue in status.queues if topic in topics}
            self._note(group, str(status.pid), owned, known, is_stopped=is_stopped)

    def _note(
        self,
        group: str,
        process: str,
        owned: set[tuple[int, int]],
        offsets: Offsets,
        *,
        is_stopped: bool = False,
    ) -> None:
        """What it owned when it was asked, and what it was given since then, and read."""
        at_ns = time.monotonic_ns()
        self.journals.read()
        last: dict[tuple[int, int], tuple[int, str]] = {}
        for name, entries in self.journals.entries.get(group, {}).items():
            for entry in entries:
                last[entry.queue] = max(last.get(entry.queue, (0, "")), (entry.at_ns, name))
        queues = owned | {queue for queue, (_, name) in last.items() if name == process}
        in_hands = _AT_ONCE.get(group, 1) if is_stopped else 0
        self._deaths[group].append(Death(at_ns, frozenset(queues), offsets, in_hands, process))

    def note_forgotten(self, at_ns: int) -> None:
        """Note what a coordinator that was killed had saved."""
        saved = read_json(config_directory(self._connection.data) / "groups.json") or {}
        table = saved.get("offsetTable", {})
        for group, times in self._forgotten.items():
            offsets = {
                (is_retry, int(queue)): int(offset)
                for topic, is_retry in _topics(group).items()
                for queue, offset in table.get(f"{topic}@{group}", {}).items()
            }
            times.append((at_ns, offsets))

    def _ask(self, group: str) -> tuple[Offsets, dict[str, list[int]]]:
        """The group's offsets, and who owns the topic's queues; waits for the coordinator."""
        return _told(group, self._all_groups())

    def _all_groups(self) -> list[GroupDescription]:
        # It starts again, or its Ray does.
        return wait_until_answered(self._connection.groups.all, ShardUnavailableError)


def _told(
    group: str, all_groups: Sequence[GroupDescription]
) -> tuple[Offsets, dict[str, list[int]]]:
    topics = _topics(group)
    found = {topics[one.topic]: one for one in all_groups if one.group == group}
    offsets = {
        (is_retry, queue): offset
        for is_retry, one in found.items()
        for queue, offset in one.offsets.items()
    }
    return offsets, found[0].members if found else {}


def pid_of(name: str) -> int:
    """The process of an actor of the node."""
    return int(ray.get(find_actor(DEFAULT_CLUSTER, name).pid.remote(), timeout=patience(60)))


def start(script: str, *arguments: object, output: object = None) -> subprocess.Popen[bytes]:
    """A script of this directory in a process of its own."""
    command = [sys.executable, str(TESTS / "support/programs" / script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=output)  # type: ignore[call-overload,no-any-return]


def _topics(group: str) -> dict[str, int]:
    """The topics of a group, as entries tell them apart."""
    return {TOPIC: 0, retry_topic(group): 1}


def _kill(pid: int) -> None:
    """Returns when the process runs no more."""
    os.kill(pid, signal.SIGKILL)
    status = Path(f"/proc/{pid}/stat")
    with suppress(OSError):
        while status.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.005)
