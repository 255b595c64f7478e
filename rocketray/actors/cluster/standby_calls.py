"""The coordinator's side of a standby's call in the register (register/roll_call.py).

It is answered only if the coordinator serves calls: one whose threads all hang is to be replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketray.runtime.files.home import Home
from rocketray.runtime.register.register import Register
from rocketray.runtime.register.roll_call import answer, caller

from .cluster_state import Problems

_SUBJECT = "standby"
_KEPT_MS = 60_000
"""How long a call is a problem: a standby calls again within half a minute if it hears nothing."""


class StandbyCalls:
    """The calls that a coordinator finds when it looks at the register; for one thread."""

    def __init__(
        self,
        register: Register,
        home: Home,
        problems: Problems,
        clock_ms: Callable[[], int],
        serves: Callable[[], bool],
    ) -> None:
        """Answer for the coordinator at *home*; *serves* returns whether it answers calls itself.

        *clock_ms* is monotonic.
        """
        self._register = register
        self._home = home
        self._problems = problems
        self._clock_ms = clock_ms
        self._serves = serves
        self._called_ms: int | None = None
        self._has_looked = False

    def look(self) -> None:
        """Answer a call, if there is one; raises as the register does.

        The coordinator still has the documents.
        """
        calls = caller(self._register)
        if calls is None:
            self._has_looked = True
            if self._called_ms is not None and self._clock_ms() - self._called_ms > _KEPT_MS:
                self._called_ms = None
                self._problems.resolve(_SUBJECT)
        elif self._serves():
            answer(self._register)
            if self._has_looked:  # else it may have been for the coordinator before this one
                self._note(calls)
            self._has_looked = True

    def _note(self, calls: str) -> None:
        """Tell the operator which disk *calls*."""
        self._called_ms = self._clock_ms()
        self._problems.note(
            _SUBJECT,
            f"the standby on {calls} hears nothing from the coordinator on {self._home.data} "
            f"of {self._home.machine}, which runs: check the network between these machines, "
            "in both directions, and whether one of them is too busy",
        )
