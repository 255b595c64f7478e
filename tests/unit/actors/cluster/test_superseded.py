"""What a node ends that has lost its coordinator, and whom it names: in every order of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from types import SimpleNamespace

import pytest
from support.nodes.dict_register import DictRegister

from rocketray.actors.cluster import one_node, registered_documents, superseded
from rocketray.actors.cluster.coordinator_silence import START_S
from rocketray.actors.cluster.registered_documents import RegisterOfStart
from rocketray.actors.cluster.superseded import end_own_actors, has_ended, why_superseded
from rocketray.errors import ActorError
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import RayActorError
from rocketray.runtime.register.documents import RegisterDocuments

pytestmark = pytest.mark.proves(
    "durability",
    "The node of the first disk that has lost its coordinator ends its own actors and no "
    "other node's, and learns from the register who has the cluster, whether that answers "
    "yet or not",
)

HOME = Home("/first", "00000000-0000-0000-0000-000000000001", "here", cluster="c")
SECOND = Home("/second", "00000000-0000-0000-0000-000000000002", "else", cluster="c")
STANDBY = Home(
    "/joined", "00000000-0000-0000-0000-000000000003", "there", cluster="c", is_joined=True
)
OURS = RegisterOfStart("memory://test", "ours")
NAMES = ("coordinator", "filter", "gateway", "process-0", "process-1")


@dataclass
class Names:
    """The named actors of a Ray by name, each with its id; no actor answers anything."""

    ids: dict[str, str] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)
    stays: set[str] = field(default_factory=set)
    before_look: Callable[[int], object] = lambda _: None
    looks: Iterator[int] = field(default_factory=count)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = SimpleNamespace(sleep=lambda _: None, monotonic=count(0.0, 5.0).__next__)
        monkeypatch.setattr(superseded, "time", clock)
        monkeypatch.setattr(superseded, "names_of", lambda _: sorted(self._looked()))
        monkeypatch.setattr(superseded, "actor_or_none", lambda _, name: self._looked().get(name))
        monkeypatch.setattr(superseded, "actor_id_of", lambda actor: actor)
        monkeypatch.setattr(superseded, "ray", SimpleNamespace(kill=self.kill))

    def _looked(self) -> dict[str, str]:
        self.before_look(next(self.looks))
        return self.ids

    def kill(self, actor: str) -> None:
        self.killed.append(actor)
        if actor not in self.stays:
            self.ids = {name: each for name, each in self.ids.items() if each != actor}

    def start(self, node: str, *names: str) -> None:
        self.ids = {**self.ids, **{name: f"{node} {name}" for name in names}}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    found.patch(monkeypatch)
    return found


def end() -> None:
    end_own_actors("c", "ours coordinator", "ours filter")


def test_all_actors_of_the_node_end_though_none_answers(there: Names) -> None:
    there.start("ours", *NAMES)
    end()
    assert there.ids == {}
    assert set(there.killed) == {f"ours {name}" for name in NAMES}


def test_the_coordinator_of_a_standby_continues(there: Names) -> None:
    there.start("ours", *NAMES)
    there.start("standby's", "coordinator")
    end()
    assert there.ids == {"coordinator": "standby's coordinator"}


def test_the_actors_of_another_first_disk_continue_whenever_it_starts(there: Names) -> None:
    """It ends this node's own, and starts the filter actor first: before any look of ours."""

    def begins(at: int, look: int) -> None:
        if look == at:
            there.ids = {}
            there.start("another's", "filter")
        elif look > at:
            there.start("another's", *NAMES)

    for at in range(12):
        there.ids, there.looks = {}, count()
        there.start("ours", *NAMES)
        there.before_look = lambda look, at=at: begins(at, look)  # type: ignore[misc]
        end()
    assert not [each for each in there.killed if each.startswith("another's")]


def test_what_is_left_without_a_filter_actor_ends(there: Names) -> None:
    """Whoever ended it has started nothing yet: it would have begun with its filter actor."""
    there.start("ours", "gateway", "process-0")
    end()
    assert there.ids == {}


def test_actors_that_do_not_end_are_named(there: Names) -> None:
    there.start("ours", *NAMES)
    there.stays = {"ours process-1"}
    with pytest.raises(ActorError, match="actors process-1 of the node do not end; stop their Ray"):
        end()


@pytest.mark.parametrize(
    ("call", "told"), [("waits", False), ("returned", True), ("its actor died", True)]
)
def test_a_coordinator_has_ended_when_its_call_has(
    monkeypatch: pytest.MonkeyPatch, call: str, told: bool
) -> None:
    def get(call: str) -> None:
        if call == "its actor died":
            raise RayActorError

    def wait(calls: list[str], timeout: float) -> tuple[list[str], list[str]]:
        assert timeout == 0
        return ([], calls) if calls == ["waits"] else (calls, [])

    monkeypatch.setattr(superseded, "ray", SimpleNamespace(wait=wait, get=get))
    assert has_ended(call) is told


