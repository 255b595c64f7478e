"""Coordinators and readers of one register in any order of their calls, with faults.

Every coordinator runs the real documents in a thread of its own. At each call to the register it
waits for the scheduler, so one thread runs at a time, and a seed repeats a history. A call may be
carried out, lost, carried out without an answer, carried out twice (by a client that repeats it), or
carried out later, when its caller may have ended. A coordinator may end at any call; some are
started again then, in another process, as Ray does.

A document is a list of tokens, each of one save. The world checks at each change that
  1. the highest number never falls;
  2. the newest version has the tokens of all saves that returned, and so has what a reader loads;
  3. a document passes to another writer only by a seal, which changes nothing;
  4. a coordinator writes no newest version after another one has completed a later take-over;
  5. of the coordinators that completed a take-over, one at most has a newest version;
  6. a coordinator is superseded only if another one has a newest version, and calls no more;
  7. one that is started again takes over from its former process, and from nobody else.
"""

from __future__ import annotations

import json
import random
import threading
import zlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from rocketray.errors import RegisterUnavailableError, SupersededError
from rocketray.runtime.register.documents import RegisterDocuments

DOCUMENTS = ("disks", "topics")
Fate = Literal["do", "lose", "no answer", "twice", "late", "end"]
_FAULTS: tuple[Fate, ...] = ("lose", "no answer", "no answer", "twice", "late", "late", "end")
_T = TypeVar("_T")
_SAVES = 20
_STEPS_MAX = 20_000


class Ended(BaseException):
    """The process of a coordinator ended."""


class Program:
    """One thread, which waits at each call for the scheduler."""

    def __init__(self, world: World, work: Callable[[Program], None]) -> None:
        self.world = world
        self.go = threading.Semaphore(0)
        self.fate: Fate = "do"
        self.is_running = True
        self.error: Exception | None = None
        self.asleep = 0
        self.thread = threading.Thread(target=self._run, args=[work], daemon=True)
        self.thread.start()

    def _run(self, work: Callable[[Program], None]) -> None:
        self.go.acquire()
        try:
            work(self)
        except Ended:
            pass
        except Exception as error:  # noqa: BLE001 - the scheduler's thread raises it
            self.error = error
        self.is_running = False
        self.world.back.release()

    def step(self, fate: Fate) -> None:
        """Carry out the call that it waits with, and run it up to the next one."""
        self.fate = fate
        self.go.release()
        assert self.world.back.acquire(timeout=60)
        if self.error is not None:
            raise self.error

    def call(self, change: Callable[[], _T]) -> _T:
        self.world.back.release()
        self.go.acquire()
        fate, world = self.fate, self.world
        if fate == "end":
            raise Ended
        if fate == "late":
            world.late.append(change)
        if fate in ("lose", "late"):
            raise RegisterUnavailableError("model", "the call was lost")
        answer = change()
        if fate == "twice":
            answer = change()
        if fate == "no answer":
            raise RegisterUnavailableError("model", "the answer was lost")
        return answer


class SteppedRegister:
    """The register, as one program calls it."""

    address = "model"

    def __init__(self, program: Program) -> None:
        self._program = program
        self._world = program.world

    def create(self, key: str, value: bytes) -> bool:
        return self._program.call(lambda: self._world.create(key, value))

    def read(self, key: str) -> bytes | None:
        return self._program.call(lambda: self._world.keys.get(key))

    def names(self, folder: str) -> list[str]:
        return self._program.call(
            lambda: sorted(key for key in self._world.keys if key.startswith(f"{folder}/"))
        )

    def remove(self, key: str) -> None:
        self._program.call(lambda: self._world.remove(key))


