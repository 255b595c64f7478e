"""How long the coordinator has been silent, as a standby counts it, and when it is lost.

Plain Python without a clock: a standby tells it what it found, turn by turn (standby.py).

Rules
  1. Silence counts only while the standby hears Ray itself. When it does not, its own network may
     be cut. So the count starts again: when that is back, the coordinator has the whole time.
  2. A turn counts as ``TURN_MAX_S`` at most: the standby's own process may have stood still.
  3. The network may be broken between these two machines only, or in one direction. So a
     coordinator that Ray has is called through the register, too (register/roll_call.py), and is
     lost only if it has not answered there for ``CALL_S`` either.
  4. One that Ray has not had before has ``START_S`` for its first answer, also if a node has waited
     for the one before it: a first disk's node may have started it a moment ago.
  5. If it takes the place of a standby's, it is not lost before ``BACK_OFF_S``; nor, if it runs on
     the first disk, before ``BACK_OFF_S`` after its first answer. Else a machine that is too busy
     would get the coordinator back, and lose it again, for as long as it is busy.
"""

from __future__ import annotations

from rocketray.runtime.files.home import Home

TAKE_OVER_S = 20.0
"""How long a coordinator may be silent: Ray restarts one whose process died within seconds."""
START_S = 60.0
"""How long the start of a coordinator may take, on a machine that starts a node."""
BACK_OFF_S = 180.0
"""Three times what a start may take."""
CALL_S = 10.0
"""How long a call in the register has no answer: the coordinator looks there every 2 s."""
_CALL_BEFORE_S = 15.0
"""The call is made so long before the time is up, and so costs none unless the register is slow."""
TURN_MAX_S = 5.0
"""A turn has a pause of 1 s, waits 1 s for an answer, and 2 s for a connection to Ray."""


class CoordinatorSilence:
    """What one standby knows of the coordinator; for one thread."""

    def __init__(self, spread_s: float = 0.0, *, waited_for: str | None = None) -> None:
        """Begin to count.

        A standby that *waited_for* an answer elsewhere, of the coordinator with that id, or for
        one at all (""), only calls that one. *spread_s* is added to all times, so that one of
        several standbys is the first.
        """
        self.actor = waited_for or ""
        """The id of the coordinator that Ray has, "" if it has none."""
        self.is_deaf = False
        """Whether the standby did not hear Ray in the last turn."""
        self.silent_s = 0.0
        """The seconds without an answer that count."""
        self.has_waited = waited_for is not None
        """Whether no answer was heard, and no other coordinator seen, since it waited elsewhere."""
        self._spread_s = spread_s
        self._allowed_s = TAKE_OVER_S
        self._called_s: float | None = None  # how long a call is in the register
        self._backs_off_s = 0.0
        self._was_of_standby = False  # the last one that answered

    def sees(self, actor: str) -> None:
        """Note the id of the coordinator that Ray has, "" if it has none."""
        if actor == self.actor:
            return
        self.actor, self.has_waited = actor, self.has_waited and not actor
        self._begin(START_S if actor else TAKE_OVER_S)
        if actor and self._was_of_standby:
            self._backs_off_s = BACK_OFF_S

    def hears(self, home: Home, seconds: float) -> None:
        """Note that it answered, from *home*, at the end of a turn of so many *seconds*."""
        self._passes(seconds)
        if home.is_joined:
            self._backs_off_s = 0.0
        elif self._was_of_standby:
            self._backs_off_s = BACK_OFF_S
        self._was_of_standby = home.is_joined
        self.has_waited = False
        self._begin(TAKE_OVER_S)

    def hears_in_register(self) -> None:
        """Note that it answered a call in the register."""
        self.has_waited = False
        self.restart()

    def misses(self, seconds: float, *, hears_ray: bool) -> None:
        """Note a turn of so many *seconds* without an answer, in which the standby *hears_ray*."""
        counted_s = self._passes(seconds)
        self.is_deaf = not hears_ray
        if self.is_deaf:
            self.restart()
            return
        self.silent_s += counted_s
        if self._called_s is not None:
            self._called_s += counted_s

    def restart(self) -> None:
        """Count from 0 on: a standby that could not do what it has to does not know who lives."""
        self._begin(self._allowed_s)

    def calls(self) -> None:
        """Note that a call to it is in the register from now on."""
        self._called_s = 0.0

    @property
    def is_called(self) -> bool:
        """Whether a call to it is in the register."""
        return self._called_s is not None

    @property
    def is_to_be_called(self) -> bool:
        """Whether it is time for a call."""
        is_due = self.silent_s >= self._time_s - _CALL_BEFORE_S
        return is_due and bool(self.actor) and not self.is_deaf and not self.is_called

    @property
    def is_lost(self) -> bool:
        """Whether another one is to be started."""
        if self.is_deaf or self._backs_off_s > 0 or self.silent_s < self._time_s:
            return False
        return not self.actor or (self._called_s is not None and self._called_s >= CALL_S)

    @property
    def _time_s(self) -> float:
        return self._spread_s + (0.0 if self.has_waited else self._allowed_s)

    def _passes(self, seconds: float) -> float:
        """Return how much of a turn counts."""
        counted_s = min(seconds, TURN_MAX_S)
        self._backs_off_s -= counted_s
        return counted_s

    def _begin(self, allowed_s: float) -> None:
        """Count from 0 on, until *allowed_s*."""
        self.silent_s, self._allowed_s, self._called_s = 0.0, allowed_s, None
