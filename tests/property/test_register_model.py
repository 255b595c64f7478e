"""Coordinators that take over from each other in one register: nothing saved is lost or undone.

The rules of the world and what it checks are in support/models/register_model.py. Each mutant leaves out
one rule of the documents, and has to be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from support.models.register_model import World

from rocketray.errors import RegisterUnavailableError
from rocketray.runtime.register import documents
from rocketray.runtime.register.documents import RegisterDocuments

T = TypeVar("T")
HISTORIES = 500
MUTANT_HISTORIES = 3000  # most are found in the first ten, the rarest in a hundred


@pytest.fixture(autouse=True)
def _few_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep two versions, so that numbers are often removed that a paused coordinator creates."""
    monkeypatch.setattr(documents, "_KEPT", 2)


def run(seed: int, count: int, kind: type[RegisterDocuments] = RegisterDocuments) -> list[World]:
    worlds = []
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        world = World(rng, kind)
        try:
            world.run(coordinators=rng.randrange(2, 5))
        except BaseException as error:
            error.add_note(f"history {number} of --seed={seed}")
            raise
        worlds.append(world)
    return worlds


@pytest.mark.proves(
    "durability",
    "Of coordinators that take over the documents in a register, only the last one saves, and it "
    "has every earlier save",
)
def test_a_history_of_coordinators(seed: int, amount: Callable[[int], int]) -> None:
    worlds = run(seed, amount(HISTORIES))
    if len(worlds) < HISTORIES:
        return  # too few to expect a share of them
    assert sum(world.takeovers > 2 for world in worlds) > len(worlds) / 4
    assert sum(world.tokens > 10 for world in worlds) > len(worlds) / 4
    assert sum(world.again > 0 for world in worlds) > len(worlds) / 50


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_histories(seed: int) -> None:
    run(seed + 1, 40 * HISTORIES)


class NoCheckAfterCreate(RegisterDocuments):
    def _check_newest(self, name: str, number: int) -> list[int]:
        if not self._numbers:
            return super()._check_newest(name, number)
        return [each for each in self._list(name) if each < number]


class TakesOverAgainFromAnybody(RegisterDocuments):
    def _sealed(self, name: str, *, is_again: bool) -> int:
        return super()._sealed(name, is_again=False)


class NoSeal(RegisterDocuments):
    def _sealed(self, name: str, *, is_again: bool) -> int:
        return self._newest(name).number

    def load(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        value = self._newest(name).value
        return None if value is None else parse(value)


class NoCheckOfTheSeals(RegisterDocuments):
    def _check_newest(self, name: str, number: int) -> list[int]:
        return super()._check_newest(name, number) if self._numbers else []


class UnknownOutcomeIsFailure(RegisterDocuments):
    """A key that exists is another coordinator's."""

    def _created(self, name: str, content: bytes) -> int:
        number = self._numbers[name] + 1
        if not self._register.create(f"{name}/{number:020}", content):
            self._stop(name)
        return number


class UnknownOutcomeIsSuccess(RegisterDocuments):
    """A number that was tried is used."""

    def _created(self, name: str, content: bytes) -> int:
        try:
            return super()._created(name, content)
        except RegisterUnavailableError:
            self._numbers[name] += 1
            raise


class AnyKeyIsMine(RegisterDocuments):
    def _readable(self, name: str, number: int, content: bytes) -> documents._Version:
        return replace(super()._readable(name, number, content), writer=self._writer)


class NotForGood(RegisterDocuments):
    def _check_owner(self) -> None:
        pass


class RemovesItsKeys(RegisterDocuments):
    def remove(self, name: str) -> None:
        for key in self._register.names(name):
            with suppress(RegisterUnavailableError):
                self._register.remove(key)


class ForgetsTheValue(RegisterDocuments):
    """A seal that has the value of the first reading, whatever was saved since then."""

    def _sealed(self, name: str, *, is_again: bool) -> int:
        content = self._encoded(name, self._newest(name).value)
        while True:
            number = self._newest(name).number + 1
            if self._register.create(f"{name}/{number:020}", content):
                return number


class RemovesTheNewest(RegisterDocuments):
    def _check_newest(self, name: str, number: int) -> list[int]:
        return [*super()._check_newest(name, number), *[number] * documents._KEPT]


MUTANTS = [
    TakesOverAgainFromAnybody,
    NoCheckAfterCreate,
    NoSeal,
    NoCheckOfTheSeals,
    UnknownOutcomeIsFailure,
    UnknownOutcomeIsSuccess,
    AnyKeyIsMine,
    NotForGood,
    RemovesItsKeys,
    RemovesTheNewest,
    ForgetsTheValue,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_rule_is_found(mutant: type[RegisterDocuments], seed: int) -> None:
    assert {name for name in vars(mutant) if name[:2] != "__"} <= {*dir(RegisterDocuments)}
    with pytest.raises(AssertionError):
        run(seed, MUTANT_HISTORIES, mutant)
