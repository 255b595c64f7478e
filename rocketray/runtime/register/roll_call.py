"""A call of standbys to the coordinator through the register, beside those over the network.

    standby/call    ID, a line end, and "DIRECTORY of MACHINE": the standby on that disk asks the
                    coordinator whether it lives

The coordinator removes the key, if it serves calls and still has the documents: that is the answer.
So a standby learns that it lives though no packet comes from one machine to the other. Several
standbys share one call. A call without an answer stays, and the next coordinator removes it.

An answer that the store carries out late, after its caller has ended, may answer a later call. Then
the standby only waits once more.
"""

from __future__ import annotations

import uuid

from rocketray.runtime.files.home import Home

from .register import Register

_KEY = "standby/call"


class RollCall:
    """The calls of one standby; for one thread. Each method raises as the register does."""

    def __init__(self, register: Register, home: Home) -> None:
        self._register = register
        self._home = home
        self._value: bytes | None = None

    def call(self) -> None:
        """Call the coordinator, unless another standby has done so."""
        text = f"{uuid.uuid4().hex}\n{self._home.data} of {self._home.machine}"
        value = text.encode(errors="replace")
        is_new = self._register.create(_KEY, value)
        self._value = value if is_new else self._register.read(_KEY)

    def is_answered(self) -> bool:
        """Return whether the coordinator has answered the last call."""
        return self._value is None or self._register.read(_KEY) != self._value


def caller(register: Register) -> str | None:
    """Return which disk calls, for a person; None if there is no call."""
    value = register.read(_KEY)
    return None if value is None else value.decode(errors="replace").partition("\n")[2]


def answer(register: Register) -> None:
    """Answer the call, by its removal; there need not be one."""
    register.remove(_KEY)