class Coordinator:
    """Takes over, then saves one token after the other, as long as it may."""

    def __init__(self, world: World, former: Coordinator | None = None) -> None:
        """*former* is the coordinator that ended, and is started again."""
        self.world = world
        self.former = former
        self.start: str = world.start() if former is None else former.start
        self.began = -1  # counted in changes
        self.took_over = -1
        self.writer = ""
        self.program = Program(world, self._work)

    @property
    def has_taken_over(self) -> bool:
        return self.took_over >= 0

    @property
    def last_take_over(self) -> int:
        """When a process of this start took over last."""
        before = -1 if self.former is None else self.former.last_take_over
        return max(before, self.took_over)

    def _work(self, program: Program) -> None:
        documents = self.world.kind(SteppedRegister(program), self.start)
        self.writer = documents._writer
        self.began = self.world.changes
        try:
            before = self.last_take_over
            self._take_over(documents, is_again=before >= 0)
            if before >= 0:
                self.world.check_again(self.start, before)
            self.took_over = self.world.changes
            self.world.check_owners()
            states = {name: self._load(documents, name) for name in DOCUMENTS}
            for _ in range(self.world.rng.randrange(_SAVES)):
                name = self.world.rng.choice(DOCUMENTS)
                states[name] = self._save(documents, name, states[name])
        except SupersededError as error:
            self.world.check_superseded(self.writer)
            for name in DOCUMENTS:
                self._check_refused(documents, name, error)

    def _take_over(self, documents: RegisterDocuments, *, is_again: bool) -> None:
        while True:
            try:
                return documents.take_over(DOCUMENTS, is_again=is_again)
            except RegisterUnavailableError:
                continue

    def _load(self, documents: RegisterDocuments, name: str) -> list[int]:
        while True:
            try:
                return documents.load(name, _tokens) or []
            except RegisterUnavailableError:
                continue

    def _save(self, documents: RegisterDocuments, name: str, tokens: list[int]) -> list[int]:
        """Save one token more, or remove the document; after an error, with or without it."""
        rng = self.world.rng
        if rng.random() < 0.1:
            return self._remove(documents, name, tokens)
        new = [*tokens, self.world.token()]
        removals = self.world.removals[name]
        try:
            documents.save(name, {"tokens": new})
        except RegisterUnavailableError:
            return new if rng.random() < 0.5 else tokens
        if self.world.removals[name] == removals:  # not even by a successor
            self.world.acknowledge(name, new)
        return new

    def _remove(self, documents: RegisterDocuments, name: str, tokens: list[int]) -> list[int]:
        try:
            documents.remove(name)
        except RegisterUnavailableError:
            return tokens
        is_owner = self.world.owner(name) == self.writer
        assert not (is_owner and self.world.newest(name)), f"{name} was not removed"
        return []

    def _check_refused(
        self, documents: RegisterDocuments, name: str, first: SupersededError
    ) -> None:
        second: Exception | None = None
        try:
            documents.save(name, {"tokens": []})
        except Exception as error:  # noqa: BLE001 - any other one is a failure
            second = error
        assert repr(second) == repr(first), "a coordinator that was superseded calls the register"


