"""Three groups on one topic of a real node, and what may happen to those who read it.

``PLAIN`` has members that are processes; ``ORDERED`` and ``CONCURRENT`` are the agents of an app on
two hosts. Whoever is killed or stopped here leaves a note of what its group had committed then, by
which the journals are judged (verdict.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import ray
from support.journal import Journals
from support.verdict import Death, Offsets, Verdict, chronicle, judge

from rocketray.actors.api.system_api import SHARED_NAME
from rocketray.actors.calls.endpoint import COORDINATOR_NAME, process_actor
from rocketray.actors.client.actor_names import find_actor
from rocketray.actors.client.connection import Connection
from rocketray.actors.files.paths import config_directory
from rocketray.actors.files.state_files import read_json
from rocketray.actors.retries.retry_records import retry_topic
from rocketray.cluster import DEFAULT_CLUSTER
from rocketray.errors import ShardUnavailableError
from rocketray.names import QueuesPerProcess
from rocketray.topology.hosting.host import HostStatus
from rocketray.topology.hosting.host_plan import HostPlan
from rocketray.topology.hosting.hosting import bring_up, find_hosts, take_down

__all__ = [
    "ACTORS",
    "CONCURRENT",
    "GROUPS",
    "ORDERED",
    "PLAIN",
    "QUEUES",
    "TOPIC",
    "Fleet",
    "start",
    "wait_until",
]

TESTS = Path(__file__).parent.parent
TOPIC, QUEUES = "Chaos", 3
PLAIN, ORDERED, CONCURRENT = "witnesses", "chaos-ordered", "chaos-concurrent"
GROUPS = (PLAIN, ORDERED, CONCURRENT)
ACTORS = (
    COORDINATOR_NAME,
    "filter",
    SHARED_NAME,
    *(process_actor(f"{TOPIC}:{q}") for q in range(QUEUES)),
)
_AT_ONCE = {PLAIN: 50, ORDERED: 1, CONCURRENT: 1}  # what is in hands between two looks at the lease


class Fleet:
    """The processes, the journals that they write, and notes of their ends."""

    def __init__(
        self,
        connection: Connection,
        random: Random,
        queues_per_process: QueuesPerProcess = None,
    ) -> None:
        """Create the topic; of one whose queues have processes of their own, ACTORS may be killed."""
        connection.topics.create(TOPIC, QUEUES, queues_per_process=queues_per_process)
        self._connection, self._random = connection, random
        self._directory = connection.data.parent  # where the app finds its journal, too
        self.journals = Journals(self._directory / "seen")
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        self._deaths: dict[str, list[Death]] = {group: [] for group in GROUPS}
        self._forgotten: dict[str, list[tuple[int, Offsets]]] = {group: [] for group in GROUPS}

    # Who reads, and who writes

    def start_member(self) -> None:
        """One more member of the plain group."""
        name = f"member-{self._started}"
        self._started += 1
        places = [self._connection.data, TOPIC, PLAIN, self._directory / "seen"]
        self._members[name] = start("witness_process.py", *places, name, "*", "shared")

    def start_app(self) -> None:
        """The app with the other two groups, on two hosts."""
        bring_up(HostPlan.here("support.chaos_app:app", DEFAULT_CLUSTER, str(TESTS)), 2)

    def start_producer(self, count: int, pause_ms: int) -> subprocess.Popen[bytes]:
        """A producer of the numbers below *count*, with a pause after each thousand."""
        with (self._directory / "acknowledged").open("w") as file:
            arguments = self._connection.data, TOPIC, 0, count, pause_ms
            return start("producer_process.py", *arguments, output=file)

    def acknowledged(self) -> list[int]:
        """The numbers that the producer was told are stored, sorted."""
        return sorted(map(int, (self._directory / "acknowledged").read_text().split()))

    def close(self) -> None:
        """End the members and the app."""
        for process in self._members.values():
            process.kill()
            process.wait(60)
        take_down(find_hosts(DEFAULT_CLUSTER, "chaos"))

    # What happens to them

    def kill_member(self) -> None:
        """End a plain member as if its machine had died, and start another."""
        name, owned, offsets = self._choose_member()
        process = self._members.pop(name)
        process.kill()
        process.wait(60)
        self._note(PLAIN, f"{name}-{process.pid}", owned, offsets)
        self.start_member()

    def kill_host(self) -> None:
        """End one of the app's hosts; Ray starts it again."""
        status = self._choose_host()
        offsets = {group: self._ask(group)[0] for group in (ORDERED, CONCURRENT)}
        _kill(status.pid)
        self._note_host(status, offsets)

    def kill_actor(self, name: str) -> None:
        """End an actor's process; Ray starts it again. One that is away already is left alone."""
        with suppress(ShardUnavailableError, ray.exceptions.RayError):
            pid = ray.get(find_actor(DEFAULT_CLUSTER, name).pid.remote(), timeout=60)
            at_ns = time.monotonic_ns()
            _kill(pid)
            if name == COORDINATOR_NAME:
                self._note_forgotten(at_ns)

    def stop_some(self) -> Callable[[], None]:
        """Stop a plain member and a host of the app, in the middle of whatever they do.

        The answer lets them go on.
        """
        name, owned, known = self._choose_member()
        status = self._choose_host()
        offsets = {group: self._ask(group)[0] for group in (ORDERED, CONCURRENT)}
        pids = self._members[name].pid, status.pid
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self._note(PLAIN, f"{name}-{pids[0]}", owned, known, is_stopped=True)
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
            for queue in deaths[-1].queues
            if queue[0] == 0
        )

    def leave_member(self) -> int:
        """Have a plain member that joined leave in order; the code that it ended with."""
        joined = sorted(self._members.keys() & self.owners().keys())
        process = self._members.pop(self._random.choice(joined))
        process.terminate()
        return process.wait(60)

    def leave_host(self) -> None:
        """Take one host of the app down in order."""
        take_down(find_hosts(DEFAULT_CLUSTER, "chaos")[:1])

    # What became of the messages

    def missing(self, count: int) -> dict[str, int]:
        """How many of the numbers below *count* each group did not finish yet."""
        self.journals.read()
        return {group: count - len(self.journals.done.get(group, ())) for group in GROUPS}

    def judge(self, count: int) -> dict[str, Verdict]:
        """The verdict on each group that finished the numbers below *count*."""
        self.journals.read()
        return {
            group: judge(
                self.journals.entries[group], self._deaths[group], self._forgotten[group], count
            )
            for group in GROUPS
        }

    def chronicle(self, group: str) -> str:
        """What the group's members did, for who reads a verdict that blames."""
        entries, deaths = self.journals.entries[group], self._deaths[group]
        hosts = [
            f"    host {host.number}: {host.restarts} restarts, last for {host.last_error}"
            for host in find_hosts(DEFAULT_CLUSTER, "chaos")
        ]
        return "\n".join([chronicle(entries, deaths, self._forgotten[group]), *hosts])

    def owners(self) -> dict[str, list[int]]:
        """The plain group's members, as the coordinator knows them."""
        return self._ask(PLAIN)[1]

    def hosts(self) -> list[HostStatus]:
        """The app's hosts that answer."""
        return [
            host.status for host in find_hosts(DEFAULT_CLUSTER, "chaos") if host.status is not None
        ]

    def _choose_member(self) -> tuple[str, set[tuple[int, int]], Offsets]:
        name = self._random.choice(sorted(self._members))
        offsets, owners = self._ask(PLAIN)
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
        in_hands = _AT_ONCE[group] if is_stopped else 0
        self._deaths[group].append(Death(at_ns, frozenset(queues), offsets, in_hands))

    def _note_forgotten(self, at_ns: int) -> None:
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
        topics = _topics(group)
        found = {
            topics[one.topic]: one for one in self._connection.groups.all() if one.group == group
        }
        offsets = {
            (is_retry, queue): offset
            for is_retry, one in found.items()
            for queue, offset in one.offsets.items()
        }
        return offsets, found[0].members if found else {}


def start(script: str, *arguments: object, output: object = None) -> subprocess.Popen[bytes]:
    """A script of this directory in a process of its own."""
    command = [sys.executable, str(TESTS / "support" / script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=output)  # type: ignore[call-overload,no-any-return]


def wait_until(
    condition: Callable[[], bool], what: Callable[[], str], timeout_s: float = 120
) -> None:
    """Fail with *what* when the condition is not met in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


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
