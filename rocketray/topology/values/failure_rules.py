"""The failure options of an agent, and the rules that its feed derives from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from rocketray.base.names import RETRY_PREFIX, check_topic
from rocketray.base.system_topics import is_closed_topic
from rocketray.broker.retries.retry_records import MAX_ATTEMPTS, dead_letter_topic
from rocketray.errors import ConfigError

DecodeErrorPolicy = Literal["dead_letter", "stop"]
SUSPEND_S = 1.0  # RocketMQ's suspendCurrentQueueTimeMillis
# A message that cannot be decoded is held for 1 + 2 + 4 + 8 + 16 + 11 * 30 s, some six minutes,
# before the 17th attempt dead-letters it.
_PAUSE_MAX_S = 30.0
_SUSPEND_MIN_S, _SUSPEND_MAX_S = 0.01, 30.0  # RocketMQ clamps to these; here others are an error
_ATTEMPTS_LIMIT = 2**31 - 2  # the record's counter is a signed 32-bit number


@dataclass(frozen=True, slots=True)
class FailureRules:
    """The failure rules of one feed; ``max_attempts`` None means no limit.

    ``retry_queues`` is the number of queues of the retry topic where a message keeps its own; None
    where any of them will do.

    ``decode_attempts`` is the same for a message that cannot be decoded, where the queue is held.
    """

    group: str
    max_attempts: int | None = MAX_ATTEMPTS
    dead_letters: str = ""
    is_ordered: bool = False
    suspend_s: float = SUSPEND_S
    retry_queues: int | None = None
    decode_attempts: int | None = MAX_ATTEMPTS
    stops_at_undecodable: bool = False

    @property
    def rests(self) -> bool:
        """Whether one queue may pause while others continue."""
        return self.is_ordered or self.stops_at_undecodable

    def holds(self, *, is_decoding: bool) -> bool:
        """Return whether a failed message holds its queue, instead of being sent back."""
        return self.is_ordered or (is_decoding and self.stops_at_undecodable)

    def pause_s(self, attempt: int, *, is_decoding: bool) -> float:
        """Return how long a held queue pauses after that many failures of its message."""
        if not is_decoding:
            return self.suspend_s
        doublings = min(attempt - 1, 12)  # 2**12 times the shortest suspension exceeds the maximum
        return min(self.suspend_s * 2.0**doublings, _PAUSE_MAX_S)


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """The failure options of an agent; None is the default of each.

    ``dead_letter`` is the topic of its dead letters, ``%DLQ%group`` by default; with False no
    message is ever dead-lettered. ``ordered`` None: as the app needs it, which with tables is True.
    ``on_decode_error`` is ``"dead_letter"`` by default, unless ``dead_letter`` is False.
    """

    max_attempts: int | None = None
    dead_letter: str | Literal[False] | None = None
    ordered: bool | None = None
    suspend_s: float | None = None
    on_decode_error: DecodeErrorPolicy | None = None

    def check(self, reads: Callable[[str], bool]) -> None:
        """Raise ``ConfigError`` for contradictory options; *reads* tells the agent's topics."""
        self._check_attempts()
        self._check_decoding()
        if isinstance(self.dead_letter, str):
            check_topic(self.dead_letter)
            if reads(self.dead_letter):
                raise ConfigError(
                    f"dead_letter={self.dead_letter!r} is a topic that the agent reads itself, so "
                    "a message that always fails would loop for ever; name another topic"
                )
            if self.dead_letter.startswith(RETRY_PREFIX) or is_closed_topic(self.dead_letter):
                raise ConfigError(
                    f"dead_letter={self.dead_letter!r}: a retry topic or system topic cannot have "
                    "dead letters; name another topic"
                )
        if self.suspend_s is not None:
            if not self.ordered:
                raise ConfigError(
                    "suspend= is the pause of an ordered agent's queue: give ordered=True as well"
                )
            if not _SUSPEND_MIN_S <= self.suspend_s <= _SUSPEND_MAX_S:
                raise ConfigError(
                    f"suspend={self.suspend_s}: give from {_SUSPEND_MIN_S} to {_SUSPEND_MAX_S:g} "
                    "seconds"
                )

    def rules(
        self, group: str, *, is_ordered: bool, retry_queues: int | None = None
    ) -> FailureRules:
        """Return the rules of *group*; *is_ordered* applies if ``ordered`` is None."""
        ordered = is_ordered if self.ordered is None else self.ordered
        attempts = self.max_attempts
        # An ordered agent has no limit by default, as RocketMQ's orderly consumer: a dead letter
        # would break the order that its author asked for.
        if attempts is None and not ordered and self.dead_letter is not False:
            attempts = MAX_ATTEMPTS
        suspend_s = SUSPEND_S if self.suspend_s is None else self.suspend_s
        dead_letters = self.dead_letter or dead_letter_topic(group)
        decode_attempts = MAX_ATTEMPTS if self.max_attempts is None else self.max_attempts
        is_kept = self.on_decode_error == "stop" or self.dead_letter is False
        return FailureRules(
            group,
            attempts,
            dead_letters,
            ordered,
            suspend_s,
            retry_queues,
            decode_attempts=None if is_kept else decode_attempts,
            stops_at_undecodable=self.on_decode_error == "stop",
        )

    def _check_decoding(self) -> None:
        known = get_args(DecodeErrorPolicy)
        if self.on_decode_error is not None and self.on_decode_error not in known:
            raise ConfigError(
                f"on_decode_error={self.on_decode_error!r}: give 'dead_letter', to dead-letter a "
                "message that cannot be decoded after max_attempts, or 'stop', to hold its queue"
            )
        if self.on_decode_error == "dead_letter" and self.dead_letter is False:
            raise ConfigError(
                "on_decode_error='dead_letter' with dead_letter=False: a message that cannot be "
                "decoded needs a dead-letter topic; leave one of them out"
            )

    def _check_attempts(self) -> None:
        if self.ordered not in (True, False, None):
            raise ConfigError(f"ordered={self.ordered!r:.80}: give True or False")
        attempts = self.max_attempts
        if attempts is not None and (
            isinstance(attempts, bool) or not 0 <= attempts <= _ATTEMPTS_LIMIT
        ):
            raise ConfigError(
                f"max_attempts={attempts!r}: give the number of redeliveries, from 0 to "
                f"{_ATTEMPTS_LIMIT}; the default is {MAX_ATTEMPTS}"
            )
        if isinstance(self.dead_letter, bool) and self.dead_letter:
            raise ConfigError(
                "dead_letter=True is not needed: dead letters go to %DLQ% and the group's name; "
                "name another topic, or give False to retry without a limit"
            )
        if self.dead_letter is False and attempts is not None:
            raise ConfigError(
                f"max_attempts={attempts} with dead_letter=False: after the last attempt a message "
                "needs a dead-letter topic; leave one of them out"
            )
        is_endless = self.ordered and attempts is None and self.on_decode_error == "stop"
        if self.dead_letter and is_endless:
            raise ConfigError(
                f"dead_letter={self.dead_letter!r}: an ordered agent with on_decode_error='stop' "
                "retries every message without a limit, so it has no dead letters; give "
                "max_attempts= as well"
            )