class Reader:
    """Loads the documents again and again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.program = Program(world, self._work)

    def _work(self, program: Program) -> None:
        documents = RegisterDocuments(SteppedRegister(program))
        for _ in range(self.world.rng.randrange(8)):
            name = self.world.rng.choice(DOCUMENTS)
            self.world.reading[self] = (name, set(self.world.acknowledged[name]))
            try:
                found = set(documents.load(name, _tokens) or [])
            except RegisterUnavailableError:
                continue
            expected = self.world.reading.pop(self)[1]
            assert found >= expected, f"a reader of {name} misses {expected - found}"


class World:
    """The register's content, the programs that use it, and what must be true."""

    def __init__(
        self, rng: random.Random, kind: type[RegisterDocuments] = RegisterDocuments
    ) -> None:
        self.rng = rng
        self.kind = kind
        self.keys: dict[str, bytes] = {}
        self.late: list[Callable[[], object]] = []
        self.back = threading.Semaphore(0)
        self.acknowledged: dict[str, set[int]] = {name: set() for name in DOCUMENTS}
        self.removals = dict.fromkeys(DOCUMENTS, 0)
        self.reading: dict[Reader, tuple[str, set[int]]] = {}
        self.coordinators: list[Coordinator] = []
        self.changes = 0  # versions that became the newest
        self.tokens = 0
        self.takeovers = 0
        self.again = 0
        self.starts = 0

    def run(self, coordinators: int, readers: int = 1) -> None:
        """Run one history, then a last coordinator without faults, which finds everything."""
        programs = [Reader(self).program for _ in range(readers)]
        try:
            for _ in range(coordinators):
                self.coordinators.append(Coordinator(self))
                programs.append(self.coordinators[-1].program)
            self._run_all(programs)
            last = Coordinator(self)
            self.coordinators.append(last)
            programs.append(last.program)
            while last.program.is_running:
                last.program.step("do")
            assert last.has_taken_over
            self.takeovers = sum(each.has_taken_over for each in self.coordinators)
            self.again = sum(
                each.has_taken_over and each.former is not None for each in self.coordinators
            )
        finally:
            for program in programs:
                while program.is_running:
                    program.error = None
                    program.fate = "end"
                    program.go.release()
                    self.back.acquire()

    def _run_all(self, programs: list[Program]) -> None:
        """Run the programs in turns of random length; some sleep for long at one of their calls."""
        rng = self.rng
        faults = rng.choice((0.0, 0.02, 0.1))
        for _ in range(_STEPS_MAX):
            running = [program for program in programs if program.is_running]
            if not running:
                return
            ready = [program for program in running if program.asleep == 0] or running
            for program in running:
                program.asleep = max(0, program.asleep - 1)
            if self.late and rng.random() < 0.05:
                self.late.pop(rng.randrange(len(self.late)))()
            program = rng.choice(ready)
            if rng.random() < 0.04:
                program.asleep = rng.choice((10, 100, 200))
            program.step(rng.choice(_FAULTS) if rng.random() < faults else "do")
            # At its first step it makes no call yet, at which it could end.
            if program.fate == "end" and not program.is_running and rng.random() < 0.7:
                self._start_again(program, programs)
        raise AssertionError("the programs never end")

    def _start_again(self, program: Program, programs: list[Program]) -> None:
        """Start the coordinator again whose process has ended, as that of *program*."""
        for former in [each for each in self.coordinators if each.program is program]:
            self.coordinators.append(Coordinator(self, former))
            programs.append(self.coordinators[-1].program)

    def start(self) -> str:
        """Return the id of another start of a node."""
        self.starts += 1
        return str(self.starts)

    def check_again(self, start: str, before: int) -> None:
        """Check that nobody took over since a process of this start did, before another one does."""
        others = [each for each in self.coordinators if each.start != start]
        assert all(each.took_over <= before for each in others), "it took over from another one"

    def create(self, key: str, value: bytes) -> bool:
        if key in self.keys:
            return False
        name = key.partition("/")[0]
        if name not in DOCUMENTS:  # the check of the register itself
            self.keys[key] = value
            return True
        before = self._newest_key(name)
        old = _value(self.keys[before]) if before else None
        old_writer = self.owner(name)
        self.keys[key] = value
        if self._newest_key(name) == key:
            assert not before or _number(key) == _number(before) + 1, "a gap in the numbers"
            self._check_new(name, old_writer, old, value)
        return True

    def _check_new(self, name: str, old_writer: str, old: Any, content: bytes) -> None:
        writer, value = _document(content)["writer"], _value(content)
        [coordinator] = [each for each in self.coordinators if each.writer == writer]
        if not coordinator.has_taken_over:
            assert value == old, f"the seal of {name} changes it"
        else:
            assert writer == old_writer, f"{name} passed to a writer without a seal"
            later = [each for each in self.coordinators if each.began > coordinator.took_over]
            assert not any(each.has_taken_over for each in later), f"{name} was taken over before"
        if value is None and writer == old_writer:  # it was removed
            self.removals[name] += 1
            self.acknowledged[name].clear()
            self.reading = {
                reader: (read, set() if read == name else expected)
                for reader, (read, expected) in self.reading.items()
            }
        lost = self.acknowledged[name] - set(self.newest(name))
        assert not lost, f"{name} lost {lost}"
        self.changes += 1
        self.check_owners()

    def remove(self, key: str) -> None:
        name = key.partition("/")[0]
        before = self._newest_key(name)
        self.keys.pop(key, None)
        assert self._newest_key(name) == before or name not in DOCUMENTS, "the newest is removed"

    def newest(self, name: str) -> list[int]:
        """Return the tokens of a document."""
        key = self._newest_key(name)
        value = _value(self.keys[key]) if key else None
        return [] if value is None else _tokens(value)

    def acknowledge(self, name: str, tokens: list[int]) -> None:
        """Check that a save that returned is the newest version, or in the seal of it."""
        assert set(tokens) <= set(self.newest(name)), f"{name} lost a save that returned"
        self.acknowledged[name] |= set(tokens)

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    def check_owners(self) -> None:
        """Check that one coordinator at most has taken over and has a newest version."""
        writers = self._owners()
        done = [each for each in self.coordinators if each.has_taken_over]
        owners = [each.writer for each in done if each.writer in writers]
        assert len(owners) <= 1, "two coordinators have taken over"

    def check_superseded(self, writer: str) -> None:
        """Check that another coordinator has a newest version."""
        assert self._owners() - {writer}, "superseded by no other coordinator"

    def _owners(self) -> set[str]:
        return {self.owner(name) for name in DOCUMENTS} - {""}

    def owner(self, name: str) -> str:
        """Return the writer of the newest version."""
        key = self._newest_key(name)
        return _document(self.keys[key])["writer"] if key else ""

    def _newest_key(self, name: str) -> str:
        return max((key for key in self.keys if key.startswith(f"{name}/")), default="")


def _document(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


def _value(content: bytes) -> Any:
    return _document(content)["value"]


def _number(key: str) -> int:
    return int(key.partition("/")[2])


def _tokens(value: dict[str, Any]) -> list[int]:
    found: list[int] = value["tokens"]
    return found