class Steps(threading.Event):
    """The node does not stop; each time it waits, a second passes and the next thing happens."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.steps = iter(steps)
        self.now_s = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now_s += 1.0
        next(self.steps, lambda: None)()
        return self.is_set()


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> DictRegister:
    """A register that the node's coordinator has taken over; no actor is asked anything."""
    found = DictRegister()
    monkeypatch.setattr(registered_documents, "open_register", lambda _: found)
    for module in (one_node, superseded):
        monkeypatch.delattr(module, "ray")
    take_over(found, HOME, OURS.start_id)
    return found


def take_over(register: DictRegister, home: Home | None, start_id: str = "another") -> None:
    documents = RegisterDocuments(register, start_id, home=home)
    documents.take_over(["disks", "topics"])
    documents.save("disks", {})


def why(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> tuple[str, float]:
    """Why the node ends, and when it knew."""
    events = Steps(*steps)
    monkeypatch.setattr(superseded, "time", SimpleNamespace(monotonic=lambda: events.now_s))
    told = why_superseded(HOME, OURS, events)
    assert told.startswith("the node on /first ends: ")
    assert "died" not in told
    return told.removeprefix("the node on /first ends: "), events.now_s


TAKES_BACK = (
    "its coordinator did not answer for some time, and runs on /joined of there now; start this "
    "node again, and it takes the coordinator back"
)


def test_a_standby_that_has_the_coordinator_is_named_though_it_does_not_answer_yet(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_over(register, STANDBY)
    assert why(monkeypatch) == (TAKES_BACK, 0.0)


@pytest.mark.parametrize("after_s", [1, 3, 15, int(START_S)])
def test_a_standby_that_has_ended_the_coordinator_and_starts_its_own_is_waited_for(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch, after_s: int
) -> None:
    steps = [lambda: None] * (after_s - 1)
    told = why(monkeypatch, *steps, lambda: take_over(register, STANDBY))
    assert told == (TAKES_BACK, after_s)


def test_a_standby_that_takes_over_from_another_one_is_named(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_over(register, replace(STANDBY, data="/other"), "a standby that was slower")
    take_over(register, STANDBY)
    assert why(monkeypatch) == (TAKES_BACK, 0.0)


def test_nobody_takes_over_in_the_time_of_a_start(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts the node's own coordinator again meanwhile, which is of the same start."""
    told, known_s = why(monkeypatch, lambda: take_over(register, HOME, OURS.start_id))
    assert told == (
        "its coordinator has ended, and no other one has taken over in 60 s; start it again, with "
        "the options that it had: rocketray start --data /first"
    )
    assert START_S < known_s < START_S + 2


def test_a_register_that_does_not_answer_is_asked_again(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    register.is_stopped = True
    told, _ = why(monkeypatch)
    assert told.startswith("its coordinator has ended, and who has the cluster now is not known: ")
    assert "the test stopped it" in told
    assert told.endswith("rocketray start --data /first")

    def answer() -> None:
        register.is_stopped = False
        take_over(register, STANDBY)

    assert why(monkeypatch, answer) == (TAKES_BACK, 1.0)


@pytest.mark.usefixtures("register")
def test_a_node_that_stops_waits_for_no_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Steps()
    events.set()
    monkeypatch.setattr(superseded, "time", SimpleNamespace(monotonic=lambda: 0.0))
    told = why_superseded(HOME, OURS, events)
    assert "no other one has taken over" in told
    assert events.now_s == 1.0


@pytest.mark.parametrize(
    ("taker", "told"),
    [
        (
            SECOND,
            (
                "another coordinator has taken over, and the cluster continues with /second of else as "
                "its first disk, without the messages of this directory; to continue with this "
                "directory instead, stop the node there, then start this one again"
            ),
        ),
        (
            replace(HOME, data="/moved", machine="else"),
            (
                "another coordinator has taken over, of a later start on this directory, on else; use "
                "that node"
            ),
        ),
        (
            None,
            (
                "another coordinator has taken over in the register memory://test; use the node that "
                "was started last"
            ),
        ),
    ],
)
def test_another_first_disk_and_one_that_is_not_known_are_told_apart(
    register: DictRegister, monkeypatch: pytest.MonkeyPatch, taker: Home | None, told: str
) -> None:
    take_over(register, taker)
    assert why(monkeypatch) == (told, 0.0)
