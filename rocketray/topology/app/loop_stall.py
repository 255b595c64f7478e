"""A time in which an app's loop did not turn, as it is shown: a value without Faust."""

from __future__ import annotations

from dataclasses import dataclass

from rocketray.runtime.process_logs.log_line import MessagePlace


@dataclass(frozen=True, slots=True)
class LoopStall:
    """What blocked the loop of an app, and for how long: until it ended, or until now.

    ``time_ms`` is when it began. ``who`` is an agent, ``place`` the message or the list that its
    handler has, and ``frame`` the line at which the app's own code stands. Where no agent is at
    work, ``who`` is "a task".
    """

    time_ms: int
    seconds: float
    is_over: bool
    who: str
    place: MessagePlace | None
    frame: str

    def __str__(self) -> str:
        where = "" if self.place is None else f" [{self.place}]"
        has = "" if self.is_over else "has "
        return f"{self.who} {has}blocked the loop for {self.seconds:.1f} s at {self.frame}{where}"
