"""A clock that stands still until a test advances it, and then does everything that is due."""

from __future__ import annotations

from typing import Protocol

START_MS = 1_800_000_000_000  # in January 2027, so that no test depends on the current date


class Follower(Protocol):
    """An object that is driven by a clock."""

    def pass_time(self, until_ms: int) -> None:
        """Do what is due up to and including *until_ms*, setting the clock to each of its times."""

    def jump(self, by_ms: int) -> None:
        """React to a clock that was set; remaining waits keep their length."""


class Clock:
    """Milliseconds since 1970; call it to read it."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._now_ms = start_ms
        self._jumped_ms = self._stood_still_ms = 0
        self._followers: list[Follower] = []

    def __call__(self) -> int:
        """Return the time, in milliseconds since 1970."""
        return self._now_ms

    def steady(self) -> int:
        """Return the milliseconds that passed, whatever the clock was set to: leases use it.

        It stands still while no member comes or goes; :meth:`elapsed` does not.
        """
        return self.elapsed() - self._stood_still_ms

    def elapsed(self) -> int:
        """Return the milliseconds that passed, whatever the clock was set to: ages use it."""
        return self._now_ms - self._jumped_ms

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: int = 0,
    ) -> None:
        """Let that time pass: everything due in it has happened, in its order, when this returns.

        Handlers of an app run in its loop, so they run later; see :meth:`Broker.settle`.
        """
        minutes += 60 * (hours + 24 * days)
        passed_ms = round(1000 * (seconds + 60 * minutes)) + milliseconds
        if passed_ms < 0:
            raise ValueError(f"the time cannot go back by {passed_ms} ms; see Clock.jump")
        until_ms = self._now_ms + passed_ms
        for follower in self._followers:
            follower.pass_time(until_ms)
        self._now_ms = until_ms

    def jump(self, *, seconds: float) -> None:
        """Set the clock forward or back, as an administrator does: nothing happens in between."""
        by_ms = round(1000 * seconds)
        self._now_ms += by_ms
        self._jumped_ms += by_ms
        for follower in self._followers:
            follower.jump(by_ms)

    def set(self, now_ms: int, *, is_steady: bool = True) -> None:
        """Set the time; for a follower, on its way through what is due.

        Without *is_steady* no lease runs out meanwhile, so none has to be renewed.
        """
        if not is_steady:
            self._stood_still_ms += now_ms - self._now_ms
        self._now_ms = now_ms

    def follow(self, follower: Follower) -> None:
        """Have *follower* do what is due whenever time passes."""
        self._followers.append(follower)

    def unfollow(self, follower: Follower) -> None:
        """Undo :meth:`follow`."""
        self._followers.remove(follower)
